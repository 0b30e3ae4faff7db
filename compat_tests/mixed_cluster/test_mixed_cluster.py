"""A broker of one kind follows a controller of the other kind, and replicates with a broker of that kind."""

from __future__ import annotations

import itertools
import signal

import pytest

from compat_tests.apache_kafka import tool
from compat_tests.mixed_cluster import view
from compat_tests.mixed_cluster.conftest import EARLY, Cluster
from compat_tests.mixed_cluster.nodes import Node, bootstrap, metadata_files
from kbroker.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from tests.patience import LONG, eventually

BOTH_WAYS = [[1, 2], [2, 1]]
"""Partition 0 is led by the voter and followed by the other kind, partition 1 the other way round."""

_numbers = itertools.count()


def new_topic(cluster: Cluster, by: Node, **configs: str) -> str:
    """A topic that is replicated both ways, with all replicas in sync.

    Its leaders are the first replicas, also where a node was fenced for a moment since it began.
    """
    name = f"topic-{next(_numbers)}"
    view.create(by, name, BOTH_WAYS, **configs)
    begun = view.await_in_sync(cluster.nodes, name)
    assert all(each.leader == each.replicas[0] or each.leader_epoch for each in begun.values()), begun
    found = view.lead_preferred(cluster.nodes, name)
    assert [found[index].leader for index in (0, 1)] == [1, 2]
    return name


def values(label: str, count: int = 50) -> dict[int, list[bytes]]:
    """Different ones for each partition."""
    return {index: [f"{label}-{index}-{number}".encode() * 5 for number in range(count)] for index in (0, 1)}


