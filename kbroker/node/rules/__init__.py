"""Rules of one's own in Python (`kbroker.rules`): how a node loads them, asks them, and bears with them.

A rule that fails, hangs or answers nonsense lets nobody in. What rules are given and answer with is in `kbroker.rules`.
Begin with `setup`; `timed_calls` and `connection_calls` bound the time of a call, `complaints` tells of failures.
"""
