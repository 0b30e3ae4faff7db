"""Connections of a node that is watched now and then: what is shown, what is counted, and no answer lost on the way."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from kbroker.node.explorer.budget import EXCHANGE, RESERVE, SAVED, Budget
from kbroker.node.explorer.tap import Tap
from kbroker.node.explorer.watched_requests import NO_ANSWER
from kbroker.node.explorer.watcher import Watcher
from kbroker.observe.explorer.exchange import Exchange, Skipped
from kbroker.wire.messages.classic_groups import HeartbeatRequest
from kbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kbroker.wire.messages.metadata import MetadataRequest
from tests.node.node_harness import Client, Node, batch, fetch_request, produce_request, running_node

METRICS = {"prometheus_metrics_reporter_listener": "http://127.0.0.1:0"}
CLIENTS, REQUESTS = 6, 40


@asynccontextmanager
async def explorable_node(path: Path, **more: str) -> AsyncIterator[tuple[Node, Tap]]:
    """A node with an explorer, and its tap."""
    async with running_node(path, kbroker_explorer_listener="http://127.0.0.1:0", **more) as node:
        tap: Any = node.broker.services.tap
        yield node, tap


def shown(watcher: Watcher) -> list[int]:
    """The API keys of the requests that are shown since the last call."""
    return [item.api_key for item in watcher.take(10**6) if isinstance(item, Exchange)]


@pytest.mark.parametrize("is_measured", [False, True])
async def test_requests_are_shown_while_somebody_watches(tmp_path: Path, is_measured: bool) -> None:
    async with explorable_node(tmp_path, **METRICS if is_measured else {}) as (node, tap):
        await node.create_topic("t")
        before, watcher = await node.connect(), Watcher()

        async def produce(client: Client) -> None:
            answer = await client.ask(produce_request("t", batch(b"x")), 9, "writer")
            assert answer.responses[0].partition_responses[0].error_code == 0

        for _ in range(3):  # the next one is served by a shortcut
            await produce(before)
        assert [seen.client_id for seen in tap.connections()].count(b"writer") == 1
        tap.add(watcher)
        during = await node.connect()
        for client in (before, during):
            await produce(client)
        assert shown(watcher) == [0, 0]
        tap.remove(watcher)
        after = await node.connect()
        for client in (before, during, after):
            await produce(client)
        assert not shown(watcher) and not tap.pending
        tap.add(watcher)
        for client in (before, during, after):
            await produce(client)
        assert shown(watcher) == [0, 0, 0] and not _counts(tap, watcher)


async def test_when_all_is_spent_rare_requests_are_seen_and_clients_are_told_apart(tmp_path: Path) -> None:
    async with explorable_node(tmp_path) as (node, tap):
        tap.budget = Budget(RESERVE / 2, 0.0)
        client, watcher = await node.connect(), Watcher()
        tap.add(watcher)
        for _ in range(3):
            await client.ask(HeartbeatRequest(group_id="g", member_id="m"), 4)
            await client.ask(MetadataRequest(topics=[]))
        assert shown(watcher) == [3] * 3
        assert _counts(tap, watcher) == {12: 3}
        tap.remove(watcher)
        tap.budget = Budget(SAVED, 0.0)
        watcher = Watcher(client="another")
        tap.add(watcher)
        for client_id in ("test", "another", "test"):
            await client.ask(HeartbeatRequest(group_id="g", member_id="m"), 4, client_id)
        assert shown(watcher) == [12]
        assert not _counts(tap, watcher)


async def test_what_was_counted_for_other_watchers_is_not_told_to_the_next(tmp_path: Path) -> None:
    async with explorable_node(tmp_path) as (node, tap):
        tap.budget = Budget(0.0, 0.0)
        await node.create_topic("t")
        client, watcher, later = await node.connect(), Watcher(), Watcher()
        tap.add(watcher)
        await client.ask(produce_request("t", batch(b"x")), 9)
        tap.add(later)
        assert not _counts(tap, later) and _counts(tap, watcher)[0] == 1
        tap.remove(later)
        await client.ask(produce_request("t", batch(b"x")), 9)
        tap.remove(watcher)
        tap.add(watcher)
        assert not _counts(tap, watcher)


def _counts(tap: Tap, watcher: Watcher) -> Counter[int]:
    counts: Counter[int] = Counter()
    for skipped in tap.take_skipped(watcher):
        counts.update(skipped.counts)
    return counts


async def _ask_much(node: Node, rng: random.Random) -> None:
    """Requests that are answered at once, later, by waiting, by shortcuts, and not at all; many at a time."""
    client = await node.connect()
    expected = []
    for _ in range(REQUESTS // 8):
        for _ in range(8):
            kind = rng.randrange(6)
            if kind < 2:
                request: Any = produce_request("t", batch(b"x"), acks=kind)
            elif kind == 2:
                partition = ListOffsetsPartition(partition_index=0, timestamp=1000)
                request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[partition])])
            elif kind == 3:
                request = fetch_request("t", [(0, 0)], max_wait_ms=2, min_bytes=1 << 20)
            else:
                request = (MetadataRequest(topics=[]), HeartbeatRequest(group_id="g", member_id="m"))[kind - 4]
            version = {0: 9, 1: 12, 2: 6, 3: 12, 12: 4}[type(request).api_key]
            number = await client.send(request, version)
            if kind != 0:
                expected.append(number)
        while expected:
            number, answer = await client.receive()
            assert number == expected.pop(0) and answer is not None
    # What expects no answer has been served before this is answered.
    await client.ask(MetadataRequest(topics=[]))
    await client.stream.aclose()


@pytest.mark.parametrize("is_measured", [False, True])
async def test_requests_are_shown_or_counted_once_however_often_it_changes_which(
    tmp_path: Path, is_measured: bool
) -> None:
    rng, watcher = random.Random(7), Watcher()
    async with explorable_node(tmp_path, **METRICS if is_measured else {}) as (node, tap):
        await node.create_topic("t")
        told: list[Exchange] = []
        counts: Counter[int] = Counter()

        def take() -> None:
            told.extend(item for item in watcher.take(10**6) if isinstance(item, Exchange))
            counts.update(_counts(tap, watcher))

        async def change() -> None:
            while True:
                tap.budget = Budget(rng.choice([-1.0, RESERVE / 2, RESERVE + 3 * EXCHANGE, SAVED]), 0.0)
                take()
                await trio.sleep(0)

        tap.add(watcher)
        async with trio.open_nursery() as others:
            others.start_soon(change)
            async with trio.open_nursery() as clients:
                for _ in range(CLIENTS):
                    clients.start_soon(_ask_much, node, random.Random(rng.random()))
            while tap.pending:
                await trio.sleep(0.01)
            others.cancel_scope.cancel()
        take()
        keys = [(each.connection, each.request.pieces[0][1][4:8]) for each in told]
        assert len(keys) == len(set(keys)), "none is shown twice"
        assert all(each.response is not None or each.end == NO_ANSWER for each in told)
        assert all(_answers(each) for each in told if each.response is not None)
        assert len(told) + counts.total() == CLIENTS * (REQUESTS + 1)
        assert told and counts.total()


def _answers(exchange: Exchange) -> bool:
    """Whether an answer is that of its request, by the correlation id."""
    response = exchange.response
    return response is not None and response.pieces[0][1][:4] == exchange.request.pieces[0][1][4:8]


@pytest.mark.parametrize("is_measured", [False, True])
async def test_watching_begins_and_ends_under_load(tmp_path: Path, is_measured: bool) -> None:
    async with explorable_node(tmp_path, **METRICS if is_measured else {}) as (node, tap):
        await node.create_topic("t")
        told: list[Any] = []

        async def watch() -> None:
            while True:
                watcher = Watcher()
                tap.add(watcher)
                for _ in range(3):
                    await trio.sleep(0)
                told.extend(watcher.take(10**6))
                tap.remove(watcher)
                await trio.sleep(0)

        async with trio.open_nursery() as others:
            others.start_soon(watch)
            async with trio.open_nursery() as clients:
                for number in range(CLIENTS):
                    clients.start_soon(_ask_much, node, random.Random(number))
            others.cancel_scope.cancel()
        shown = [each for each in told if isinstance(each, Exchange)]
        assert shown and not any(isinstance(each, Skipped) for each in told)
        assert all(each.response is not None or each.end == NO_ANSWER for each in shown)
        assert all(_answers(each) for each in shown if each.response is not None)
        keys = [(each.connection, each.request.pieces[0][1][4:8]) for each in shown]
        assert len(keys) == len(set(keys)) and not tap.pending and not tap.pending_bytes
