"""Records into a topic: batches for each partition, one request at a time for each leader, nothing twice.

While a leader works on a request, the next batches are gathered; a second request to it waits for the first. That keeps
batches in order whatever happens, and lets a failed one be sent again as it is: with a producer id (KIP-98) the broker
recognises what it has already.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from kbroker.client.pending_batches import RECORD_OVERHEAD, Batch, PendingBatches, Remainder
from kbroker.errors import ErrorCode
from kbroker.types import TopicPartition
from kbroker.wire.compression import CompressionType
from kbroker.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kbroker.wire.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from kbroker.wire.record_batch import Record, build_batch

DEFAULT_BATCH_BYTES: Final = 512 << 10
"""Bytes of keys and values in a batch; well below ``max.message.bytes`` of 1 MiB, whatever their headers."""

_NAMES_UP_TO: Final = 12
"""Produce names topics up to this version; 13 has ids only."""

_DISK_SECONDS: Final = 1.0
"""For which a leader that cannot write to its disk is asked again, if nobody else is in sync."""

_SPLIT: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


@dataclass(frozen=True, slots=True)
class RecordRefused:
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
        on_refused: Callable[[RecordRefused], None],
        resume: Remainder | None = None,
    ) -> None:
        self._client = client
        self._topic = topic
        self._acks = acks
        self._compression = compression
        self._on_refused = on_refused
        self._pending = PendingBatches(topic, partitions, batch_bytes, resume)
        self._in_flight: dict[int, tuple[Connection, list[Batch]]] = {}
        """Leader -> the batches of the request that it has not answered."""
        self._sequences = dict.fromkeys(partitions, 0)
        """Partition -> the sequence number of the next record that is sent for the first time."""
        self._producer_id, self._producer_epoch = self._init_producer_id() if idempotent and acks == -1 else (-1, -1)
        self.stored: dict[int, Stored] = {}
        """Partition -> what has been stored there."""
        self._size_limit: str | None = None
        """The largest batch that the topic allows, in words; None until somebody has to know."""
        self.refused = 0
        """The number of records that were refused."""

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

    @property
    def unfinished(self) -> int:
        """Records that are neither stored nor refused."""
        return self._pending.record_count + sum(len(batch.records) for batch in self._under_way())

    def _under_way(self) -> list[Batch]:
        return [batch for _, batches in self._in_flight.values() for batch in batches]

    # --- Stopped in the middle --------------------------------------------------------------------------------------

    def remainder(self) -> Remainder:
        """The rest that is to be done, for another producer. This one must not be used any more."""
        return self._pending.remainder(self._under_way())

    def close(self) -> None:
        """Give up what is under way: its answers would be taken for those to other requests."""
        for connection, _ in self._in_flight.values():
            connection.close()

    def finish_unanswered(self) -> None:
        """Say that no record of a batch without an answer comes any more. ``ClientError`` if one is missing."""
        self._pending.finish_unanswered()

    def send(self, record: Record, source: int, partition: int | None = None) -> None:
        """Add a record. May wait for the broker when much is on its way."""
        if self._pending.add(record, source, partition):
            self._dispatch()

    def flush(self) -> None:
        """Send what there is and wait until it is stored or refused, but for what comes after a missing record."""
        self._pending.finish()
        self._settle()
        while self._pending.first_batches():
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
            self._send(leader, [batch for batch in batches if self._pending.is_next(batch)])

    def _batches_by_leader(self) -> dict[int, list[Batch]]:
        """The first waiting batch of each partition; waits for a leader where there is none."""
        deadline = self._client.deadline()
        pause = 0.05
        while True:
            by_leader: dict[int, list[Batch]] = {}
            lost: list[int] = []
            for batch in self._pending.first_batches():
                leader = self._client.leader(TopicPartition(self._topic, batch.partition))
                if leader is None:
                    lost.append(batch.partition)
                else:
                    by_leader.setdefault(leader, []).append(batch)
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

    def _send(self, leader: int, batches: list[Batch]) -> None:
        if not batches:
            return
        for batch in batches:
            if not batch.data:
                batch.deadline = self._client.deadline()
                batch.data = self._build(batch)  # takes time, and may be interrupted: it is still pending
        self._pending.take(batches)
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
            self._pending.put_back(batches)
            raise
        if self._acks == 0:
            for batch in batches:
                self._note_stored(batch, -1)

    def _build(self, batch: Batch) -> bytes:
        if batch.stamp is None:
            sequence = self._sequences[batch.partition] if self._producer_id >= 0 else -1
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
            # A leader that hangs is to leave time for the next one. Without a producer id that could store twice.
            deadline = batches[0].deadline
            until = self._client.one_try(deadline) if self._producer_id >= 0 else deadline
            response: ProduceResponse = connection.receive(until)
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

    def _judge(self, batch: Batch, answer: PartitionProduceResponse) -> ResponseError | None:
        """Note what became of a batch; the error if it is to be tried again as it is."""
        code = answer.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._note_stored(batch, answer.base_offset if code == ErrorCode.NONE else -1)
            return None
        error = ResponseError(code, f"partition {TopicPartition(self._topic, batch.partition)}", answer.error_message)
        if error.retriable:
            return error
        if code in _SPLIT and len(batch.records) > 1:
            middle = len(batch.records) // 2
            for part in (slice(middle, None), slice(0, middle)):
                self._pending.put_part_back(batch, range(len(batch.records))[part])
            return None
        wrong = {entry.batch_index: entry.batch_index_error_message for entry in answer.record_errors}
        if wrong and len(wrong) < len(batch.records):
            # The broker refuses a batch as a whole, and says which records are to blame.
            for index, text in sorted(wrong.items()):
                self._refuse(batch, index, text or str(error))
            self._pending.put_part_back(batch, [index for index in range(len(batch.records)) if index not in wrong])
            return None
        for index in range(len(batch.records)):
            self._refuse(batch, index, wrong.get(index) or f"{error}{self._size_of(batch, index, code)}")
        return None

    def _size_of(self, batch: Batch, index: int, code: int) -> str:
        """Returns the size of a record that is too large, and the limit, in words; "" of any other error."""
        if code != ErrorCode.MESSAGE_TOO_LARGE:
            return ""
        if self._size_limit is None:
            from kbroker.client.configs import ResourceType, describe_configs

            try:
                [limit] = describe_configs(self._client, ResourceType.TOPIC, self._topic, keys=["max.message.bytes"])
                self._size_limit = f", and the topic allows batches of {int(limit.value or 0):,} bytes"
            except (ClientError, ValueError):
                self._size_limit = ""  # not everybody may know
        record = batch.records[index]
        return f": it has {len(record.key or b'') + len(record.value or b''):,} bytes{self._size_limit}"

    def _refuse(self, batch: Batch, index: int, error: str) -> None:
        self.refused += 1
        self._on_refused(RecordRefused(batch.sources[index], batch.partition, error))

    def _note_stored(self, batch: Batch, base_offset: int) -> None:
        count = len(batch.records)
        if batch.stamp is not None and batch.stamp[0] == self._producer_id:
            self._sequences[batch.partition] = (self._sequences[batch.partition] + count) & 0x7FFFFFFF
        stored = self.stored.setdefault(batch.partition, Stored())
        stored.count += count
        stored.bytes += batch.size - RECORD_OVERHEAD * count
        if base_offset >= 0:
            if stored.first_offset < 0:
                stored.first_offset = base_offset
            stored.last_offset = base_offset + count - 1

    def _try_again(self, failed: Sequence[tuple[Batch, ClientError]]) -> None:
        """Put batches back, to be sent as they are, until the time of one is over."""
        if not failed:
            return
        self._pending.put_back(batch for batch, _ in failed)
        for batch, error in failed:
            if isinstance(error, ResponseError):
                batch.trouble = error
            if not isinstance(error, ResponseError) or error.code in STALE_METADATA:
                self._client.forget_leader(TopicPartition(self._topic, batch.partition))
        for batch, error in failed:
            if time.monotonic() >= self._deadline(batch, error):
                raise batch.trouble or error
        self._client.back_off()

    def _deadline(self, batch: Batch, error: ClientError) -> float:
        """The time until which a batch is sent again. A disk that is full is no reason to wait where no other replica
        could take over."""
        code = error.code if isinstance(error, ResponseError) else ErrorCode.NONE
        soon = batch.deadline - self._client.timeout + _DISK_SECONDS
        if code != ErrorCode.KAFKA_STORAGE_ERROR or time.monotonic() < soon:
            return batch.deadline
        [topic] = self._client.refresh([self._topic], batch.deadline)
        others = any(
            set(entry.isr_nodes) - {entry.leader_id}
            for entry in topic.partitions
            if entry.partition_index == batch.partition
        )
        return batch.deadline if others else soon
