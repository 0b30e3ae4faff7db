"""Committed offsets of all groups of a shard, when they expire, and those of transactions that are still open.

Rules: Kafka's ``OffsetMetadataManager`` (4.3), its pending offsets and open transactions included, and KIP-211 (an
offset lives as long as its group is in use, and ``offsets.retention.minutes`` after that).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kbroker.cores.groups.classic_group import ClassicGroup, ClassicGroupState
from kbroker.cores.groups.records import KeptOffset, OffsetAndMetadata, read_kept_offset
from kbroker.types import ZERO_UUID, TopicPartition, Uuid
from kbroker.value_types import NamedTuple

if TYPE_CHECKING:
    from kbroker.cores.groups.consumer_group import ConsumerGroup
    from kbroker.cores.groups.streams.group import StreamsGroup


class CommittedOffsets:
    """group id -> topic -> partition -> committed offset; never an empty inner mapping."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, dict[int, KeptOffset]]] = {}

    def get(self, group_id: str, topic: str, partition: int, topic_id: Uuid) -> OffsetAndMetadata | None:
        """The committed offset; None if there is none for this incarnation of the topic."""
        found = self._by_group.get(group_id, {}).get(topic, {}).get(partition)
        if found is None:
            return None
        committed = read_kept_offset(found)
        is_of_another = ZERO_UUID not in (committed.topic_id, topic_id) and committed.topic_id != topic_id
        return None if is_of_another else committed

    def put(self, group_id: str, topic: str, partition: int, committed: KeptOffset | None) -> None:
        """Set, or with None remove, an offset."""
        if committed is not None:
            try:
                self._by_group[group_id][topic][partition] = committed
            except KeyError:
                self._by_group.setdefault(group_id, {}).setdefault(topic, {})[partition] = committed
            return
        topics = self._by_group.get(group_id, {})
        partitions = topics.get(topic, {})
        partitions.pop(partition, None)
        if not partitions:
            topics.pop(topic, None)
        if not topics:
            self._by_group.pop(group_id, None)

    def put_all(self, group_id: str, topic: str, committed: Iterable[tuple[int, KeptOffset]]) -> None:
        """Set offsets of some partitions of a topic, at least one."""
        self._by_group.setdefault(group_id, {}).setdefault(topic, {}).update(committed)

    def of_group(self, group_id: str) -> Iterator[tuple[TopicPartition, OffsetAndMetadata]]:
        """Every offset of a group, by topic in the order of first commits."""
        for topic, partitions in self._by_group.get(group_id, {}).items():
            for partition, committed in partitions.items():
                yield TopicPartition(topic, partition), read_kept_offset(committed)

    def of_topic(self, topic: str) -> Iterator[tuple[str, int, OffsetAndMetadata]]:
        """Group id, partition and offset: every offset of a topic."""
        for group_id, topics in self._by_group.items():
            for partition, committed in topics.get(topic, {}).items():
                yield group_id, partition, read_kept_offset(committed)

    def count(self, group_id: str) -> int:
        """The number of offsets that a group has."""
        return sum(len(partitions) for partitions in self._by_group.get(group_id, {}).values())

    def groups(self) -> list[str]:
        """Ids of the groups that have offsets."""
        return list(self._by_group)

    def __contains__(self, group_id: object) -> bool:
        return group_id in self._by_group


def expired_offsets(
    group: ClassicGroup | ConsumerGroup | StreamsGroup, offsets: CommittedOffsets, retention_ms: int, now_ms: int
) -> list[TopicPartition]:
    """The group's offsets whose time is over (KIP-211)."""
    if not isinstance(group, ClassicGroup) or group.protocol_type is None:
        # A group with heartbeats of its own, or one that never had members (a standalone consumer commits): each offset
        # ages on its own.
        empty_since_ms = None
    elif group.state is ClassicGroupState.EMPTY:
        empty_since_ms = group.state_timestamp_ms
    elif (
        group.uses_consumer_protocol and group.subscribed_topics is not None and group.state is ClassicGroupState.STABLE
    ):
        empty_since_ms = None
    else:
        return []
    expired = []
    for partition, committed in offsets.of_group(group.group_id):
        if group.is_subscribed_to(partition.topic):
            continue
        if committed.expire_timestamp_ms is not None:
            is_over = now_ms >= committed.expire_timestamp_ms
        else:
            base_ms = max(committed.commit_timestamp_ms, empty_since_ms or 0)
            is_over = now_ms - base_ms >= retention_ms
        if is_over:
            expired.append(partition)
    return expired


class OffsetKey(NamedTuple):
    """A group's offset of a partition: the key of an offset record."""

    group_id: str
    topic: str
    partition: int


class PendingOffsets:
    """The pending offsets by producer id.

    Invariant: ``_open`` holds exactly the producers that have a pending offset for a key.
    """

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[OffsetKey, OffsetAndMetadata]] = {}
        self._open: dict[str, dict[TopicPartition, set[int]]] = {}

    def put(self, producer_id: int, key: OffsetKey, offset: OffsetAndMetadata) -> None:
        """Add an offset that a producer's open transaction commits."""
        self._by_producer.setdefault(producer_id, {})[key] = offset
        partitions = self._open.setdefault(key.group_id, {})
        partitions.setdefault(TopicPartition(key.topic, key.partition), set()).add(producer_id)

    def remove(self, key: OffsetKey) -> None:
        """Forget the offsets that open transactions commit for the key: its offset has been deleted."""
        producers = self._open.get(key.group_id, {}).get(TopicPartition(key.topic, key.partition), ())
        for producer_id in list(producers):
            self._by_producer[producer_id].pop(key, None)
            self._close(producer_id, key)

    def end(self, producer_id: int) -> dict[OffsetKey, OffsetAndMetadata]:
        """Remove and return the offsets of a producer whose transaction has ended."""
        offsets = self._by_producer.pop(producer_id, {})
        for key in offsets:
            self._close(producer_id, key)
        return offsets

    def _close(self, producer_id: int, key: OffsetKey) -> None:
        partitions = self._open[key.group_id]
        partition = TopicPartition(key.topic, key.partition)
        partitions[partition].discard(producer_id)
        if not partitions[partition]:
            del partitions[partition]
            if not partitions:
                del self._open[key.group_id]

    def of_group(self, group_id: str) -> Iterator[TopicPartition]:
        """The partitions with an offset of the group in an open transaction."""
        yield from self._open.get(group_id, ())

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction commits an offset of this group for this partition."""
        partitions = self._open.get(group_id)
        return partitions is not None and (topic, partition) in partitions

    def offsets(self) -> Iterator[tuple[OffsetKey, OffsetAndMetadata]]:
        """Every pending offset, with its key."""
        for offsets in self._by_producer.values():
            yield from offsets.items()

    def __contains__(self, group_id: object) -> bool:
        return group_id in self._open
