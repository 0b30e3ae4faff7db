"""A Fetch of many partitions takes turns with all else that the node does, and misses nothing meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from kbroker.node.replicas.replica_manager import ReplicaManager
from kbroker.types import TopicPartition
from kbroker.wire.messages.api_versions import ApiVersionsRequest
from kbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.node.node_harness import Meanwhile, batch, fetch_request, produce_request, run, running_node, values
from tests.patience import SHORT


def test_a_partition_that_is_named_twice_is_read_once_as_it_was_named_last(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            topic_id = await node.create_topic("t", 2)
            client = await node.connect()
            for value in (b"a", b"b"):
                await client.ask(produce_request("", batch(value), topic_id=topic_id))
            wanted = ((0, 0), (1, 0), (0, 1))
            (topic,) = (await client.ask(fetch_request("t", wanted, topic_id=topic_id))).responses
            told = [(data.partition_index, values(data.records)) for data in topic.partitions]
            assert told == [(0, [(1, b"b")]), (1, [])]

    run(test)


def test_others_are_served_between_the_partitions_of_a_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0
    real = ReplicaManager.get_partition

    def counted(*args: Any) -> Any:
        nonlocal read
        read += 1
        if read == 1:
            others[0].come((ApiVersionsRequest(client_software_name="test", client_software_version="1"), None))
        return real(*args)

    others: list[Meanwhile] = []

    monkeypatch.setattr(ReplicaManager, "get_partition", counted)

    async def test() -> None:
        async with running_node(tmp_path) as node:
            node.allow(fetch_turn_partitions=2)
            topic_id = await node.create_topic("t", 400)
            slow, other = await node.connect(), await node.connect()
            others.append(Meanwhile(node, other, lambda: read, monkeypatch))
            await slow.send(fetch_request("t", [(index, 0) for index in range(400)], topic_id=topic_id))
            answer = (await slow.receive())[1]
            await other.receive()
            assert others[0].answered_at is not None and others[0].answered_at < 200
            assert [data.partition_index for data in answer.responses[0].partitions] == list(range(400))
            assert read == 400

    run(test)


@pytest.mark.parametrize("session_epoch", [-1, 0])
def test_what_comes_to_a_partition_that_was_read_already_ends_the_wait(
    session_epoch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ReplicaManager.get_partition

    async def test() -> None:
        async with running_node(tmp_path) as node:
            node.allow(fetch_turn_partitions=2)
            topic_id = await node.create_topic("t", 20)
            partition = node.broker.replica_manager.partitions[TopicPartition("t", 0)]

            def appending(manager: ReplicaManager, name: str, index: int) -> Any:
                if index == 7 and not partition.log.log_end_offset:
                    partition.append(memoryview(bytearray(batch(b"late"))), -1, 1000)
                return real(manager, name, index)

            monkeypatch.setattr(ReplicaManager, "get_partition", appending)
            client = await node.connect()
            with trio.fail_after(SHORT):
                answer = await client.ask(
                    fetch_request(
                        "t",
                        [(index, 0) for index in range(20)],
                        topic_id=topic_id,
                        max_wait_ms=1_000_000,
                        session_epoch=session_epoch,
                    )
                )
            assert values(answer.responses[0].partitions[0].records) == [(0, b"late")]

    run(test)


def test_what_comes_to_another_partition_while_many_are_read_wakes_the_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = 24

    async def test() -> None:
        async with running_node(tmp_path) as node:
            node.allow(fetch_turn_partitions=4)
            topic_id = await node.create_topic("t", many)
            client = await node.connect()

            def request(session_id: int, epoch: int, named: range, offset: int = 0, wait: int = 1) -> FetchRequest:
                asked = [
                    FetchPartition(
                        partition=index, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=-1
                    )
                    for index in named
                ]
                return FetchRequest(
                    max_wait_ms=wait,
                    min_bytes=1,
                    max_bytes=1 << 20,
                    session_id=session_id,
                    session_epoch=epoch,
                    topics=[FetchTopic(topic_id=topic_id, partitions=asked)] if asked else [],
                )

            first = await client.ask(request(0, 0, range(many)))
            session_id = first.session_id
            assert session_id
            for epoch in (1, 2):
                await client.ask(request(session_id, epoch, range(0)))
            armed = True
            real, manager = ReplicaManager.get_partition, node.broker.replica_manager

            def get_partition(self: ReplicaManager, name: str, index: int) -> Any:
                nonlocal armed
                if armed and index == 3:  # the last before a turn, which another client has
                    armed = False
                    manager.partitions["t", 20].append(memoryview(bytearray(batch(b"new"))), 1, 1000)
                return real(self, name, index)

            monkeypatch.setattr(ReplicaManager, "get_partition", get_partition)
            answer = await client.ask(request(session_id, 3, range(10), wait=3_600_000))
            assert not armed
            told = [each.partition_index for topic in answer.responses for each in topic.partitions]
            assert told == [20]

    run(test)
