"""Metrics of a node: counted where its work is done, collected and served over HTTP on an address of their own.

Nothing of it is imported in a node that was not asked for metrics. Names and texts of metrics are in
`kbroker.observe.metrics`. Begin with `service`, then `node_metrics`.
"""
