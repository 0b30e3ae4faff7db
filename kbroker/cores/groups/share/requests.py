"""The steps of a share group that are done outside the core: what it asks of the share coordinator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kbroker.cores.groups.share_group import TopicPartitions, TopicsById
from kbroker.cores.share_state import SharePartitionKey
from kbroker.types import Uuid
from kbroker.value_types import NamedTuple


class StateInitialization(NamedTuple):
    """Share partitions that begin anew, each with its state epoch and start offset."""

    group_id: str
    partitions: Mapping[SharePartitionKey, tuple[int, int]]

    def topics(self) -> dict[Uuid, frozenset[int]]:
        """The partitions by topic."""
        return by_topic(self.partitions)


class StateDeletion(NamedTuple):
    """Share partitions to be forgotten."""

    group_id: str
    partitions: tuple[SharePartitionKey, ...]


def keys_of(group_id: str, topics: TopicsById) -> tuple[SharePartitionKey, ...]:
    """The share partitions of a group, in order."""
    return tuple(
        SharePartitionKey(group_id, topic_id, partition)
        for topic_id in sorted(topics)
        for partition in sorted(topics[topic_id].partitions)
    )


def by_topic(keys: Iterable[SharePartitionKey]) -> dict[Uuid, frozenset[int]]:
    """The partitions of share partitions by topic."""
    found: dict[Uuid, set[int]] = {}
    for key in keys:
        found.setdefault(key.topic_id, set()).add(key.partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in found.items()}


def named(topics: Mapping[Uuid, frozenset[int]], known: TopicsById) -> dict[Uuid, TopicPartitions]:
    """The partitions with the names that ``known`` has for their topics; a topic that is not there is left out."""
    return {
        topic_id: TopicPartitions(known[topic_id].name, partitions)
        for topic_id, partitions in topics.items()
        if topic_id in known
    }
