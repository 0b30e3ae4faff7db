"""Share groups (KIP-932): membership, the partitions that members read together, and which of them have a state.

The states themselves are the share coordinator's. A partition is assigned only when its state has been initialized
there, which is a step outside this core: it asks (`requests`), and hears of the outcome. The driver is
`kbroker.node.coordinators.group_driver`, records are handed out by `kbroker.cores.share_partitions`. Begin with
`protocol`.
"""
