"""kbroker in a cluster of Apache Kafka 4.3.1, at its level, and on with it to 4.4."""

from __future__ import annotations

from pathlib import Path

from compat_tests.apache_kafka import KAFKA_VERSION, tool
from compat_tests.mixed_cluster import view
from compat_tests.mixed_cluster.nodes import JvmNode, KbrokerNode, Node, bootstrap, remove
from compat_tests.mixed_cluster.share_group import configure, member, work
from kbroker.raft_metadata.metadata_version import LATEST_METADATA_VERSION
from tests.patience import eventually

BOTH_WAYS = [[1, 2], [2, 1]]


def level(node: Node) -> int:
    """The finalized level of metadata.version."""
    words = tool("kafka-features", "--bootstrap-server", bootstrap(node), "describe", check=True).stdout.splitlines()
    [line] = [line for line in words if line.startswith("Feature: metadata.version")]
    name = line.split("FinalizedVersionLevel:")[1].split("Epoch")[0].strip()
    return {"4.3-IV0": 30}.get(name) or int(name.removeprefix("UNKNOWN "))  # the tools are of 4.3


def replicates(nodes: tuple[Node, Node], topic: str, by: Node) -> None:
    """A topic that ``by`` creates has its replicas on both, the same byte for byte."""
    servers = ",".join(map(bootstrap, nodes))
    view.create(by, topic, BOTH_WAYS, min_insync_replicas="2")
    view.await_in_sync(nodes, topic)
    written = {index: [f"{topic}-{index}-{number}".encode() for number in range(20)] for index in (0, 1)}
    view.produce(servers, topic, written)
    assert view.read(servers, topic, {0: 20, 1: 20}) == written
    view.await_same_logs(nodes, topic, range(2))
    configure(servers, f"share-{topic}")
    consumer = member(servers, f"share-{topic}", topic)
    shared = work(consumer, 40)
    assert sorted(shared.values()) == sorted(value for values in written.values() for value in values)
    consumer.close()


def test_a_broker_of_4_3_follows_kbroker(startable: None, tmp_path: Path) -> None:
    voter = KbrokerNode(1, tmp_path / "kbroker", release="4.3-IV0")
    follower = JvmNode(2, tmp_path / "jvm", voter, version=KAFKA_VERSION)
    nodes: tuple[Node, Node] = voter, follower
    try:
        voter.start()
        follower.start()
        eventually(lambda: all(view.brokers(node) == [1, 2] for node in nodes), "both brokers to be unfenced")
        for by in nodes:
            replicates(nodes, f"by-{by.node_id}", by)
        # What a node of 4.3 does not know is refused.
        feature = f"metadata.version={LATEST_METADATA_VERSION}"
        refused = tool("kafka-features", "--bootstrap-server", bootstrap(voter), "upgrade", "--feature", feature)
        assert refused.returncode and "Broker 2 only supports versions" in refused.stdout + refused.stderr, refused
    finally:
        remove(follower)
        remove(voter)


def test_from_4_3_to_4_4(startable: None, tmp_path: Path) -> None:
    voter = JvmNode(1, tmp_path / "jvm", version=KAFKA_VERSION)
    follower = KbrokerNode(2, tmp_path / "kbroker", voter)
    nodes: tuple[Node, Node] = voter, follower
    servers = ",".join(map(bootstrap, nodes))
    try:
        voter.start()
        follower.start()
        eventually(lambda: all(view.brokers(node) == [1, 2] for node in nodes), "both brokers to be unfenced")
        assert level(voter) == level(follower) == 30

        replicates(nodes, "at-4-3", follower)
        voter.upgrade()
        eventually(lambda: all(view.brokers(node) == [1, 2] for node in nodes), "both brokers to be unfenced")
        assert level(follower) == 30
        feature = f"metadata.version={LATEST_METADATA_VERSION}"
        raise_level = ("kafka-features", "--bootstrap-server", bootstrap(follower), "upgrade", "--feature", feature)
        # A controller registers what it supports a moment after it has started.
        eventually(lambda: tool(*raise_level).returncode == 0, "the level to be raised")
        eventually(lambda: level(voter) == level(follower) == LATEST_METADATA_VERSION, "the level of 4.4")
        replicates(nodes, "at-4-4", voter)
        assert view.read(servers, "at-4-3", {0: 20, 1: 20}).keys() == {0, 1}
    finally:
        remove(follower)
        remove(voter)
