"""Requests that name the same again and again: answered as often, as Apache Kafka does, up to a bound."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.duplicates_in_request import DuplicateAnswers
from kbroker.wire.messages import described_transactions as dp
from kbroker.wire.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.groups import DescribeGroupsRequest
from kbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kbroker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kbroker.wire.messages.transactions import InitProducerIdRequest
from tests.node.node_harness import Client, batch, produce_request, run, running_node


def test_an_answer_is_given_again_while_there_is_room() -> None:
    sized: list[str] = []

    def size(answer: str) -> int:
        sized.append(answer)
        return len(answer)

    answers = DuplicateAnswers[str](10, size)
    assert answers.again("a") is None
    answers.add("a", "four")
    assert answers.again("a") == answers.again("a") == "four"
    assert answers.again("b") is None
    with pytest.raises(ApiError) as caught:
        answers.again("a")
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert sized == ["four"]


async def ask_about_groups(client: Client, groups: list[str]) -> list[Any]:
    await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    return list((await client.ask(DescribeGroupsRequest(groups=groups), 6)).groups)


async def commit(client: Client, metadata: str) -> None:
    await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    offsets = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=7 + index, committed_metadata=metadata)
        for index in range(2)
    ]
    answer = await client.ask(
        OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=offsets)]), 9
    )
    assert [p.error_code for p in answer.topics[0].partitions] == [0, 0]


@pytest.mark.parametrize(("room", "errors"), [(1 << 20, [0, 69, 0, 69, 0]), (20, [0, 69, 0, 42, 42])])
def test_a_group_is_described_as_often_as_it_is_named(tmp_path: Path, room: int, errors: list[int]) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            await node.create_topic("t", 2)
            client = await node.connect()
            await commit(client, "")
            # Both answers of a group without members take less than 100 bytes.
            node.allow(repeated_bytes=room if room > 100 else 30)
            described = await ask_about_groups(client, ["g", "nope", "g", "nope", "g"])
            assert [entry.group_id for entry in described] == ["g", "nope", "g", "nope", "g"]
            assert [entry.error_code for entry in described] == errors

    run(test)


def test_a_consumer_group_is_described_as_often_as_it_is_named(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            await node.create_topic("t", 2)
            client = await node.connect()
            await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["c"]))
            joined = await client.ask(
                ConsumerGroupHeartbeatRequest(
                    group_id="c",
                    member_id="m",
                    rebalance_timeout_ms=60_000,
                    subscribed_topic_names=["t"],
                    topic_partitions=[],
                )
            )
            assert joined.error_code == 0
            names = ["c", "nope", "c", "nope", ""]
            request = ConsumerGroupDescribeRequest(group_ids=names)
            described = (await client.ask(request)).groups
            assert [(entry.group_id, entry.error_code) for entry in described] == list(
                zip(names, [0, 69, 0, 69, 24], strict=True)
            )
            assert described[0] == described[2]
            assert len(described[2].members) == 1
            node.allow(repeated_bytes=10)
            described = (await client.ask(request)).groups
            assert [entry.error_code for entry in described] == [0, 69, 42, 69, 24]
            assert "names again" in described[2].error_message

    run(test)


def test_offsets_are_told_as_often_as_they_are_asked_for(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            await node.create_topic("t", 2)
            client = await node.connect()
            await commit(client, "m" * 1000)

            async def ask(*groups: Any) -> list[Any]:
                asked = [
                    OffsetFetchRequestGroup(
                        group_id="g",
                        topics=None
                        if indexes is None
                        else [OffsetFetchRequestTopics(name="t", partition_indexes=indexes)],
                    )
                    for indexes in groups
                ]
                response = await client.ask(OffsetFetchRequest(groups=asked), 9)
                return [
                    group.error_code
                    or [(p.partition_index, p.committed_offset) for topic in group.topics for p in topic.partitions]
                    for group in response.groups
                ]

            both = [(0, 7), (1, 8)]
            assert await ask(None, None, None) == [both] * 3
            assert await ask([0, 0, 1], [1]) == [[(0, 7), *both], [(1, 8)]]
            node.allow(repeated_bytes=2500)
            assert await ask(None, None, None, [0, 1]) == [both, both, ErrorCode.INVALID_REQUEST, both]
            assert await ask([0, 0, 0, 1], [1], None) == [[(0, 7), (0, 7), *both], ErrorCode.INVALID_REQUEST, both]
            single = OffsetFetchRequest(
                group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0] * 4)]
            )
            assert (await client.ask(single, 7)).error_code == ErrorCode.INVALID_REQUEST

    run(test)


def test_producers_are_described_as_often_as_their_partition_is_named(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            await node.create_topic("t", 2)
            client = await node.connect()
            producer = await client.ask(InitProducerIdRequest(transactional_id=None), 5)
            records = batch(
                b"a",
                base_sequence=0,
                producer_id=producer.producer_id,
                producer_epoch=0,
                timestamp=int(time.time() * 1000),
            )
            assert (await client.ask(produce_request("t", records), 9)).responses[0].partition_responses[
                0
            ].error_code == 0

            async def ask(indexes: list[int]) -> list[tuple[int, int, int]]:
                topic = dp.TopicRequest(name="t", partition_indexes=indexes)
                answer = await client.ask(dp.DescribeProducersRequest(topics=[topic, topic]), 0)
                return [
                    (p.partition_index, p.error_code, len(p.active_producers))
                    for each in answer.topics
                    for p in each.partitions
                ]

            assert await ask([0, 1, 0]) == [(0, 0, 1), (1, 0, 0), (0, 0, 1)] * 2
            node.allow(repeated_bytes=80)
            assert await ask([0, 1, 0]) == [(0, 0, 1), (1, 0, 0), (0, 0, 1), (0, 0, 1), (1, 0, 0), (0, 42, 0)]

    run(test)
