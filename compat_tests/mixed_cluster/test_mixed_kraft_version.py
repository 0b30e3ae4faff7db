"""Fixed voters of both kinds, which become voters that can be added and removed: kraft.version rises from 0 to 1 under
a leader of either kind."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from compat_tests.mixed_cluster import view
from compat_tests.mixed_cluster.nodes import JvmNode, KbrokerNode, Node, remove
from kbroker.types import Uuid, uuid_from_str
from kbroker.wire.messages.add_raft_voter import AddRaftVoterRequest, Listener
from kbroker.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from kbroker.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from kbroker.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.patience import eventually

JVM = 1
DUPLICATE_VOTER, VOTER_NOT_FOUND = 126, 127

STEADY = {"controller.quorum.fetch.timeout.ms": "20000"}
"""A slow machine is no reason to elect: who stops cleanly tells its successor at once."""


def quorum(node: Node) -> tuple[int, dict[int, Uuid]]:
    """The active controller (-1 while the node knows none), and the voters with their directories."""
    request = DescribeQuorumRequest(
        topics=[TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
    )
    answer = view.ask(node, request)
    if answer.error_code:
        return -1, {}
    [partition] = answer.topics[0].partitions
    return partition.leader_id, {each.replica_id: Uuid(each.replica_directory_id) for each in partition.current_voters}


def directory(node: Node) -> Uuid:
    """The directory of a node's metadata log, by its file."""
    text = (node.directory / "data" / "meta.properties").read_text()
    [line] = [line for line in text.splitlines() if line.startswith("directory.id=")]
    return uuid_from_str(line.removeprefix("directory.id=").replace("\\", ""))


def lead(nodes: list[Node], kind: str) -> int:
    """Have a node of a kind lead, and return its id: a leader of the other kind stops while only that kind can follow.

    A voter of the leader's own kind stands still meanwhile and misses the last records, so that nobody votes for it.
    """
    wanted = {JVM} if kind == "jvm" else {node.node_id for node in nodes} - {JVM}
    successor = next(node for node in nodes if node.node_id in wanted)
    for attempt in range(1, 6):  # each start of the one that led may bring another election
        leader = leading(nodes)
        if leader in wanted:
            return leader
        lagging = [node for node in nodes if node.node_id not in wanted and node.node_id != leader]
        for node in lagging:
            node.signal(signal.SIGSTOP)
        # The first may be in the answer to a Fetch that waits; the second comes when the others fetch again.
        for name in (f"missed-{attempt}", f"missed-{attempt}-too"):
            view.create(successor, name, [[successor.node_id]])
        nodes[leader - 1].stop()
        for node in lagging:
            node.signal(signal.SIGCONT)
        eventually(lambda: quorum(successor)[0] in wanted, f"a {kind} to lead")
        nodes[leader - 1].start()
    raise AssertionError(f"no {kind} leads")


def leading(nodes: list[Node]) -> int:
    """The active controller, once all nodes name the same."""

    def named() -> int:
        leaders = {quorum(node)[0] for node in nodes}
        return leaders.pop() if len(leaders) == 1 else -1

    return int(eventually(lambda: max(named(), 0), "a leader"))


@pytest.mark.parametrize("kind", ["jvm", "kbroker"])
def test_voters_become_changeable(startable: None, tmp_path: Path, kind: str) -> None:
    first = JvmNode(JVM, tmp_path / "one", properties=STEADY)
    nodes: list[Node] = [first]
    nodes += [KbrokerNode(number, tmp_path / str(number), first, votes=True, properties=STEADY) for number in (2, 3)]
    fixed = ",".join(f"{node.node_id}@127.0.0.1:{node.controller_port}" for node in nodes)
    try:
        for node in nodes:
            node.fix_voters(fixed)
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda node: node.start(), nodes))
        leader = lead(nodes, kind)
        assert quorum(nodes[1])[1].keys() == {1, 2, 3}
        upgrade = UpdateFeaturesRequest(
            feature_updates=[FeatureUpdateKey(feature="kraft.version", max_version_level=1, upgrade_type=1)],
            timeout_ms=60_000,
        )
        # Refused until every voter has told the leader of its directory.
        eventually(lambda: view.ask(nodes[1], upgrade).error_code == 0, "the level")
        voters = {node.node_id: directory(node) for node in nodes}
        eventually(lambda: all(quorum(node)[1] == voters for node in nodes), "all to know the directories")
        assert quorum(nodes[1])[0] == leader
        # One of the other kind goes, and comes back.
        other = nodes[1] if kind == "jvm" else first
        key = voters[other.node_id]
        # An answer may be lost to a time-out though the voter is removed, and added, all the same.
        removal = RemoveRaftVoterRequest(cluster_id=first.cluster_id, voter_id=other.node_id, voter_directory_id=key)
        eventually(lambda: view.ask(nodes[2], removal).error_code in (0, VOTER_NOT_FOUND), "the removal")
        left = {node_id: key for node_id, key in voters.items() if node_id != other.node_id}
        eventually(lambda: all(quorum(node)[1] == left for node in nodes), "the voter to be removed")
        addition = AddRaftVoterRequest(
            cluster_id=first.cluster_id,
            timeout_ms=60_000,
            voter_id=other.node_id,
            voter_directory_id=key,
            listeners=[Listener(name="CONTROLLER", host="127.0.0.1", port=other.controller_port)],
        )
        eventually(lambda: view.ask(nodes[2], addition).error_code in (0, DUPLICATE_VOTER), "the addition")
        eventually(lambda: all(quorum(node)[1] == voters for node in nodes), "the voter to be added")
        # Nodes of both kinds read it all from their disks again.
        for node in (first, nodes[1]):
            node.stop()
            node.start()
        eventually(lambda: all(quorum(node)[1] == voters for node in nodes), "all to know the voters again")
    finally:
        for node in nodes:
            remove(node)
