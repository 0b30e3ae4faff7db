"""The log start passes the beginning of an open transaction: readers of what is committed go on from there."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka import OFFSET_END, Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, OffsetSpec
from confluent_kafka.cimpl import NewTopic

from compat_tests.brokers import ApacheNodes, Broker, KbrokerNodes
from compat_tests.case import await_everywhere
from kbroker.client import Client
from tests.patience import LONG, SHORT, Late, eventually

pytestmark = pytest.mark.nodes(1, 3)

LONG_MS = 600_000
LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]


class Story:
    """A topic of one partition with a transaction that is open from offset 0 on, and ten plain records after it."""

    def __init__(self, bootstrap: str, size: int = 10, **configs: str) -> None:
        self._bootstrap = bootstrap
        self.partition = TopicPartition(f"start-{uuid.uuid4().hex[:10]}", 0)
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        for future in self.admin.create_topics([NewTopic(self.partition.topic, 1, config=configs)]).values():
            future.result(LONG)
        await_everywhere(bootstrap, self.partition.topic)
        own = {"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 0}
        self.transaction = Producer(
            {**own, "transactional.id": self.partition.topic, "transaction.timeout.ms": LONG_MS}
        )
        self.transaction.init_transactions(LONG)
        self.transaction.begin_transaction()
        self.transaction.produce(self.partition.topic, b"in the transaction", partition=0)
        assert self.transaction.flush(LONG) == 0
        self._plain = Producer(own)
        self.values: list[bytes] = []
        """Those of the plain records, from offset 1 on."""
        self.write([b"%d" % number + b"x" * size for number in range(10)])

    def write(self, values: list[bytes]) -> None:
        """Write records without a transaction, each in a batch of its own."""
        for value in values:
            self._plain.produce(self.partition.topic, value, partition=0)
            assert self._plain.flush(LONG) == 0
        self.values += values

    def offset(self, spec: OffsetSpec, level: IsolationLevel = IsolationLevel.READ_COMMITTED) -> int:
        """The answer of ListOffsets. A client of its own asks: librdkafka's keeps to a leader that was killed."""
        admin = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})
        futures = admin.list_offsets({self.partition: spec}, isolation_level=level, request_timeout=SHORT)
        return int(futures[self.partition].result().offset)

    def await_stable(self, offset: int) -> None:
        """Wait for the last stable offset: a leader that is new does not know it yet."""
        found: list[object] = []

        def is_there() -> bool:
            try:
                found.append(self.offset(LATEST))
            except Exception as error:  # no leader, or one that is new
                found.append(error)
            return found[-1] == offset

        try:
            eventually(is_there, f"a last stable offset of {offset}")
        except Late as error:
            raise Late(f"{error}; found {found[-1]!r}") from None

    def leader(self) -> int:
        """The node that leads the partition."""
        with Client(self._bootstrap, timeout=SHORT) as client:
            (topic,) = client.refresh([self.partition.topic])
            return topic.partitions[0].leader_id


def check_reads_on(story: Story, bootstrap: str, log_start: int) -> None:
    """A consumer that begins at the latest offset reads all from there on, once the transaction ends."""
    story.await_stable(log_start)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"readers-{uuid.uuid4().hex}",
            "isolation.level": "read_committed",
            "auto.offset.reset": "latest",
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(story.partition.topic, 0, OFFSET_END)])

        def has_its_place() -> bool:
            assert consumer.poll(0.1) is None
            return bool(consumer.get_watermark_offsets(story.partition, cached=True)[1] >= 0)

        eventually(has_its_place, "the consumer's first answer")
        story.write([b"later %d" % number for number in range(6)])
        assert consumer.poll(1) is None
        story.transaction.commit_transaction(LONG)
        found: list[bytes | None] = []

        def has_all() -> bool:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                found.append(message.value())
            return len(found) == len(story.values) - log_start + 1

        eventually(has_all, "all records")
        assert found == story.values[log_start - 1 :]
    finally:
        consumer.close()


def test_records_are_deleted_past_the_beginning_of_a_transaction(bootstrap: str) -> None:
    story = Story(bootstrap)
    assert story.offset(LATEST) == 0
    (deleted,) = story.admin.delete_records([TopicPartition(story.partition.topic, 0, 10)]).values()
    assert deleted.result().low_watermark == 10
    assert story.offset(LATEST) == 10
    assert story.offset(LATEST, IsolationLevel.READ_UNCOMMITTED) == 11
    check_reads_on(story, bootstrap, 10)


def test_it_is_so_after_a_restart_and_on_the_next_leader(broker: Broker, bootstrap: str) -> None:
    story = Story(bootstrap)
    (deleted,) = story.admin.delete_records([TopicPartition(story.partition.topic, 0, 10)]).values()
    assert deleted.result().low_watermark == 10
    if broker.can_restart:
        broker.restart()
        story.await_stable(10)
    if isinstance(broker, ApacheNodes | KbrokerNodes):
        before = story.leader()
        node = broker.nodes[before - 1]
        node.kill()
        eventually(lambda: story.leader() not in (before, -1), "another leader")
        story.await_stable(10)
        node.start()
        broker.await_in_sync()
    check_reads_on(story, bootstrap, 10)


def test_retention_passes_the_beginning_of_a_transaction(bootstrap: str) -> None:
    story = Story(bootstrap, 500_000, **{"segment.bytes": "1048576"})
    limit = ConfigEntry("retention.bytes", "1048576", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, story.partition.topic, incremental_configs=[limit])
    for future in story.admin.incremental_alter_configs([resource]).values():
        future.result(LONG)
    eventually(lambda: story.offset(EARLIEST) > 0, "retention")
    start = story.offset(EARLIEST)
    assert story.offset(LATEST) == start
    check_reads_on(story, bootstrap, start)
