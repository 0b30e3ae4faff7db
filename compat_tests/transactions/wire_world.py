"""Transactional producers in every state, made by raw requests, on one broker."""

from __future__ import annotations

import re
import time
import uuid
from dataclasses import dataclass
from typing import Any

from compat_tests.coordinators import await_group_coordinators, await_transaction_coordinators
from compat_tests.groups.wire_world import Connection, plain
from kbroker.types import ZERO_UUID, Uuid
from kbroker.wire.messages.described_transactions import DescribeTransactionsRequest
from kbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kbroker.wire.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kbroker.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
)
from kbroker.wire.record_batch import Record, build_batch
from tests.patience import LONG, eventually

UNHURRIED_MS = 600_000
"""For a transaction; a slow machine may take long to come to its end."""
LOADING = 14
TRANSIENT = (LOADING, 15, 16, 51)
"""Loading, not available, not the coordinator, and the last transaction is not yet complete."""

UNVERIFIED = frozenset({14, 15, 16, 19})
"""Those three, and not enough replicas: what could not be verified just now."""


def _errors(answer: Any) -> set[int]:
    """All error codes of a plain answer."""
    if isinstance(answer, dict):
        own = {answer["error_code"]} if "error_code" in answer else set()
        return own.union(*map(_errors, answer.values()))
    return set().union(*map(_errors, answer)) if isinstance(answer, list) else set()


@dataclass
class Producer:
    """A transactional producer: its id and epoch, and the sequence number of its next record in each partition."""

    transactional_id: str
    producer_id: int
    epoch: int


