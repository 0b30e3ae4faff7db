"""A family: the values of one metric, with its names by dialect, its labels, and what it tells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from kbroker.observe.metrics.dialect import Dialect, Kind, group_names, mbean_names


class Family(NamedTuple):
    """A metric: the values of one name, told apart by labels."""

    names: Mapping[Dialect, str]
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


TOPIC = ("topic",)
PARTITION = ("topic", "partition")
JOINED = (Dialect.STRIMZI,)
"""``kafka_server_raftmetrics_...``, where the others write ``raft_metrics``."""


class Source(NamedTuple):
    """Makes the families of one place; ``labels`` are those of a family that names no others."""

    names: Callable[[str, Kind], Mapping[Dialect, str]]
    labels: tuple[str, ...] = ()

    def _family(self, kind: Kind, name: str, text: str, labels: tuple[str, ...]) -> Family:
        return Family(self.names(name, kind), kind, text, labels or self.labels)

    def gauge(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Family:
        """Returns a family whose values go up and down."""
        return self._family(Kind.GAUGE, name, text, labels)

    def counter(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Family:
        """Returns a family whose values only grow."""
        return self._family(Kind.COUNTER, name, text, labels)

    def summary(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Family:
        """Returns a family of quantiles."""
        return self._family(Kind.SUMMARY, name, text, labels)

    def idle(self, name: str, text: str) -> Family:
        """Returns a family of a share of time (`Kind.IDLE`)."""
        return self._family(Kind.IDLE, name, text, ())


def mbean(path: str, labels: tuple[str, ...] = ()) -> Source:
    """Returns the source of MBeans of one type; ``path`` is ``DOMAIN/TYPE``."""
    domain, type_ = path.split("/")
    return Source(lambda name, kind: mbean_names(domain, type_, name, kind), labels)


def of_group(group: str, labels: tuple[str, ...] = (), joined: tuple[Dialect, ...] = ()) -> Source:
    r"""Returns the source of the ``KafkaMetric``\ s of a group. Dialects in ``joined`` omit the group's dashes."""
    return Source(lambda name, _: group_names(group, name, joined=joined), labels)


OWN = Source(lambda name, _: dict.fromkeys(Dialect, name))
"""Names that are the same in all dialects: kafka-exporter's, Prometheus's own, or kbroker's."""
