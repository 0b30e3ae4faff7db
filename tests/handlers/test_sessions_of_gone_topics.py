"""Fetch sessions that go on naming a topic which is deleted, and made anew under its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from kbroker.cores.replication.fetch_session import TRACKED_PARTITIONS
from kbroker.errors import ErrorCode
from kbroker.wire.messages.fetch import FetchRequest, ForgottenTopic
from kbroker.wire.messages.topics import DeleteTopicsRequest, DeleteTopicState
from tests.node.node_harness import batch, fetch_request, produce_request, running_node


@pytest.mark.parametrize("count", [1, TRACKED_PARTITIONS])
async def test_a_session_knows_a_topic_that_is_gone_by_its_name(tmp_path: Path, count: int) -> None:
    """The answers of Apache Kafka 4.4.0 on the wire: clients take UNKNOWN_TOPIC_ID for what they should warn of."""
    both = [(index, 0) for index in range(count)]

    def codes(response: Any) -> set[tuple[bytes, int]]:
        return {(bytes(topic.topic_id), each.error_code) for topic in response.responses for each in topic.partitions}

    async with running_node(tmp_path) as node:
        first = await node.create_topic("t", count)
        client, other = await node.connect(), await node.connect()
        opened = await client.ask(fetch_request("", both, topic_id=first, session_epoch=0), 16)
        epoch = 0

        async def fetch(request: FetchRequest) -> Any:
            nonlocal epoch
            epoch += 1
            request.session_id, request.session_epoch = opened.session_id, epoch
            return await client.ask(request, 16)

        async def delete() -> None:
            await other.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000))

        nothing_new = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[])
        await delete()
        assert codes(await fetch(nothing_new)) == {(first, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}
        named = fetch_request("", both, topic_id=first)
        assert codes(await fetch(named)) == {(first, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}
        anew = fetch_request("", both, topic_id=first, session_epoch=0)
        assert codes(await other.ask(anew, 16)) == {(first, ErrorCode.UNKNOWN_TOPIC_ID)}

        second = await node.create_topic("t", count)
        inconsistent = (first, ErrorCode.INCONSISTENT_TOPIC_ID)
        assert codes(await fetch(nothing_new)) == {inconsistent}
        assert codes(await fetch(fetch_request("", both, topic_id=second))) == {inconsistent, (second, 0)}

        waiting = FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=1 << 20, topics=[])
        forgotten = ForgottenTopic(topic_id=first, partitions=[index for index, _ in both])
        waiting.forgotten_topics_data = [forgotten]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other.ask, produce_request("t", batch(b"x")), 12)
            assert (second, 0) in codes(await fetch(waiting))
