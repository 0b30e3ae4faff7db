"""Clusters at the oldest level of ``metadata.version`` rise to the latest with Kafka's own tool, while clients work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from compat_tests.clients import skip_without
from compat_tests.coordinators import COORDINATOR_ELSEWHERE
from compat_tests.java_tools.driver import ToolDriver
from compat_tests.shapes.shaped import SHAPES, Shape, ShapedCluster
from kbroker.raft_metadata.metadata_version import METADATA_VERSION_NAMES
from tests.patience import LONG

if TYPE_CHECKING:
    from confluent_kafka import Consumer

PARTITIONS = 6
LATER_FEATURES = ("group.version=1", "transaction.version=2", "eligible.leader.replicas.version=1")
UPGRADED = {"apart": SHAPES["apart-3.3"], "threes": Shape(brokers=3, release="3.3-IV3")}


class Load:
    """An idempotent producer that never pauses, and a member of a group that reads what it has written."""

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka import Producer
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": bootstrap})
        for made in admin.create_topics([NewTopic("load", PARTITIONS, 3)]).values():
            made.result(LONG)
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1})
        self._bootstrap = bootstrap
        self.acknowledged: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
        self._read_at: dict[int, dict[int, int]] = {partition: {} for partition in range(PARTITIONS)}
        """By offset: after a rebalance a member begins again where the group has committed."""
        self.failed: list[str] = []
        self._sent = 0
        self._stopped = threading.Event()
        self._flushed = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, args=(each,), daemon=True) for each in (self._write, self._read)
        ]
        for thread in self._threads:
            thread.start()

    def _unread(self) -> bool:
        return any(set(told) - set(self._read_at[partition].values()) for partition, told in self.acknowledged.items())

    @property
    def read(self) -> dict[int, list[int]]:
        """Read the values of each partition, in the order of offsets."""
        return {partition: [found[offset] for offset in sorted(found)] for partition, found in self._read_at.items()}

    @property
    def count(self) -> int:
        """Records acknowledged."""
        return sum(map(len, self.acknowledged.values()))

    def _work(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.failed.append(repr(error))
            raise

    def _write(self) -> None:
        while not self._stopped.wait(0.005):
            number, partition = self._sent, self._sent % PARTITIONS
            self._sent += 1

            def delivered(error: object, _: object, number: int = number, partition: int = partition) -> None:
                if error is not None:
                    self.failed.append(str(error))
                else:
                    self.acknowledged[partition].append(number)

            self._producer.produce("load", str(number).encode(), partition=partition, on_delivery=delivered)
            self._producer.poll(0)
        self._producer.flush(LONG)
        self._flushed.set()

    def _read(self) -> None:
        from confluent_kafka import Consumer

        settings = {"bootstrap.servers": self._bootstrap, "group.id": "load", "auto.offset.reset": "earliest"}
        while self._goes_on():
            consumer = Consumer(settings)
            consumer.subscribe(["load"])
            self._read_by(consumer)
            consumer.close()

    def _goes_on(self) -> bool:
        return not self._flushed.is_set() or self._unread()

    def _read_by(self, consumer: Consumer) -> None:
        """Until all is read, or until this consumer has to be replaced, as `COORDINATOR_ELSEWHERE` says."""
        while self._goes_on():
            message = consumer.poll(0.1)
            error = message and message.error()
            if error:
                if error.code() in COORDINATOR_ELSEWHERE:
                    return
            elif message is not None:
                partition, offset, value = message.partition(), message.offset(), message.value()
                assert partition is not None and offset is not None and value is not None
                if self._read_at[partition].setdefault(offset, int(value)) != int(value):
                    self.failed.append(f"{partition}: offset {offset} has changed")

    def await_progress(self) -> None:
        """Until some more records are acknowledged."""
        goal, pause = self.count + 5, threading.Event()
        for _ in range(2400):
            if self.count >= goal:
                return
            assert not self.failed, self.failed[:3]
            pause.wait(0.05)
        raise AssertionError(f"nothing is acknowledged: {self.failed[:3]}")

    def finish(self) -> None:
        """Stop; the reader goes on until it has all that was acknowledged."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(LONG)
            assert not thread.is_alive(), self.failed[:3]


@pytest.fixture(params=UPGRADED)
def cluster(request: pytest.FixtureRequest) -> Iterator[ShapedCluster]:
    """Three brokers at 3.3-IV3."""
    for client in ("java", "confluent-kafka"):
        skip_without(client)
    made = ShapedCluster(UPGRADED[request.param])
    try:
        yield made
    finally:
        made.stop()


def test_every_level_is_reached_one_by_one_and_nothing_is_lost(cluster: ShapedCluster) -> None:
    load = Load(cluster.bootstrap)
    load.await_progress()
    tools = ToolDriver(cluster.bootstrap)
    wishes = [(f"metadata.version={level}",) for level in METADATA_VERSION_NAMES if level > 7]
    try:
        for number, wish in enumerate((*wishes, LATER_FEATURES)):
            arguments = [argument for feature in wish for argument in ("--feature", feature)]
            done = tools.run("kafka-features", "--bootstrap-server", cluster.bootstrap, "upgrade", *arguments)
            assert done.exit == 0, done
            if number % 6 == 5:
                node = cluster.nodes[number % len(cluster.nodes)]
                node.kill()
                load.await_progress()
                node.start()
                node.await_ready()
            load.await_progress()
        described = tools.run("kafka-features", "--bootstrap-server", cluster.bootstrap, "describe").out
    finally:
        load.finish()
        tools.close()
    assert not load.failed
    for partition, acknowledged in load.acknowledged.items():
        # librdkafka itself may send again, in a new epoch, what was under way while leaders changed.
        found = list(dict.fromkeys(load.read[partition]))
        assert not set(acknowledged) - set(found), "nothing acknowledged is lost"
        assert sorted(found) == sorted(acknowledged) and found == sorted(found), "the order is that of the producer"
    [level] = [line for line in described.splitlines() if line.startswith("Feature: metadata.version")]
    # The tools are older than the nodes: they have no name for the last level.
    assert f"FinalizedVersionLevel: UNKNOWN {max(METADATA_VERSION_NAMES)} " in level
