"""A broker of kbroker tells a controller of Apache Kafka of replicas that are damaged or not writable (KIP-858)."""

from __future__ import annotations

import os
from pathlib import Path

from compat_tests.mixed_cluster import view
from compat_tests.mixed_cluster.nodes import JvmNode, KbrokerNode, Node, remove
from kbroker.client import Client
from kbroker.client.nodes import scrub
from tests.node.small_disk import mounted, take_all_but
from tests.patience import eventually

TOPIC = "replicated"


def test_apache_kafka_has_another_replica_lead(startable: None, tmp_path: Path) -> None:
    voter = JvmNode(1, tmp_path / "jvm")
    with mounted(tmp_path / "small") as small:
        follower = KbrokerNode(2, tmp_path / "kbroker", voter, properties={"log.dirs": str(small / "data")})
        nodes: tuple[Node, Node] = (voter, follower)
        try:
            for node in nodes:
                node.start()
            eventually(lambda: all(view.brokers(node) == [1, 2] for node in nodes), "both brokers to be unfenced")
            view.create(voter, TOPIC, [[2, 1]])
            view.await_in_sync(nodes, TOPIC)
            servers = f"127.0.0.1:{voter.port},127.0.0.1:{follower.port}"
            assert view.partitions(voter, TOPIC)[0].leader == 2
            first = [b"%d" % number + os.urandom(1000) for number in range(300)]
            ballast = take_all_but(small, 100_000)
            view.produce(servers, TOPIC, {0: first})
            assert "is full" in follower.log()
            assert (view.partitions(voter, TOPIC)[0].leader, view.partitions(voter, TOPIC)[0].isr) == (1, [1])

            ballast.unlink()
            view.await_in_sync(nodes, TOPIC)
            view.elect_preferred(voter, TOPIC, 0)
            eventually(lambda: view.partitions(voter, TOPIC)[0].leader == 2, "the preferred leader")

            follower.stop()
            (small / "data" / f"{TOPIC}-0" / f"{0:020}.log").write_bytes(b"")
            voter.kill()  # both were in sync up to here, and the damaged replica is the first that comes back
            voter.start()
            follower.start()
            view.produce(servers, TOPIC, {0: [b"more"]})
            assert view.read(servers, TOPIC, {0: 301}) == {0: [*first, b"more"]}
            assert view.partitions(voter, TOPIC)[0].leader == 1
            view.await_in_sync(nodes, TOPIC)
            assert "to be fetched again from broker 1" in follower.log()
        finally:
            remove(follower)
            remove(voter)


def test_who_finds_damage_and_is_alone_in_sync_leads_on_when_apache_kafka_has_heard_of_it(
    startable: None, tmp_path: Path
) -> None:
    """It reports its replica as lost, and then as found, until it is elected once more: nobody else may lead."""
    voter = JvmNode(1, tmp_path / "jvm")
    leader, other = (KbrokerNode(number, tmp_path / str(number), voter) for number in (2, 3))
    nodes: tuple[Node, ...] = (voter, leader, other)
    try:
        for node in nodes:
            node.start()
        eventually(lambda: all(view.brokers(node) == [1, 2, 3] for node in nodes), "all brokers to be unfenced")
        view.create(voter, TOPIC, [[2, 3]])
        view.await_in_sync((leader, other), TOPIC)
        servers = f"127.0.0.1:{voter.port},127.0.0.1:{leader.port}"
        view.produce(servers, TOPIC, {0: [b"%d" % number + os.urandom(1000) for number in range(300)]})
        other.kill()
        eventually(lambda: view.partitions(voter, TOPIC)[0].isr == [2], "one of two to be in sync")
        leader.stop()
        [path] = tmp_path.glob(f"2/**/{TOPIC}-0/{0:020}.log")
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 4
        path.write_bytes(data)
        leader.start()
        with Client(f"127.0.0.1:{leader.port}") as client:
            eventually(lambda: list(scrub(client, [2], begin=True).values()) != [None], "the leader to scrub")
        eventually(lambda: any(path.parent.glob("*.set-aside")), "what is damaged to be a hole")
        view.produce(servers, TOPIC, {0: [b"more"]})
        assert view.partitions(voter, TOPIC)[0].leader == 2
    finally:
        for node in nodes[::-1]:
            remove(node)
