"""Streams groups (KIP-1071): topologies, tasks and members of Kafka Streams applications, as pure values.

Begin with `group` (the states of a group) and `reconciliation` (the states of a member, and the table of what changes
them). `heartbeat` has the steps of a request; timers and the members that go are in `cores/groups/streams_protocol.py`.
"""
