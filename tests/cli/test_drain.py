"""``kbroker cluster drain`` on three nodes: where the replicas go, and that a drain that is refused leaves no trace."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from kbroker.client import ResponseError
from kbroker.client.configs import ResourceType, describe_configs
from kbroker.client.nodes import brokers_open_to_new, describe_cluster
from kbroker.client.reassignments import alter_reassignments, list_reassignments
from kbroker.client.topics import NewTopic, create_topics, list_topics
from kbroker.errors import ErrorCode, FatalError
from kbroker.testing import RunningCluster, running_cluster
from kbroker.tools.cli.cluster_nodes import cordoned
from kbroker.types import TopicPartition
from tests.cli_command import Run, command_for
from tests.every_node import await_nodes, await_topics
from tests.patience import LONG, eventually

CORDONED = "cordoned.log.dirs"


@pytest.fixture
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(3) as running:
        yield running


@pytest.fixture
def kb(cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return command_for(cluster.bootstrap_servers, monkeypatch, capsys)


def topic_on(cluster: RunningCluster, name: str, replicas: list[list[int]]) -> None:
    with cluster.client() as client:
        create_topics(client, [NewTopic(name, assignment=replicas)])
    await_topics(cluster, name)


def cordon_of(cluster: RunningCluster, broker: int) -> str | None:
    with cluster.client() as client:
        return describe_configs(client, ResourceType.BROKER, str(broker), keys=[CORDONED])[0].value


def await_open(cluster: RunningCluster, *brokers: int) -> None:
    def are_open() -> bool:
        with cluster.client() as client:
            return sorted(brokers_open_to_new(client)) == list(brokers)

    eventually(are_open, f"{brokers} take new partitions")


def test_cordoned_brokers_get_nothing(cluster: RunningCluster, kb: Run) -> None:
    topic_on(cluster, "t", [[1], [1], [1], [3]])
    kb("config", "set", "broker", "2", f"{CORDONED}=*")
    await_open(cluster, 1, 3)
    moves = kb("cluster", "drain", "1", "--yes", "--json").json["moves"]
    assert moves == {f"t-{each}": {"before": [1], "after": [3]} for each in range(3)}
    await_open(cluster, 3)
    more = kb("topic", "move", "t", "-r", "2", code=None)
    assert more.code and "2 replicas need as many brokers, and 1 are chosen" in more.err
    refused = kb("cluster", "drain", "3", "--yes", code=None)
    assert refused.code and "has 1 replicas, and no other broker can have one of them: start one" in refused.err
    assert not cordon_of(cluster, 3), "nothing was changed"
    kb("config", "unset", "broker", "2", CORDONED)
    await_open(cluster, 2, 3)
    done = kb("topic", "move", "t", "-r", "2", "--wait")
    assert done.out.endswith("\nmoved\n")


@pytest.mark.parametrize("before", ["", "*"])
def test_a_drain_that_is_refused_takes_its_cordon_back(cluster: RunningCluster, kb: Run, before: str) -> None:
    if before:
        kb("config", "set", "broker", "1", f"{CORDONED}={before}")
    seen: list[str | None] = []

    def move() -> None:
        with cluster.client() as client, cordoned(client, 1):
            eventually(lambda: cordon_of(cluster, 1) == "*", "broker 1 is cordoned")
            seen.append(cordon_of(cluster, 1))
            raise ResponseError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partition t-0", "as a controller may say")

    with pytest.raises(FatalError, match=r"may say.*; broker 1 is not drained, and cordoned\.log\.dirs is as it was"):
        move()
    assert seen == ["*"]
    eventually(lambda: cordon_of(cluster, 1) == before, "as it was")


def replicas_of(cluster: RunningCluster, *names: str) -> dict[str, list[tuple[int, ...]]]:
    with cluster.client() as client:
        return {
            each.name: [one.replicas for one in each.partitions] for each in list_topics(client) if each.name in names
        }


def test_what_others_change_meanwhile_is_heeded(cluster: RunningCluster) -> None:
    """While the first pieces move, a move is cancelled, and a partition whose turn comes later gets fewer replicas."""
    topic_on(cluster, "a", [[1]])
    topic_on(cluster, "b", [[1]] * 49)
    topic_on(cluster, "c", [[1, 3]])
    cancelled, other = TopicPartition("a", 0), TopicPartition("c", 0)
    words = ["cluster", "drain", "1", "-b", cluster.bootstrap_servers, "--yes"]
    with cluster.client() as client:
        with cluster.faults.hold("Fetch", topic="a", followers=True):
            command = subprocess.Popen([sys.executable, "-m", "kbroker", *words], stdout=subprocess.PIPE, text=True)
            try:
                eventually(lambda: cancelled in list_reassignments(client), "the first piece moves")
                assert alter_reassignments(client, {other: [3]}) == {other: None}
                eventually(lambda: not list_reassignments(client, {"c": [0]}), "it has one replica, elsewhere")
                assert alter_reassignments(client, {cancelled: None}) == {cancelled: None}
            except BaseException:
                command.kill()
                raise
        told = command.communicate(timeout=LONG)[0]
    assert command.returncode == 0 and told == "broker 1 has nothing any more: 50 partitions were moved\n"

    def is_drained() -> bool:
        found = replicas_of(cluster, "a", "b", "c")
        return found["c"] == [(3,)] and not any(1 in each for replicas in found.values() for each in replicas)

    eventually(is_drained, "everybody knows")


def test_a_broker_that_is_gone_is_drained(cluster: RunningCluster, kb: Run) -> None:
    topic_on(cluster, "t", [[3, 1], [1, 3]])
    cluster.node(3).kill()
    await_nodes(cluster, [1, 2])
    done = kb("cluster", "drain", "3", "--yes")
    assert done.out == "broker 3 has nothing any more: 2 partitions were moved\n"
    eventually(lambda: [{*each} for each in replicas_of(cluster, "t")["t"]] == [{1, 2}, {1, 2}], "everybody knows")


@pytest.mark.parametrize("words", [("drain", "1"), ("unregister", "3")])
def test_the_exit_code_tells_that_a_person_said_no(cluster: RunningCluster, words: tuple[str, str]) -> None:
    cluster.node(3).kill()
    await_nodes(cluster, [1, 2])
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "kbroker", "cluster", *words, "-b", cluster.bootstrap_servers]
    with subprocess.Popen(command, stdin=theirs, stderr=theirs, stdout=subprocess.DEVNULL) as process:
        os.close(theirs)
        os.write(ours, b"n\n")
        assert process.wait(LONG) == 1
    told = b""
    with suppress(OSError):  # nobody has the other end any more
        while data := os.read(ours, 10_000):
            told += data
    os.close(ours)
    assert b"[y/N]" in told and b"kbroker: nothing" in told
    with cluster.client() as client:
        assert [each.id for each in describe_cluster(client).brokers] == [1, 2, 3]
    assert not cordon_of(cluster, 1)
