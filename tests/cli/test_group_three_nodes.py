"""``kbroker group describe`` on three nodes: one coordinates, another one leads, and the third, a leader, is down."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from kbroker.client import Client
from kbroker.client.groups import commit_offsets
from kbroker.client.producer import Producer
from kbroker.client.topics import NewTopic, create_topics
from kbroker.testing.cluster import running_cluster
from kbroker.types import TopicPartition
from kbroker.wire.record_batch import Record
from tests.cli_command import command_for
from tests.every_node import await_topics
from tests.patience import eventually
from tests.streams_member import StreamsMember

confluent_kafka = pytest.importorskip("confluent_kafka")


TOPICS = ("kept", "orders", "passing")
LEADERLESS = "orders-1: there is no leader: nobody can read or write there."
GONE = "kept-0: offsets 2 to 5 are gone, and the group has not committed them: the log begins at offset 6."
MISSING = "passing: there is no such topic, and 1 member subscribes to it."

Step = Callable[[], object]


@contextmanager
def consumer(bootstrap: str, group: str, protocol: str) -> Iterator[Step]:
    """A stock consumer that has committed offset 2 everywhere; each step is a poll."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol}
    member = confluent_kafka.Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
    member.subscribe(list(TOPICS))
    try:
        eventually(lambda: (member.poll(0.2), len(member.assignment()) == 4)[1], "it has all partitions")
        partitions = [("kept", 0), ("orders", 0), ("orders", 1), ("passing", 0)]
        member.commit(offsets=[confluent_kafka.TopicPartition(*each, 2) for each in partitions], asynchronous=False)
        yield lambda: member.poll(0.2)
    finally:
        member.close()


@contextmanager
def worker(bootstrap: str, group: str) -> Iterator[Step]:
    """A stock share consumer that has all records; each step is a poll."""
    member = confluent_kafka.ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group})
    member.subscribe(list(TOPICS))
    taken: set[tuple[str, int, int]] = set()  # a record may be delivered again

    def has_all() -> bool:
        taken.update((each.topic(), each.partition(), each.offset()) for each in member.poll(0.2))
        return len(taken) == 40

    try:
        eventually(has_all, "it has all records")
        member.commit_sync()
        yield lambda: member.poll(0.2)
    finally:
        member.close()


@contextmanager
def application(client: Client, group: str) -> Iterator[Step]:
    """A member of a Streams group that reads ``kept`` and ``orders``, whose offsets are all 2."""
    member = StreamsMember(client, group, ["kept", "orders"])
    member.join()
    member.leave()
    partitions = [TopicPartition("kept", 0), TopicPartition("orders", 0), TopicPartition("orders", 1)]
    assert commit_offsets(client, group, dict.fromkeys(partitions, 2)) == {}
    member.join()
    yield member.beat
    member.leave()


def test_reasons_where_the_coordinator_leads_nothing_and_a_leader_is_down(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with running_cluster(3) as cluster, ExitStack() as members, cluster.client() as client:
        kb = command_for(cluster.bootstrap_servers, monkeypatch, capsys)
        down = next(node for node in cluster.nodes if node is not cluster.controller)
        leader, coordinator = (node.id for node in cluster.nodes if node is not down)
        assignments = {"kept": [[leader]], "orders": [[leader], [down.id]], "passing": [[leader]]}
        create_topics(client, [NewTopic(name, assignment=each) for name, each in assignments.items()])
        await_topics(cluster, *TOPICS)
        for topic in TOPICS:
            producer = Producer(client, topic, range(len(assignments[topic])), on_refused=print)
            for number in range(10 * len(assignments[topic])):
                producer.send(Record(0, time.time_ns() // 1_000_000, None, b"v"), 0, number % len(assignments[topic]))
            producer.flush()
        groups = {
            kind: _coordinated_by(client, coordinator, kind) for kind in ("classic", "consumer", "share", "streams")
        }
        kb("config", "set", "group", groups["share"], "share.auto.offset.reset=earliest")
        for node in cluster.nodes:
            ask = ("config", "describe", "group", groups["share"], "-b", node.bootstrap_servers)
            eventually(lambda ask=ask: "earliest" in kb(*ask).out, "each node knows it")  # type: ignore[misc]
        steps = [
            members.enter_context(consumer(cluster.bootstrap_servers, groups["classic"], "classic")),
            members.enter_context(consumer(cluster.bootstrap_servers, groups["consumer"], "consumer")),
            members.enter_context(worker(cluster.bootstrap_servers, groups["share"])),
            members.enter_context(application(client, groups["streams"])),
        ]
        kb("topic", "truncate", "kept", "--before-offset", "6", "-y")
        kb("topic", "delete", "passing", "-y")
        await_topics(cluster, "passing", gone=True)
        down.kill()
        both = [LEADERLESS, GONE]
        expected = {
            "classic": [MISSING, *both],
            "consumer": [MISSING, *both],
            "share": [MISSING, LEADERLESS],
            "streams": both,
        }
        told: dict[str, Any] = {}
        patience = itertools.count(2)  # seconds for leaders to come: a busy machine gets more with each look

        def is_told() -> bool:
            for step in steps:
                step()
            found = kb("group", "describe", *groups.values(), "--json", "--timeout", str(next(patience)), code=None)
            if found.code:
                told["problem"] = found.err
                return False
            told.update({each["type"].lower(): each for each in found.json})
            return all(
                [reason["text"] for reason in told[kind]["reasons"]] == texts for kind, texts in expected.items()
            )

        try:
            eventually(is_told, "the reasons are told")
        except AssertionError as error:
            raise AssertionError(told) from error
        assert {each["coordinator"] for each in told.values() if isinstance(each, dict)} == {coordinator}
        assert told["consumer"]["lag"] == 16


def _coordinated_by(client: Client, node_id: int, prefix: str) -> str:
    """A group of this name that the node coordinates."""
    return next(
        name for name in (f"{prefix}-{number}" for number in range(1000)) if client.coordinator(name) == node_id
    )
