"""``kbroker cluster drain`` on three nodes: where the replicas go, and that a drain that is refused leaves no trace."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.client import ResponseError
from kbroker.client.configs import ResourceType, describe_configs
from kbroker.client.nodes import brokers_open_to_new
from kbroker.client.reassignments import alter_reassignments, list_reassignments
from kbroker.client.topics import NewTopic, create_topics
from kbroker.errors import ErrorCode, FatalError
from kbroker.testing import RunningCluster, running_cluster
from kbroker.tools.cli.cluster_nodes import cordoned
from kbroker.types import TopicPartition
from tests.cli_command import Run, command_for
from tests.every_node import await_topics
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


def started(
    cluster: RunningCluster, *words: str, stdin: int | None = None, stderr: int = subprocess.PIPE
) -> subprocess.Popen[bytes]:
    """The command in a process of its own."""
    root = str(Path(__file__).parents[2])
    environment = os.environ | {"PYTHONPATH": root, "KBROKER_BOOTSTRAP": cluster.bootstrap_servers}
    return subprocess.Popen(
        [sys.executable, "-m", "kbroker", *words], env=environment, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr
    )


def answered(cluster: RunningCluster, answer: bytes, *, meanwhile: list[list[int]]) -> tuple[int, str]:
    """Drain broker 1 at a terminal; before the answer to its question there is a topic ``late``. Code, and output."""
    ours, theirs = pty.openpty()
    process = started(cluster, "cluster", "drain", "1", stdin=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    while not shown.rstrip().endswith(b"[y/N]"):
        shown += os.read(ours, 4096)
    topic_on(cluster, "late", meanwhile)
    os.write(ours, answer)
    out, _ = process.communicate(timeout=LONG)
    os.close(ours)
    return process.returncode, out.decode()


def test_a_topic_that_is_made_before_the_answer_is_moved_too(cluster: RunningCluster) -> None:
    topic_on(cluster, "t", [[1]])
    assert answered(cluster, b"y\n", meanwhile=[[1], [1]]) == (
        0,
        "broker 1 has nothing any more: 3 partitions were moved\n",
    )
    with cluster.client() as client:
        [late] = client.refresh(["late"])
        assert all(1 not in each.replica_nodes for each in late.partitions)


def test_a_topic_that_cannot_be_moved_keeps_the_broker_as_it_is(cluster: RunningCluster) -> None:
    assert answered(cluster, b"y\n", meanwhile=[[1, 2, 3]]) == (1, "")
    eventually(lambda: not cordon_of(cluster, 1), "it gets new partitions again")


def test_a_drain_that_is_not_wanted(cluster: RunningCluster) -> None:
    assert answered(cluster, b"n\n", meanwhile=[[1]]) == (1, "")
    assert not cordon_of(cluster, 1)


def test_a_move_that_somebody_cancels_is_told(cluster: RunningCluster, kb: Run, tmp_path: Path) -> None:
    topic_on(cluster, "t", [[1]])
    lines = tmp_path / "lines"
    lines.write_text("x" * 100_000 + "\n")
    kb("produce", "t", str(lines))
    kb("config", "set", "topic", "t", "follower.replication.throttled.replicas=*")
    for broker in "23":
        kb("config", "set", "broker", broker, "follower.replication.throttled.rate=1")
    words = ("cluster", "drain", "1", "--yes", "--timeout", "3")
    with started(cluster, *words) as process, cluster.client() as client:
        eventually(lambda: bool(list_reassignments(client)), "it moves")
        alter_reassignments(client, {TopicPartition("t", 0): None})
        out, errors = process.communicate(timeout=LONG)
    assert (process.returncode, out) == (1, b"")
    assert errors.endswith(b"1 partitions are on broker 1 still, t-0 among them: give the command again\n")
