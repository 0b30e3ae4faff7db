"""Steps that are gathered and appended together; whoever is alone does not wait."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from kbroker.errors import ApiError, ErrorCode
from kbroker.wire.batch_header import walk_headers
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kbroker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.node.node_harness import Node, run, running_node


def commit(partition: int, offset: int = 7, group: str = "g") -> OffsetCommitRequest:
    asked = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
    topics = [OffsetCommitRequestTopic(name="t", partitions=[asked])]
    return OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=topics)


async def ready(node: Node) -> Any:
    """The node's groups, with a topic to commit to."""
    await node.create_topic("t", partitions=8)
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
        done = trio.Event()

        def on_stored(answer: Any, error: ApiError | None) -> None:
            answers.append(answer if error is None else error.code)
            done.set()

        groups.submit_gathered("g", lambda core, now_ms: core.commit_offsets(request, 9, now_ms), on_stored)
        await done.wait()

    return run_it


def test_commits_of_one_turn_share_a_batch(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            groups = await ready(node)
            shard = groups.shard_now("g")
            log = shard.partition.log
            before = log.log_end_offset
            answers: list[Any] = []
            async with trio.open_nursery() as nursery:
                for partition in range(8):
                    nursery.start_soon(submit(groups, commit(partition, partition + 100), answers))
            assert len(answers) == 8
            assert all(not answer.topics[0].partitions[0].error_code for answer in answers)
            assert log.log_end_offset == before + 8
            data = log.read_bytes(before, 1 << 20, max_offset=log.log_end_offset)
            batches = sum(1 for _ in walk_headers(data))
            assert batches == 2, "the first alone, the others together"
            client = await node.connect()
            asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
            (topic,) = (await client.ask(asked, 9)).groups[0].topics
            committed = {each.partition_index: each.committed_offset for each in topic.partitions}
            assert committed == {partition: partition + 100 for partition in range(8)}

    run(test)


def test_another_step_comes_after_what_is_gathered(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            groups = await ready(node)
            shard = groups.shard_now("g")
            answers: list[Any] = []
            begun: list[Any] = []
            async with trio.open_nursery() as nursery:
                for partition in range(4):
                    nursery.start_soon(submit(groups, commit(partition), answers, begun))
                while len(begun) < 4:  # Trio runs the tasks of a turn in any order
                    await trio.lowlevel.checkpoint()
                await groups.submit("g", lambda core, now_ms: core.admin.delete_group("g"))
                assert not shard.gathered
            assert len(answers) == 4
            asked = OffsetFetchRequestGroup(group_id="g", topics=None)
            assert shard.core.fetch_offsets(asked, {}).topics == []

    run(test)


def test_who_asks_for_offsets_sees_what_is_gathered(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            groups = await ready(node)
            shard = groups.shard_now("g")
            shard.gathers = True  # and nobody is to come for it
            committing, fetching = await node.connect(), await node.connect()
            answers: list[Any] = []

            async def commit_it() -> None:
                answers.append(await committing.ask(commit(3, 345), 9))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(commit_it)
                while not shard.gathered:
                    await trio.lowlevel.checkpoint()
                assert not answers
                asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
                (topic,) = (await fetching.ask(asked, 9)).groups[0].topics
                committed = {each.partition_index: each.committed_offset for each in topic.partitions}
                assert committed[3] == 345
            assert answers[0].topics[0].partitions[0].error_code == ErrorCode.NONE

    run(test)


@pytest.mark.parametrize("unload", [False, True])
def test_what_cannot_be_stored_is_told_to_all(tmp_path: Path, unload: bool) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            groups = await ready(node)
            shard = groups.shard_now("g")
            shard.gathers = True
            groups._gathering.append(shard)
            answers: list[Any] = []
            async with trio.open_nursery() as nursery:
                for partition in range(3):
                    nursery.start_soon(submit(groups, commit(partition, 999), answers))
                while len(shard.gathered) < 3:
                    await trio.lowlevel.checkpoint()
                if unload:
                    groups._unload(shard.index)
                else:
                    shard.partition.state.leader = 99
                    groups._wake_gatherer.set()
            assert answers == [ErrorCode.NOT_COORDINATOR] * 3
            asked = OffsetFetchRequestGroup(group_id="g", topics=None)
            offsets = [each.committed_offset for each in shard.core.fetch_offsets(asked, {}).topics[0].partitions]
            assert offsets == [7], "what was not stored has not been replayed"

    run(test)
