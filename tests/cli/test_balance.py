"""``kbroker balance`` on three nodes of which one leads all that is written."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kbroker.client.configs import ResourceType, describe_configs
from kbroker.client.producer import Producer
from kbroker.client.topics import NewTopic, TopicDescription, create_topics, describe_topics
from kbroker.testing import RunningCluster, running_cluster
from kbroker.wire.record_batch import Record
from tests.cli_command import Run, command_for
from tests.every_node import await_topics
from tests.patience import LONG


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(3) as running:
        yield running


@pytest.fixture
def kb(cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return command_for(cluster.bootstrap_servers, monkeypatch, capsys)


@contextmanager
def load(cluster: RunningCluster, topic: str, replicas: list[list[int]]) -> Iterator[None]:
    """All partitions of a new topic are written, as fast as they are acknowledged."""
    with cluster.client() as client:
        create_topics(client, [NewTopic(topic, assignment=replicas)])
    await_topics(cluster, topic)
    begun, ended = threading.Event(), threading.Event()

    def write() -> None:
        with cluster.client() as client:
            producer = Producer(client, topic, list(range(len(replicas))), on_refused=print)
            producer.send(Record(0, 0, None, b"first"), 0, 0)
            producer.flush()
            begun.set()
            while not ended.is_set():
                for number in range(len(replicas)):
                    producer.send(Record(0, 0, None, bytes(900_000)), 0, number)
                producer.flush()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert begun.wait(LONG)
        yield
    finally:
        ended.set()
        writer.join()


def described(cluster: RunningCluster, name: str) -> TopicDescription:
    with cluster.client() as client:
        found = describe_topics(client, [name])[name]
    assert isinstance(found, TopicDescription)
    return found


def test_leaders_are_spread_without_copying(cluster: RunningCluster, kb: Run) -> None:
    with load(cluster, "hot", [[1, 2], [1, 3], [1, 2]]):
        shown = kb("balance", "--seconds", "1", "--leaders", "--json").json
        loads = {each["broker"]: each["before"] for each in shown["brokers"]}
        assert max(loads, key=lambda broker: loads[broker]) == 1
        assert shown["moves"], shown
        assert all(each["copied_bytes"] == 0 for each in shown["moves"])
        assert {each.leader for each in described(cluster, "hot").partitions} == {1}  # it was only shown
        done = kb("balance", "--seconds", "1", "--leaders", "--execute", "--yes")
        assert done.code == 0 and "1 to " in done.out
        leaders = {each.leader for each in described(cluster, "hot").partitions}
        assert len(leaders) > 1


def test_replicas_move_to_a_broker_with_nothing_and_no_throttle_stays(cluster: RunningCluster, kb: Run) -> None:
    with load(cluster, "alone", [[2], [2]]):
        done = kb("balance", "--seconds", "1", "--execute", "--throttle", "50000000", "--yes")
    assert done.code == 0, done.err
    assert {each.replicas for each in described(cluster, "alone").partitions} != {(2,)}
    with cluster.client() as client:
        for broker in ("1", "2", "3"):
            entries = describe_configs(client, ResourceType.BROKER, broker)
            assert all(each.is_default for each in entries if each.name.endswith("replication.throttled.rate"))


def test_an_idle_cluster_stays_as_it_is(cluster: RunningCluster, kb: Run) -> None:
    assert "nothing to move" in kb("balance", "--seconds", "1", "--execute", "--yes").out
