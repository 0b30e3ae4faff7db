"""Findings about a cluster, in sentences, and since when."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kbroker.client.nodes import ClusterBroker
from kbroker.client.open_transactions import OpenTransaction
from kbroker.client.topics import PartitionDescription, TopicDescription
from kbroker.client.transactions import ProducerState, TransactionDescription
from kbroker.tools.diagnosis.cluster import findings
from kbroker.tools.diagnosis.facts import ClusterView, DamagedReplica, Quorum, QuorumNode, ReplicaCounts, replica_counts
from kbroker.tools.diagnosis.findings import Finding, FindingHistory, Link, Severity
from kbroker.types import ZERO_UUID, TopicPartition

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


def of_topics(
    topics: Sequence[TopicDescription], alive: Collection[int], min_isr: Mapping[str, int] | None = None
) -> list[Finding]:
    brokers = [ClusterBroker(number, "a", 1, None, False) for number in alive]
    return findings(ClusterView(NOW, brokers=brokers, topics=topics, min_isr=min_isr or {}))


def test_a_sound_cluster_has_none() -> None:
    brokers = [ClusterBroker(1, "a", 1, None, False)]
    nodes = (QuorumNode(1, "voter", 10, 0, NOW), QuorumNode(2, "observer", 3, 7, NOW - 900_000))
    assert findings(ClusterView(NOW, brokers=brokers, quorum=Quorum(1, nodes))) == []
    assert findings(ClusterView(NOW, brokers=brokers)) == []
    assert of_topics([topic((1, (1, 2, 3)))], {1, 2, 3}) == []


def test_brokers_and_controllers() -> None:
    brokers = [ClusterBroker(1, "a", 1, None, True)]
    nodes = (QuorumNode(3, "voter", 10, 90, NOW - 60_000), QuorumNode(4, "voter", -1, None, None))
    controller, fenced, behind, never = findings(ClusterView(NOW, brokers=brokers, quorum=Quorum(-1, nodes)))
    assert [each.severity for each in (controller, fenced, behind)] == ["error", "error", "warning"]
    assert "Broker 1 is fenced" in fenced.text
    assert behind.text == "Controller 3 does not follow the metadata log: it is behind by 90 records."
    assert behind.since == NOW - 60_000
    assert never.key == "quorum-lag controller 4"


def test_a_voter_is_judged_by_the_clock_of_the_leader() -> None:
    """This machine's may be a minute off; what the leader says is compared with what it says."""
    nodes = tuple(QuorumNode(number, "voter", 10, 0, NOW - 60_000) for number in (1, 2))
    assert findings(ClusterView(NOW, quorum=Quorum(1, nodes))) == []


def test_a_quorum_that_does_not_answer_is_told_with_the_reason() -> None:
    [found] = findings(ClusterView(NOW, quorum=Quorum(-1, problem="timed out")))
    assert found.text.startswith("No active controller answers") and "timed out" in found.evidence


def test_brokers_that_do_not_answer_are_told_once() -> None:
    brokers = [ClusterBroker(1, "a", 1, None, True), ClusterBroker(2, "b", 1, None, False)]
    silent = {1: "cannot connect to a:1: Connection refused", 2: "cannot connect to b:1: Connection refused"}
    fenced, no_answer = findings(ClusterView(NOW, brokers=brokers, silent=silent))
    assert (fenced.key, no_answer.key) == ("fenced-broker broker 1", "silent-broker broker 2")
    assert no_answer.evidence == "cannot connect to b:1: Connection refused."
    assert no_answer.advice.endswith("reaches its address: cannot connect to b:1: Connection refused.")


def test_failed_directories() -> None:
    [found] = findings(ClusterView(NOW, failed_dirs=[(2, "/data/b")]))
    assert found.text == "Broker 2: the log directory /data/b has failed, and the replicas in it are offline."
    assert (found.about, found.links) == ("broker 2, /data/b", (Link("broker", broker=2),))


def test_damaged_logs() -> None:
    [found] = findings(ClusterView(NOW, damaged=[DamagedReplica(2, TopicPartition("t", 0), 30, 60, "zeros")]))
    assert found.text == "Broker 2: its log of t-0 is damaged, offsets 30 to 59 are missing."
    assert (found.kind, found.links) == ("damaged-replica", (Link("topic", topic="t"),))


