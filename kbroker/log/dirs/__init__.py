"""The log dirs of a node: what is in each, their checkpoints, removals, and moves between log dirs.

One log is `kbroker.log.partition_log`; the files of a log dir are read and written in `kbroker.log.checkpoint_files`.
Begin with `start_up`; `kbroker.log.manager` holds this room together.
"""
