"""The troubles of a cluster in words, and since when."""

from __future__ import annotations

from kbroker.client.nodes import ClusterBroker
from kbroker.client.topics import PartitionDescription, TopicDescription
from kbroker.client.troubles import (
    ERROR,
    WARNING,
    QuorumNode,
    TroubleHistory,
    cluster_troubles,
    disk_troubles,
    topic_troubles,
)
from kbroker.types import ZERO_UUID

NOW = 1_700_000_000_000


def topic(*partitions: tuple[int | None, tuple[int, ...]], name: str = "orders") -> TopicDescription:
    """``partitions``: (leader, ISR); the replicas are 1, 2 and 3."""
    return TopicDescription(
        name,
        ZERO_UUID,
        False,
        tuple(
            PartitionDescription(number, leader, 0, (1, 2, 3), isr, ())
            for number, (leader, isr) in enumerate(partitions)
        ),
    )


def test_a_sound_cluster_has_none() -> None:
    brokers = [ClusterBroker(1, "a", 1, None, False)]
    quorum = [QuorumNode(1, "voter", 10, 0, NOW), QuorumNode(2, "observer", 3, 7, NOW - 900_000)]
    assert cluster_troubles(brokers, 1, quorum, NOW) == []
    assert cluster_troubles(brokers, None, [], NOW) == []
    assert topic_troubles([topic((1, (1, 2, 3)))], {1, 2, 3}, {}) == []


def test_brokers_and_controllers() -> None:
    brokers = [ClusterBroker(1, "a", 1, None, True)]
    quorum = [QuorumNode(3, "voter", 10, 90, NOW - 60_000), QuorumNode(4, "voter", -1, None, None)]
    controller, fenced, behind, never = cluster_troubles(brokers, -1, quorum, NOW)
    assert (controller.severity, fenced.severity, behind.severity) == (ERROR, ERROR, WARNING)
    assert "Broker 1 is fenced" in fenced.text
    assert behind.text == "Controller 3 does not follow the metadata log: it is behind by 90 records."
    assert behind.since == NOW - 60_000
    assert never.key == "voter-4"


def test_brokers_that_do_not_answer_are_told_once() -> None:
    brokers = [ClusterBroker(1, "a", 1, None, True), ClusterBroker(2, "b", 1, None, False)]
    silent = {1: "cannot connect to a:1: Connection refused", 2: "cannot connect to b:1: Connection refused"}
    fenced, no_answer = cluster_troubles(brokers, 2, [], NOW, silent)
    assert (fenced.key, no_answer.key) == ("fenced-1", "silent-2")
    assert no_answer.advice == "cannot connect to b:1: Connection refused."


def test_failed_directories() -> None:
    [found] = disk_troubles([(2, "/data/b")])
    assert found.text == "Broker 2: the log directory /data/b has failed, and the replicas in it are offline."
    assert (found.key, found.link) == ("disk-2-/data/b", "#/broker?id=2")


def test_partitions_are_told_once_by_what_is_worst() -> None:
    everything = topic((None, ()), (1, (1,)), (1, (1, 2)), (1, (1, 2, 3)))
    dead, refused, short = topic_troubles([everything], {1, 2}, {"orders": 2})
    assert dead.text == "Topic orders: partition 0 has no leader: nobody can read or write there."
    assert dead.advice == "Broker 3, which has a replica, is not there: start it."
    assert "partition 1 has fewer replicas in sync than min.insync.replicas=2" in refused.text
    assert (refused.severity, short.severity) == (ERROR, WARNING)
    assert short.text == "Topic orders: partition 2 has replicas that are not in sync."
    [unknown] = topic_troubles([topic((1, (1,)), (1, (1,)))], {1, 2, 3}, {})
    assert unknown.text == "Topic orders: both partitions have replicas that are not in sync."


def test_a_broker_that_is_not_there_is_told_of_once() -> None:
    short = [topic((1, (1, 2)), (2, (2, 1)), name=f"t{number}") for number in range(7)]
    [found] = topic_troubles(short, {1, 2}, {})
    assert found.text == "Broker 3 is not there: 14 partitions of 7 topics have replicas that are not in sync."
    assert found.advice == "Start it: the replicas catch up by themselves. Topics: t0, t1, t2, t3, t4 and 2 more."
    assert (found.key, found.severity) == ("missing-3", WARNING)
    # A follower that lives and lags has another reason, and one topic is named.
    slow = topic((1, (1,)), name="slow")
    lagging, missing = topic_troubles([slow, *short], {1, 2}, {})
    assert (lagging.key, missing.key) == ("short-slow", "missing-3")
    two, alone = topic_troubles([topic((1, (1,)), name="a"), topic((1, (1,)), name="b"), short[0]], {1}, {})
    assert two.text == "Brokers 2, 3 are not there: 2 partitions of 2 topics have replicas that are not in sync."
    assert alone.text == "Topic t0: both partitions have replicas that are not in sync."


def test_since_when_is_remembered_and_said_to_be_a_guess_at_first() -> None:
    history = TroubleHistory()
    first = topic_troubles([topic((1, (1,)))], {1}, {})
    assert history.update(first, NOW) == {"short-orders": (NOW, False)}
    assert history.update(first, NOW + 5000) == {"short-orders": (NOW, False)}
    assert history.update([], NOW + 6000) == {}
    assert history.update(first, NOW + 7000) == {"short-orders": (NOW + 7000, True)}
    told = cluster_troubles([], 1, [QuorumNode(3, "voter", 1, 9, NOW - 60_000)], NOW)
    assert history.update(told, NOW + 8000) == {"voter-3": (NOW - 60_000, True)}
