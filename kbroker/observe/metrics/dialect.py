"""The names of metrics in the three dialects that published dashboards of Kafka use.

Kafka names a metric by an MBean. How a dashboard calls it depends on the exporter that its author had.
"""

from __future__ import annotations

from enum import StrEnum


class Dialect(StrEnum):
    """An exporter, by whose rules metrics are named."""

    STRIMZI = "strimzi"
    CONFLUENT = "confluent"
    REPORTER = "reporter"

    @property
    def explanation(self) -> str:
        """The exporter whose names these are."""
        return _EXPLANATIONS[self]


_EXPLANATIONS = {
    Dialect.STRIMZI: "the JMX exporter with Strimzi's rules, as in its own example for Kafka (the default)",
    Dialect.CONFLUENT: "the JMX exporter with the rules of Confluent's `jmx-monitoring-stacks`",
    Dialect.REPORTER: "Strimzi's Metrics Reporter",
}


class Kind(StrEnum):
    """The behaviour of a metric's value."""

    GAUGE = "gauge"
    """It goes up and down."""
    COUNTER = "counter"
    """It only grows, from 0 at the node's start."""
    SUMMARY = "summary"
    """Quantiles of what was observed since the last scrape, and the count of all observations."""
    IDLE = "idle"
    """A share of time between 0 and 1, which Kafka keeps as a meter: the reporter counts nanoseconds."""


def mbean_names(domain: str, type_: str, name: str, kind: Kind) -> dict[Dialect, str]:
    """The names of the MBean ``kafka.DOMAIN:type=TYPE,name=NAME`` (a Yammer metric)."""
    base = f"kafka_{domain}_{type_}_{name}".replace("-", "_").lower()
    strimzi = confluent = reporter = base
    if base.endswith("persec"):
        strimzi, reporter = f"{base.removesuffix('persec')}_total", f"{base}_total"
    elif base.endswith("percent"):
        strimzi = f"{base.removesuffix('percent')}_percent"
        if kind is Kind.IDLE:
            confluent, reporter = f"{base}_oneminuterate", f"{base}_total"
    return {Dialect.STRIMZI: strimzi, Dialect.CONFLUENT: confluent, Dialect.REPORTER: reporter}


def group_names(group: str, name: str, *, joined: tuple[Dialect, ...] = ()) -> dict[Dialect, str]:
    """The names of a metric of the group ``kafka.server:type=GROUP`` (a ``KafkaMetric``), such as ``raft-metrics``.

    The dialects in ``joined`` write the group without its dashes.
    """
    written = name.replace("-", "_")
    return {
        dialect: f"kafka_server_{group.replace('-', '' if dialect in joined else '_')}_{written}" for dialect in Dialect
    }
