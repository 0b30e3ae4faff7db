"""A node: the tasks of Trio that serve clients, drive the cores, and follow the cluster's metadata.

What is decided is in `kbroker.cores`, `kbroker.raft_metadata` and `kbroker.log`, the work of each API in
`kbroker.handlers`. Begin with `broker`, which assembles a node of its rooms, or with `serving.connection`.
"""
