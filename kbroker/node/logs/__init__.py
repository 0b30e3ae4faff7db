"""What a node does with its logs in the background: opening, flushing, compaction in a process of its own.

The log itself is `kbroker.log`, plain code without tasks. Begin with `log_opening`.
"""
