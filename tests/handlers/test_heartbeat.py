"""Heartbeats of a classic member, which repeat each other, and what they tell when all is not well."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.errors import ErrorCode
from kbroker.node.shortcuts.heartbeat import HeartbeatShortcut
from kbroker.wire.messages.classic_groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.node.node_harness import running_node
from tests.shortcuts import short_way


def _join(member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


@pytest.mark.parametrize("version", range(5))
async def test_repeated_heartbeats_are_judged_each_time(
    tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = short_way.watch(monkeypatch, HeartbeatShortcut)
    async with running_node(tmp_path, group_initial_rebalance_delay_ms="0") as node:
        client = await node.connect()
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        while (await client.ask(find, 4)).coordinators[0].error_code:
            pass  # __consumer_offsets is being created
        while (found := await client.ask(_join(), 5)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            pass
        assert found.error_code == ErrorCode.MEMBER_ID_REQUIRED
        joined = await client.ask(_join(found.member_id), 5)
        assert joined.error_code == 0
        synced = await client.ask(
            SyncGroupRequest(
                group_id="g",
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")],
            ),
            3,
        )
        assert synced.assignment == b"mine"

        async def beat(generation_id: int = joined.generation_id, member_id: str = joined.member_id) -> int:
            request = HeartbeatRequest(group_id="g", generation_id=generation_id, member_id=member_id)
            return int((await client.ask(request, version)).error_code)

        assert [await beat() for _ in range(5)] == [0] * 5
        assert taken == [True] * 3
        assert await beat(generation_id=99) == ErrorCode.ILLEGAL_GENERATION
        assert await beat(member_id="who") == ErrorCode.UNKNOWN_MEMBER_ID
        assert await beat() == 0
        other = await node.connect()
        await other.send(_join((await other.ask(_join(), 5)).member_id), 5)
        while (code := await beat()) == 0:
            pass
        assert code == ErrorCode.REBALANCE_IN_PROGRESS
        assert taken[-1] is False
