"""The topic ``_schemas``: read to its end, and appended to by one registry at a time.

All registries write with one producer id that no broker gives away, and number their batches by what they have read: a
broker takes a batch only if its sequence number is the next one (KIP-98). So a registry that has not read all there is
cannot append: its batch is out of order, or taken for the one that has this number already, at whose offset there is
another record. A lost answer does no harm either: a batch that is sent again is known again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from kbroker.client.cluster import Client
from kbroker.client.configs import ResourceType, describe_configs
from kbroker.client.errors import ClientError, RequestTimedOut, ResponseError, known
from kbroker.client.leaders import ask_leaders
from kbroker.client.reader import Chunk, Reader
from kbroker.client.topics import EARLIEST, LATEST, NewTopic, create_topics, list_offsets, missing_topics
from kbroker.client.transactions import describe_producers
from kbroker.errors import ErrorCode
from kbroker.registry.state import Change, State, Unreadable
from kbroker.types import TopicPartition
from kbroker.wire.batch_header import BatchHeader
from kbroker.wire.messages.metadata import MetadataResponseTopic
from kbroker.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kbroker.wire.record_batch import Record, build_batch

logger = logging.getLogger(__name__)

T = TypeVar("T")

TOPIC: Final = "_schemas"
PRODUCER_ID: Final = int.from_bytes(b"\0_schema")
"""Brokers give ids away from 0 on, and never come so far."""
_REPLICAS: Final = 3
_NAMES_UP_TO: Final = 12
"""Produce names topics up to this version; 13 has ids only."""
_PARTITION: Final = TopicPartition(TOPIC, 0)
_LOST: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
"""Answers to a batch whose number is not the next one."""
_MAX_SEQUENCE: Final = 2**31 - 1


class Store:
    """Reads what the topic says, and says more. Threads may share it; ``ClientError`` if nobody can be asked."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._state = State()
        self._topic_id: object = None
        self._start = self._position = 0
        self._epoch = -1
        """The leader's, when the topic was read."""
        self._last = (0, -1)
        """Epoch and sequence number of the last record that a registry of this kind has written."""
        self._news: list[tuple[int, Change]] = []
        self._aside: list[int] = []

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def look(self, function: Callable[[State], T]) -> T:
        """Call a function with all that has been acknowledged until now."""
        with self._lock:
            self._read()
            return function(self._state)

    def change(self, decide: Callable[[State], tuple[Sequence[Change], T]]) -> T:
        """Append the records that a function decides on, which go together; what else it returns.

        It is asked again whenever another registry has been faster, by what is there then.
        """
        deadline = self._client.deadline()
        with self._lock:
            while True:
                self._read()
                changes, answer = decide(self._state)
                if not changes:
                    return answer
                if self._topic_id is None:
                    self._make_topic()
                elif self._append(changes):
                    return answer
                if time.monotonic() >= deadline:
                    raise RequestTimedOut(f"{TOPIC} is not known to all brokers, or others have written all the time")

    # --- reading

    def _read(self) -> None:
        """Take all records up to the end; of a topic that was made anew, from its beginning."""
        try:
            topic = self._topic()
            if topic is None:
                self._forget()
                return
            if topic.error_code and not ResponseError(topic.error_code).retriable:
                raise ResponseError(topic.error_code, f"topic {TOPIC}")
            if topic.topic_id != self._topic_id:
                self._forget()
                self._check(len(topic.partitions))
                self._topic_id = topic.topic_id
            start = known(list_offsets(self._client, {_PARTITION: EARLIEST}))[_PARTITION].offset
            last = known(list_offsets(self._client, {_PARTITION: LATEST}, read_committed=True))[_PARTITION]
            # Records have been deleted, which compaction never does so; or there is another leader: one that lacks the
            # last records, after a power cut, may have others at their offsets by now.
            if start != self._start or last.offset < self._position or last.leader_epoch != self._epoch:
                self._forget()
                self._topic_id, self._epoch = topic.topic_id, last.leader_epoch
                self._start = self._position = start
            self._read_to(last.offset)
        except ClientError:
            self._client.close()
            raise

    def _topic(self) -> MetadataResponseTopic | None:
        """The topic, unless two brokers say that there is none: one that has just started may not know of it."""
        deadline = self._client.deadline()
        while True:
            [topic] = self._client.refresh([TOPIC])
            if topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return topic
            if missing_topics(self._client, [TOPIC]):
                return None
            if time.monotonic() >= deadline:
                raise ResponseError(topic.error_code, f"topic {TOPIC}")
            self._client.back_off()

    def _check(self, partitions: int) -> None:
        if partitions > 1:
            raise ClientError(f"topic {TOPIC} has {partitions} partitions; that of a registry has one")
        # Of a topic that was just made the broker that is asked may not have heard.
        [policy] = self._client.retrying(
            lambda: describe_configs(self._client, ResourceType.TOPIC, TOPIC, keys=["cleanup.policy"]),
            self._client.deadline(),
        )
        if policy.value != "compact":
            raise ClientError(
                f"topic {TOPIC} has cleanup.policy={policy.value}, which would delete schemas: set compact"
            )

    def _read_to(self, end: int) -> None:
        self._news, self._aside = [], []
        if self._position >= end:
            return
        reader = Reader(self._client, TOPIC, {0: self._position}, ends={0: end}, wants=self._note)
        while not reader.finished:
            for chunk in reader.poll(self._client.timeout):
                for record in chunk.records if isinstance(chunk, Chunk) else ():
                    self._take(record)
        self._position = end

    def _note(self, partition: int, header: BatchHeader) -> bool:
        if header.producer_id == PRODUCER_ID:
            last = (header.base_sequence + header.last_offset - header.base_offset) & _MAX_SEQUENCE
            self._last = (header.producer_epoch, last)
        return True

    def _take(self, record: Record) -> None:
        self._news.append((record.offset, (record.key or b"", record.value)))
        try:
            self._state.apply(record.key, record.value)
        except (Unreadable, TypeError, ValueError) as error:
            self._aside.append(record.offset)
            logger.warning("%s: the record at offset %d is set aside: %s", TOPIC, record.offset, error)

    # --- writing

    def _make_topic(self) -> None:
        """Make the topic, which is read before anything is written: a broker that has just started may not know of it,
        and what is there must not be numbered again."""
        replicas = min(_REPLICAS, len(self._client.all_nodes()))
        made = create_topics(self._client, [NewTopic(TOPIC, 1, replicas, {"cleanup.policy": "compact"})])[TOPIC]
        if isinstance(made, ResponseError):
            if made.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise made
            self._client.back_off()

    def _append(self, changes: Sequence[Change]) -> bool:
        """Append records if nobody else has since the topic was read; whether they are there."""
        end, (epoch, sequence) = self._position, self._last
        offset = self._produce(changes, epoch, (sequence + 1) & _MAX_SEQUENCE)
        self._read()
        found = dict(self._news)
        if offset is not None and offset >= end:
            places = range(offset, offset + len(changes))
            if all(found.get(place) == change for place, change in zip(places, changes, strict=True)):
                if aside := [each for each in self._aside if each in places]:
                    raise ClientError(f"what was written to {TOPIC} contradicts what is there: offset {aside[0]}")
                return True
            return False
        if not found:
            self._begin_anew()
        return False

    def _begin_anew(self) -> None:
        """Count from 0 again, in a new epoch: the records that said how far the numbers are have been deleted.

        The record itself tells no schema. So it may come after one that this registry has not read yet.
        """
        producers = describe_producers(self._client, _PARTITION)
        epochs = [each.producer_epoch for each in producers if each.producer_id == PRODUCER_ID]
        self._produce([self._state.highest_record()], max(epochs, default=-1) + 1, 0)

    def _produce(self, changes: Sequence[Change], epoch: int, sequence: int) -> int | None:
        """The offset of the batch that has this number, perhaps another one; None if it cannot be the next one."""
        now = int(time.time() * 1000)
        batch = memoryview(
            build_batch(
                [Record(0, now, key, value, ()) for key, value in changes],
                producer_id=PRODUCER_ID,
                producer_epoch=epoch,
                base_sequence=sequence,
            )
        )
        data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])
        request = ProduceRequest(acks=-1, timeout_ms=int(self._client.timeout * 1000), topic_data=[data])

        def read(response: ProduceResponse) -> list[tuple[TopicPartition, int, PartitionProduceResponse]]:
            return [
                (TopicPartition(topic.name, each.index), each.error_code, each)
                for topic in response.responses
                for each in topic.partition_responses
            ]

        def ask() -> PartitionProduceResponse | ResponseError:
            [answer] = ask_leaders(
                self._client, {_PARTITION: None}, lambda _: request, read, highest=_NAMES_UP_TO
            ).values()
            if isinstance(answer, ResponseError) and answer.code not in _LOST:
                raise answer
            return answer

        # The broker that is asked for the leader may not have heard of a topic that was just made.
        answer = self._client.retrying(ask, self._client.deadline())
        return None if isinstance(answer, ResponseError) else answer.base_offset
