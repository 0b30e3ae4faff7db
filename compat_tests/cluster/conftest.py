"""A cluster of three, whole again before each test, and what every test does before and after its faults."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import pytest

from compat_tests.cluster.history import (
    History,
    check,
    check_commits,
    check_complete,
    check_reader,
    check_replicas,
    doubled,
    sent_again,
)
from compat_tests.cluster.load import Group, Writer, batches_of, copies_of, create_topic, read_all, read_directory
from kbroker.testing import RunningCluster, running_cluster

PARTITIONS = 3


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("compat")
    group.addoption("--faults", type=int, default=1, metavar="N", help="how often each fault of compat_tests/cluster")


@pytest.fixture(scope="session")
def three_nodes(request: pytest.FixtureRequest) -> Iterator[RunningCluster]:
    """Three nodes for all tests of this folder."""
    if request.config.getoption("--bootstrap") or request.config.getoption("--broker") == "apache":
        pytest.skip("these tests kill nodes of kbroker that they start themselves")
    with running_cluster(3, {"log.segment.bytes": 1 << 20}) as cluster:
        yield cluster


@pytest.fixture
def cluster(three_nodes: RunningCluster) -> RunningCluster:
    """All nodes run, all replicas are in sync."""
    three_nodes.heal()
    return three_nodes


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    """The number of times that a fault is repeated (``--faults``)."""
    return int(request.config.getoption("--faults"))


@dataclass
class Scene:
    """A topic that is written to, and perhaps read by a group, while things happen."""

    cluster: RunningCluster
    topic: str
    writer: Writer
    group: Group | None
    history: History
    began: float = field(default_factory=time.monotonic)


Begin = Callable[..., AbstractContextManager[Scene]]


@pytest.fixture
def scene(cluster: RunningCluster, request: pytest.FixtureRequest, rounds: int) -> Begin:
    """``with scene(group=True) as s:`` faults in its body; at its end everything that was seen is judged.

    Half as many records are written each second where faults are not repeated: clusters are busy all of this time.
    """
    base = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name).strip("-")
    number = 0

    @contextmanager
    def begin(*, group: bool = False, protocol: str = "classic", per_second: int = 2000) -> Iterator[Scene]:
        nonlocal number
        number += 1
        if rounds == 1:
            per_second //= 2
        topic = f"{base}-{number}"
        create_topic(cluster.bootstrap_servers, topic, PARTITIONS)
        history = History()
        members = Group(cluster.bootstrap_servers, topic, protocol=protocol) if group else None
        writer = Writer(cluster.bootstrap_servers, topic, PARTITIONS, history, per_second=per_second)
        try:
            writer.await_every_partition()
            yield Scene(cluster, topic, writer, members, history)
            for node in cluster.nodes:
                node.resume()
            cluster.start()
            writer.await_every_partition()
            writer.stop()
            judge(cluster, topic, writer, members, history)
        finally:
            writer._ended.set()
            if members is not None:
                members.stop()

    return begin


def judge(cluster: RunningCluster, topic: str, writer: Writer, group: Group | None, history: History) -> None:
    """Everything that was promised was kept."""
    cluster.await_in_sync()
    final = read_all(cluster.bootstrap_servers, topic, PARTITIONS, ends=history.ends)
    twice = doubled(final)
    # From any replica: all are held against one another below.
    copies = copies_of(cluster.nodes[0].data_dir, topic, twice) if twice else {}
    useless = sent_again(history, copies, writer.own_epochs)
    problems = check(history, final, useless=useless)
    if history.failed:
        problems.append(f"{len(history.failed)} records failed within their 300 s: {sorted(history.failed)[:3]}")
    if group is not None:
        group.await_up_to({partition: seen[-1].offset + 1 for partition, seen in final.items() if seen})
        group.stop()
        problems += check_reader(group.name, group.seen, final)
        problems += check_complete(group.name, group.seen, final)
        problems += check_commits(group.name, group.commits, group.committed())
    problems += check_replicas({f"node {node.id}": read_directory(node.data_dir, topic) for node in cluster.nodes})
    print(f"{topic}: {history.count} acknowledged, longest pause {writer.longest_pause():.2f} s")
    count = sum(map(len, useless.values()))
    if count:
        own = sorted(writer.own_epochs)
        print(f"{topic}: librdkafka stored {count} twice, the second time in an epoch that it gave itself: {own}")
        print(*(sorted(found) for found in copies.values()), sep="\n")
    if problems and twice:
        for node in cluster.nodes:
            problems += [f"node {node.id}: {each}" for each in batches_of(node.data_dir, topic, twice)]
        problems += writer.said
    assert not problems, "\n".join(problems)
    assert history.count == sum(history.sent.values()) == sum(map(len, final.values())) - count