def test_partitions_are_told_once_by_what_is_worst() -> None:
    everything = topic((None, ()), (1, (1,)), (1, (1, 2)), (1, (1, 2, 3)))
    dead, refused, under = of_topics([everything], {1, 2}, {"orders": 2})
    assert dead.text == "Topic orders: partition 0 has no leader: nobody can read or write there."
    assert dead.advice == "Broker 3, which has a replica, is not there: start it."
    assert "partition 1 has fewer replicas in sync than min.insync.replicas=2" in refused.text
    assert (refused.severity, under.severity) == (Severity.ERROR, Severity.WARNING)
    assert under.text == "Topic orders: partition 2 has replicas that are not in sync."
    [unknown] = of_topics([topic((1, (1,)), (1, (1,)))], {1, 2, 3})
    assert unknown.text == "Topic orders: both partitions have replicas that are not in sync."


def test_no_more_replicas_than_there_are_have_to_be_in_sync() -> None:
    """Brokers count no more than there are: min.insync.replicas=5 of three replicas asks for all three."""
    assert of_topics([topic((1, (1, 2, 3)))], {1, 2, 3}, {"orders": 5}) == []
    [found] = of_topics([topic((1, (1, 2)))], {1, 2, 3}, {"orders": 5})
    assert found.kind == "under-min-isr"


def test_transactions_that_are_over_their_time_or_have_no_coordinator() -> None:
    partition = TopicPartition("orders", 0)
    old, young = (
        TransactionDescription(name, 1, "Ongoing", 7, 0, 60_000, NOW - ms, (partition,))
        for name, ms in (("old", 91_000), ("young", 89_000))
    )
    opened = OpenTransaction(partition, 17, ProducerState(9, 0, 0, NOW, 0, 17))
    over, hanging = findings(ClusterView(NOW, transactions=[old, young], hanging=[opened]))
    assert over.text.startswith("The transaction of old is open for 91 s, longer than its timeout")
    assert hanging.text.startswith("A transaction hangs in orders-0 from offset 17")


def test_replicas_are_counted_by_broker() -> None:
    counts = replica_counts([topic((1, (1, 2)), (None, ()))], [ClusterBroker(4, "d", 1, None, False)])
    assert counts == {
        1: ReplicaCounts(1, 2, 1),
        2: ReplicaCounts(0, 2, 1),
        3: ReplicaCounts(0, 2, 2),
        4: ReplicaCounts(),
    }


def test_a_broker_that_is_not_there_is_told_of_once() -> None:
    short = [topic((1, (1, 2)), (2, (2, 1)), name=f"t{number}") for number in range(7)]
    [found] = of_topics(short, {1, 2})
    assert found.text == "Broker 3 is not there: 14 partitions of 7 topics have replicas that are not in sync."
    assert found.advice == "Start it: the replicas catch up by themselves. Topics: t0, t1, t2, t3, t4 and 2 more."
    assert (found.key, found.severity) == ("under-replicated broker 3", Severity.WARNING)
    # A follower that lives and lags has another reason, and one topic is named.
    slow = topic((1, (1,)), name="slow")
    slow_one, missing = of_topics([slow, *short], {1, 2})
    assert (slow_one.about, missing.about) == ("topic slow", "broker 3")
    two, alone = of_topics([topic((1, (1,)), name="a"), topic((1, (1,)), name="b"), short[0]], {1})
    assert two.text == "Brokers 2, 3 are not there: 2 partitions of 2 topics have replicas that are not in sync."
    assert alone.text == "Topic t0: both partitions have replicas that are not in sync."


def test_since_when_is_remembered_and_said_to_be_a_guess_at_first() -> None:
    history = FindingHistory()
    first = of_topics([topic((1, (1,)))], {1})
    assert history.update(first, NOW) == {first[0].key: (NOW, False)}
    assert history.update(first, NOW + 5000) == {first[0].key: (NOW, False)}
    assert history.update([], NOW + 6000) == {}
    assert history.update(first, NOW + 7000) == {first[0].key: (NOW + 7000, True)}
    told = findings(ClusterView(NOW, quorum=Quorum(1, (QuorumNode(3, "voter", 1, 9, NOW - 60_000),))))
    assert history.update(told, NOW + 8000) == {"quorum-lag controller 3": (NOW - 60_000, True)}
