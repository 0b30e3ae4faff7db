"""Each stage of a request grows by what it waits for, and no other does; a turn of the event loop that is held is seen.

The clock of the measurement stands still but where a test moves it.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from kbroker.handlers.registration import BOTH, registrations
from kbroker.node.metrics import event_loop, measured_requests
from kbroker.node.serving import observed_requests
from kbroker.runtime.later import Later
from kbroker.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kbroker.wire.messages.groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from tests.node.metrics_pages import LISTENER, Values, scrape, value
from tests.node.node_harness import Node, run, running_node

SECOND_NS = 1_000_000_000
STAGES = ("requestqueue", "local", "remote", "responsequeue", "responsesend")
METRICS = {name.replace(".", "_"): text for name, text in LISTENER.items()}


class Clock:
    def __init__(self) -> None:
        self.now = 1

    def pass_a_second(self) -> None:
        self.now += SECOND_NS


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (measured_requests, event_loop, observed_requests):
        monkeypatch.setattr(module, "perf_counter_ns", lambda: clock.now)
    return clock


def handle_by(monkeypatch: pytest.MonkeyPatch, request: Any, handler: Callable[..., Awaitable[Any]]) -> None:
    row = registrations(BOTH)[request.api_key]
    row.load()
    monkeypatch.setattr(row, "handle", handler)


async def page(node: Node) -> Values:
    port = node.broker.metrics_port
    assert port is not None
    return await trio.to_thread.run_sync(scrape, port)


def seconds_by_stage(values: Values, api: str) -> dict[str, int]:
    """The longest that a request of the API was in each stage; quantiles are up to an eighth too high."""

    def longest(stage: str) -> float:
        return value(values, f"kafka_network_requestmetrics_{stage}timems", request=api, quantile="0.999")

    assert sum(map(longest, STAGES)) <= longest("total") * 1.2
    return {stage: int(longest(stage) // 1000) for stage in STAGES if longest(stage) >= 1}


async def test_work_is_local_time(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    async def handle(request: Any, context: Any) -> DescribeClusterResponse:
        clock.pass_a_second()
        return DescribeClusterResponse()

    async with running_node(tmp_path, **METRICS) as node:
        client = await node.connect()
        handle_by(monkeypatch, DescribeClusterRequest, handle)
        await client.ask(DescribeClusterRequest())
        assert seconds_by_stage(await page(node), "DescribeCluster") == {"local": 1}


async def test_waiting_for_others_is_remote_time(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    entered, answered = trio.Event(), trio.Event()

    async def handle(request: Any, context: Any) -> DescribeClusterResponse:
        entered.set()
        await answered.wait()
        return DescribeClusterResponse()

    async with running_node(tmp_path, **METRICS) as node:
        client = await node.connect()
        handle_by(monkeypatch, DescribeClusterRequest, handle)
        await client.send(DescribeClusterRequest())
        await entered.wait()
        clock.pass_a_second()
        answered.set()
        await client.receive()
        assert seconds_by_stage(await page(node), "DescribeCluster") == {"remote": 1}


async def test_waiting_for_anothers_work_is_the_requests_queue(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both requests are there when a turn begins. The one that is served second waits for the work on the first."""

    async def handle(request: Any, context: Any) -> DescribeClusterResponse:
        clock.pass_a_second()
        return DescribeClusterResponse()

    async with running_node(tmp_path, **METRICS) as node:
        clients = [await node.connect() for _ in range(2)]
        for client in clients:
            await client.ask(DescribeClusterRequest())
        handle_by(monkeypatch, DescribeClusterRequest, handle)
        await trio.testing.wait_all_tasks_blocked()
        for client in clients:
            client.send_now(DescribeClusterRequest())
        node.arrived(clients)
        for client in clients:
            await client.receive()
        assert seconds_by_stage(await page(node), "DescribeCluster") == {"requestqueue": 1, "local": 1}


async def test_waiting_for_an_earlier_answer_is_the_responses_queue(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    first: Later[DescribeClusterResponse] = Later()
    entered = trio.Event()

    async def delay(request: Any, context: Any) -> Later[DescribeClusterResponse]:
        return first

    async def answer(request: Any, context: Any) -> ListGroupsResponse:
        entered.set()
        return ListGroupsResponse()

    async with running_node(tmp_path, **METRICS) as node:
        client = await node.connect()
        handle_by(monkeypatch, DescribeClusterRequest, delay)
        handle_by(monkeypatch, ListGroupsRequest, answer)
        await client.send(DescribeClusterRequest())
        await client.send(ListGroupsRequest())
        await entered.wait()
        clock.pass_a_second()
        first.set(DescribeClusterResponse())
        for _ in range(2):
            await client.receive()
        values = await page(node)
        assert seconds_by_stage(values, "ListGroups") == {"responsequeue": 1}
        assert seconds_by_stage(values, "DescribeCluster") == {"remote": 1}


async def test_a_client_that_does_not_read_is_send_time(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer does not fit into the buffers of the sockets."""

    async def answer(request: Any, context: Any) -> ListGroupsResponse:
        return ListGroupsResponse(groups=[ListedGroup(group_id=f"{number:030000}") for number in range(500)])

    async with running_node(tmp_path, **METRICS) as node:
        client = await node.connect()
        client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        handle_by(monkeypatch, ListGroupsRequest, answer)
        await client.send(ListGroupsRequest())
        await trio.lowlevel.wait_readable(client.stream.socket)
        clock.pass_a_second()
        await client.receive()
        assert seconds_by_stage(await page(node), "ListGroups") == {"responsesend": 1}


def test_a_turn_that_is_held_is_seen(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_node(tmp_path, **METRICS) as node:
            longest = partial(value, name="kbroker_event_loop_turn_ms", quantile="0.999")
            count = value(await page(node), "kbroker_event_loop_turn_ms_count")
            for _ in range(5):  # more than a thousandth of all turns
                time.sleep(0.1)
                await trio.lowlevel.checkpoint()
            after = await page(node)
            assert longest(after) >= 100
            assert value(after, "kbroker_event_loop_turn_ms_count") > count

    run(test, patient=False)
