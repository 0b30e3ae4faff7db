"""UnregisterController (KIP-1312): by any node of three, and who is refused."""

from __future__ import annotations

from pathlib import Path

from kbroker.errors import ErrorCode as E
from kbroker.wire.messages.nodes import UnregisterControllerRequest
from kbroker.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from tests.node.node_harness import CLUSTER_ID
from tests.node.quorum_harness import LISTENER, quorum, three_nodes


async def test_a_controller_that_is_gone_is_forgotten_and_comes_back_with_a_restart(tmp_path: Path) -> None:
    """It must be no voter: the others of the quorum may agree on a feature that it does not have (KAFKA-20865)."""
    async with quorum(tmp_path, 4, dynamic=True, initial=3) as cluster:
        await cluster.start(1, 2, 3)
        leader = await cluster.await_leader()
        gone, other = (node_id for node_id in (1, 2, 3) if node_id != leader)
        await cluster.start(4)
        await cluster.leader_with_observers([4])

        async def unregister(node_id: int, by: int, *listener: str) -> tuple[int, str | None]:
            client = await cluster.node(by).connect(*listener)
            answer = await client.ask(UnregisterControllerRequest(controller_id=node_id), 0)
            return answer.error_code, answer.error_message

        def known(node_id: int) -> bool:
            return node_id in cluster.nodes[other].metadata.image.controllers

        await cluster.until(lambda: all(known(node_id) for node_id in (1, 2, 3, 4)))
        for by in (leader, other):
            for voter in (leader, gone):
                message = f"Cannot unregister controller {voter} because it is part of the voter set."
                assert await unregister(voter, by) == (E.INVALID_REQUEST, message)
            assert await unregister(7, by) == (
                E.CONTROLLER_ID_NOT_REGISTERED,
                "Controller ID 7 is not currently registered.",
            )
        await cluster.stop(4)
        assert await unregister(4, other) == (0, None)
        await cluster.until(lambda: not known(4))
        assert await unregister(4, leader, LISTENER) == (
            E.CONTROLLER_ID_NOT_REGISTERED,
            "Controller ID 4 is not currently registered.",
        )
        await cluster.start(4)
        await cluster.until(lambda: known(4))

        client = await cluster.node(other).connect()
        disk = cluster.nodes[gone].metadata.directory_id
        await cluster.stop(gone)
        removal = RemoveRaftVoterRequest(cluster_id=CLUSTER_ID, voter_id=gone, voter_directory_id=disk)
        assert (await client.ask(removal)).error_code == 0
        assert await unregister(gone, other) == (0, None)


async def test_below_its_level_there_is_no_record_of_it(tmp_path: Path) -> None:
    async with three_nodes(tmp_path, metadata_version=32) as quorum:
        client = await quorum.node(1).connect()
        answer = await client.ask(UnregisterControllerRequest(controller_id=7), 0)
        assert (answer.error_code, answer.error_message) == (
            E.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support controller unregistration.",
        )
