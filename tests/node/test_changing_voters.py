"""Voters that look after their own place in the quorum (KIP-853): they join, move, come back with another disk."""

from __future__ import annotations

import shutil
from pathlib import Path

from kbroker.tools.cli.cluster_plan import free_ports
from tests.node.quorum_harness import LISTENER, Quorum, quorum, three_nodes


async def all_know(cluster: Quorum, voters: list[int]) -> None:
    """Every node's voter set is this."""
    await cluster.until(lambda: all(node.metadata.voters.ids == voters for node in cluster.nodes.values()))


def ports_of(cluster: Quorum, voter: int) -> set[int]:
    """Where the nodes take a voter to be."""
    return {node.metadata.voters.voters[voter].endpoints[LISTENER].port for node in cluster.nodes.values()}


async def test_a_controller_joins_by_itself(tmp_path: Path) -> None:
    async with quorum(tmp_path, 4, dynamic=True, initial=3, controller_quorum_auto_join_enable="true") as cluster:
        await cluster.start(1, 2, 3)
        await cluster.await_leader()
        await cluster.start(4)
        await all_know(cluster, [1, 2, 3, 4])
        # Its vote counts: with one of the first three gone there still are three of four.
        await cluster.kill(min(node_id for node_id in (1, 2, 3) if node_id != cluster.leader()))
        await cluster.await_leader()
        await cluster.node(4).create_topic("counted")
        await cluster.topics_everywhere(["counted"])


async def test_a_controller_that_may_not_join_only_looks_on(tmp_path: Path) -> None:
    async with quorum(tmp_path, 4, dynamic=True, initial=3) as cluster:
        await cluster.start(1, 2, 3)
        await cluster.start(4)
        await cluster.leader_with_observers([4])
        await cluster.node(4).create_topic("seen")
        await cluster.topics_everywhere(["seen"])
        assert all(node.metadata.voters.ids == [1, 2, 3] for node in cluster.nodes.values())


async def test_a_voter_that_has_moved_says_where_it_is(tmp_path: Path) -> None:
    async with three_nodes(tmp_path, dynamic=True) as cluster:
        leader = await cluster.await_leader()
        moved = leader % 3 + 1
        await cluster.stop(moved)
        [port] = free_ports(1)
        cluster.ports[moved - 1] = port
        await cluster.start(moved)
        await cluster.until(lambda: ports_of(cluster, moved) == {port})
        await cluster.node(moved).create_topic("moved")
        await cluster.topics_everywhere(["moved"])


async def test_a_voter_with_a_new_disk_takes_the_place_of_its_old_one(tmp_path: Path) -> None:
    async with three_nodes(tmp_path, dynamic=True, controller_quorum_auto_join_enable="true") as cluster:
        leader = await cluster.await_leader()
        away = leader % 3 + 1
        old = cluster.nodes[leader].metadata.voters.voters[away].key
        await cluster.stop(away)
        shutil.rmtree(tmp_path / f"node{away}")
        # Formatted as one that joins, not as one of the first voters, who would have that vote's directory.
        cluster.join_later(away)
        await cluster.start(away)

        def replaced() -> bool:
            sets = [node.metadata.voters.voters for node in cluster.nodes.values()]
            return all(away in voters and voters[away].key != old for voters in sets)

        await cluster.until(replaced)
        await all_know(cluster, [1, 2, 3])