class World:
    """A topic of three partitions, and producers in the states that are asked for."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.connection = Connection(bootstrap)
        self.mark = uuid.uuid4().hex[:8]
        self._made = 0
        self._seen: dict[str, str] = {}
        self.topic_ids: dict[str, Uuid] = {}
        # Some ids and groups have names that nobody waits for: "", "nobody".
        await_group_coordinators(bootstrap)
        await_transaction_coordinators(bootstrap)
        self.topic = self.new_topic()

    def close(self) -> None:
        self.connection.close()

    def ask(self, request: Any, version: int) -> Any:
        """The response, CLOSED or SILENT."""
        return self.connection.ask(request, version)

    def ask_verified(self, request: Any, version: int) -> Any:
        """The response to Produce or TxnOffsetCommit, once it does not say that just now nothing could be verified.

        A leader asks the transaction's coordinator before it writes.
        """
        answer = self.ask(request, version)
        deadline = time.monotonic() + LONG
        while UNVERIFIED & _errors(plain(answer)) and time.monotonic() < deadline:
            time.sleep(0.05)
            answer = self.ask(request, version)
        return answer

    def ask_with_ids(self, request: InitProducerIdRequest, version: int) -> Any:
        """The response to InitProducerId, once the broker has producer ids: it may wait for its next thousand."""
        answer = self.ask(request, version)
        deadline = time.monotonic() + LONG
        while not isinstance(answer, str) and answer.error_code == LOADING and time.monotonic() < deadline:
            time.sleep(0.05)
            answer = self.ask(request, version)
        return answer

    def new_topic(self, partitions: int = 3) -> str:
        """A topic whose leaders are known."""
        self._made += 1
        name = f"topic-{self.mark}-{self._made}"
        kept = CreatableTopicConfig(name="retention.ms", value="-1")  # the records are old
        new = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=[kept])
        made = self.ask(CreateTopicsRequest(topics=[new], timeout_ms=50_000), 5)
        assert made.topics[0].error_code == 0, made

        def led() -> bool:
            found = self.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12).topics[0]
            self.topic_ids[name] = Uuid(found.topic_id)
            return len(found.partitions) == partitions and all(each.leader_id >= 0 for each in found.partitions)

        eventually(led)
        lookup = [ListOffsetsPartition(partition_index=each, timestamp=-1) for each in range(partitions)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=lookup)])
        # A leader may be known before it knows of it itself.
        eventually(lambda: all(each.error_code == 0 for each in self.ask(request, 2).topics[0].partitions))
        return name

    # Producers
    def new_id(self) -> str:
        """A transactional id that nobody has used; its coordinator is ready."""
        self._made += 1
        name = f"id-{self.mark}-{self._made}"
        eventually(lambda: self._describe(name).error_code not in TRANSIENT)
        return name

    def _describe(self, transactional_id: str) -> Any:
        return self.ask(DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0).transaction_states[0]

    def state(self, producer: Producer) -> str:
        """The state that the coordinator tells."""
        return str(self._describe(producer.transactional_id).transaction_state)

    def settle(self, producer: Producer) -> None:
        """Wait until no transaction of the producer is about to end."""
        eventually(lambda: not self.state(producer).startswith("Prepare"))

    def init(self, transactional_id: str | None = None, timeout_ms: int = UNHURRIED_MS) -> Producer:
        """A producer whose id is fresh, or taken over."""
        name = self.new_id() if transactional_id is None else transactional_id
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
        answer = self.ask(request, 4)
        deadline = time.monotonic() + LONG
        while answer.error_code in TRANSIENT and time.monotonic() < deadline:
            answer = self.ask(request, 4)
        assert answer.error_code == 0, answer
        return Producer(name, answer.producer_id, answer.producer_epoch)

    def add(self, producer: Producer, *partitions: int, topic: str | None = None) -> None:
        """AddPartitionsToTxn."""
        topics = [AddPartitionsToTxnTopic(name=topic or self.topic, partitions=list(partitions or (0,)))]
        answer = self.ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=producer.transactional_id,
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.epoch,
                v3_and_below_topics=topics,
            ),
            3,
        )
        errors = {
            each.partition_error_code
            for result in answer.results_by_topic_v3_and_below
            for each in result.results_by_partition
        }
        assert errors == {0}, answer

    def end(self, producer: Producer, commit: bool, version: int = 4) -> None:
        """EndTxn; from version 5 on the producer goes on with what it is given."""
        answer = self.ask(
            EndTxnRequest(
                transactional_id=producer.transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                committed=commit,
            ),
            version,
        )
        assert answer.error_code == 0, answer
        if version >= 5:
            producer.producer_id, producer.epoch = answer.producer_id, answer.producer_epoch
        self.settle(producer)

    def in_state(self, state: str, version: int = 4) -> Producer:
        """A producer whose id is in that state: empty, ongoing, committed or aborted, by EndTxn of that version."""
        self.init(name := self.new_id())
        producer = self.init(name)  # epoch 1, so that there is one before
        if state != "empty":
            self.add(producer)
        if state in ("committed", "aborted"):
            self.end(producer, state == "committed", version)
        return producer

    # Records
    def produce_request(
        self,
        producer: Producer,
        version: int,
        *partitions: int,
        topic: str | None = None,
        epoch: int | None = None,
        producer_id: int | None = None,
        sequence: int = 0,
        transactional: bool = True,
        named: bool = True,
    ) -> ProduceRequest:
        """Produce of one record in each partition."""
        batch = build_batch(
            [Record(0, 1_700_000_000_000, None, b"value")],
            producer_id=producer.producer_id if producer_id is None else producer_id,
            producer_epoch=producer.epoch if epoch is None else epoch,
            base_sequence=sequence,
            is_transactional=transactional,
        )
        name = topic or self.topic
        return ProduceRequest(
            transactional_id=producer.transactional_id if named else None,
            acks=-1,
            timeout_ms=60_000,
            topic_data=[
                TopicProduceData(
                    name=name if version < 13 else "",
                    topic_id=self.topic_ids[name] if version >= 13 else ZERO_UUID,
                    partition_data=[
                        PartitionProduceData(index=index, records=memoryview(bytearray(batch)))
                        for index in partitions or (0,)
                    ],
                )
            ],
        )

    def produce(self, producer: Producer, topic: str, sequence: int) -> None:
        """Write one record into partition 0."""
        request = self.produce_request(producer, 9, topic=topic, sequence=sequence)
        code = self.ask_verified(request, 9).responses[0].partition_responses[0].error_code
        assert code == 0, code

    # Comparing
    def normal(self, response: Any) -> Any:
        """A response without what differs from run to run: names and ids are numbered as they appear."""
        self._seen = {}
        return self._walk(plain(response), "")

    def _numbered(self, kind: str, what: object) -> str:
        return self._seen.setdefault(f"{kind} {what}", f"{kind} {len(self._seen)}")

    def _walk(self, value: Any, name: str) -> Any:
        if isinstance(value, dict):
            return {key: self._walk(each, key) for key, each in value.items()}
        if isinstance(value, list):
            walked = [self._walk(each, name) for each in value]
            unordered = ("results_by", "transaction_states", "topics", "markers", "partition", "active_producers")
            return sorted(walked, key=str) if name.startswith(unordered) else walked
        if name == "port" and value > 0:
            return "PORT"
        if "producer_id" in name and isinstance(value, int) and value >= 0:
            return self._numbered("producer", value)
        if (name.endswith(("_time_ms", "_timestamp")) and isinstance(value, int) and value > 0) or (
            name == "coordinator_epoch" and value >= 0
        ):
            return "SOME"
        if name == "error_message":
            return "TEXT" if value else value
        if isinstance(value, str):
            for topic, topic_id in self.topic_ids.items():
                value = value.replace(topic_id.hex(), self._numbered("id of", topic))
            value = re.sub(rf"(id|topic|group-id)-{self.mark}-\d+", lambda m: self._numbered(m[1], m[0]), value)
            return value.replace(self.mark, "*")
        return value
