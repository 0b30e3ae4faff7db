"""Observation of a node, as pure code: metrics, clients' telemetry (KIP-714), the protocol explorer.

What counts, listens and serves inside a node is in `kbroker.node.metrics`, `kbroker.node.telemetry` and
`kbroker.node.explorer`. Begin with `metrics.families`, the table of all metrics.
"""
