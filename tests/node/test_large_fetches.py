"""A Fetch of many partitions takes turns with all else that the node does, and misses nothing meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from node_harness import batch, fetch_request, produce_request, run, running_node, values

from kbroker.handlers import fetch
from kbroker.types import TopicPartition
from kbroker.wire.messages.api_versions import ApiVersionsRequest


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


def test_others_are_served_between_the_partitions_of_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "STEP_PARTITIONS", 2)
    read = 0
    real = fetch._Reader._read_partition

    def counted(*args: Any) -> Any:
        nonlocal read
        read += 1
        return real(*args)

    monkeypatch.setattr(fetch._Reader, "_read_partition", counted)

    async def test() -> None:
        async with running_node(tmp_path) as node:
            topic_id = await node.create_topic("t", 400)
            slow, other = await node.connect(), await node.connect()
            await slow.send(fetch_request("t", [(index, 0) for index in range(400)], topic_id=topic_id))
            while not read:
                await trio.lowlevel.checkpoint()
            await other.ask(ApiVersionsRequest(client_software_name="test", client_software_version="1"))
            assert read < 200
            answer = (await slow.receive())[1]
            assert [data.partition_index for data in answer.responses[0].partitions] == list(range(400))
            assert read == 400

    run(test)


@pytest.mark.parametrize("session_epoch", [-1, 0])
def test_what_comes_to_a_partition_that_was_read_already_ends_the_wait(
    session_epoch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "STEP_PARTITIONS", 2)
    real = fetch._Reader._read_partition

    async def test() -> None:
        async with running_node(tmp_path) as node:
            topic_id = await node.create_topic("t", 20)
            partition = node.broker.replica_manager.partitions[TopicPartition("t", 0)]

            def appending(reader: Any, name: str, wanted: Any, *args: Any) -> Any:
                if wanted.key.partition == 7 and not partition.log.log_end_offset:
                    partition.append(memoryview(bytearray(batch(b"late"))), -1, 1000)
                return real(reader, name, wanted, *args)

            monkeypatch.setattr(fetch._Reader, "_read_partition", appending)
            client = await node.connect()
            with trio.fail_after(30):
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
