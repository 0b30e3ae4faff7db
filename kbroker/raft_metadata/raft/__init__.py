"""The metadata quorum: Raft without IO, its log, snapshots and messages (KIP-595, KIP-630, KIP-853, KIP-996).

What the records in the log mean is the business of `kbroker.raft_metadata.image`; the driver is
`kbroker.node.controller.raft_runner`. Begin with `core`, then `types`, which has what the core asks of its driver.
"""
