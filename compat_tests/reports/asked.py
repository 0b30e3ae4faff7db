"""A broker that is asked by raw requests: topics with properties, batches of any shape, and what is read of them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from compat_tests.brokers import ApacheBroker, Broker, KbrokerBroker
from compat_tests.coordinators import await_group_coordinators, await_transaction_coordinators
from compat_tests.transactions.wire_world import World
from kbroker.client.connection import Connection as Admin
from kbroker.types import ZERO_UUID, Uuid
from kbroker.wire.batch_header import BatchHeader, walk_headers
from kbroker.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from kbroker.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kbroker.wire.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, DeleteTopicsRequest
from kbroker.wire.record_batch import Record, build_batch, iter_records
from tests.patience import SHORT, eventually

EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3
_TOPIC = 2


class Found(NamedTuple):
    """The answer of ListOffsets about a partition."""

    error: int
    timestamp: int
    offset: int
    epoch: int


class Asked(World):
    """Partition 0 of topics of one partition, where nothing else is said."""

    def again(self, broker: Broker, crash: bool = False) -> None:
        """Stop the broker, cleanly or not, and wait until it is ready for everybody again."""
        if not isinstance(broker, ApacheBroker | KbrokerBroker):
            pytest.skip("for one node that the tests may restart")
        (broker.crash if crash else broker.restart)()
        self.connection.close()
        await_group_coordinators(self.bootstrap)
        await_transaction_coordinators(self.bootstrap)

    def topic_with(self, **configs: str) -> str:
        """A new topic; properties are written with ``_`` for ``.``; its records stay, however old they are."""
        self._made += 1
        properties = {key.replace("_", "."): value for key, value in configs.items()}
        return self.made_topic(f"report-{self.mark}-{self._made}", 1, properties)

    def made_topic(self, name: str, partitions: int = 1, properties: Mapping[str, str] | None = None) -> str:
        """A topic of that name, whose leaders are known."""
        wanted = [
            CreatableTopicConfig(name=key, value=value)
            for key, value in {"retention.ms": "-1", **(properties or {})}.items()
        ]
        new = CreatableTopic(name=name, num_partitions=partitions, replication_factor=-1, configs=wanted)
        made = self.ask(CreateTopicsRequest(topics=[new], timeout_ms=50_000), 7).topics[0]
        assert made.error_code == 0, made
        self.topic_ids[name] = Uuid(made.topic_id)
        eventually(lambda: self.offset(name, LATEST).error == 0)
        return name

    def configure(self, topic: str, **configs: str) -> None:
        """Change properties of a topic."""
        changes = [
            IncrementalAlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ]
        resource = IncrementalAlterConfigsResource(resource_type=_TOPIC, resource_name=topic, configs=changes)
        answer = self.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert answer.responses[0].error_code == 0, answer

    def delete_topic(self, topic: str) -> None:
        """Delete a topic, and wait until its leader has gone."""
        answer = self.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=50_000), 5)
        assert answer.responses[0].error_code == 0, answer
        eventually(lambda: self.offset(topic, LATEST).error != 0)

    # Records
    def produce_data(self, topic: str, batch: bytes, version: int, name: str | None = None) -> ProduceRequest:
        """Produce of a batch to partition 0, by the producer of a transactional id if there is a `name`."""
        data = PartitionProduceData(index=0, records=memoryview(bytearray(batch)))
        named = TopicProduceData(
            name=topic if version < 13 else "",
            topic_id=self.topic_ids[topic] if version >= 13 else ZERO_UUID,
            partition_data=[data],
        )
        return ProduceRequest(transactional_id=name, acks=-1, timeout_ms=60_000, topic_data=[named])

    def send(self, topic: str, batch: bytes, version: int = 9, name: str | None = None) -> Any:
        """The answer of Produce about partition 0."""
        return (
            self.ask_verified(self.produce_data(topic, batch, version, name), version)
            .responses[0]
            .partition_responses[0]
        )

    def write(
        self,
        topic: str,
        *timestamps: int,
        key: bytes | None = b"k",
        value: bytes | None = b"v",
        name: str | None = None,
        **how: Any,
    ) -> int:
        """Write a batch of a record for each time, for a transactional id if there is a `name`; its first offset."""
        batch = build_batch([Record(0, each, key, value) for each in timestamps], is_transactional=bool(name), **how)
        answer = self.send(topic, batch, name=name)
        assert answer.error_code == 0, answer
        return int(answer.base_offset)

    def fetch(self, topic: str, offset: int = 0, committed: bool = False, **fields: Any) -> Any:
        """The answer of Fetch about partition 0."""
        wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 24, **fields)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 24,
            isolation_level=int(committed),
            topics=[FetchTopic(topic=topic, partitions=[wanted])],
        )
        return self.ask(request, 12).responses[0].partitions[0]

    def batches(self, topic: str, offset: int = 0) -> list[tuple[BatchHeader, list[Record]]]:
        """All batches from an offset on, with their records."""
        found: list[tuple[BatchHeader, list[Record]]] = []
        while True:
            answer = self.fetch(topic, offset)
            assert answer.error_code == 0, answer
            data = bytes(answer.records or b"")
            new = [(header, list(iter_records(data, at))) for at, header in walk_headers(data)]
            if not new:
                return found
            found += [each for each in new if each[0].last_offset >= offset]
            offset = new[-1][0].last_offset + 1

    def records(self, topic: str, offset: int = 0) -> list[Record]:
        """All records of batches that are no control batches."""
        return [each for header, records in self.batches(topic, offset) if not header.is_control for each in records]

    def seen(self, topic: str) -> list[tuple[int, int]]:
        """Offset and producer's epoch of all records that read_committed leaves, as a consumer finds them."""
        left: list[tuple[int, int]] = []
        aborting: set[int] = set()
        offset = 0
        while data := bytes((answer := self.fetch(topic, offset, committed=True)).records or b""):
            aborted = list(answer.aborted_transactions or ())
            for at, header in walk_headers(data):
                offset = header.last_offset + 1
                begun = [each for each in aborted if each.first_offset <= header.last_offset]
                aborted = [each for each in aborted if each not in begun]
                aborting |= {each.producer_id for each in begun}
                if header.is_control:
                    aborting.discard(header.producer_id)
                elif header.producer_id not in aborting:
                    left += [(each.offset, header.producer_epoch) for each in iter_records(data, at)]
        assert offset == answer.last_stable_offset, "a consumer does not come to the end"
        return left

    def delete_records(self, topic: str, before: int) -> int:
        """Delete the records before an offset; the log start."""
        partition = DeleteRecordsPartition(partition_index=0, offset=before)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=50_000
        )
        answer = self.ask(request, 2).topics[0].partitions[0]
        assert answer.error_code == 0, answer
        return int(answer.low_watermark)

    def write_internal(self, topic: str, *records: tuple[bytes, bytes | None]) -> None:
        """Append keys and values to partition 0 of a topic of coordinators, as only an admin's client may."""
        now = int(time.time() * 1000)
        batch = build_batch([Record(0, now, key, value) for key, value in records])
        host, _, port = self.bootstrap.rpartition(":")
        deadline = time.monotonic() + SHORT
        admin = Admin(host, int(port), client_id="__admin_client", deadline=deadline)
        answer = admin.request(self.produce_data(topic, batch, 9), deadline, version=9)
        admin.close()
        assert answer.responses[0].partition_responses[0].error_code == 0, answer

    # Offsets
    def offset(self, topic: str, timestamp: int, committed: bool = False, version: int = 10, times: int = 1) -> Found:
        """The answer of ListOffsets about partition 0; the first one, if the partition is named several times."""
        wanted = [ListOffsetsPartition(partition_index=0, timestamp=timestamp)] * times
        topics = [ListOffsetsTopic(name=topic, partitions=wanted)]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=int(committed), topics=topics, timeout_ms=50_000)
        found = self.ask(request, version).topics[0].partitions[0]
        return Found(found.error_code, found.timestamp, found.offset, found.leader_epoch)
