"""Looks at made-up clusters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kbroker.client.groups import GroupListing
from kbroker.client.nodes import ClusterBroker
from kbroker.client.topics import PartitionDescription, TopicDescription
from kbroker.tools.diagnosis.facts import ClusterView, Quorum
from kbroker.tools.top.facts import Snapshot
from kbroker.types import ZERO_UUID, TopicPartition

NOW_MS = 1_764_115_200_000


def topic(name: str, partitions: int, *, isr: Sequence[int] = (1,), leader: int | None = 1) -> TopicDescription:
    """A topic whose replicas are on brokers 1 and 2 if the ISR says so, else on 1."""
    replicas = tuple(sorted({1, *isr}))
    entries = [PartitionDescription(number, leader, 0, replicas, tuple(isr), ()) for number in range(partitions)]
    return TopicDescription(name, ZERO_UUID, name.startswith("__"), tuple(entries))


def look(
    at: float,
    ends: Mapping[tuple[str, int], int],
    *,
    committed: Mapping[str, Mapping[tuple[str, int], int]] | None = None,
    topics: Sequence[TopicDescription] | None = None,
    **others: Any,
) -> Snapshot:
    """A look at a cluster of one broker, ``at`` seconds after the first one."""
    counts: dict[str, int] = {}
    for name, number in ends:
        counts[name] = max(counts.get(name, 0), number + 1)
    groups = [GroupListing(name, "Consumer", "consumer", "Stable") for name in committed or ()]
    of_view = ("cluster_id", "brokers", "quorum", "transactions", "silent")
    given: dict[str, Any] = {name: others.pop(name) for name in of_view if name in others}
    cluster: dict[str, Any] = {
        "cluster_id": "cluster",
        "brokers": (ClusterBroker(1, "kafka1", 9092, None, False),),
        "quorum": Quorum(1),
        "topics": tuple(topics or (topic(name, count) for name, count in sorted(counts.items()))),
        **given,
    }
    return Snapshot(
        at,
        ClusterView(NOW_MS + round(1000 * at), **cluster),
        ends={TopicPartition(*each): end for each, end in ends.items()},
        committed={
            name: {TopicPartition(*each): offset for each, offset in offsets.items()}
            for name, offsets in (committed or {}).items()
        },
        **{"groups": tuple(groups), **others},
    )
