"""Fixed voters of both kinds, which become voters that can be added and removed: kraft.version rises from 0 to 1 under
a leader of either kind."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from compat_tests.mixed_cluster import view
from compat_tests.mixed_cluster.nodes import JvmNode, KbrokerNode, Node, remove, wait_for
from kbroker.types import Uuid, uuid_from_str
from kbroker.wire.messages.add_raft_voter import AddRaftVoterRequest, Listener
from kbroker.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from kbroker.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from kbroker.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

JVM = 1


def quorum(node: Node) -> tuple[int, dict[int, Uuid]]:
    """The active controller, and the voters with their directories, as the node says."""
    request = DescribeQuorumRequest(
        topics=[TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
    )
    [partition] = view.ask(node, request).topics[0].partitions
    return partition.leader_id, {each.replica_id: Uuid(each.replica_directory_id) for each in partition.current_voters}


def directory(node: Node) -> Uuid:
    """The directory of a node's metadata log, by its file."""
    text = (node.directory / "data" / "meta.properties").read_text()
    [line] = [line for line in text.splitlines() if line.startswith("directory.id=")]
    return uuid_from_str(line.removeprefix("directory.id=").replace("\\", ""))


def lead(nodes: list[Node], kind: str) -> int:
    """Have a node of a kind lead: one that stops names its successor, the first of those with the whole log."""
    for _ in range(20):
        leader = wait_for(lambda: quorum(nodes[1])[0] if quorum(nodes[1])[0] > 0 else 0, "a leader")
        if (leader == JVM) == (kind == "jvm"):
            return int(leader)
        nodes[leader - 1].stop()
        nodes[leader - 1].start()
    pytest.fail(f"no {kind} leads")


@pytest.mark.parametrize("kind", ["jvm", "kbroker"])
def test_voters_become_changeable(startable: None, tmp_path: Path, kind: str) -> None:
    first = JvmNode(JVM, tmp_path / "one")
    nodes: list[Node] = [first]
    nodes += [KbrokerNode(number, tmp_path / str(number), first, votes=True) for number in (2, 3)]
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
        wait_for(lambda: view.ask(nodes[1], upgrade).error_code == 0, "the level")
        voters = {node.node_id: directory(node) for node in nodes}
        wait_for(lambda: all(quorum(node)[1] == voters for node in nodes), "all to know the directories")
        assert quorum(nodes[1])[0] == leader
        # One of the other kind goes, and comes back.
        other = nodes[1] if kind == "jvm" else first
        key = voters[other.node_id]
        removal = RemoveRaftVoterRequest(cluster_id=first.cluster_id, voter_id=other.node_id, voter_directory_id=key)
        assert view.ask(nodes[2], removal).error_code == 0
        left = {node_id: key for node_id, key in voters.items() if node_id != other.node_id}
        wait_for(lambda: all(quorum(node)[1] == left for node in nodes), "the voter to be removed")
        addition = AddRaftVoterRequest(
            cluster_id=first.cluster_id,
            timeout_ms=60_000,
            voter_id=other.node_id,
            voter_directory_id=key,
            listeners=[Listener(name="CONTROLLER", host="127.0.0.1", port=other.controller_port)],
        )
        assert view.ask(nodes[2], addition).error_code == 0
        wait_for(lambda: all(quorum(node)[1] == voters for node in nodes), "the voter to be added")
        # Nodes of both kinds read it all from their disks again.
        for node in (first, nodes[1]):
            node.stop()
            node.start()
        wait_for(lambda: all(quorum(node)[1] == voters for node in nodes), "all to know the voters again")
    finally:
        for node in nodes:
            remove(node)
