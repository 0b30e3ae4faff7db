"""Pure cores of replication: high watermark and ISR, fetch sessions, delayed operations.

Logs are in `kbroker.log`; leaders, followers and their fetchers are in `kbroker.node.replicas`. Begin with
`partition_state`, then `fetch_view` and `purgatory`.
"""
