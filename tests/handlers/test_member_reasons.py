"""Members of classic groups say why they join and leave (KIP-800)."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kbroker.errors import ErrorCode
from kbroker.wire.messages.classic_groups import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
)
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.node.node_harness import Node, running_node


async def joined(node: Node, reason: str | None) -> JoinGroupResponse:
    """A member of group g."""
    client = await node.connect()
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    while (await client.ask(find, 4)).coordinators[0].error_code:
        pass  # __consumer_offsets is being created
    member_id = ""
    while True:
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
            reason=reason,
        )
        answer: JoinGroupResponse = await client.ask(request, 9)
        if not answer.error_code:
            return answer
        assert answer.error_code in (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        member_id = answer.member_id


async def test_reasons_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kbroker.handlers.classic_groups")

    def told() -> list[str]:
        return [each.getMessage() for each in caplog.records if each.name == "kbroker.handlers.classic_groups"]

    async with running_node(tmp_path, group_initial_rebalance_delay_ms="0") as node:
        for reason in ("it rains", "two\nlines", None):
            caplog.clear()
            member = (await joined(node, reason)).member_id
            shown = reason if reason != "two\nlines" else repr(reason)
            joins = [f"group g: member {member} joins: {shown}"] if reason else []
            assert told() == joins
            leaving = LeaveGroupRequest(
                group_id="g",
                members=[
                    MemberIdentity(member_id=member, reason=reason),
                    MemberIdentity(member_id="nobody", reason="not a member"),
                ],
            )
            client = await node.connect()
            codes = [each.error_code for each in (await client.ask(leaving, 5)).members]
            assert codes == [0, ErrorCode.UNKNOWN_MEMBER_ID]
            assert told() == joins + ([f"group g: member {member} leaves: {shown}"] if reason else [])
