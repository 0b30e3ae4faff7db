"""A client that sends very many small requests at once: what its answers hold is bounded, others are served meanwhile.

A few kilobytes of such requests ask for many megabytes.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from kbroker.node.serving.reply_queue import ReplyQueue
from kbroker.runtime.round import FAIR_REQUESTS
from kbroker.wire.framing import request_bytes
from kbroker.wire.messages.api_versions import ApiVersionsRequest
from kbroker.wire.messages.classic_groups import HeartbeatRequest
from kbroker.wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from kbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.node.node_harness import Client, Node, batch, fetch_request, produce_request, running_node

REQUESTS = 1000


class Watch(trio.abc.Instrument):
    """The most bytes that one connection ever had to write, and the most requests served in one step of a task."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most_bytes = self.largest_reply = self.served = self.most_in_a_step = self._in_this_step = 0
        add = ReplyQueue.add

        def watched(which: ReplyQueue, parts: list[Any]) -> None:
            add(which, parts)
            self.largest_reply = max(self.largest_reply, sum(map(len, parts)))
            waiting = sum(len(part) for part in which.parts)
            waiting += sum(len(part) for slot in which.slots for part in slot.parts)
            self.most_bytes = max(self.most_bytes, waiting)
            self.served += 1
            self._in_this_step += 1
            self.most_in_a_step = max(self.most_in_a_step, self._in_this_step)

        monkeypatch.setattr(ReplyQueue, "add", watched)
        trio.lowlevel.add_instrument(self)

    def before_task_step(self, task: Any) -> None:
        self._in_this_step = 0


def frame(request: Any, version: int) -> bytes:
    return request_bytes(version, 1, "", request)


def ask_something(client: Client) -> Any:
    return client.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"))


@pytest.mark.parametrize("behind_one_that_waits", [False, True])
async def test_large_answers_to_small_requests_are_made_one_by_one(
    node: Node, monkeypatch: pytest.MonkeyPatch, behind_one_that_waits: bool
) -> None:
    waits = b""
    if behind_one_that_waits:
        # It never comes back to one.
        monkeypatch.setattr(node.broker.services.timestamp_lookups, "add", lambda *_: True)
        wanted = [ListOffsetsPartition(partition_index=0, timestamp=1)]
        topics = [ListOffsetsTopic(name="t", partitions=wanted)]
        waits = frame(ListOffsetsRequest(replica_id=-1, topics=topics), 1)
    flooding, other = await node.connect(), await node.connect()
    watch = Watch(monkeypatch)
    asked = DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=4, resource_name="1")])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(flooding.stream.send_all, waits + frame(asked, 1) * REQUESTS)
        while watch.served < 50:
            await ask_something(other)
        nursery.cancel_scope.cancel()
    assert watch.largest_reply > 4_000
    assert watch.most_bytes < 2 * watch.largest_reply


@pytest.mark.parametrize("api", ["ApiVersions", "Heartbeat", "Produce"])
async def test_others_are_served_between_small_requests(node: Node, monkeypatch: pytest.MonkeyPatch, api: str) -> None:
    await node.create_topic("t")
    requests = {
        "ApiVersions": frame(ApiVersionsRequest(), 0),
        "Heartbeat": frame(HeartbeatRequest(group_id="g", member_id="m"), 0),
        "Produce": frame(produce_request("t", batch(b"v"), acks=1), 7),
    }
    flooding, other = await node.connect(), await node.connect()
    watch = Watch(monkeypatch)

    async def swallow() -> None:
        while True:
            await flooding.stream.receive_some(1 << 20)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(flooding.stream.send_all, requests[api] * REQUESTS)
        nursery.start_soon(swallow)
        while watch.served < REQUESTS:
            await ask_something(other)
        nursery.cancel_scope.cancel()
    assert watch.most_in_a_step <= 2 * FAIR_REQUESTS


@pytest.mark.parametrize(("count", "ahead"), [(2, 64), (8, 24), (50, 24)])
async def test_connections_that_never_wait_are_served_in_turns(tmp_path: Path, count: int, ahead: int) -> None:
    """Each has asked for as much, and none gets many answers more than another at any time.

    Of fifty that begin together some begin a dozen turns later: those who come wait for those who are under way.
    """
    asked = 120
    async with running_node(tmp_path) as node:
        await node.create_topic("t")
        await (await node.connect()).ask(produce_request("t", batch(b"v")), 7)
        sockets = [(await node.connect()).raw for _ in range(count)]
        for raw in sockets:
            raw.sendall(frame(fetch_request("t"), 11) * asked)
        answered, received = [0] * count, [bytearray() for _ in sockets]
        most_ahead = 0
        while min(answered) < asked:
            await trio.lowlevel.checkpoint()
            for index, raw in enumerate(sockets):
                with suppress(BlockingIOError):
                    received[index] += raw.recv(1 << 20)
                while len(data := received[index]) >= 4 and len(data) >= (end := 4 + int.from_bytes(data[:4])):
                    del data[:end]
                    answered[index] += 1
            most_ahead = max(most_ahead, max(answered) - min(answered))
        assert most_ahead <= ahead
