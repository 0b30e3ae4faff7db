"""Batches behind one that was refused wait for it where a partition does not know their producer (KAFKA-15591)."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.services.refused_batches import MOST_REFUSED, PATIENCE_SECONDS, RefusedBatches
from kbroker.raft_metadata.topics import MAX_NAME_LENGTH
from kbroker.types import Uuid
from kbroker.wire.messages.topics import DeleteTopicsRequest, DeleteTopicState
from tests.node.node_harness import Client, Node, batch, fetch_request, produce_request, values

OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


def numbered(sequence: int, *, producer_id: int = 7, epoch: int = 0) -> memoryview:
    content = batch(b"%d" % sequence, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    return memoryview(bytearray(content))


async def send(client: Client, *sequences: int, topic: str = "t", **producer: int) -> list[int]:
    """The errors of batches that are all under way at once."""
    for sequence in sequences:
        await client.send(produce_request(topic, bytes(numbered(sequence, **producer))), 12)
    found = [(await client.receive())[1] for _ in sequences]
    return [answer.responses[0].partition_responses[0].error_code for answer in found]


async def stored(node: Node) -> list[bytes]:
    client = await node.connect()
    answer: Any = await client.ask(fetch_request("t"), 12)
    return [value for _, value in values(answer.responses[0].partitions[0].records)]


async def test_no_later_batch_is_the_first_of_a_new_topic(node: Node) -> None:
    """Not of one either that others write to already, where Apache Kafka 4.5 takes it."""
    client, other = await node.connect(), await node.connect()
    assert await send(client, 0, 1) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    await node.create_topic("t")
    assert await send(other, 0, producer_id=8) == [0]
    assert await send(client, 2, 1) == [OUT_OF_ORDER] * 2
    assert await send(client, 0, 1, 2, 3) == [0] * 4
    assert await stored(node) == [b"0", b"0", b"1", b"2", b"3"]


async def test_who_goes_on_with_a_topic_that_was_made_anew_is_served(node: Node, client: Client) -> None:
    """librdkafka's producers end for good when they are told that this is out of order; 4.4.0 takes it."""
    await node.create_topic("t")
    assert await send(client, 0, 1, 2) == [0] * 3
    await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000))
    assert await send(client, 3, 4) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    await node.create_topic("t")
    assert await send(client, 4) == [OUT_OF_ORDER]
    assert await send(client, 3, 4) == [0, 0]
    assert await send(await node.connect(), 9, producer_id=8) == [0], "it was never refused"
    assert await stored(node) == [b"3", b"4", b"9"]


async def test_a_batch_that_came_another_way_is_not_waited_for(node: Node) -> None:
    """Another broker led meanwhile, and took it: this one leads again, and knows from its log what comes next."""
    client, way = await node.connect(), await node.connect()
    assert await send(client, 0) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    await node.create_topic("t")
    assert await send(way, 0, 1) == [0, 0]
    assert await send(client, 3, 2) == [OUT_OF_ORDER, 0]
    assert await send(client, 3) == [0]
    assert await stored(node) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("partition", [("t", 0), (Uuid(bytes(15) + b"1"), 0)])
def test_a_batch_is_waited_for_until_it_comes(partition: Any) -> None:
    refused = RefusedBatches()
    for sequence in (5, 3, 9):
        refused.note(partition, numbered(sequence), NOT_LEADER, 0.0)
    with pytest.raises(ApiError, match="3 was refused"):
        refused.check(partition, numbered(5), 1.0)
    refused.check(("t", 1), numbered(5), 1.0)
    refused.check(partition, numbered(5, producer_id=8), 1.0)
    refused.check(partition, numbered(3), 1.0)
    assert not refused
    refused.check(partition, numbered(5), 1.0)


@pytest.mark.parametrize(("epoch", "now"), [(1, 1.0), (0, PATIENCE_SECONDS)])
def test_a_batch_that_its_producer_has_given_up_is_not_waited_for(epoch: int, now: float) -> None:
    refused = RefusedBatches()
    refused.note(("t", 0), numbered(0), NOT_LEADER, 0.0)
    refused.check(("t", 0), numbered(5, epoch=epoch), now)
    assert not refused


def test_a_name_that_no_topic_can_have_is_not_remembered() -> None:
    refused = RefusedBatches()
    refused.note(("t" * (MAX_NAME_LENGTH + 1), 0), numbered(0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0.0)
    assert not refused


def test_batches_that_never_come_again_make_room_for_others() -> None:
    """A connection is served the long way for as long as something is remembered of it."""
    refused = RefusedBatches()
    for number in range(MOST_REFUSED):
        refused.note(("t", number), numbered(0), NOT_LEADER, 0.0)
    refused.note(("u", 0), numbered(0), NOT_LEADER, PATIENCE_SECONDS)
    with pytest.raises(ApiError, match="0 was refused"):
        refused.check(("u", 0), numbered(5), PATIENCE_SECONDS)
    refused.check(("v", 0), numbered(0), 2 * PATIENCE_SECONDS)
    assert not refused


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (numbered(0), ErrorCode.MESSAGE_TOO_LARGE),  # the producer makes other batches of it
        (numbered(0, producer_id=-1), NOT_LEADER),
        (numbered(0)[:30], NOT_LEADER),
        (None, NOT_LEADER),
    ],
)
def test_what_does_not_come_again_is_not_waited_for(records: memoryview | None, code: ErrorCode) -> None:
    refused = RefusedBatches()
    refused.note(("t", 0), records, code, 0.0)
    assert not refused
