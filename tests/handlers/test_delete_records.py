"""DeleteRecords, while it waits until the followers have deleted, too."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from kbroker.errors import ErrorCode
from kbroker.node.replicas.partition import Partition
from kbroker.node.replicas.partition_events import Progress
from kbroker.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kbroker.wire.messages.topics import DeleteTopicsRequest, DeleteTopicState
from tests.node.node_harness import Node, batch, produce_request
from tests.patience import SHORT

END = 3
"""Records that each topic has."""


@pytest.fixture
def followers(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The low watermark of each topic's followers, by the topic's name; 0 until a test sets another."""
    low_watermarks: dict[str, int] = {}

    def low_watermark(self: Progress, partition: Partition) -> int:
        return low_watermarks.get(partition.topic_partition.topic, 0)

    monkeypatch.setattr(Progress, "low_watermark", low_watermark)
    return low_watermarks


async def filled(node: Any, *names: str) -> None:
    client = await node.connect()
    for name in names:
        await node.create_topic(name)
        answer = await client.ask(produce_request(name, batch(*[b"x"] * END)), 12)
        assert answer.responses[0].partition_responses[0].error_code == 0


async def delete_all_and_wait(node: Any, *names: str) -> Any:
    """A client whose request for all records of the topics waits for followers, for an hour at most."""
    client = await node.connect()
    wanted = [DeleteRecordsPartition(partition_index=0, offset=END)]
    topics = [DeleteRecordsTopic(name=name, partitions=wanted) for name in names]
    await client.send(DeleteRecordsRequest(topics=topics, timeout_ms=3_600_000))
    with trio.fail_after(SHORT):
        while len(node.broker.replica_manager.purgatory.deletes) < len(names):
            await trio.lowlevel.checkpoint()
    return client


async def delete_topic(node: Any, name: str) -> None:
    client = await node.connect()
    answer = await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5000))
    assert answer.responses[0].error_code == 0


async def told(client: Any) -> list[tuple[int, int]]:
    """Error and low watermark of each topic's partition."""
    with trio.fail_after(SHORT):
        _, response = await client.receive()
    return [(topic.partitions[0].error_code, topic.partitions[0].low_watermark) for topic in response.topics]


async def test_who_waits_for_a_partition_that_is_dropped_is_told_at_once(node: Node, followers: dict[str, int]) -> None:
    await filled(node, "t")
    client = await delete_all_and_wait(node, "t")
    await delete_topic(node, "t")
    assert await told(client) == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]
    assert not node.broker.replica_manager.purgatory.deletes


async def test_other_partitions_are_waited_for_all_the_same(node: Node, followers: dict[str, int]) -> None:
    """A topic is deleted while its followers are waited for, another after they had followed: a third is served."""
    names = ("waiting", "followed", "kept")
    await filled(node, *names)
    client = await delete_all_and_wait(node, *names)
    manager = node.broker.replica_manager

    def follow(name: str) -> None:
        followers[name] = END
        manager.progress.low_watermark_moved(manager.partitions[name, 0])

    follow("followed")
    await delete_topic(node, "waiting")
    await delete_topic(node, "followed")
    follow("kept")
    assert await told(client) == [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
        (0, END),
    ]
    assert not manager.purgatory.deletes


async def test_a_log_dir_that_fails_while_others_are_waited_for_is_told(
    node: Node, followers: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The followers of its partition were done already."""
    await filled(node, "failed", "kept")
    client = await delete_all_and_wait(node, "failed", "kept")
    manager = node.broker.replica_manager
    low_watermark = Progress.low_watermark

    def of_its_log(self: Progress, partition: Partition) -> int:
        assert partition.log is not None  # raises where the dir has failed
        return low_watermark(self, partition)

    monkeypatch.setattr(Progress, "low_watermark", of_its_log)
    for name in ("failed", "kept"):
        followers[name] = END
        manager.progress.low_watermark_moved(manager.partitions[name, 0])
        manager.partitions["failed", 0].offline = True
    assert await told(client) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1), (0, END)]


async def test_the_last_offset_counts_of_a_partition_that_is_named_again(node: Node) -> None:
    """Its first answer would be one that was never waited for."""
    await filled(node, "t", "u")
    client = await node.connect()
    named = [("t", [(0, END), (0, 1)]), ("u", [(0, 2)]), ("t", [(0, 2)])]
    topics = [
        DeleteRecordsTopic(
            name=name,
            partitions=[DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in wanted],
        )
        for name, wanted in named
    ]
    response = await client.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000))
    answers = [
        (topic.name, [(each.partition_index, each.error_code, each.low_watermark) for each in topic.partitions])
        for topic in response.topics
    ]
    assert answers == [("t", [(0, ErrorCode.NONE, 2)]), ("u", [(0, ErrorCode.NONE, 2)])]
