"""Streams to other processes: connections to other nodes, child processes, a small HTTP server.

Which node is asked, and when again, is decided by the rooms above. Begin with `peer_pool`.
"""
