"""Records into a topic: batches for each partition, one request at a time for each leader, nothing twice.

While a leader works on a request, the next batches are gathered; a second request to it waits for the first. That keeps
batches in order whatever happens, and lets a failed one be sent again as it is: with a producer id (KIP-98) the broker
recognises what it has already.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kbroker.client.cluster import Client
from kbroker.client.connection import Connection
from kbroker.client.errors import (
    STALE_METADATA,
    ApiNotServed,
    ClientError,
    ConnectionFailed,
    RequestTimedOut,
    ResponseError,
)
from kbroker.client.partitioner import partition_for_key
from kbroker.errors import ErrorCode
from kbroker.types import TopicPartition
from kbroker.wire.compression import CompressionType
from kbroker.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kbroker.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kbroker.wire.record_batch import Record, build_batch

DEFAULT_BATCH_BYTES: Final = 512 << 10
"""Bytes of keys and values in a batch; well below ``max.message.bytes`` of 1 MiB, whatever their headers."""

RECORD_OVERHEAD: Final = 24
"""Bytes that a record may take besides key, value and headers, at most, roughly."""

_REMEMBERED_KEYS: Final = 20_000

_NAMES_UP_TO: Final = 12
"""Produce names topics up to this version; 13 has ids only."""

_SPLIT: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


@dataclass(frozen=True, slots=True)
class Refused:
    """A record that was not stored. ``source`` is what was given with it to ``send``."""

    source: int
    partition: int
    error: str


@dataclass(slots=True)
class Stored:
    """The stored records of a partition. Offsets are -1 with acks=0."""

    count: int = 0
    bytes: int = 0
    first_offset: int = -1
    last_offset: int = -1


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
class _Batch:
    """Records on their way, with the number that each has for the caller."""

    partition: int
    records: list[Record]
    sources: list[int]
    size: int
    data: bytes = b""
    deadline: float = 0.0
    stamp: tuple[int, int, int] | None = None
    """Producer id, epoch and first sequence number, from when it may have been sent."""
    trouble: ResponseError | None = None
    """The broker's last reason to have the batch sent again: it tells more than a last try that ran out of time."""


@dataclass(slots=True)
class _Queue:
    """The batches that wait for a partition: finished batches first, then the one that is being filled."""

    ready: deque[_Batch] = field(default_factory=deque)
    filling: _Batch | None = None
    sequence: int = 0


