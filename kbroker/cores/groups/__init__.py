"""Pure cores of the group coordinator: committed offsets, and groups of four kinds.

These are classic groups, consumer groups (KIP-848), share groups (KIP-932) and streams groups (KIP-1071). Records of a
share group are handed out by `kbroker.cores.share_partitions`; the driver is `kbroker.node.coordinators.group_driver`.
Begin with `group_coordinator`, then `classic_group` or `consumer_group`.
"""
