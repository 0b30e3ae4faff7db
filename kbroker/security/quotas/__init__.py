"""Quotas of clients and rates of traffic, without a clock of their own: the time is an argument.

Connections are muted by `kbroker.node.serving.client_quotas`; replication's quota is in `kbroker.cores.replication`.
Begin with `entities`, then `meters`.
"""
