"""The batches of a producer that are not on their way: being filled, ready, or awaited once more. No socket, no clock.

A partition's batches are in the order of its records. A batch that comes back is its partition's first again. A key's
partition is Kafka's own choice (murmur2), so that all clients agree.
"""

from __future__ import annotations

import random
import struct
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kbroker.client.errors import ClientError, ResponseError
from kbroker.wire.record_batch import Record

RECORD_OVERHEAD: Final = 24
"""Bytes that a record may take besides key, value and headers, at most, roughly."""

_REMEMBERED_KEYS: Final = 20_000
_MUCH_BYTES: Final = 4 << 20
"""Bytes that may be ready before something is sent, whatever the number of partitions."""


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A batch that may have been stored: its records by their sources, and that by which brokers know it again."""

    sources: Sequence[int]
    producer_id: int = -1
    """-1: it has no producer, and may be stored twice."""
    producer_epoch: int = -1
    sequence: int = -1
    """The first record's sequence number."""


@dataclass(frozen=True, slots=True)
class Remainder:
    """The rest of a producer that was stopped in the middle: another one that takes it over stores nothing twice.

    For that, a batch without an answer is sent once more as it was, with its producer id and sequence number (KIP-98).
    All others have the new producer's id: a remainder that is taken over a second time must not have other records
    pass for those that the first taker has stored. Records are named by their sources, which have to be different.
    """

    unanswered: Mapping[int, Unanswered] = field(default_factory=dict)
    """Partition -> its only batch that may have been stored."""
    unsent: Sequence[int] = ()
    """Records that are not stored."""


@dataclass(slots=True)
class Batch:
    """Records of a partition, with the number (source) that each has for the caller."""

    partition: int
    records: list[Record]
    sources: list[int]
    size: int
    data: bytes = b""
    """The batch as it is sent; empty until then."""
    deadline: float = 0.0
    stamp: tuple[int, int, int] | None = None
    """Producer id, epoch and first sequence number, from when it may have been sent."""
    trouble: ResponseError | None = None
    """The broker's last reason to have the batch sent again: it tells more than a last try that ran out of time."""


@dataclass(slots=True)
class _Queue:
    """The batches that wait for a partition: finished batches first, then the one that is being filled."""

    ready: deque[Batch] = field(default_factory=deque)
    filling: Batch | None = None


