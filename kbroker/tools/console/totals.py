"""All topics of a cluster in a few numbers, counted once for each answer of the cluster and not for each page. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kbroker.client.topics import TopicDescription, leaderless, under_replicated
from kbroker.tools.diagnosis.facts import ReplicaCounts, replica_counts

BUSIEST: Final = 5
"""Topics whose rates are shown."""


@dataclass(frozen=True, slots=True)
class Totals:
    """The numbers of an overview. ``troubled``: the topics with a partition that has no leader, or not all replicas.

    Rates are of topics that are not internal: ``bytes_rate`` in bytes a second of one copy and ``records_rate`` in
    records a second, None before topics were seen twice; ``busiest``: names with both rates, the greatest first.
    """

    topics: int
    internal: int
    partitions: int
    under_replicated: int
    leaderless: int
    troubled: Sequence[TopicDescription]
    brokers: Mapping[int, ReplicaCounts]
    bytes_rate: float | None
    records_rate: float | None
    busiest: Sequence[tuple[str, float, float | None]]


def count(
    topics: Sequence[TopicDescription], bytes_rates: Mapping[str, float], records_rates: Mapping[str, float]
) -> Totals:
    """Count what the topics are. Rates: topic -> bytes or records a second, of those that were seen twice."""
    troubled: list[TopicDescription] = []
    internal = partitions = under = dead = 0
    growing: list[tuple[str, float]] = []
    for topic in topics:
        partitions += len(topic.partitions)
        lacking, leaderless_here = under_replicated(topic), leaderless(topic)
        under += lacking
        dead += leaderless_here
        if lacking or leaderless_here:
            troubled.append(topic)
        if topic.internal:
            internal += 1
        elif topic.name in bytes_rates:
            growing.append((topic.name, bytes_rates[topic.name]))
    ordered = sorted(growing, key=lambda item: (-item[1], item[0]))[:BUSIEST]
    users = {topic.name for topic in topics if not topic.internal}
    return Totals(
        len(topics) - internal,
        internal,
        partitions,
        under,
        dead,
        troubled,
        replica_counts(topics),
        sum(rate for _, rate in growing) if bytes_rates else None,
        sum(rate for name, rate in records_rates.items() if name in users) if records_rates else None,
        [(name, rate, records_rates.get(name)) for name, rate in ordered if rate],
    )
