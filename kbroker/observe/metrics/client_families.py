"""The table of metrics of clients' metrics (KIP-714): how many are shown. Clients name their own."""

from __future__ import annotations

from kbroker.observe.metrics.dialect import Kind
from kbroker.observe.metrics.family import of_group, own

INSTANCES = of_group(
    "client-metrics/instance-count", Kind.GAUGE, "Clients that the node remembers for their metrics (KIP-714)."
)
SHOWN_CLIENTS = own("kbroker_client_metrics_clients", Kind.GAUGE, "Clients whose metrics are on this page.")
SHOWN_SERIES = own("kbroker_client_metrics_series", Kind.GAUGE, "Series of these clients.")
DROPPED = own(
    "kbroker_client_metrics_dropped_total",
    Kind.COUNTER,
    "Values that clients have pushed and that are not shown: beyond the bounds, or under a name of the node's own.",
)
