"""Quotas of clients and rates of traffic, without a clock of their own: the time is an argument.

For how long a client waits is computed in `kbroker.node.serving.client_quotas`, and `kbroker.node.serving.connection`
mutes itself; replication's quota is in `kbroker.cores.replication`. Begin with `entities`, then `meters`.
"""