class Producer:
    """Sends records to one topic; a record is a ``Record`` whose ``offset`` does not count.

    ``on_refused`` is called for each record that the broker does not take; the others go on. ``ClientError`` is raised
    when no answer comes within the client's timeout: what was on its way may or may not have been stored.

    ``resume``: the rest of another producer. The records of its batches without an answer have to be given again before
    any that it was not given; ``finish_unanswered`` says if one is missing.
    """

    def __init__(
        self,
        client: Client,
        topic: str,
        partitions: Sequence[int],
        *,
        acks: int = -1,
        compression: CompressionType = CompressionType.NONE,
        idempotent: bool = True,
        batch_bytes: int = DEFAULT_BATCH_BYTES,
        on_refused: Callable[[Refused], None],
        resume: Remainder | None = None,
    ) -> None:
        self._client = client
        self._topic = topic
        self._partitions = sorted(partitions)
        self._count = len(self._partitions)
        self._acks = acks
        self._compression = compression
        self._batch_bytes = batch_bytes
        self._on_refused = on_refused
        self._queues: dict[int, _Queue] = {partition: _Queue() for partition in self._partitions}
        self._of_key: dict[bytes, int] = {}
        """Keys seen before: hashing one takes longer than all else that is done to a record."""
        self._sticky = random.randrange(self._count)
        self._in_flight: dict[int, tuple[Connection, list[_Batch]]] = {}
        self._ready = 0
        self._producer_id, self._producer_epoch = self._init_producer_id() if idempotent and acks == -1 else (-1, -1)
        self._again: dict[int, tuple[Unanswered, _Batch]] = {}
        """Partition -> a batch that is to be as it was before, and what there is of it."""
        self._again_at: dict[int, int] = {}
        """Source -> the partition of such a batch."""
        self.stored: dict[int, Stored] = {}
        """Partition -> what has been stored there."""
        self.refused = 0
        """The number of records that were refused."""
        if resume is not None:
            self._take_over(resume)

    @property
    def unfinished(self) -> int:
        """Records that are neither stored nor refused."""
        waiting = sum(
            len(batch.records)
            for queue in self._queues.values()
            for batch in (*queue.ready, *([queue.filling] if queue.filling else []))
        )
        again = sum(len(batch.records) for _, batch in self._again.values())
        return waiting + again + sum(len(batch.records) for batch in self._under_way())

    def _under_way(self) -> list[_Batch]:
        return [batch for _, batches in self._in_flight.values() for batch in batches]

    # --- Stopped in the middle --------------------------------------------------------------------------------------

    def remainder(self) -> Remainder:
        """The rest that is to be done, for another producer. This one must not be used any more."""
        unanswered = {partition: before for partition, (before, _) in self._again.items()}
        unsent: list[int] = []
        batches = self._under_way()
        for queue in self._queues.values():
            batches += (*queue.ready, *([queue.filling] if queue.filling else []))
        for batch in batches:
            if batch.stamp is not None:
                unanswered[batch.partition] = Unanswered(batch.sources, *batch.stamp)
            else:
                unsent += batch.sources
        return Remainder(unanswered, unsent)

    def close(self) -> None:
        """Give up what is under way: its answers would be taken for those to other requests."""
        for connection, _ in self._in_flight.values():
            connection.close()

    def _take_over(self, rest: Remainder) -> None:
        for partition, before in rest.unanswered.items():
            if partition not in self._queues:
                raise ClientError(f"topic {self._topic} has no partition {partition} any more")
            stamp = (before.producer_id, before.producer_epoch, before.sequence)
            self._again[partition] = (before, _Batch(partition, [], [], 0, stamp=stamp))
            self._again_at.update(dict.fromkeys(before.sources, partition))

    def _send_again(self, partition: int, record: Record, source: int, size: int) -> None:
        """Add a record of a batch without an answer, which goes out before all others once it is whole."""
        del self._again_at[source]
        before, batch = self._again[partition]
        batch.records.append(record)
        batch.sources.append(source)
        batch.size += size
        if len(batch.sources) == len(before.sources):
            del self._again[partition]
            self._queues[partition].ready.appendleft(batch)
            self._ready += 1

    def finish_unanswered(self) -> None:
        """Say that no record of a batch without an answer comes any more. ``ClientError`` if one is missing."""
        if self._again:
            raise ClientError(
                f"{len(self._again_at):,} records that may have been stored did not come again: nothing can be stored"
                f" in partition {min(self._again)} as long as nobody knows"
            )

    def _init_producer_id(self) -> tuple[int, int]:
        def ask() -> InitProducerIdResponse:
            response = self._client.ask_any(
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
            )
            if response.error_code:
                raise ResponseError(response.error_code, "the broker gives no producer id")
            return response

        try:
            response = self._client.retrying(ask, self._client.deadline())
        except ApiNotServed:
            return -1, -1
        return response.producer_id, response.producer_epoch

    def partition_for(self, key: bytes | None) -> int:
        """Where a record goes: by its key as in every Kafka client; without one, where the others go now."""
        if key is None:
            return self._partitions[self._sticky]
        chosen = self._of_key.get(key)
        if chosen is None:
            chosen = self._partitions[partition_for_key(key, self._count)]
            if len(self._of_key) < _REMEMBERED_KEYS:
                self._of_key[key] = chosen
        return chosen

    def send(self, record: Record, source: int, partition: int | None = None) -> None:
        """Add a record. May wait for the broker when much is on its way."""
        key, value = record.key, record.value
        size = RECORD_OVERHEAD + (len(key) if key is not None else 0) + (len(value) if value is not None else 0)
        for name, content in record.headers:
            size += len(name) + (len(content) if content is not None else 0) + 4
        if self._again_at and source in self._again_at:
            self._send_again(self._again_at[source], record, source, size)
            return
        chosen = self.partition_for(key) if partition is None else partition
        queue = self._queues[chosen]
        batch = queue.filling
        if batch is not None and batch.size + size > self._batch_bytes:
            self._finish(queue)
            batch = None
            if key is None and partition is None:
                self._sticky = (self._sticky + 1) % self._count
                queue = self._queues[self._partitions[self._sticky]]
                chosen = self._partitions[self._sticky]
                batch = queue.filling
        if batch is None:
            batch = queue.filling = _Batch(chosen, [], [], 0)
        batch.records.append(record)
        batch.sources.append(source)
        batch.size += size
        if self._ready >= self._count or self._ready * self._batch_bytes >= 4 << 20:
            self._dispatch()

    def _finish(self, queue: _Queue) -> None:
        if queue.filling is not None:
            queue.ready.append(queue.filling)
            queue.filling = None
            self._ready += 1

    def flush(self) -> None:
        """Send what there is and wait until it is stored or refused, but for what comes after a missing record."""
        for queue in self._queues.values():
            self._finish(queue)
        self._settle()
        while any(queue.ready and partition not in self._again for partition, queue in self._queues.items()):
            self._dispatch()
            self._settle()

    # --- Requests ---------------------------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        """Send the first batch of each partition to its leader, once that has answered the request before."""
        for leader, batches in self._batches_by_leader().items():
            moving = {batch.partition for batch in batches}
            for other, (_, sent) in list(self._in_flight.items()):
                # A partition that has moved waits for the answer of its old leader.
                if other == leader or any(batch.partition in moving for batch in sent):
                    self._receive(other)
            self._send(leader, [batch for batch in batches if self._is_next(batch)])

    def _is_next(self, batch: _Batch) -> bool:
        """Whether no other batch of its partition has come back to be sent before it."""
        ready = self._queues[batch.partition].ready
        return bool(ready) and ready[0] is batch

    def _batches_by_leader(self) -> dict[int, list[_Batch]]:
        """The first waiting batch of each partition; waits for a leader where there is none."""
        deadline = self._client.deadline()
        pause = 0.05
        while True:
            by_leader: dict[int, list[_Batch]] = {}
            lost: list[int] = []
            for partition, queue in self._queues.items():
                if not queue.ready or partition in self._again:
                    continue
                leader = self._client.leader(TopicPartition(self._topic, partition))
                if leader is None:
                    lost.append(partition)
                else:
                    by_leader.setdefault(leader, []).append(queue.ready[0])
            if not lost:
                return by_leader
            [topic] = self._client.refresh([self._topic], deadline)
            if topic.error_code and not ResponseError(topic.error_code).retriable:
                raise ResponseError(topic.error_code, f"topic {self._topic}")
            if all(self._client.leader(TopicPartition(self._topic, partition)) is not None for partition in lost):
                continue
            if time.monotonic() + pause >= deadline:
                code = topic.error_code or ErrorCode.LEADER_NOT_AVAILABLE
                raise ResponseError(code, f"partition {TopicPartition(self._topic, lost[0])}")
            pause = self._client.back_off(pause)

    def _send(self, leader: int, batches: list[_Batch]) -> None:
        if not batches:
            return
        for batch in batches:
            if not batch.data:
                batch.deadline = self._client.deadline()
                batch.data = self._build(batch)  # takes time, and may be interrupted: it is still in its queue
        for batch in batches:
            self._queues[batch.partition].ready.popleft()
            self._ready -= 1
        request = ProduceRequest(
            acks=self._acks,
            timeout_ms=int(self._client.timeout * 1000),
            topic_data=[
                TopicProduceData(
                    name=self._topic,
                    partition_data=[
                        PartitionProduceData(index=batch.partition, records=memoryview(batch.data)) for batch in batches
                    ],
                )
            ],
        )
        try:
            connection = self._client.node(leader, batches[0].deadline)
            version = connection.version_for(ProduceRequest, _NAMES_UP_TO)
            connection.send(request, version=version, expect_response=self._acks != 0)
            if self._acks != 0:
                self._in_flight[leader] = (connection, batches)
        except (ConnectionFailed, RequestTimedOut) as error:
            self._try_again([(batch, error) for batch in batches])
            return
        except BaseException:
            self._put_back(batches)
            raise
        if self._acks == 0:
            for batch in batches:
                self._note_stored(batch, -1)

    def _build(self, batch: _Batch) -> bytes:
        if batch.stamp is None:
            sequence = self._queues[batch.partition].sequence if self._producer_id >= 0 else -1
            batch.stamp = (self._producer_id, self._producer_epoch, sequence)
        producer_id, producer_epoch, sequence = batch.stamp
        return build_batch(
            batch.records,
            compression=self._compression,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
        )

    def _settle(self) -> None:
        for leader in list(self._in_flight):
            self._receive(leader)

    def _receive(self, leader: int) -> None:
        """Take the answer that a leader owes, if it does."""
        waiting = self._in_flight.get(leader)
        if waiting is None:
            return
        connection, batches = waiting
        try:
            response: ProduceResponse = connection.receive(batches[0].deadline)
        except (ConnectionFailed, RequestTimedOut) as error:
            del self._in_flight[leader]
            self._try_again([(batch, error) for batch in batches])
            return
        answers = {
            (topic.name, partition.index): partition
            for topic in response.responses
            for partition in topic.partition_responses
        }
        for batch in batches:
            if (self._topic, batch.partition) not in answers:
                raise ClientError(f"{connection.address} left partition {batch.partition} out of its answer")
        del self._in_flight[leader]
        passing = [(batch, self._judge(batch, answers[self._topic, batch.partition])) for batch in batches]
        self._try_again([(batch, error) for batch, error in passing if error is not None])

    def _judge(self, batch: _Batch, answer: PartitionProduceResponse) -> ResponseError | None:
        """Note what became of a batch; the error if it is to be tried again as it is."""
        code = answer.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._note_stored(batch, answer.base_offset if code == ErrorCode.NONE else -1)
            return None
        error = ResponseError(code, f"partition {TopicPartition(self._topic, batch.partition)}", answer.error_message)
        if error.retriable:
            return error
        queue = self._queues[batch.partition]
        if code in _SPLIT and len(batch.records) > 1:
            middle = len(batch.records) // 2
            for part in (slice(middle, None), slice(0, middle)):
                self._requeue(queue, batch, [*range(len(batch.records))[part]])
            return None
        wrong = {entry.batch_index: entry.batch_index_error_message for entry in answer.record_errors}
        if wrong and len(wrong) < len(batch.records):
            # The broker refuses a batch as a whole, and says which records are to blame.
            for index, text in sorted(wrong.items()):
                self._refuse(batch, index, text or str(error))
            self._requeue(queue, batch, [index for index in range(len(batch.records)) if index not in wrong])
            return None
        for index in range(len(batch.records)):
            self._refuse(batch, index, wrong.get(index) or str(error))
        return None

    def _requeue(self, queue: _Queue, batch: _Batch, indexes: Sequence[int]) -> None:
        """Put some records of a batch that was not stored back to the head, as a batch of their own."""
        records = [batch.records[index] for index in indexes]
        sources = [batch.sources[index] for index in indexes]
        size = batch.size * len(records) // len(batch.records)
        queue.ready.appendleft(_Batch(batch.partition, records, sources, size))
        self._ready += 1

    def _refuse(self, batch: _Batch, index: int, error: str) -> None:
        self.refused += 1
        self._on_refused(Refused(batch.sources[index], batch.partition, error))

    def _note_stored(self, batch: _Batch, base_offset: int) -> None:
        count = len(batch.records)
        if batch.stamp is not None and batch.stamp[0] == self._producer_id:
            queue = self._queues[batch.partition]
            queue.sequence = (queue.sequence + count) & 0x7FFFFFFF
        stored = self.stored.setdefault(batch.partition, Stored())
        stored.count += count
        stored.bytes += batch.size - RECORD_OVERHEAD * count
        if base_offset >= 0:
            if stored.first_offset < 0:
                stored.first_offset = base_offset
            stored.last_offset = base_offset + count - 1

    def _try_again(self, failed: Sequence[tuple[_Batch, ClientError]]) -> None:
        """Put batches back, to be sent as they are, until the time of one is over."""
        if not failed:
            return
        self._put_back([batch for batch, _ in failed])
        for batch, error in failed:
            if isinstance(error, ResponseError):
                batch.trouble = error
            if not isinstance(error, ResponseError) or error.code in STALE_METADATA:
                self._client.forget_leader(TopicPartition(self._topic, batch.partition))
        for batch, error in failed:
            if time.monotonic() >= batch.deadline:
                raise batch.trouble or error
        self._client.back_off()

    def _put_back(self, batches: Sequence[_Batch]) -> None:
        """Have batches be the first of their partitions again."""
        for batch in batches:
            self._queues[batch.partition].ready.appendleft(batch)
            self._ready += 1
