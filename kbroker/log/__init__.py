"""Partition logs as files: segments, indexes, producers' state, recovery, and the log dirs that hold the logs.

Plain synchronous Python over `disk.Disk`, without tasks or a clock; the tasks that flush, clean and move logs are in
`kbroker.node.logs` and `kbroker.node.replicas`. `compaction` cleans logs, `full_disk` notices a full disk.
Begin with `partition_log`, then `manager`, which owns all logs.
"""
