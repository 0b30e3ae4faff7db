"""Compaction: which log is cleaned next, and how its segments are written anew.

The process that cleans, and its rounds, are in `kbroker.node.logs`. Begin with `cleanable`, then `compactor`.
"""
