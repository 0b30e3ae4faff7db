"""Looks at a cluster, a configuration and a machine, and makes facts of what it sees; bounded in time.

Nothing here judges what it sees. Begin with ``cluster.py``.
"""
