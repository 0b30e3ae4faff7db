"""Drivers of coordinators: they load a core from its partition, write its records, and send its replies.

What is decided is in `kbroker.cores`; the driver of share groups is in `kbroker.node.share`. Begin with
`coordinator_driver`, which the drivers of groups and transactions share.
"""
