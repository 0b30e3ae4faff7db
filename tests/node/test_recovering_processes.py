"""Three combined nodes are killed; two of them recover their logs for long, and their controllers let the third serve.

A partition's checkpoint of leader epochs is a named pipe meanwhile: whoever opens it to read waits for a writer.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kbroker.client.nodes import describe_cluster
from kbroker.client.topics import NewTopic, create_topics
from kbroker.log.checkpoint_files import CLEAN_SHUTDOWN
from kbroker.log.leader_epochs import FILE_NAME as LEADER_EPOCHS
from kbroker.testing import ClusterNode, RunningCluster, running_cluster
from tests.every_node import await_nodes, await_topics
from tests.patience import LONG, eventually

confluent_kafka: Any = pytest.importorskip("confluent_kafka")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")]

COUNT = 500


class HeldLog:
    """A log that cannot be opened until it is let go."""

    def __init__(self, directory: Path) -> None:
        self._pipe = directory / LEADER_EPOCHS
        self._pipe.unlink(missing_ok=True)
        os.mkfifo(self._pipe)
        self._writer = -1
        self._is_open = False

    def is_reached(self) -> bool:
        """Whether the node waits for it."""
        if self._writer < 0:
            try:
                self._writer = os.open(self._pipe, os.O_WRONLY | os.O_NONBLOCK)
            except OSError as error:
                assert error.errno == errno.ENXIO  # nobody reads
        return self._writer >= 0

    def let_go(self) -> None:
        """Have it opened: the checkpoint is gone, and is made anew from the log."""
        if not self._is_open:
            self._is_open = True
            eventually(self.is_reached, f"somebody reads {self._pipe}")
            self._pipe.unlink()
            os.close(self._writer)


def write(cluster: RunningCluster, topic: str, first: int = 0) -> None:
    """Have `COUNT` records acknowledged by all in-sync replicas."""
    failed: list[Any] = []

    def on_delivery(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(error)

    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for number in range(first, first + COUNT):
        producer.produce(topic, b"%d" % number, on_delivery=on_delivery)
    assert producer.flush(LONG) == 0 and not failed


def read(node: ClusterNode, topic: str, count: int) -> list[int]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": node.bootstrap_servers, "group.id": "reader"})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[int] = []
    while len(found) < count:
        message = consumer.poll(LONG)
        assert message is not None
        if message.error() is None:
            found.append(int(message.value()))
    consumer.close()
    return found


@contextmanager
def two_recover() -> Iterator[tuple[RunningCluster, list[HeldLog]]]:
    """Node 3 serves a topic ``third`` alone, and all nodes have ``all``; nodes 1 and 2 are held while they recover."""
    with running_cluster(3, {"min.insync.replicas": 1}) as cluster:
        with cluster.client() as client:
            made = create_topics(client, [NewTopic("all", 1, 3), NewTopic("third", assignment=[[3]])])
            assert not any(isinstance(result, Exception) for result in made.values())
        await_topics(cluster, "all", "third")
        for topic in ("all", "third"):
            write(cluster, topic)
        cluster.await_in_sync()
        cluster.kill()
        held = [HeldLog(node.data_dir / "all-0") for node in cluster.nodes[:2]]
        for node in cluster.nodes:
            node.start(wait=False)
        try:
            yield cluster, held
        finally:
            for log in held:
                log.let_go()


def serves(node: ClusterNode) -> int:
    """The number of its lives in which it has come to serve."""
    return node.log.count(f"node {node.id} serves")


def test_the_third_serves_while_two_recover() -> None:
    with two_recover() as (cluster, held):
        third = cluster.node(3)
        third.await_ready()
        for log in held:
            eventually(log.is_reached, "the log is opened")
        with cluster.client() as client:

            def fenced() -> dict[int, bool | None]:
                return {broker.id: broker.fenced for broker in describe_cluster(client).brokers}

            eventually(lambda: fenced() == {1: True, 2: True, 3: False}, "the two that recover are fenced")
            made = create_topics(client, [NewTopic("new", 1, 1)])
            assert not any(isinstance(result, Exception) for result in made.values())
        write(cluster, "new")
        write(cluster, "third", COUNT)
        assert read(third, "third", 2 * COUNT) == list(range(2 * COUNT))
        assert [serves(node) for node in cluster.nodes] == [1, 1, 2]
        for log in held:
            log.let_go()
        for node in cluster.nodes[:2]:
            node.await_ready()
        await_nodes(cluster, [1, 2, 3])
        cluster.await_in_sync()
        write(cluster, "all", COUNT)
        for node in cluster.nodes:
            assert read(node, "all", 2 * COUNT) == list(range(2 * COUNT))


def test_one_that_recovers_is_told_to_stop() -> None:
    with two_recover() as (cluster, held):
        cluster.node(3).await_ready()
        first = cluster.node(1)
        eventually(held[0].is_reached, "the log is opened")
        assert first.pid is not None
        os.kill(first.pid, signal.SIGTERM)
        eventually(lambda: "stopped while opening logs: " in first.log, "it hears of it")
        held[0].let_go()
        eventually(lambda: not first.is_running, "it ends")
        assert first.stop() == 0, first.log[-3000:]
        assert not (first.data_dir / CLEAN_SHUTDOWN).exists()
        held[1].let_go()
        cluster.node(2).await_ready()
        first.start()
        cluster.await_in_sync()
        assert read(first, "all", COUNT) == list(range(COUNT))
