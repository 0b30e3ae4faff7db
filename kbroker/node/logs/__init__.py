"""Background work on the logs of a node: opening, flushing, compaction in a process of its own.

The log itself is `kbroker.log`, plain code without tasks. Begin with `log_opening`.
"""
