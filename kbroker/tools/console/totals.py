"""All topics of a cluster in a few numbers, counted once for each answer of the cluster and not for each page. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kbroker.client.topics import TopicDescription, leaderless, under_replicated

BUSIEST: Final = 5
"""Topics whose rates are shown."""


@dataclass(frozen=True, slots=True)
class OfBroker:
    """Partitions of one broker: those it leads, those it has replicas of, and replicas that are not in sync."""

    leads: int = 0
    replicas: int = 0
    out_of_sync: int = 0


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
    brokers: Mapping[int, OfBroker]
    bytes_rate: float | None
    records_rate: float | None
    busiest: Sequence[tuple[str, float, float | None]]


def count(
    topics: Sequence[TopicDescription], bytes_rates: Mapping[str, float], records_rates: Mapping[str, float]
) -> Totals:
    """Count what the topics are. Rates: topic -> bytes or records a second, of those that were seen twice."""
    leads: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    out_of_sync: Counter[int] = Counter()
    troubled: list[TopicDescription] = []
    internal = partitions = short = dead = 0
    growing: list[tuple[str, float]] = []
    for topic in topics:
        for entry in topic.partitions:
            if entry.leader is not None:
                leads[entry.leader] += 1
            replicas.update(entry.replicas)
            if len(entry.isr) < len(entry.replicas):
                out_of_sync.update(broker for broker in entry.replicas if broker not in entry.isr)
        partitions += len(topic.partitions)
        lacking, leaderless_here = under_replicated(topic), leaderless(topic)
        short += lacking
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
        short,
        dead,
        troubled,
        {each: OfBroker(leads[each], replicas[each], out_of_sync[each]) for each in {*leads, *replicas}},
        sum(rate for _, rate in growing) if bytes_rates else None,
        sum(rate for name, rate in records_rates.items() if name in users) if records_rates else None,
        [(name, rate, records_rates.get(name)) for name, rate in ordered if rate],
    )
