"""The table of metrics of clients' metrics (KIP-714): how many are shown. Clients name their own."""

from __future__ import annotations

from kbroker.observe.metrics.family import OWN, of_group

INSTANCES = of_group("client-metrics").gauge(
    "instance-count", "Clients that the node remembers for their metrics (KIP-714)."
)
SHOWN_CLIENTS = OWN.gauge("kbroker_client_metrics_clients", "Clients whose metrics are on this page.")
SHOWN_SERIES = OWN.gauge("kbroker_client_metrics_series", "Series of these clients.")
DROPPED = OWN.counter(
    "kbroker_client_metrics_dropped_total",
    "Values that clients have pushed and that are not shown: beyond the bounds, or under a name of the node's own.",
)
