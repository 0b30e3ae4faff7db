"""``kbroker balance`` on three nodes of which one leads all that is written."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kbroker.client.balance import Load, Move, Placed, still_free
from kbroker.client.configs import ResourceType, describe_configs
from kbroker.client.producer import Producer
from kbroker.client.reader import Reader
from kbroker.client.reassignments import alter_reassignments, list_reassignments
from kbroker.client.topics import NewTopic, TopicDescription, create_topics, describe_topics
from kbroker.testing import RunningCluster, running_cluster
from kbroker.types import TopicPartition
from kbroker.wire.record_batch import Record
from tests.cli_command import Run, command_for
from tests.every_node import await_topics
from tests.patience import LONG, eventually


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(3) as running:
        yield running


@pytest.fixture
def kb(cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return command_for(cluster.bootstrap_servers, monkeypatch, capsys)


@contextmanager
def load(cluster: RunningCluster, topic: str, replicas: list[list[int]], **configs: str) -> Iterator[None]:
    """All partitions of a new topic are written, as fast as they are acknowledged, and read again and again."""
    with cluster.client() as client:
        create_topics(client, [NewTopic(topic, configs=configs, assignment=replicas)])
    await_topics(cluster, topic)
    begun, ended = threading.Event(), threading.Event()

    def write() -> None:
        with cluster.client() as client:
            producer = Producer(client, topic, list(range(len(replicas))), on_refused=print)
            producer.send(Record(0, 0, None, b"first"), 0, 0)
            producer.flush()
            begun.set()
            while not ended.wait(0.02):
                for number in range(len(replicas)):
                    producer.send(Record(0, 0, None, bytes(900_000)), 0, number)
                producer.flush()

    def read() -> None:
        with cluster.client() as client:
            while not ended.wait(0.02):
                reader = Reader(client, topic, dict.fromkeys(range(len(replicas)), 0))
                for _ in range(10):
                    reader.poll(0.1)
                reader.close()

    threads = [threading.Thread(target=write), threading.Thread(target=read)]
    for thread in threads:
        thread.start()
    try:
        assert begun.wait(LONG)
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


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


def throttled(cluster: RunningCluster, brokers: list[int]) -> set[str]:
    """The brokers, and perhaps the topic "slow", that are throttled."""
    places = [(ResourceType.BROKER, str(each), "leader.replication.throttled.rate") for each in brokers]
    places.append((ResourceType.TOPIC, "slow", "leader.replication.throttled.replicas"))
    with cluster.client() as client:
        return {
            name
            for kind, name, key in places
            for each in describe_configs(client, kind, name, keys=[key])
            if not each.is_default
        }


def test_no_throttle_stays_when_it_is_told_to_stop_and_a_broker_is_gone() -> None:
    with running_cluster(3) as cluster:
        words = ["balance", "-b", cluster.bootstrap_servers, "--seconds", "1", "--moves", "1", "--yes"]
        words += ["--execute", "--throttle", "1000", "--timeout", "5"]
        with load(cluster, "slow", [[2], [2]], **{"min.insync.replicas": "1"}):
            command = subprocess.Popen([sys.executable, "-m", "kbroker", *words], stderr=subprocess.PIPE, text=True)
            try:
                with cluster.client() as client:
                    [moved] = eventually(lambda: list_reassignments(client), "it moves").values()
            except BaseException:
                command.kill()
                raise
        [target] = moved.adding
        assert throttled(cluster, [2, target]) == {"2", str(target), "slow"}
        cluster.node(target).kill()
        command.send_signal(signal.SIGTERM)
        told = command.communicate(timeout=LONG)[1]
        assert throttled(cluster, [each for each in (1, 2, 3) if each != target]) == set()
        assert f"broker {target} stays throttled" in told and "Traceback" not in told


def test_what_somebody_else_moves_is_left_to_them(cluster: RunningCluster) -> None:
    with cluster.client() as client:
        create_topics(client, [NewTopic("theirs", assignment=[[1, 2], [1, 2]])])
        await_topics(cluster, "theirs")
        first, second = (TopicPartition("theirs", number) for number in (0, 1))
        placed = Placed((1, 2), 1, frozenset((1, 2)), 0, Load(0.1, 0.0))
        moves = [Move(each, placed, (2, 1)) for each in (first, second)]
        assert still_free(client, moves) == moves
        with cluster.faults.hold("Fetch", topic="theirs", followers=True):
            alter_reassignments(client, {first: (2, 3)})
            assert [each.partition for each in still_free(client, moves)] == [second]
            alter_reassignments(client, {first: None})
        eventually(lambda: still_free(client, moves) == moves, "it moves no more")
        assert alter_reassignments(client, {first: (1,)}) == {first: None}
        eventually(lambda: still_free(client, moves) == moves[1:], "what has moved is not moved back")


def test_a_move_that_somebody_cancels_is_told(cluster: RunningCluster) -> None:
    words = ["balance", "-b", cluster.bootstrap_servers, "--seconds", "1", "--moves", "1", "--yes", "--execute"]
    with (
        load(cluster, "called-off", [[2], [2]]),
        cluster.client() as client,
        cluster.faults.hold("Fetch", topic="called-off", followers=True),
    ):
        command = subprocess.Popen([sys.executable, "-m", "kbroker", *words], stderr=subprocess.PIPE, text=True)
        try:
            [moved] = eventually(lambda: list_reassignments(client), "it moves")
            assert alter_reassignments(client, {moved: None}) == {moved: None}
        except BaseException:
            command.kill()
            raise
        told = command.communicate(timeout=LONG)[1]
    assert command.returncode == 1 and f"{moved} did not move: somebody cancelled it" in told
