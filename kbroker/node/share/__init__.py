"""Share groups inside a node (KIP-932): the leaders of share partitions, ShareFetch, the driver of the state's topic.

What becomes of a record whose lock ends is decided in `kbroker.cores.share_partitions`; members and assignments are in
`kbroker.cores.groups.share`. Begin with `groups`.
"""
