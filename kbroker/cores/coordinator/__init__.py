"""The shape that all coordinators have in common: pure cores that return records and replies.

Rules of groups, transactions and share groups' states are in the rooms beside this one; the drivers are in
`kbroker.node.coordinators`. Begin with `result`.
"""
