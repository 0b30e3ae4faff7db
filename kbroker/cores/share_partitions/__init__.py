"""The leader's side of share groups (KIP-932): who holds which record, for how long, and how often it was handed out.

`runs` is the window of records between the start offset and the end; `partition` changes it by the rules.
"""
