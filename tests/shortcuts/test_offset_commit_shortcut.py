"""The short way of an OffsetCommit that repeats the last one: it stores and answers what the long way does."""

from __future__ import annotations

import select
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from kbroker.errors import ApiError, ErrorCode
from kbroker.log.partition_log import PartitionLog
from kbroker.node.shortcuts.offset_commit import OffsetCommitShortcut
from kbroker.runtime.budgets import DEFAULTS
from kbroker.types import ZERO_UUID, Uuid
from kbroker.wire.batch_header import walk_headers
from kbroker.wire.messages.api_versions import ApiVersionsRequest
from kbroker.wire.messages.classic_groups import JoinGroupRequest, JoinGroupRequestProtocol
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kbroker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kbroker.wire.messages.topics import DeleteTopicsRequest, DeleteTopicState
from tests.node.node_harness import Client, Node, running_node
from tests.node.placement import followed
from tests.shortcuts import short_way
from tests.shortcuts.test_produce_shortcut import with_crowd

Offsets = dict[tuple[str, int], int]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each time that the short way was tried, whether it was taken."""
    return short_way.watch(monkeypatch, OffsetCommitShortcut)


async def _coordinated(node: Node) -> Client:
    """A connection to a node that is ready to coordinate any group."""
    client = await node.connect()
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    while (await client.ask(find, 4)).coordinators[0].error_code:
        pass  # __consumer_offsets is being created
    while (await _fetched(client, "any"))[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        pass
    return client


async def _fetched(client: Client, group_id: str) -> tuple[int, Offsets]:
    """The error code, and the offsets that the group has committed."""
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)])
    answer = (await client.ask(request, 8)).groups[0]
    found = {
        (topic.name, each.partition_index): each.committed_offset
        for topic in answer.topics
        for each in topic.partitions
    }
    return answer.error_code, found


def _request(ids: dict[str, Uuid], offsets: Offsets, **fields: Any) -> OffsetCommitRequest:
    metadata, epoch = fields.pop("metadata", ""), fields.pop("leader_epoch", -1)
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (name, index), offset in offsets.items():
        partition = OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_leader_epoch=epoch, committed_metadata=metadata
        )
        topics.setdefault(name, []).append(partition)
    asked = [
        OffsetCommitRequestTopic(name=name, topic_id=ids.get(name, ZERO_UUID), partitions=partitions)
        for name, partitions in topics.items()
    ]
    return OffsetCommitRequest(topics=asked, **fields)


SAME: list[Offsets] = [
    {("one", 0): offset, ("one", 1): offset // 2, ("two", 0): 7} for offset in (0, 1, 127, 128, 1 << 40, (1 << 63) - 1)
]

ODD: list[tuple[Offsets, dict[str, Any]]] = [
    ({("one", 0): 9, ("one", 1): 9}, {}),
    ({("one", 0): 9, ("one", 1): 9, ("two", 1): 9}, {}),
    ({("one", 0): 9, ("one", 9): 9, ("two", 0): 9}, {}),
    ({("one", 0): 9, ("one", 1): 9, ("off", 0): 9}, {}),
    ({}, {}),
    ({("one", 0): -5, ("one", 1): -1, ("two", 0): -9}, {}),
    (SAME[0], {"metadata": "said"}),
    (SAME[0], {"metadata": "x" * 5_000}),
    (SAME[0], {"metadata": None}),
    (SAME[0], {"leader_epoch": 3}),
    (SAME[0], {"generation_id_or_member_epoch": 4}),
    (SAME[0], {"member_id": "who"}),
    (SAME[0], {"group_instance_id": "where"}),
    (SAME[0], {"retention_time_ms": 60_000}),
    (SAME[0], {"retention_time_ms": 2**63 - 1}),
]


@pytest.mark.parametrize("version", range(2, 11))
async def test_answers_and_stores_as_the_long_way_does(node: Node, version: int, taken: list[bool]) -> None:
    await _answers_and_stores(node, version, taken)


async def test_answers_and_stores_as_the_long_way_does_in_a_crowd(tmp_path: Path, taken: list[bool]) -> None:
    async with running_node(tmp_path, with_crowd(1)) as node:
        await _answers_and_stores(node, 7, taken)


async def _answers_and_stores(node: Node, version: int, taken: list[bool]) -> None:
    ids = {name: await node.create_topic(name, 2) for name in ("one", "two")}
    repeats = await _coordinated(node)

    async def both(offsets: Offsets, **fields: Any) -> None:
        fresh = await node.connect()
        answers = []
        for client, group_id in ((repeats, "repeats"), (fresh, "fresh_as")):
            answers.append(await client.ask(_request(ids, offsets, group_id=group_id, **fields), version))
        assert answers[0] == answers[1]
        stored = [await _fetched(fresh, group_id) for group_id in ("repeats", "fresh_as")]
        assert stored[0] == stored[1]
        await fresh.stream.aclose()

    for offsets in SAME:
        await both(offsets)
    assert taken == [True] * (len(SAME) - 2), "all but the first two"
    for offsets, fields in ODD:
        if "group_instance_id" in fields and version < 7:
            continue
        await both(offsets, **fields)
        del taken[:]
        await both(SAME[1])
        assert taken == [True]
    assert (await _fetched(repeats, "repeats"))[1] == {**SAME[1], ("two", 1): 9}


async def test_many_at_once_are_answered_in_order(node: Node, taken: list[bool]) -> None:
    """Commits of one turn of the loop are appended together, so that most answers come later."""
    ids = {"one": await node.create_topic("one", 1)}
    clients = [await _coordinated(node) for _ in range(5)]
    for last in range(100):
        for number, client in enumerate(clients):
            await client.send(_request(ids, {("one", 0): last}, group_id=f"group-{number}"), 7)
    for number, client in enumerate(clients):
        ids_told = [(await client.receive()) for _ in range(100)]
        assert [told for told, _ in ids_told] == sorted(told for told, _ in ids_told)
        assert {each.topics[0].partitions[0].error_code for _, each in ids_told} == {0}
        assert await _fetched(client, f"group-{number}") == (0, {("one", 0): 99})
    assert taken.count(True) >= 5 * 95


async def _crowd(node: Node, count: int) -> tuple[list[Client], OffsetCommitRequest]:
    """Connections, and the request that each is known by."""
    request = _request({"one": await node.create_topic("one", 1)}, {("one", 0): 7}, group_id="g")
    clients = [await _coordinated(node) for _ in range(count)]
    for client in clients:
        for _ in range(3):
            assert _error(await client.ask(request, 7)) == 0
    await trio.testing.wait_all_tasks_blocked()
    return clients, request


def _error(answer: OffsetCommitResponse) -> int:
    return answer.topics[0].partitions[0].error_code


async def test_commits_of_connections_that_are_readable_together_are_in_one_batch(node: Node) -> None:
    clients, request = await _crowd(node, 2 * DEFAULTS.crowd)
    log = node.groups.loaded_shard("g").partition.log
    before = log.log_end_offset
    request.topics[0].partitions[0].committed_offset = 8
    # All are in their sockets before the node has its turn.
    for client in clients:
        client.send_now(request, 7)
    node.arrived(clients)
    for client in clients:
        assert _error((await client.receive())[1]) == 0
    assert _batches(log, before) == [len(clients)]
    assert await _fetched(clients[0], "g") == (0, {("one", 0): 8})


def _batches(log: PartitionLog, start: int) -> list[int]:
    """The number of records in each batch from an offset on."""
    data = log.read_bytes(start, 1 << 20, max_offset=log.log_end_offset)
    return [header.records_count for _, header in walk_headers(data)]


@pytest.mark.parametrize("recognised", [True, False])
async def test_commits_that_one_client_sends_together_are_in_one_batch(tmp_path: Path, recognised: bool) -> None:
    """Though nobody else is there; and what is asked behind them finds them."""
    async with running_node(tmp_path, with_crowd(1000, recognised)) as node:
        (client,), request = await _crowd(node, 1)
        log = node.groups.loaded_shard("g").partition.log
        before = log.log_end_offset
        request.topics[0].partitions[0].committed_offset = 8
        await client.send_together([request] * 5, 7)
        await client.send(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]), 8)
        for _ in range(5):
            assert _error((await client.receive())[1]) == 0
        fetched = (await client.receive())[1].groups[0]
        assert fetched.topics[0].partitions[0].committed_offset == 8
        assert _batches(log, before) == [5]


@pytest.mark.parametrize("crowd", [1, 1000])
async def test_a_failing_disk_is_told_to_all_whose_commits_were_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: list[bool], crowd: int
) -> None:
    def refuse(self: PartitionLog, *arguments: Any, **more: Any) -> None:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)

    async with running_node(tmp_path, with_crowd(crowd)) as node:
        clients, request = await _crowd(node, 2)
        request.topics[0].partitions[0].committed_offset = 8
        del taken[:]
        with monkeypatch.context() as failing:
            failing.setattr(PartitionLog, "append_as_leader", refuse)
            for client in clients:
                await client.send_together([request] * 3, 7)
            told = [_error((await client.receive())[1]) for client in clients for _ in range(3)]
        assert told == [ErrorCode.NOT_COORDINATOR] * 6
        assert taken == [True] * 6
        assert await _fetched(clients[0], "g") == (0, {("one", 0): 7})


async def test_no_commit_is_answered_before_its_followers_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: list[bool]
) -> None:
    async with followed(tmp_path, monkeypatch, "__consumer_offsets", "one") as placed:
        client, other = [await placed.cluster.node(placed.first).connect() for _ in range(2)]
        request = _request({}, {("one", 0): 7}, group_id="g")
        while _error(await client.ask(request, 7)):
            await trio.sleep(0.01)
        while not any(taken):
            assert _error(await client.ask(request, 7)) == 0
        partition = placed.partition
        before = partition.log.log_end_offset
        await placed.cluster.until(lambda: partition.state.high_watermark == before)
        placed.lagging.append(placed.second)
        await client.send(request, 7)
        while partition.log.log_end_offset == before:
            await other.ask(ApiVersionsRequest(client_software_name="test", client_software_version="1"))
        is_answered = bool(select.select([client.raw], [], [], 0)[0])
        placed.lagging.clear()
        assert not is_answered
        assert _error((await client.receive())[1]) == 0
        assert all(taken[-2:])


async def test_a_topic_of_the_same_name_is_another_topic(node: Node, taken: list[bool]) -> None:
    ids = {"again": await node.create_topic("again")}
    client = await _coordinated(node)
    request = _request(ids, {("again", 0): 5}, group_id="g")

    async def code(asked: OffsetCommitRequest, version: int) -> int:
        return int((await client.ask(asked, version)).topics[0].partitions[0].error_code)

    assert [await code(request, 7) for _ in range(4)] == [0] * 4
    assert taken == [True] * 2
    topic = DeleteTopicState(name="again")
    deleted = await client.ask(DeleteTopicsRequest(topics=[topic], timeout_ms=5000))
    assert deleted.responses[0].error_code == 0
    assert await code(request, 7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ids["again"] = await node.create_topic("again")
    assert (await _fetched(client, "g"))[1] == {}
    assert await code(request, 7) == 0
    assert (await _fetched(client, "g"))[1] == {("again", 0): 5}
    assert taken == [True, True, False, False]


async def test_the_group_is_asked_each_time(tmp_path: Path, taken: list[bool]) -> None:
    """Another member that joins makes the group refuse what it took before."""

    def join(member_id: str = "") -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id="g",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )

    async with running_node(tmp_path, group_initial_rebalance_delay_ms="0") as node:
        ids = {"one": await node.create_topic("one", 1)}
        client = await _coordinated(node)
        request = _request(ids, {("one", 0): 5}, group_id="g")
        answers = [await client.ask(request, 7) for _ in range(4)]
        assert {each.topics[0].partitions[0].error_code for each in answers} == {0}
        assert taken == [True] * 2
        other = await node.connect()
        joined = await other.ask(join(), 3)
        assert joined.error_code == 0
        refused = await client.ask(request, 7)
        assert refused.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert taken == [True, True, False]
        mine = _of_member(request, joined.generation_id, joined.member_id)
        early = await client.ask(mine, 7)
        assert early.topics[0].partitions[0].error_code == ErrorCode.REBALANCE_IN_PROGRESS


def _of_member(request: OffsetCommitRequest, generation_id: int, member_id: str) -> OffsetCommitRequest:
    """The same commit of a member."""
    return OffsetCommitRequest(
        group_id=request.group_id,
        generation_id_or_member_epoch=generation_id,
        member_id=member_id,
        topics=request.topics,
    )
