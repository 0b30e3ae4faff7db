"""The leader's side of share groups (KIP-932): who holds which record, for how long, and how often it was handed out.

`record_transitions` has the states of a record, the table of what changes them (a member's word, a lock that ends, ...)
and the rules. `partition` applies the table to the records of requests; `runs` is the window of records from the start
offset to the end. What waits, sends and writes is in `node/share`; the states are stored by `share_coordinator`.
Begin with `record_transitions`.
"""
