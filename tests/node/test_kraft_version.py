"""``kraft.version`` rises from 0 to 1: fixed voters become voters that can be added and removed (KIP-853)."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from kbroker.errors import ErrorCode
from kbroker.types import Uuid
from kbroker.wire.messages.add_raft_voter import AddRaftVoterRequest, Listener
from kbroker.wire.messages.api_versions import ApiVersionsRequest
from kbroker.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from kbroker.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.node.node_harness import CLUSTER_ID, Client
from tests.node.quorum_harness import LISTENER, Quorum, quorum
from tests.patience import SHORT

UPGRADE, SAFE_DOWNGRADE = 1, 2


def raised(level: int = 1, how: int = UPGRADE, *, validate_only: bool = False) -> UpdateFeaturesRequest:
    """The request of ``kafka-features upgrade --feature kraft.version=1``."""
    update = FeatureUpdateKey(feature="kraft.version", max_version_level=level, upgrade_type=how)
    return UpdateFeaturesRequest(timeout_ms=5000, feature_updates=[update], validate_only=validate_only)


async def upgrade(client: Client) -> None:
    """Ask until the voters have told the leader of their disks."""
    with trio.fail_after(SHORT):
        while (answer := await client.ask(raised(), 2)).error_code:
            assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION, answer
            assert "have not told this leader yet" in answer.error_message, answer
            await trio.sleep(0.02)


async def level_of(client: Client) -> int | None:
    """The level that ApiVersions tells."""
    answer = await client.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
    levels = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    return levels.get("kraft.version")


def disks(cluster: Quorum) -> dict[int, Uuid]:
    """The directory ids of all nodes that run."""
    return {node_id: node.metadata.directory_id for node_id, node in cluster.nodes.items()}


async def all_know(cluster: Quorum, voters: dict[int, Uuid]) -> None:
    """Every node has these voters, with their disks."""

    def known() -> bool:
        sets = [node.metadata.voters for node in cluster.nodes.values()]
        return all({voter.id: voter.key.directory_id for voter in known} == voters for known in sets)

    await cluster.until(known)


async def test_the_only_voter(tmp_path: Path) -> None:
    async with quorum(tmp_path, 1) as cluster:
        await cluster.start(1)
        await cluster.await_leader()
        client = await cluster.node(1).connect()
        assert await level_of(client) is None
        await cluster.controllers_registered(1)
        answer = await client.ask(raised(validate_only=True), 2)
        assert (answer.error_code, answer.error_message) == (0, None)
        assert await level_of(client) is None
        answer = await client.ask(raised(), 2)
        assert (answer.error_code, answer.error_message) == (0, None)
        assert await level_of(client) == 1
        assert (await client.ask(raised(), 2)).error_code == 0  # as often as one likes
        for how, why in ((UPGRADE, "without setting the upgrade type"), (SAFE_DOWNGRADE, "Can't downgrade the ver")):
            answer = await client.ask(raised(0, how), 2)
            assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION and why in answer.error_message, answer
        answer = await client.ask(raised(2), 2)
        assert answer.error_message.endswith("Local controller 1 only supports versions 0-1"), answer
        await all_know(cluster, disks(cluster))
        await cluster.stop(1)
        await cluster.start(1)
        assert await level_of(await cluster.node(1).connect()) == 1
        await all_know(cluster, disks(cluster))


@pytest.mark.parametrize("written", [False, True], ids=["log", "snapshot"])
async def test_three_nodes_and_a_fourth_that_joins(tmp_path: Path, written: bool) -> None:
    async with quorum(tmp_path, 4, initial=3) as cluster:
        await cluster.start(1, 2, 3)
        leader = await cluster.await_leader()
        other = leader % 3 + 1
        client = await cluster.node(other).connect()  # it passes the request on
        key = cluster.nodes[other].metadata.directory_id
        refused = await client.ask(
            RemoveRaftVoterRequest(cluster_id=CLUSTER_ID, voter_id=other, voter_directory_id=key)
        )
        assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
        await cluster.controllers_registered(1, 2, 3)
        await upgrade(client)
        assert await level_of(await cluster.node(leader).connect()) == 1
        voters = disks(cluster)
        await all_know(cluster, voters)
        if written:
            await cluster.node(other).create_topic("before")
            for node in cluster.nodes.values():
                await node.metadata.snapshots.write()
        # Another leader, and nodes that come back, know no others.
        await cluster.kill(leader)
        await cluster.await_leader()
        await cluster.start(leader)
        await cluster.await_leader()
        await all_know(cluster, voters)

        cluster.find_voters_by_bootstrap_servers()
        await cluster.start(4)
        await cluster.leader_with_observers([4])
        client = await cluster.node(other).connect()
        answer = await client.ask(
            AddRaftVoterRequest(
                cluster_id=CLUSTER_ID,
                timeout_ms=5000,
                voter_id=4,
                voter_directory_id=cluster.nodes[4].metadata.directory_id,
                listeners=[Listener(name=LISTENER, host="127.0.0.1", port=cluster.ports[3])],
            )
        )
        assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
        await all_know(cluster, disks(cluster))
        gone = cluster.leader()
        assert gone is not None
        answer = await client.ask(
            RemoveRaftVoterRequest(cluster_id=CLUSTER_ID, voter_id=gone, voter_directory_id=disks(cluster)[gone])
        )
        assert answer.error_code == ErrorCode.NONE
        await cluster.until(lambda: cluster.leader() not in (None, gone))
        await all_know(cluster, {node_id: disk for node_id, disk in disks(cluster).items() if node_id != gone})
        await cluster.node(4).create_topic("afterwards")
        await cluster.topics_everywhere(["afterwards"])


async def test_a_voter_that_is_not_there_is_waited_for(tmp_path: Path) -> None:
    async with quorum(tmp_path, 3) as cluster:
        await cluster.start(1, 2)
        await cluster.await_leader()
        await cluster.controllers_registered(1, 2)
        client = await cluster.node(1).connect()
        answer = await client.ask(raised(), 2)
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert "controller 3 has not registered" in answer.error_message, answer
        assert await level_of(client) is None
        await cluster.start(3)
        with trio.fail_after(SHORT):
            while (await client.ask(raised(), 2)).error_code:
                await trio.sleep(0.02)
        await all_know(cluster, disks(cluster))


async def test_a_voter_of_a_dynamic_quorum_is_waited_for_as_well(tmp_path: Path) -> None:
    """It could be without the level that the others agree on (KAFKA-20865)."""
    async with quorum(tmp_path, 3, dynamic=True) as cluster:
        await cluster.start(1, 2)
        await cluster.await_leader()
        await cluster.controllers_registered(1, 2)
        client = await cluster.node(1).connect()
        lowered = UpdateFeaturesRequest(
            feature_updates=[
                FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=SAFE_DOWNGRADE)
            ]
        )
        answer = await client.ask(lowered, 2)
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert "controller 3 has not registered" in answer.error_message, answer
        await cluster.start(3)
        await cluster.controllers_registered(1, 2, 3)
        assert (await client.ask(lowered, 2)).error_code == 0
