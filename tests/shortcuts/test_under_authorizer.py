"""A change of the rules holds for the very next request, also where a short way has served a hundred like it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kbroker.errors import ErrorCode
from kbroker.node.shortcuts.heartbeat import HeartbeatShortcut
from kbroker.node.shortcuts.list_offsets import ListOffsetsShortcut
from kbroker.node.shortcuts.offset_commit import OffsetCommitShortcut
from kbroker.node.shortcuts.produce import ProduceShortcut
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.types import Uuid
from kbroker.wire.messages.classic_groups import HeartbeatRequest, JoinGroupRequest, JoinGroupRequestProtocol
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.handlers.principals import Asked, ButOneTopic, connect_as, under
from tests.handlers.test_transactions import open_producer
from tests.node.node_harness import Client, Node, batch, judge_by, produce_request, running_node
from tests.shortcuts import short_way

REPEATS = 100

Ask = Callable[[], Awaitable[int]]
"""Sends the next request; its error code."""


async def _produce(node: Node, client: Client, topic_id: Uuid) -> Ask:
    async def ask() -> int:
        answer = await client.ask(produce_request("t", batch(b"value"), topic_id=topic_id), 13)
        return int(answer.responses[0].partition_responses[0].error_code)

    return ask


async def _produce_by_name(node: Node, client: Client, topic_id: Uuid) -> Ask:
    async def ask() -> int:
        answer = await client.ask(produce_request("t", batch(b"value")), 11)
        return int(answer.responses[0].partition_responses[0].error_code)

    return ask


async def _produce_in_transaction(node: Node, client: Client, topic_id: Uuid) -> Ask:
    producer = await open_producer(node)
    producer.client = client

    async def ask() -> int:
        code = await producer.send(b"value")
        if code:
            producer.sequence -= 1  # it is not in the log
        return code

    return ask


async def _list_offsets(node: Node, client: Client, topic_id: Uuid) -> Ask:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=-1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[partition])])

    async def ask() -> int:
        return int((await client.ask(request)).topics[0].partitions[0].error_code)

    return ask


async def _commit(node: Node, client: Client, topic_id: Uuid) -> Ask:
    offset = 0

    async def ask() -> int:
        nonlocal offset
        offset += 1
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topic = OffsetCommitRequestTopic(name="t", topic_id=topic_id, partitions=[partition])
        request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=[topic])
        return int((await client.ask(request)).topics[0].partitions[0].error_code)

    await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    while await ask():
        pass
    return ask


async def _heartbeat(node: Node, client: Client, topic_id: Uuid) -> Ask:
    await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    join = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        group_instance_id="instance",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    while (joined := await client.ask(join)).error_code:
        pass
    request = HeartbeatRequest(
        group_id="g", generation_id=joined.generation_id, member_id=joined.member_id, group_instance_id="instance"
    )

    async def ask() -> int:
        return int((await client.ask(request)).error_code)

    return ask


WAYS: list[tuple[Any, type[Any], Asked, ErrorCode]] = [
    (_produce, ProduceShortcut, (AclOperation.WRITE, ResourceType.TOPIC), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    (_produce_by_name, ProduceShortcut, (AclOperation.WRITE, ResourceType.TOPIC), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    (
        _produce_in_transaction,
        ProduceShortcut,
        (AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    (
        _list_offsets,
        ListOffsetsShortcut,
        (AclOperation.DESCRIBE, ResourceType.TOPIC),
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ),
    (_commit, OffsetCommitShortcut, (AclOperation.READ, ResourceType.TOPIC), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    (_commit, OffsetCommitShortcut, (AclOperation.READ, ResourceType.GROUP), ErrorCode.GROUP_AUTHORIZATION_FAILED),
    (_heartbeat, HeartbeatShortcut, (AclOperation.READ, ResourceType.GROUP), ErrorCode.GROUP_AUTHORIZATION_FAILED),
]


def _name(value: Any) -> str:
    if isinstance(value, tuple):
        return "-".join(each.name for each in value)
    return "" if isinstance(value, int | type) else str(value.__name__).lstrip("_")


@pytest.mark.parametrize(("way", "shortcut", "needed", "error"), WAYS, ids=_name)
async def test_what_is_revoked_is_denied_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: Any, shortcut: type[Any], needed: Asked, error: ErrorCode
) -> None:
    taken = short_way.watch(monkeypatch, shortcut)
    async with running_node(tmp_path) as node:
        topic_id = await node.create_topic("t")
        authorizer = under(node)
        ask = await way(node, await connect_as(node, "bob"), topic_id)
        for _ in range(REPEATS):
            assert await ask() == 0
        assert taken[-1], "the short way has not been taken"
        for _ in range(2):
            taken.clear()
            authorizer.deny("bob", needed)
            for _ in range(REPEATS):
                assert await ask() == error
            assert not any(taken), "what is denied has taught a short way"
            taken.clear()
            authorizer.deny("bob")
            for _ in range(REPEATS):
                assert await ask() == 0
            assert taken[-1]


async def test_a_request_that_waits_for_others_teaches_nothing_that_is_denied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reply comes later, and nobody has asked the authorizer yet when it is remembered."""
    taken = short_way.watch(monkeypatch, ProduceShortcut)
    async with running_node(tmp_path) as node:
        await node.create_topic("t")
        await node.create_topic("secret")
        judge_by(node.broker.services, ButOneTopic())
        client = await connect_as(node, "bob")
        long = produce_request("t", batch(b"value"))
        long.topic_data[0].partition_data *= 10
        node.broker.services.produce_queue.slice_seconds = 0.0
        await client.send(long, 11)
        for _ in range(3):
            await client.send(produce_request("secret", batch(b"value")), 11)
        answers = [(await client.receive())[1] for _ in range(4)]
        assert answers[0].responses[0].partition_responses[-1].error_code == 0
        secret = produce_request("secret", batch(b"value"))
        answers += [await client.ask(secret, 11) for _ in range(REPEATS)]
        codes = {answer.responses[0].partition_responses[0].error_code for answer in answers[1:]}
        assert codes == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        assert not any(taken)


async def test_the_audit_log_has_each_request_that_it_is_to_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    taken = short_way.watch(monkeypatch, ProduceShortcut)
    async with running_node(tmp_path) as node:
        await node.create_topic("t")
        authorizer = under(node)
        ask = await _produce_by_name(node, await connect_as(node, "bob"), Uuid(b""))
        with caplog.at_level(logging.DEBUG, "kbroker.authorizer"):
            for count in range(1, REPEATS + 1):
                assert await ask() == 0
                assert len(authorizer.audited) == count
        assert not taken
        for _ in range(REPEATS):
            assert await ask() == 0
        assert taken[-1]
