"""``kbroker topic move`` and ``kbroker topic elect`` on three nodes, judged by what a client is told afterwards."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from kbroker.client import Client
from kbroker.client.producer import Producer
from kbroker.client.topics import NewTopic, TopicDescription, create_topics, describe_topics
from kbroker.testing import RunningCluster, running_cluster
from kbroker.wire.record_batch import Record
from tests.cli_command import Run, command_for
from tests.every_node import await_topics
from tests.patience import eventually


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(3) as running:
        yield running


@pytest.fixture
def kb(cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return command_for(cluster.bootstrap_servers, monkeypatch, capsys)


def topic_on(cluster: RunningCluster, name: str, replicas: list[list[int]]) -> None:
    """A topic with 50 records in each partition."""
    with cluster.client() as client:
        create_topics(client, [NewTopic(name, assignment=replicas)])
        await_topics(cluster, name)
        for partition in range(len(replicas)):
            produce(client, name, partition, 50)


def produce(client: Client, topic: str, partition: int, count: int) -> None:
    producer = Producer(client, topic, [partition], on_refused=print)
    for number in range(count):
        producer.send(Record(0, time.time_ns() // 1_000_000, None, b"%d" % number), 0, partition)
    producer.flush()


def described(cluster: RunningCluster, name: str) -> TopicDescription:
    with cluster.client() as client:
        found = describe_topics(client, [name])[name]
    assert isinstance(found, TopicDescription)
    return found


def test_replicas_move_and_keep_their_records(cluster: RunningCluster, kb: Run) -> None:
    topic_on(cluster, "moved", [[1], [1]])
    assert kb("topic", "move", "moved", "--brokers", "2,3", "--dry-run", "--json").json == [
        {"topic": "moved", "partition": 0, "before": [1], "after": [2]},
        {"topic": "moved", "partition": 1, "before": [1], "after": [3]},
    ]
    assert [list(each.replicas) for each in described(cluster, "moved").partitions] == [[1], [1]]
    assert kb("topic", "move", "moved", "--brokers", "2,3", "--wait").code == 0
    assert [list(each.replicas) for each in described(cluster, "moved").partitions] == [[2], [3]]
    assert "nothing to move" in kb("topic", "move", "moved", "--brokers", "2,3").out
    assert len(kb("consume", "moved", "--from", "start").rows) == 100


def test_what_moves_is_planned_by_where_it_will_be(cluster: RunningCluster, kb: Run) -> None:
    """While it moves, the metadata have its old replicas and its new ones."""
    topic_on(cluster, "slow", [[1, 2]])
    with cluster.faults.hold("Fetch", topic="slow", followers=True):
        kb("topic", "move", "slow", "--brokers", "2,3")
        assert sorted(described(cluster, "slow").partitions[0].replicas) == [1, 2, 3]
        assert "nothing to move" in kb("topic", "move", "slow", "--brokers", "2,3").out
        assert "slow-0" not in kb("cluster", "drain", "1", "--dry-run").out
        assert "1 moves cancelled" in kb("topic", "move", "slow", "--cancel").out
    assert sorted(described(cluster, "slow").partitions[0].replicas) == [1, 2]


def test_a_partition_gets_more_replicas(cluster: RunningCluster, kb: Run) -> None:
    topic_on(cluster, "more", [[1], [1]])
    assert kb("topic", "move", "more:1", "--brokers", "1-3", "-r", "3", "--wait").code == 0
    assert [len(each.replicas) for each in described(cluster, "more").partitions] == [1, 3]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--brokers", "7"], "broker 7 is not there: choose others"),
        (["--brokers", "1", "-r", "2"], "2 replicas need as many brokers, and 1 are chosen"),
        (["--brokers", "one"], "--brokers are numbers such as 0,2,5-7"),
        ([], "give --brokers or --replicas, or --cancel"),
        (["--brokers", "1", "--cancel"], "give --brokers or --replicas, or --cancel"),
        (["-r", "4"], "4 replicas need as many brokers"),
    ],
)
def test_what_cannot_be_moved_is_said(cluster: RunningCluster, kb: Run, arguments: list[str], said: str) -> None:
    with cluster.client() as client:
        create_topics(client, [NewTopic("stays", assignment=[[1]])])
    await_topics(cluster, "stays")
    done = kb("topic", "move", "stays", *arguments, code=None)
    assert done.code and said in done.err
    assert [list(each.replicas) for each in described(cluster, "stays").partitions] == [[1]]


def test_leaders_that_are_not_the_preferred_ones_are_elected(cluster: RunningCluster, kb: Run) -> None:
    topic_on(cluster, "led", [[2, 3], [3, 2]])
    cluster.nodes[1].kill()
    eventually(lambda: described(cluster, "led").partitions[0].leader == 3, "broker 3 leads")
    cluster.heal()
    eventually(lambda: set(described(cluster, "led").partitions[0].isr) == {2, 3}, "broker 2 is in sync")
    assert kb("topic", "elect", "led", "--json").json == [{"topic": "led", "partition": 0}]
    assert [each.leader for each in described(cluster, "led").partitions] == [2, 3]
    assert "0 leaders elected" in kb("topic", "elect", "led").out


def test_a_replica_that_is_not_in_sync_is_elected_if_told(cluster: RunningCluster, kb: Run) -> None:
    """Broker 2 misses the last records, and the only one that has them is gone."""
    topic_on(cluster, "unclean", [[3, 2]])
    kb("config", "set", "topic", "unclean", "min.insync.replicas=1")
    cluster.nodes[1].kill()
    eventually(lambda: list(described(cluster, "unclean").partitions[0].isr) == [3], "broker 2 is out of sync")
    with cluster.client() as client:
        produce(client, "unclean", 0, 1)
    cluster.nodes[2].kill()
    cluster.nodes[1].start()
    eventually(lambda: described(cluster, "unclean").partitions[0].leader is None, "nobody leads")
    refused = kb("topic", "elect", "unclean", code=None)
    assert refused.code and "unclean-0" in refused.err
    assert "1 leaders elected" in kb("topic", "elect", "unclean", "--unclean", "--yes").out
    assert described(cluster, "unclean").partitions[0].leader == 2
    assert len(kb("consume", "unclean", "--from", "start").rows) == 50
    cluster.heal()
