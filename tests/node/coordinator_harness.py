"""Shared by the tests of coordinators on a node: offset commits, a node that accepts them, and one that has slept."""

from __future__ import annotations

from typing import Any

import trio.testing

from kbroker.errors import ApiError
from kbroker.runtime.env import RealEnv
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.node.node_harness import Node

WEEK_AND_A_DAY_MS = 8 * 24 * 3_600_000


class SleepingEnv(RealEnv):
    """A machine that has slept: its own time stood still, the wall clock went on."""

    slept_ms = 0

    def wall_clock_ms(self) -> int:
        return super().wall_clock_ms() + self.slept_ms


def commit(partition: int, offset: int = 7, group: str = "g") -> OffsetCommitRequest:
    asked = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
    topics = [OffsetCommitRequestTopic(name="t", partitions=[asked])]
    return OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=topics)


async def ready(node: Node) -> Any:
    """The node's groups, with a topic to commit to."""
    await node.create_topic("t", 8)
    client = await node.connect()
    await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    while (await client.ask(commit(0), 9)).topics[0].partitions[0].error_code:
        pass
    await trio.testing.wait_all_tasks_blocked()
    return node.broker.services.groups


def submit(groups: Any, request: OffsetCommitRequest, answers: list[Any], begun: list[Any] | None = None) -> Any:
    async def run_it() -> None:
        if begun is not None:
            begun.append(request)
        stored = groups.run("g", lambda core, now_ms: core.commit_offsets(request, 9, now_ms), gather=True)
        try:
            answers.append(await stored)
        except ApiError as error:
            answers.append(error.code)

    return run_it