class PendingBatches:
    """Gathers records into batches of about ``batch_bytes``, and keeps the batches in order until they are taken.

    ``resume``: the rest of another producer. Its batches without an answer are awaited: their records have to be added
    again before any that the other producer did not have. ``ClientError`` if it is for a partition that is not there.
    """

    def __init__(self, topic: str, partitions: Sequence[int], batch_bytes: int, resume: Remainder | None) -> None:
        self._partitions = sorted(partitions)
        self._count = len(self._partitions)
        self._batch_bytes = batch_bytes
        self._queues: dict[int, _Queue] = {partition: _Queue() for partition in self._partitions}
        self._of_key: dict[bytes, int] = {}
        """Keys seen before: hashing one takes longer than all else that is done to a record."""
        self._sticky = random.randrange(self._count)
        self._ready = 0
        """The number of finished batches."""
        self._again: dict[int, tuple[Unanswered, Batch]] = {}
        """Partition -> a batch that is to be as it was before, and what there is of it."""
        self._again_at: dict[int, int] = {}
        """Source -> the partition of such a batch."""
        for partition, before in ({} if resume is None else resume.unanswered).items():
            if partition not in self._queues:
                raise ClientError(f"topic {topic} has no partition {partition} any more")
            stamp = (before.producer_id, before.producer_epoch, before.sequence)
            self._again[partition] = (before, Batch(partition, [], [], 0, stamp=stamp))
            self._again_at.update(dict.fromkeys(before.sources, partition))

    # --- Records in -------------------------------------------------------------------------------------------------

    def partition_for(self, key: bytes | None) -> int:
        """The partition of a record: by its key as in every Kafka client; without one, where the others go now."""
        if key is None:
            return self._partitions[self._sticky]
        chosen = self._of_key.get(key)
        if chosen is None:
            chosen = self._partitions[partition_for_key(key, self._count)]
            if len(self._of_key) < _REMEMBERED_KEYS:
                self._of_key[key] = chosen
        return chosen

    def add(self, record: Record, source: int, partition: int | None) -> bool:
        """Add a record; True if so much is ready that some of it should be sent."""
        key, value = record.key, record.value
        size = RECORD_OVERHEAD + (len(key) if key is not None else 0) + (len(value) if value is not None else 0)
        for name, content in record.headers:
            size += len(name) + (len(content) if content is not None else 0) + 4
        if self._again_at and source in self._again_at:
            self._add_again(self._again_at[source], record, source, size)
            return False
        chosen = self.partition_for(key) if partition is None else partition
        queue = self._queues[chosen]
        batch = queue.filling
        if batch is not None and batch.size + size > self._batch_bytes:
            self._finish(queue)
            batch = None
            if key is None and partition is None:
                self._sticky = (self._sticky + 1) % self._count
                chosen = self._partitions[self._sticky]
                queue = self._queues[chosen]
                batch = queue.filling
        if batch is None:
            batch = queue.filling = Batch(chosen, [], [], 0)
        batch.records.append(record)
        batch.sources.append(source)
        batch.size += size
        return self._ready >= self._count or self._ready * self._batch_bytes >= _MUCH_BYTES

    def _add_again(self, partition: int, record: Record, source: int, size: int) -> None:
        """Add a record of a batch without an answer, which goes out before all others once it is whole."""
        del self._again_at[source]
        before, batch = self._again[partition]
        batch.records.append(record)
        batch.sources.append(source)
        batch.size += size
        if len(batch.sources) == len(before.sources):
            del self._again[partition]
            self.put_back([batch])

    def finish_unanswered(self) -> None:
        """Say that no record of a batch without an answer comes any more. ``ClientError`` if one is missing."""
        if self._again:
            raise ClientError(
                f"{len(self._again_at):,} records that may have been stored did not come again: nothing can be stored"
                f" in partition {min(self._again)} as long as nobody knows"
            )

    def finish(self) -> None:
        """Have all batches be ready, however small."""
        for queue in self._queues.values():
            self._finish(queue)

    def _finish(self, queue: _Queue) -> None:
        if queue.filling is not None:
            queue.ready.append(queue.filling)
            queue.filling = None
            self._ready += 1

    # --- Batches out, and back --------------------------------------------------------------------------------------

    def first_batches(self) -> list[Batch]:
        """The first ready batch of each partition, unless the partition awaits a batch from before."""
        return [
            queue.ready[0] for partition, queue in self._queues.items() if queue.ready and partition not in self._again
        ]

    def is_next(self, batch: Batch) -> bool:
        """Whether a ready batch is the first of its partition."""
        ready = self._queues[batch.partition].ready
        return bool(ready) and ready[0] is batch

    def take(self, batches: Iterable[Batch]) -> None:
        """Take batches out, each of which is the first of its partition."""
        for batch in batches:
            self._queues[batch.partition].ready.popleft()
            self._ready -= 1

    def put_back(self, batches: Iterable[Batch]) -> None:
        """Have batches be the first of their partitions again."""
        for batch in batches:
            self._queues[batch.partition].ready.appendleft(batch)
            self._ready += 1

    def put_part_back(self, batch: Batch, indexes: Sequence[int]) -> None:
        """Put some records of a batch that was not stored back to the head, as a batch of their own."""
        records = [batch.records[index] for index in indexes]
        sources = [batch.sources[index] for index in indexes]
        size = batch.size * len(records) // len(batch.records)
        self.put_back([Batch(batch.partition, records, sources, size)])

    # --- What is left -----------------------------------------------------------------------------------------------

    def _waiting(self) -> list[Batch]:
        return [
            batch
            for queue in self._queues.values()
            for batch in (*queue.ready, *([queue.filling] if queue.filling else []))
        ]

    @property
    def record_count(self) -> int:
        """The number of records that are here."""
        again = (batch for _, batch in self._again.values())
        return sum(len(batch.records) for batch in (*self._waiting(), *again))

    def remainder(self, under_way: Sequence[Batch]) -> Remainder:
        """The rest of a producer that has these batches on their way. Nothing more may be added."""
        unanswered = {partition: before for partition, (before, _) in self._again.items()}
        unsent: list[int] = []
        for batch in (*under_way, *self._waiting()):
            if batch.stamp is not None:
                unanswered[batch.partition] = Unanswered(batch.sources, *batch.stamp)
            else:
                unsent += batch.sources
        return Remainder(unanswered, unsent)


_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """MurmurHash2 as Kafka's ``Utils.murmur2`` has it, as an unsigned 32 bit number."""
    length = len(data)
    value = _SEED ^ length
    whole = length & ~3
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        word = word * _M & _MASK
        word = (word ^ word >> 24) * _M & _MASK
        value = value * _M & _MASK ^ word
    rest = length & 3
    if rest:
        value = (value ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    value = (value ^ value >> 13) * _M & _MASK
    return value ^ value >> 15


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of a key in a topic with so many partitions (``BuiltInPartitioner.partitionForKey``)."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
