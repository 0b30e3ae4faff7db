"""Voters of both kinds in one quorum: a controller of one kind takes over from one of the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.mixed_cluster import view
from compat_tests.mixed_cluster.nodes import JvmNode, KbrokerNode, Node, remove
from kbroker.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from tests.patience import eventually

TOPIC = "replicated"


STEADY = {"controller.quorum.fetch.timeout.ms": "20000"}
"""Before anybody is killed the first leads: a slow machine is no reason to elect another."""


def quorum(node: Node) -> tuple[int, list[int]]:
    """The active controller and the voters, as the node says; -1 and none while it knows no controller."""
    request = DescribeQuorumRequest(
        topics=[TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
    )
    answer = view.ask(node, request)
    if answer.error_code or not answer.topics or answer.topics[0].partitions[0].error_code:
        return -1, []
    [partition] = answer.topics[0].partitions
    return partition.leader_id, sorted(voter.replica_id for voter in partition.current_voters)


@pytest.mark.parametrize("first", ["jvm", "kbroker"])
def test_the_others_take_over_from_the_first_controller(startable: None, tmp_path: Path, first: str) -> None:
    nodes: list[Node]
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    if first == "jvm":
        leader: Node = JvmNode(1, one, properties=STEADY)
        nodes = [leader]
        nodes += [KbrokerNode(id, path, leader, votes=True, properties=STEADY) for id, path in ((2, two), (3, three))]
    else:
        leader = KbrokerNode(1, one, properties=STEADY)
        nodes = [leader]
        nodes += [JvmNode(id, path, leader, votes=True, properties=STEADY) for id, path in ((2, two), (3, three))]
    others = nodes[1:]
    try:
        for node in nodes:
            node.start()
        eventually(lambda: all(quorum(node) == (1, [1, 2, 3]) for node in nodes), "all to be voters")
        view.create(nodes[1], TOPIC, [[1, 2, 3], [2, 3, 1], [3, 1, 2]], min_insync_replicas="2")
        servers = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
        written = {index: [b"before" * 10] * 20 for index in range(3)}
        view.produce(servers, TOPIC, written)

        leader.kill()
        eventually(lambda: all(quorum(node)[0] in (2, 3) for node in others), "another controller")
        eventually(
            lambda: all(each.isr == [2, 3] and each.leader != 1 for each in view.partitions(others[0], TOPIC).values()),
            "the ISR to be without the first",
        )
        view.create(others[0], "by-the-second-controller", [[3, 2]])
        more = {index: [b"during" * 10] * 20 for index in range(3)}
        view.produce(servers, TOPIC, more)

        leader.start()
        view.await_in_sync((leader, others[0]), TOPIC)
        # Whoever leads: a slow machine may have had another election meanwhile.
        eventually(
            lambda: quorum(leader) in [(id, [1, 2, 3]) for id in {1, 2, 3} & {quorum(node)[0] for node in others}],
            "one controller for all, and the same voters",
        )
        assert "by-the-second-controller" in view.topics(leader)
        expected = {index: written[index] + more[index] for index in range(3)}
        assert view.read(servers, TOPIC, dict.fromkeys(range(3), 40)) == expected
        for node in others:
            view.await_same_logs((leader, node), TOPIC, range(3))
    finally:
        for node in nodes:
            remove(node)
