"""The metadata quorum alone: Raft's core and log on simulated time, without a node around them.

``node`` drives one replica, ``cluster`` has all of them and a client, ``disk`` and ``datagrams`` are their world,
``scenarios`` make the trouble, and ``invariants`` are checked after every step of every replica. Begin with ``node``.
"""
