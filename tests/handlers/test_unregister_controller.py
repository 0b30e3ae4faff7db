"""UnregisterController (KIP-1312): by any node of three, and who is refused."""

from __future__ import annotations

from pathlib import Path

from kbroker.errors import ErrorCode as E
from kbroker.wire.messages.unregister_controller import UnregisterControllerRequest
from tests.node.node_harness import run
from tests.node.quorum_harness import LISTENER, three_nodes


def test_a_controller_that_is_gone_is_forgotten_and_comes_back_with_a_restart(tmp_path: Path) -> None:
    async def test() -> None:
        async with three_nodes(tmp_path) as quorum:
            leader = await quorum.await_leader()
            gone, other = (node_id for node_id in (1, 2, 3) if node_id != leader)

            async def unregister(node_id: int, by: int, *listener: str) -> tuple[int, str | None]:
                client = await quorum.node(by).connect(*listener)
                answer = await client.ask(UnregisterControllerRequest(controller_id=node_id), 0)
                return answer.error_code, answer.error_message

            def known(node_id: int) -> bool:
                return node_id in quorum.nodes[other].metadata.image.controllers

            await quorum.until(lambda: all(known(node_id) for node_id in (1, 2, 3)))
            for by in (leader, other):
                assert await unregister(leader, by) == (
                    E.INVALID_REQUEST,
                    "Controller cannot unregister itself while it is active.",
                )
                assert await unregister(7, by) == (
                    E.CONTROLLER_ID_NOT_REGISTERED,
                    "Controller ID 7 is not currently registered.",
                )
            await quorum.stop(gone)
            assert await unregister(gone, other) == (0, None)
            await quorum.until(lambda: not known(gone))
            assert await unregister(gone, leader, LISTENER) == (
                E.CONTROLLER_ID_NOT_REGISTERED,
                f"Controller ID {gone} is not currently registered.",
            )
            await quorum.start(gone)
            await quorum.until(lambda: known(gone))

    run(test)


def test_below_its_level_there_is_no_record_of_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with three_nodes(tmp_path, metadata_version=32) as quorum:
            client = await quorum.node(1).connect()
            answer = await client.ask(UnregisterControllerRequest(controller_id=7), 0)
            assert (answer.error_code, answer.error_message) == (
                E.UNSUPPORTED_VERSION,
                "The current MetadataVersion is too old to support controller unregistration.",
            )

    run(test)
