"""Metrics for Prometheus: what is measured, its name in each dialect of Kafka's dashboards, and the text of a scrape.

Pure: no sockets, no Trio. `kbroker.node.metrics` counts in a node, collects and serves. Begin with `families`,
the table of all metrics.
"""
