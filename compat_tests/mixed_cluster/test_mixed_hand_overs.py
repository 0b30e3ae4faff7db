"""Two brokers of kbroker on one machine hand a log over under a controller of Apache Kafka, and copy from and to its
broker, which knows nothing of that."""

from __future__ import annotations

import os
from pathlib import Path

from compat_tests.mixed_cluster import view
from compat_tests.mixed_cluster.nodes import JvmNode, KbrokerNode, Node, bootstrap, remove
from kbroker.client import Client
from kbroker.client.reassignments import alter_reassignments
from kbroker.types import TopicPartition
from tests.patience import eventually

TOPIC = "moving"


def test_a_log_is_handed_over_or_copied(startable: None, tmp_path: Path) -> None:
    voter = JvmNode(1, tmp_path / "jvm")
    brokers = [KbrokerNode(number, tmp_path / f"kbroker{number}", voter) for number in (2, 3)]
    nodes: tuple[Node, ...] = (voter, *brokers)

    def file_of(node: Node) -> int:
        return (node.directory / "data" / f"{TOPIC}-0" / f"{0:020}.log").stat().st_ino

    def move(target: int) -> None:
        with Client(bootstrap(voter)) as client:
            alter_reassignments(client, {TopicPartition(TOPIC, 0): (target,)})

        def is_there() -> bool:
            found = view.partitions(voter, TOPIC)[0]
            return (found.leader, list(found.isr)) == (target, [target])

        eventually(is_there, f"the move to {target}")

    try:
        for node in nodes:
            node.start()
        eventually(lambda: all(view.brokers(node) == [1, 2, 3] for node in nodes), "the brokers to be unfenced")
        view.create(voter, TOPIC, [[2]])
        servers = ",".join(bootstrap(node) for node in nodes)
        values = [b"%d" % number + os.urandom(10_000) for number in range(200)]
        view.produce(servers, TOPIC, {0: values[:-1]})
        before = file_of(brokers[0])
        move(3)
        assert file_of(brokers[1]) == before
        move(1)
        move(2)
        assert "moving-0 is copied: broker 1 does not hand it over" in brokers[0].log()
        view.produce(servers, TOPIC, {0: values[-1:]})
        assert view.read(servers, TOPIC, {0: 200}) == {0: values}
    finally:
        for node in nodes:
            remove(node)
