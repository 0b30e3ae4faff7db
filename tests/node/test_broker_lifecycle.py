"""A broker's standing with the active controller, which may be in the same process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from node_harness import run
from quorum_harness import three_nodes

from kbroker.node.broker_sessions import HeartbeatState, SessionKeeper
from kbroker.raft_metadata.controller.sessions import Heartbeat


def test_a_controller_that_makes_a_mistake_ends_no_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither its own nor others', which ask it by way of a connection."""
    heartbeat = SessionKeeper.heartbeat
    beats: dict[int, list[bool]] = {1: [], 2: [], 3: []}

    async def mistaken(keeper: SessionKeeper, beat: Heartbeat, connection: Any) -> HeartbeatState:
        seen = beats[beat.broker_id]
        if len(seen) < 3:
            seen.append(False)
            raise LookupError("a mistake")
        state = await heartbeat(keeper, beat, connection)
        seen.append(True)
        return state

    async def test() -> None:
        async with three_nodes(tmp_path) as cluster:
            monkeypatch.setattr(SessionKeeper, "heartbeat", mistaken)
            await cluster.until(lambda: all(any(seen) for seen in beats.values()))

    run(test)


def test_a_broker_that_fails_to_leave_stops_all_the_same(tmp_path: Path) -> None:
    """(Without that it serves on for ever, and so does this test.)"""

    async def mistaken() -> None:
        raise LookupError("a mistake")

    async def test() -> None:
        with pytest.raises(BaseExceptionGroup) as caught:
            async with three_nodes(tmp_path) as cluster:
                lifecycle = cluster.nodes[3].lifecycle
                assert lifecycle is not None
                lifecycle.leave = mistaken  # type: ignore[method-assign]
                await cluster.stop(3)
        assert caught.group_contains(LookupError, match="a mistake")

    run(test)
