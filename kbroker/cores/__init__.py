"""Pure cores: a call takes a value and the time, and returns data. No core has a clock, a socket, a file or a task.

Here are replication, groups of four kinds, transactions, share partitions, and what coordinators share. The cores that
stand side by side do not import one another; the metadata quorum's core is `kbroker.raft_metadata`, the drivers that
hand cores their time and write their records are in `kbroker.node`. Begin with `groups.classic_group`.
"""