def directory_id(node: Node) -> str:
    """The id of the node's log dir, from its file."""
    lines = (node.directory / "data" / "meta.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)["directory.id"]


def test_it_begins_with_the_snapshot(cluster: Cluster) -> None:
    first_log = metadata_files(cluster.follower, ".log")[0]
    assert int(first_log.stem) > 0, "it has read the log from its beginning"
    [fetched] = [file for file in metadata_files(cluster.follower, ".checkpoint") if file.name[:20] == first_log.stem]
    assert fetched.read_bytes() == cluster.snapshots[fetched.name]
    for number, name in enumerate(EARLY):
        for node in cluster.nodes:
            assert len(view.partitions(node, name)) == number + 1
            assert view.topic_configs(node, name) == {"retention.ms": str(1_000_000 + number)}
        view.await_in_sync(cluster.nodes, name)  # which both say in the same words


def test_it_is_an_observer_of_the_quorum(cluster: Cluster) -> None:
    request = DescribeQuorumRequest(
        topics=[TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
    )

    def caught_up() -> bool:
        [partition] = view.ask(cluster.voter, request).topics[0].partitions
        [leader], [observer] = partition.current_voters, partition.observers
        return bool(
            (leader.replica_id, observer.replica_id) == (1, 2) and leader.log_end_offset == observer.log_end_offset
        )

    eventually(caught_up, "the observer to be at the end of the log")
    for node in cluster.nodes:
        text = tool("kafka-metadata-quorum", "--bootstrap-server", bootstrap(node), "describe", "--replication").stdout
        rows = {row[0]: row for row in map(str.split, text.splitlines()[1:])}
        assert {number: row[-1] for number, row in rows.items()} == {"1": "Leader", "2": "Observer"}, text
        assert rows["2"][1] == directory_id(cluster.follower)


@pytest.mark.parametrize("by", [0, 1])
def test_changes_by_way_of_each_are_seen_by_both(cluster: Cluster, by: int) -> None:
    node = cluster.nodes[by]
    name = new_topic(cluster, node, cleanup_policy="compact")
    view.set_config(node, name, "max.message.bytes", "54321")
    expected = {"cleanup.policy": "compact", "max.message.bytes": "54321"}
    eventually(lambda: all(view.topic_configs(each, name) == expected for each in cluster.nodes), "the configuration")
    view.delete(node, name)
    eventually(lambda: not any(name in view.topics(each) for each in cluster.nodes), "the topic to be gone")
    eventually(
        lambda: not any(any(each.directory.glob(f"data/{name}-[01]")) for each in cluster.nodes), "its files to be gone"
    )


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_either_leads_the_other_holds(cluster: Cluster, codec: str) -> None:
    topic = new_topic(cluster, cluster.follower, min_insync_replicas="2")
    written = values(codec)
    view.produce(cluster.bootstrap, topic, written, **{"compression.type": codec})
    assert view.read(cluster.bootstrap, topic, {0: 50, 1: 50}) == written
    view.await_same_logs(cluster.nodes, topic, range(2))


def test_either_follows_by_reads_that_end_inside_of_batches_and_by_reads_that_do_not(cluster: Cluster) -> None:
    # Apache Kafka, which fills what it may send to the byte, and kbroker, which ends where a batch does.
    voter, follower = cluster.nodes
    topic = new_topic(cluster, voter)
    follower.stop()
    written = {
        index: [bytes([97 + number % 26]) * (1 + number * 7_919 % 6_000) for number in range(300)] for index in (0, 1)
    }
    view.produce(bootstrap(voter), topic, written, **{"batch.size": 7_000})
    follower.start()
    cluster.await_whole()
    view.await_in_sync(cluster.nodes, topic)
    view.await_same_logs(cluster.nodes, topic, range(2))
    assert view.read(cluster.bootstrap, topic, {0: 300, 1: 300}) == written


@pytest.mark.parametrize("coordinator", [1, 2])
def test_transactions_end_on_both(cluster: Cluster, coordinator: int) -> None:
    topic = new_topic(cluster, cluster.voter, min_insync_replicas="2")
    name = coordinated_by(cluster, coordinator, "transactional", key_type=1)
    written = values(name, 20)
    view.transact(cluster.bootstrap, name, topic, written)
    assert view.read(cluster.bootstrap, topic, {0: 20, 1: 20}) == written
    view.await_same_logs(cluster.nodes, topic, range(2))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("coordinator", [1, 2])
def test_groups_read_from_both(cluster: Cluster, coordinator: int, protocol: str) -> None:
    topic = new_topic(cluster, cluster.voter)
    group = coordinated_by(cluster, coordinator, protocol)
    for part in ("one", "two"):
        written = values(part)
        view.produce(cluster.bootstrap, topic, written)
        assert view.read(cluster.bootstrap, topic, {0: 50, 1: 50}, group, protocol) == written


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_one_kind_takes_over_from_the_other_and_gives_back(cluster: Cluster, end: str) -> None:
    voter, follower = cluster.nodes
    topic = new_topic(cluster, voter)
    groups = {protocol: coordinated_by(cluster, 2, f"{end}-{protocol}") for protocol in ("classic", "consumer")}
    written = values(f"before-{end}")
    view.produce(cluster.bootstrap, topic, written)
    for protocol, group in groups.items():
        assert view.read(cluster.bootstrap, topic, {0: 50, 1: 50}, group, protocol) == written

    if end == "stopped":
        follower.stop()
    else:
        follower.kill()
    eventually(
        lambda: all((each.leader, each.isr) == (1, [1]) for each in view.partitions(voter, topic).values()),
        "the leadership to move",
    )
    eventually(lambda: all(view.coordinator(voter, group) == 1 for group in groups.values()), "coordinators to move")
    during = values(f"during-{end}")
    view.produce(bootstrap(voter), topic, during)
    for protocol, group in groups.items():
        assert view.read(bootstrap(voter), topic, {0: 50, 1: 50}, group, protocol) == during

    follower.start()
    cluster.await_whole()
    assert view.lead_preferred(cluster.nodes, topic)[1].leader == 2

    def returned() -> bool:
        view.lead_preferred(cluster.nodes, "__consumer_offsets")  # again, where a node was fenced for a moment
        return all(view.coordinator(node, group) == 2 for group in groups.values() for node in cluster.nodes)

    eventually(returned, "coordinators to return")
    after = values(f"after-{end}")
    view.produce(cluster.bootstrap, topic, after)
    for protocol, group in groups.items():
        assert view.read(cluster.bootstrap, topic, {0: 50, 1: 50}, group, protocol) == after
    whole = {index: written[index] + during[index] + after[index] for index in (0, 1)}
    assert view.read(cluster.bootstrap, topic, {0: 150, 1: 150}) == whole
    view.await_same_logs(cluster.nodes, topic, range(2))


def test_the_voter_stops_and_is_taken_back(cluster: Cluster) -> None:
    voter, follower = cluster.nodes
    topic = new_topic(cluster, voter)
    written = values("before")
    view.produce(cluster.bootstrap, topic, written)
    stop_the_voter(cluster, topic)
    # What only node 2 has: the voter was taken out of the ISR before it went.
    alone = {1: [b"alone"]}
    view.produce(bootstrap(follower), topic, alone, **{"enable.idempotence": False})
    voter.start()
    cluster.await_whole()
    found = view.await_in_sync(cluster.nodes, topic)
    assert [found[index].leader for index in (0, 1)] == [2, 2]
    view.elect_preferred(follower, topic, 0)
    assert view.lead_preferred(cluster.nodes, topic)[0].leader == 1
    after = values("after")
    view.produce(cluster.bootstrap, topic, after)
    whole = {0: written[0] + after[0], 1: written[1] + alone[1] + after[1]}
    assert view.read(cluster.bootstrap, topic, {0: 100, 1: 101}) == whole
    view.await_same_logs(cluster.nodes, topic, range(2))


def stop_the_voter(cluster: Cluster, topic: str) -> None:
    """Stop the only controller when the other node has heard that it leads alone.

    It hears it while the voter stops, if it is not too slow for that; nobody could tell it later.
    """
    voter, follower = cluster.nodes

    def is_left_alone() -> bool:
        voter.stop()
        if all((each.leader, each.isr) == (2, [2]) for each in view.partitions(follower, topic).values()):
            return True
        voter.start()
        cluster.await_whole()
        view.lead_preferred(cluster.nodes, topic)
        return False

    eventually(is_left_alone, "node 2 to hear that it leads alone", 3 * LONG)


def test_what_only_one_kind_has_is_cut_off(cluster: Cluster) -> None:
    voter, follower = cluster.nodes
    topic = new_topic(cluster, voter)
    written = values("kept")
    view.produce(cluster.bootstrap, topic, written)
    view.await_same_logs(cluster.nodes, topic, range(2))
    voter.signal(signal.SIGSTOP)
    try:
        # A fetch that waits may still take the first of them; it cannot be followed by another.
        for number in range(5):
            lone = {1: [f"lone-{number}".encode() * 5]}
            view.produce(bootstrap(follower), topic, lone, **{"acks": 1, "enable.idempotence": False})
        follower.kill()
    finally:
        voter.signal(signal.SIGCONT)
    diverged = view.log_bytes(follower, topic, 1)
    eventually(lambda: view.partitions(voter, topic)[1].leader == 1, "the leadership to move")
    other = values("other")
    view.produce(bootstrap(voter), topic, other)
    follower.start()
    cluster.await_whole()
    view.await_in_sync(cluster.nodes, topic)
    view.await_same_logs(cluster.nodes, topic, range(2))
    now = view.log_bytes(follower, topic, 1)
    assert b"lone-4" in diverged and b"lone-4" not in now
    extra = now.count(b"lone-0lone-0lone-0")
    found = view.read(cluster.bootstrap, topic, {0: 100, 1: 100 + (extra > 0)})
    assert found[0] == written[0] + other[0]
    assert found[1] == [*written[1], *([b"lone-0" * 5] if extra else []), *other[1]]


def coordinated_by(cluster: Cluster, node_id: int, label: str, key_type: int = 0) -> str:
    """A name of a group (or transactional id, 1) that this node coordinates."""

    def known() -> bool:
        return all(view.coordinator(node, label, key_type) > 0 for node in cluster.nodes)

    eventually(known, "a coordinator")

    def found() -> str:
        view.lead_preferred(cluster.nodes, "__transaction_state" if key_type else "__consumer_offsets")
        for number in range(100):
            name = f"{label}-{number}-{next(_numbers)}"
            if all(view.coordinator(node, name, key_type) == node_id for node in cluster.nodes):
                return name
        return ""  # a node was fenced for a moment since

    return str(eventually(found, f"node {node_id} to coordinate something"))
