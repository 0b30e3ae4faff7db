"""Look-ups that may be long take turns: with one another, and with all else that the node does."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.errors import ApiError, ErrorCode
from kbroker.log.partition_log import PartitionLog
from kbroker.runtime.later import Later
from kbroker.wire.messages.api_versions import ApiVersionsRequest
from kbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.node.node_harness import Client, Meanwhile, Node, batch, produce_request, running_node


def by_time(partitions: int, topic: str = "t", timestamp: int = 1000) -> ListOffsetsRequest:
    wanted = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in range(partitions)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=wanted)])


async def test_others_are_served_between_the_look_ups_of_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up = 0
    real = PartitionLog.offset_for_timestamp

    def counted(log: PartitionLog, timestamp: int) -> Any:
        nonlocal looked_up
        looked_up += 1
        if looked_up == 1:
            others[0].come((ApiVersionsRequest(client_software_name="test", client_software_version="1"), None))
        return real(log, timestamp)

    others: list[Meanwhile] = []

    monkeypatch.setattr(PartitionLog, "offset_for_timestamp", counted)
    async with running_node(tmp_path) as node:
        node.broker.services.timestamp_lookups.slice_seconds = 0.0
        topic_id = await node.create_topic("t", 200)
        slow, other = await node.connect(), await node.connect()
        await slow.ask(produce_request("t", batch(b"x"), partition=199, topic_id=topic_id))
        others.append(Meanwhile(node, other, lambda: looked_up, monkeypatch))
        for _ in range(10):  # as many as the client likes, one behind the other
            await slow.send(by_time(200))
        await other.receive()
        assert others[0].answered_at is not None and others[0].answered_at < 1000
        for _ in range(10):
            offsets = [p.offset for p in (await slow.receive())[1].topics[0].partitions]
            assert offsets == [-1] * 199 + [0]
        assert looked_up == 2000


async def test_what_needs_no_reading_is_told_while_too_much_waits(
    node: Node, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.create_topic("t", 2)
    queue = node.broker.services.timestamp_lookups
    queue.most_bytes = 0
    stuck: Later[None] = Later()

    def steps() -> Generator[Any, Any, None]:
        yield stuck

    assert queue.add(SimpleNamespace(closed=False, peer="other"), steps(), None, 0)
    request = by_time(2)
    request.topics[0].partitions[1].timestamp = -1
    for version, busy in ((11, ErrorCode.OFFSET_NOT_AVAILABLE), (4, ErrorCode.LEADER_NOT_AVAILABLE)):
        refused, told = (await client.ask(request, version)).topics[0].partitions
        assert (refused.error_code, refused.offset) == (busy, -1)
        assert (told.error_code, told.offset) == (0, 0)


async def test_errors_of_look_ups_are_told_by_partition(
    node: Node, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.create_topic("t", 3)

    def corrupt(log: PartitionLog, timestamp: int) -> Any:
        if log.topic_partition.partition == 0:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE)
        if log.topic_partition.partition == 1:
            raise ValueError("a bug")
        return iter(())

    monkeypatch.setattr(PartitionLog, "offset_for_timestamp", corrupt)
    answers = (await client.ask(by_time(4))).topics[0].partitions
    assert [answer.error_code for answer in answers] == [
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
