"""A node: the tasks of Trio that serve clients, drive the cores, and follow the cluster's metadata.

What is decided is in `kbroker.cores`, `kbroker.raft_metadata` and `kbroker.log`, the work of each API in
`kbroker.handlers`. Begin with `broker`, which puts a node's parts in order, or with
`serving.connection`.
"""
