"""Offsets that expire, on a node whose machine sleeps: its own time stands still then, the wall clock goes on."""

from __future__ import annotations

from pathlib import Path

import trio

from kbroker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.node.coordinator_harness import WEEK_AND_A_DAY_MS, SleepingEnv, commit, ready
from tests.node.node_harness import Client, Node, running_node
from tests.patience import until


async def committed(client: Client) -> dict[int, int]:
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    while (found := (await client.ask(asked, 9)).groups[0]).error_code:
        await trio.sleep(0.01)
    topics = found.topics
    return {each.partition_index: each.committed_offset for topic in topics for each in topic.partitions}


async def test_what_was_committed_after_a_long_sleep_does_not_expire_with_the_next_start(tmp_path: Path) -> None:
    env = SleepingEnv(seed=1)
    node: Node
    async with running_node(tmp_path, env) as node:
        await ready(node)  # commits for partition 0
        client = await node.connect()
        env.slept_ms = WEEK_AND_A_DAY_MS
        assert not (await client.ask(commit(1, 11), 9)).topics[0].partitions[0].error_code
        assert await committed(client) == {0: 7, 1: 11}
    async with running_node(tmp_path, env, offsets_retention_check_interval_ms="50") as node:
        client = await node.connect()

        async def is_over() -> bool:
            return 0 not in await committed(client)

        await until(is_over)
        assert await committed(client) == {1: 11}
