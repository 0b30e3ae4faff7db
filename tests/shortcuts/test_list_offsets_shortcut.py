"""The short way of a ListOffsets that repeats the last one: its answers are those of the long way, whatever comes."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker.errors import ErrorCode
from kbroker.handlers.list_offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from kbroker.node.shortcuts.list_offsets import ListOffsetsShortcut
from kbroker.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kbroker.wire.messages.topics import DeleteTopicsRequest, DeleteTopicState
from tests.node.node_harness import Client, Node, batch, produce_request
from tests.shortcuts import short_way


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each time that the short way was tried, whether it was taken."""
    return short_way.watch(monkeypatch, ListOffsetsShortcut)


def offsets_of(
    timestamp: int, *, topic: str = "t", partition: int = 0, leader_epoch: int = -1, replica_id: int = -1
) -> ListOffsetsRequest:
    wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=leader_epoch)
    return ListOffsetsRequest(replica_id=replica_id, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])


OTHER: list[dict[str, Any]] = [
    {"timestamp": MAX_TIMESTAMP},
    {"timestamp": 0},
    {"timestamp": -99},
    {"timestamp": LATEST, "partition": 1},
    {"timestamp": LATEST, "partition": 9},
    {"timestamp": LATEST, "topic": "u"},
    {"timestamp": EARLIEST, "leader_epoch": 0},
    {"timestamp": EARLIEST, "leader_epoch": 99},
    {"timestamp": LATEST, "replica_id": -2},
]


@pytest.mark.parametrize("version", range(1, 12))
async def test_answers_as_the_long_way_does(node: Node, version: int, taken: list[bool]) -> None:
    await node.create_topic("t", 2)
    writer, repeats = await node.connect(), await node.connect()

    async def both(**fields: Any) -> tuple[int, int]:
        fresh = await node.connect()
        first, second = [await one.ask(offsets_of(**fields), version) for one in (repeats, fresh)]
        assert first == second
        await fresh.stream.aclose()
        answer = first.topics[0].partitions[0]
        return answer.error_code, answer.offset

    async def write() -> None:
        assert (
            not (await writer.ask(produce_request("t", batch(b"x")), 9)).responses[0].partition_responses[0].error_code
        )

    for count in range(4):
        assert await both(timestamp=LATEST) == (0, count)
        assert await both(timestamp=EARLIEST) == (0, 0)
        await write()
    assert taken == [True] * 6, "all but the first two"
    cut = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(offset=3)])], timeout_ms=5000
    )
    assert not (await writer.ask(cut)).topics[0].partitions[0].error_code
    assert await both(timestamp=EARLIEST) == (0, 3)
    for fields in OTHER:
        await both(**fields)
        del taken[:]
        assert await both(timestamp=LATEST) == (0, 4)
        assert taken == [True]


async def test_a_topic_of_the_same_name_is_another_topic(node: Node, client: Client, taken: list[bool]) -> None:
    await node.create_topic("t")

    async def latest() -> tuple[int, int]:
        answer = (await client.ask(offsets_of(LATEST), 9)).topics[0].partitions[0]
        return answer.error_code, answer.offset

    assert not (await client.ask(produce_request("t", batch(b"x")), 9)).responses[0].partition_responses[0].error_code
    assert [await latest() for _ in range(3)] == [(0, 1)] * 3
    topic = DeleteTopicState(name="t")
    assert not (await client.ask(DeleteTopicsRequest(topics=[topic], timeout_ms=5000))).responses[0].error_code
    assert await latest() == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    await node.create_topic("t")
    assert await latest() == (0, 0)
    assert taken[-1] is True


async def test_two_partitions_of_one_request_go_the_long_way(node: Node, client: Client, taken: list[bool]) -> None:
    await node.create_topic("t", 2)
    request = offsets_of(LATEST)
    request.topics[0].partitions.append(ListOffsetsPartition(partition_index=1, timestamp=EARLIEST))
    for _ in range(5):
        answer = await client.ask(request, 9)
        assert [one.offset for one in answer.topics[0].partitions] == [0, 0]
    assert taken == []
