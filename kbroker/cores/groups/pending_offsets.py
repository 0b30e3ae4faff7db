"""Offsets committed in transactions that are still open: nobody reads them yet.

Rules: Kafka's ``OffsetMetadataManager`` (4.3), its pending offsets and open transactions.
"""

from __future__ import annotations

from collections.abc import Iterator

from kbroker.cores.groups.records import OffsetAndMetadata
from kbroker.types import TopicPartition
from kbroker.value_types import NamedTuple


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
