"""The share coordinator: keeps the state of share partitions in ``__share_group_state`` (KIP-932).

What becomes of a record is decided in `kbroker.cores.share_partitions`; the driver is `kbroker.node.share`. Begin with
`coordinator`, which is one partition of that topic; `batches` merges states; `records` are what the log holds.
"""
