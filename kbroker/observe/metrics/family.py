"""A family: the values of one metric, with its names by dialect, its labels, and what it tells."""

from __future__ import annotations

from collections.abc import Mapping
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


def mbean(path: str, kind: Kind, text: str, labels: tuple[str, ...] = ()) -> Family:
    """The family of an MBean; ``path`` is ``DOMAIN/TYPE/NAME``."""
    domain, type_, name = path.split("/")
    return Family(mbean_names(domain, type_, name, kind), kind, text, labels)


def of_group(
    path: str, kind: Kind, text: str, labels: tuple[str, ...] = (), joined: tuple[Dialect, ...] = ()
) -> Family:
    """The family of a ``KafkaMetric``; ``path`` is ``GROUP/NAME``. Dialects in ``joined`` omit the group's dashes."""
    group, name = path.split("/")
    return Family(group_names(group, name, joined=joined), kind, text, labels)


def own(name: str, kind: Kind, text: str, labels: tuple[str, ...] = ()) -> Family:
    """A name that is the same in all dialects: kafka-exporter's, Prometheus's own, or kbroker's."""
    return Family(dict.fromkeys(Dialect, name), kind, text, labels)
