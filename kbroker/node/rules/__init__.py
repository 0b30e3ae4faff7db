"""Rules of one's own in Python (`kbroker.rules`): how a node loads them, asks them, and bears with them.

A rule that fails, hangs or answers nonsense lets nobody in: ``calls`` bounds its time, ``complaints`` tells of it.
"""
