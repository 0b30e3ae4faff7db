"""Connections: from the listener to the queue of replies, with quotas, fair shares, and the memory of large requests.

An API's own work is in `kbroker.handlers`, the short ways past it are in `kbroker.node.shortcuts`. Begin with
`connection`, which mutes itself for as long as `client_quotas` says, then `dispatcher` and `reply_queue`.
"""
