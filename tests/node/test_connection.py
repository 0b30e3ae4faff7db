"""Bytes on a socket, good and bad: order of replies, limits, and what a bad client can and cannot do."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import logging
import os
import socket
import struct
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from kbroker.base import collector
from kbroker.errors import ErrorCode
from kbroker.node.serving.connection import Connection
from kbroker.runtime.budgets import DEFAULTS
from kbroker.runtime.env import RealEnv
from kbroker.wire.compiler import decode
from kbroker.wire.framing import request_bytes
from kbroker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kbroker.wire.messages.metadata import MetadataRequest
from kbroker.wire.messages.transactions import EndTxnRequest, InitProducerIdRequest
from tests.node.node_harness import Client, Node, batch, fetch_request, produce_request, running_node, values
from tests.patience import SHORT, until

API_VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")


async def test_what_is_registered_is_advertised_on_its_listener(node: Node, client: Client) -> None:
    answer = await client.ask(API_VERSIONS)
    ranges = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    assert answer.error_code == 0
    assert ranges[0] == (0, 13), "librdkafka needs Produce 0 to be advertised"
    assert ranges[1] == (4, 18)
    assert ranges[18] == (0, 5)
    assert "metadata.version" in {feature.name for feature in answer.finalized_features}
    assert 0 in {feature.min_version for feature in answer.supported_features}
    answer = await client.ask(API_VERSIONS, 3)
    assert 0 not in {feature.min_version for feature in answer.supported_features}
    controller = await node.connect("CONTROLLER")
    answer = await controller.ask(API_VERSIONS)
    keys = {api.api_key for api in answer.api_keys}
    assert 18 in keys
    assert 0 not in keys
    await controller.send(fetch_request("t"), 12)
    assert await controller.closed() or 1 in keys


async def test_an_unknown_version_of_api_versions_is_answered_in_version_0(client: Client) -> None:
    for version in (6, 99, -1, 32767):
        payload = struct.pack(">hhih", 18, version, 77, -1) + b"\0\1\1\0"
        await client.stream.send_all(struct.pack(">i", len(payload)) + payload)
        frame = await client.frame()
        assert frame[:4] == struct.pack(">i", 77)
        answer, _ = decode(ApiVersionsResponse, 0, frame, 4)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [(a.api_key, a.min_version, a.max_version) for a in answer.api_keys] == [(18, 0, 5)]
    assert (await client.ask(API_VERSIONS)).error_code == 0


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS"),
        (struct.pack(">ihhi", 100, 999, 0, 1), "999"),
        (struct.pack(">i", -5) + bytes(10), "frame"),
        (struct.pack(">i", 1 << 30) + bytes(10), "limit"),
        (struct.pack(">ihhih", 10, 0, 2, 1, -1), "version 2"),
        (struct.pack(">ihhih", 10, 3, 5, 1, -1), "MetadataRequest"),
        (struct.pack(">ihhih", 14, 3, 5, 1, -1) + struct.pack(">i", 0x7FFFFFFF), "do not fit"),
    ],
)
async def test_nonsense_ends_its_own_connection_with_one_line(
    node: Node, caplog: pytest.LogCaptureFixture, data: bytes, told: str
) -> None:
    bystander = await node.connect()
    bad = await node.connect()
    with caplog.at_level(logging.INFO, "kbroker.node.serving.listener"):
        await bad.stream.send_all(data)
        assert await bad.closed()
        assert (await bystander.ask(API_VERSIONS)).error_code == 0
    lines = [record.getMessage() for record in caplog.records if record.name == "kbroker.node.serving.listener"]
    assert len(lines) == 1, lines
    assert told in lines[0]


async def test_requests_byte_by_byte_and_many_at_once(node: Node, client: Client) -> None:
    await node.create_topic("t")
    sent = [await client.send(produce_request("t", batch(b"x")), 9) for _ in range(100)]
    sent.append(await client.send(MetadataRequest(topics=[]), 9))
    sent.append(await client.send(fetch_request("t"), 12))
    received = [await client.receive() for _ in sent]
    assert [correlation_id for correlation_id, _ in received] == sent
    assert [r.responses[0].partition_responses[0].base_offset for _, r in received[:100]] == [*range(100)]
    assert len(values(received[-1][1].responses[0].partitions[0].records)) == 100
    payload = struct.pack(">hhih", 18, 0, 5, -1)
    for byte in struct.pack(">i", len(payload)) + payload:
        await client.stream.send_all(bytes([byte]))
    assert (await client.frame())[:4] == struct.pack(">i", 5)


@pytest.mark.parametrize("linux", [True, False])
async def test_records_come_out_as_they_went_in(tmp_path: Path, linux: bool) -> None:
    """With ``os.sendfile`` and epoll, and with what stands in for them where there is none."""
    env = RealEnv(seed=1, use_sendfile=linux, use_epoll=linux)
    async with running_node(tmp_path, env) as node:
        await node.create_topic("t")
        client = await node.connect()
        sent = [os.urandom(100_000) for _ in range(40)]
        for value in sent:
            answer = await client.ask(produce_request("t", batch(value)), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
        got: list[tuple[int, bytes]] = []
        while len(got) < len(sent):
            answer = await client.ask(fetch_request("t", [(0, len(got))], partition_max_bytes=1_500_000), 12)
            got += values(answer.responses[0].partitions[0].records)
        assert got == list(enumerate(sent))


async def test_a_reader_that_does_not_read_stops_nobody_else(node: Node, client: Client) -> None:
    await node.create_topic("t")
    for _ in range(20):
        await client.ask(produce_request("t", batch(os.urandom(900_000))), 9)
    stuck = await node.connect()
    for _ in range(5):
        await stuck.send(fetch_request("t", partition_max_bytes=50 << 20), 12)
    for _ in range(10):
        assert (await client.ask(API_VERSIONS)).error_code == 0
    got = [await stuck.receive() for _ in range(5)]
    assert all(len(answer.responses[0].partitions[0].records) > 17_000_000 for _, answer in got)


async def test_a_client_that_leaves_takes_its_waiting_fetch_with_it(node: Node) -> None:
    await node.create_topic("t")
    purgatory = node.broker.replica_manager.purgatory
    client = await node.connect()
    await client.send(fetch_request("t", max_wait_ms=1_000_000_000), 12)
    await until(lambda: purgatory.fetch_watch_count)
    await client.stream.aclose()
    await until(lambda: not purgatory.fetch_watch_count)


@pytest.mark.parametrize("linux", [True, False])
async def test_a_waiting_fetch_reads_no_more_than_it_may_and_ends_with_its_time(tmp_path: Path, linux: bool) -> None:
    """Requests behind it are served in order after it; while there is room its client is watched."""
    env = RealEnv(use_epoll=linux)
    async with running_node(tmp_path, env) as node:
        await node.create_topic("t")
        client, other = await node.connect(), await node.connect()
        await client.send(fetch_request("t", max_wait_ms=1000), 12)
        await until(lambda: node.broker.replica_manager.purgatory.fetch_watch_count)
        sent = [
            await client.send(fetch_request("t", max_wait_ms=0), 12),
            await client.send(produce_request("t", batch(bytes(1_000_000))), 9),
            await client.send(fetch_request("t", max_wait_ms=3_600_000), 12),
        ]
        frames = [await client.receive() for _ in range(4)]
        assert [correlation_id for correlation_id, _ in frames][1:] == sent
        assert len(values(frames[3][1].responses[0].partitions[0].records)[0][1]) == 1_000_000
        assert (await other.ask(API_VERSIONS)).error_code == 0


@pytest.mark.parametrize("linux", [True, False])
async def test_nonsense_behind_a_waiting_fetch_ends_the_connection(tmp_path: Path, linux: bool) -> None:
    async with running_node(tmp_path, RealEnv(use_epoll=linux)) as node:
        await node.create_topic("t")
        purgatory = node.broker.replica_manager.purgatory
        client = await node.connect()
        await client.send(fetch_request("t", max_wait_ms=3_600_000), 12)
        await until(lambda: purgatory.fetch_watch_count)
        with contextlib.suppress(trio.BrokenResourceError):  # it may be closed before all is sent
            await client.stream.send_all(struct.pack(">i", -5) + bytes(100_000))
        await client.receive()  # what waits gives way to whatever comes
        assert await client.closed()
        assert not purgatory.fetch_watch_count


async def test_a_handler_that_fails_is_logged_and_the_node_lives(
    node: Node, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    (listener,) = [each for each in node.broker.listeners if not each.is_controller]
    served = listener.registration(InitProducerIdRequest.api_key)
    assert served is not None

    async def fail(request: object, ctx: object) -> None:
        raise LookupError

    listener.replace_handler(dataclasses.replace(served, handle=fail))
    request = InitProducerIdRequest(transactional_id=None)
    assert (await client.ask(request, 5)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    listener.replace_handler(served)
    assert (await client.ask(request, 5)).error_code == 0
    assert any(record.exc_info for record in caplog.records)


@pytest.mark.parametrize("linux", [True, False])
async def test_an_answer_does_not_wait_for_a_later_request(tmp_path: Path, linux: bool) -> None:
    """The later one may take long: a topic is to be made, followers are to delete records."""
    async with running_node(tmp_path, RealEnv(use_epoll=linux)) as node:
        client, is_over = await node.connect(), trio.Event()
        (listener,) = [each for each in node.broker.listeners if not each.is_controller]
        served = listener.registration(InitProducerIdRequest.api_key)
        assert served is not None
        handle = served.handle

        async def wait(request: InitProducerIdRequest, ctx: Any) -> Any:
            await is_over.wait()
            return await handle(request, ctx)

        listener.replace_handler(dataclasses.replace(served, handle=wait))
        first = request_bytes(3, 1, "c", API_VERSIONS)
        await client.stream.send_all(first + request_bytes(5, 2, "c", InitProducerIdRequest(transactional_id=None)))
        assert int.from_bytes((await client.frame())[:4], "big") == 1
        is_over.set()
        assert int.from_bytes((await client.frame())[:4], "big") == 2


async def test_connections_are_bounded_in_all_and_by_address(tmp_path: Path) -> None:
    async with running_node(tmp_path, max_connections_per_ip="3") as node:
        clients = [await node.connect() for _ in range(3)]
        for client in clients:
            assert (await client.ask(API_VERSIONS)).error_code == 0
        assert await (await node.connect()).closed()
        await clients[0].stream.aclose()
        await until(lambda: node.broker.listeners[0].connection_count != 3)
        assert (await (await node.connect()).ask(API_VERSIONS)).error_code == 0


async def test_the_housekeeper_ends_the_idle_the_silent_and_the_slow(tmp_path: Path) -> None:
    async with running_node(tmp_path, connections_max_idle_ms="600000") as node:
        listener = node.broker.listeners[0]
        idle, silent, slow, waiting = [await node.connect() for _ in range(4)]
        await node.create_topic("t")
        for client in (idle, slow, waiting):
            await client.ask(API_VERSIONS)
        await slow.stream.send_all(struct.pack(">ihhi", 1000, 3, 9, 1))
        await waiting.send(fetch_request("t", max_wait_ms=3_000_000), 12)
        await until(lambda: node.broker.replica_manager.purgatory.fetch_watch_count)
        now = trio.current_time()
        for seconds in range(0, 44, 4):
            listener.sweep(now + seconds)
        assert await silent.closed(), "no request at all within the limit of the first frame"
        assert await slow.closed(), "half a request for longer than the limit of a frame"
        assert (await idle.ask(API_VERSIONS)).error_code == 0
        listener.sweep(now + 50)
        listener.sweep(now + 700)
        assert await idle.closed()


async def test_waiting_for_the_disk_happens_in_a_thread(tmp_path: Path) -> None:
    """A cold region is read in a thread before it is sent."""
    cold: list[int] = []

    class ColdEnv(RealEnv):
        def in_memory(self, fd: int, position: int, length: int) -> bool:
            return False

        def read_now(self, fd: int, position: int, length: int) -> bytearray | None:
            return None

        def read_ahead(self, fd: int, position: int, length: int) -> None:
            cold.append(length)
            super().read_ahead(fd, position, length)

    env = ColdEnv(seed=1)
    async with running_node(tmp_path, env) as node:
        await node.create_topic("t")
        client = await node.connect()
        await client.ask(produce_request("t", batch(b"v")), 9)
        answer = await client.ask(fetch_request("t"), 12)
        assert values(answer.responses[0].partitions[0].records) == [(0, b"v")]
        assert (env.disk_reads.count, env.disk_reads.bytes) == (len(cold), sum(cold)), "for the metrics"
    assert sum(cold) > 0


async def test_what_a_closed_connection_has_received_does_not_stay_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exception that ended it refers to the connection in its frames; only the collector frees both."""
    closed: list[Connection] = []
    close = Connection.close

    def remember(connection: Connection) -> None:
        close(connection)
        closed.append(connection)

    async with running_node(tmp_path) as node:
        client = await node.connect()
        await client.stream.send_all((1 << 24).to_bytes(4, "big") + b"\0\0\0\x09" + bytes(3 << 20))
        monkeypatch.setattr(Connection, "close", remember)
        await client.stream.aclose()
        await until(lambda: closed)
        assert closed[0].bytes_received > 3 << 20
        assert closed[0]._reader.buffered_bytes == 0


async def test_a_connection_that_never_had_to_wait_is_freed_without_the_collector(tmp_path: Path) -> None:
    """Else hundreds that come and go bring the collector, which stops the node for milliseconds."""

    def count() -> int:
        return sum(isinstance(each, Connection) for each in gc.get_objects())

    async with running_node(tmp_path, RealEnv(use_epoll=True)) as node:
        gc.collect()
        collector.pause()
        try:
            before = count()
            client = await node.connect()
            await client.ask(API_VERSIONS)
            assert count() == before + 1
            await client.stream.aclose()
            await until(lambda: count() == before)
        finally:
            collector.resume()


async def test_large_requests_of_many_share_a_budget_and_all_get_through(tmp_path: Path) -> None:
    limits = {
        "queued_max_request_bytes": "4000000",
        "socket_request_max_bytes": "4000000",
        "message_max_bytes": "3500000",
    }
    async with running_node(tmp_path, **limits) as node:
        await node.create_topic("t")
        answers: list[int] = []

        async def send() -> None:
            client = await node.connect()
            answer = await client.ask(produce_request("t", batch(os.urandom(3_000_000))), 9)
            answers.append(answer.responses[0].partition_responses[0].error_code)
            await client.stream.aclose()

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(send)
        assert answers == [0] * 8


@pytest.mark.parametrize("linux", [True, False])
async def test_a_request_that_was_served_counts_for_the_budget_no_more(tmp_path: Path, linux: bool) -> None:
    """Else many producers of large requests, all at rest, have each one that sends wait for the slowest of them."""
    limits = {"queued_max_request_bytes": "2000000", "socket_request_max_bytes": "1500000"}
    budgets = DEFAULTS._replace(sweep_seconds=3600.0)  # the housekeeper comes too late
    async with running_node(tmp_path, RealEnv(use_epoll=linux, budgets=budgets), **limits) as node:
        await node.create_topic("t")
        request = produce_request("t", batch(os.urandom(900_000)))
        clients = [await node.connect() for _ in range(4)]
        for client in clients:
            await client.ask(request, 9)
        slow, data = await node.connect(), request_bytes(9, 5, "c", request)
        for client in (slow, clients[0]):
            await client.stream.send_all(data[:600_000])
            await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(SHORT):
            for client in (clients[0], slow):
                await client.stream.send_all(data[600_000:])
                assert int.from_bytes((await client.frame())[:4], "big") == 5


async def test_beyond_the_budget_one_at_a_time() -> None:
    from kbroker.node.serving.memory_budget import MemoryBudget

    class Holder:
        in_frame = True

    budget = MemoryBudget(100)
    first, second, third = Holder(), Holder(), Holder()
    budget.take(150)
    await budget.wait(first)
    await budget.wait(first)
    went: list[Holder] = []

    async def wait(holder: Holder) -> None:
        await budget.wait(holder)
        went.append(holder)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, second)
        await trio.testing.wait_all_tasks_blocked()
        cancelled = trio.CancelScope()

        async def give_up() -> None:
            with cancelled:
                await wait(third)

        nursery.start_soon(give_up)
        await trio.testing.wait_all_tasks_blocked()
        assert went == []
        cancelled.cancel()
        first.in_frame = False
        await budget.wait(first)
        await trio.testing.wait_all_tasks_blocked()
        assert went == [second]
    budget.take(-60)
    assert not budget.exhausted
    await budget.wait(third)


async def test_bytes_after_a_request_are_left_alone_and_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_node(tmp_path) as node:
        client = await node.connect()
        body = struct.pack(">hhih", 18, 0, 5, -1)
        for more in (b"", b"more", b"more"):
            await client.stream.send_all(struct.pack(">i", len(body + more)) + body + more)
            assert (await client.frame())[:4] == struct.pack(">i", 5)
    [told] = [record.message for record in caplog.records if "left over" in record.message]
    assert told.startswith("4 bytes are left over after API key 18 v0 from ")


async def test_a_client_that_is_gone_while_many_requests_are_served_ends_nothing_but_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reply that is complete at once finds the socket reset, which cancels the connection in the middle of a turn."""
    closed = trio.Event()
    close = Connection.close

    async with running_node(tmp_path, RealEnv(use_epoll=True)) as node:
        client, other = await node.connect(), await node.connect()
        request = EndTxnRequest(transactional_id="t", producer_id=1, producer_epoch=0, committed=True)
        await client.ask(request)
        [connection] = node.connections_of([client])

        def reset(_: object) -> int:
            raise ConnectionResetError

        def remember(which: Connection) -> None:
            close(which)
            if which is connection:
                closed.set()

        for name in ("send", "sendmsg"):
            monkeypatch.setattr(connection.stream, name, reset)
        monkeypatch.setattr(Connection, "close", remember)
        one = request_bytes(3, 1, "c", request)
        await client.stream.send_all(one * 200)
        await closed.wait()
        answer = await other.ask(API_VERSIONS)
        assert answer.error_code == 0


async def test_an_answer_is_not_kept_back_where_a_crowd_has_started_the_connection_s_task(tmp_path: Path) -> None:
    """The answers of a round in which many are readable wait for its end; those of later requests do not."""
    budgets = DEFAULTS._replace(crowd=2)
    async with running_node(tmp_path, RealEnv(use_epoll=True, budgets=budgets)) as node:
        await node.create_topic("t", flush_messages="1")  # a Produce waits for the disk
        client, other = await node.connect(), await node.connect()
        for each in (client, other):
            await each.ask(API_VERSIONS)
        await trio.testing.wait_all_tasks_blocked()
        data = request_bytes(12, 5, "c", MetadataRequest(topics=[]))
        for each in (client, other):  # both are there when the node looks
            assert each.raw.send(data) == len(data)
        for each in (client, other):
            assert int.from_bytes((await each.frame())[:4], "big") == 5
        answer = await client.ask(produce_request("t", batch(b"x")), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0


@pytest.mark.parametrize("size", [1, 100_000])
@pytest.mark.parametrize("use_epoll", [True, False])
@pytest.mark.parametrize("end", ["its side", "nonsense"])
async def test_what_was_done_before_the_end_of_a_connection_is_answered(
    tmp_path: Path, end: str, use_epoll: bool, size: int
) -> None:
    """A client that has nothing more to say, or nothing but nonsense, listens on."""
    async with running_node(tmp_path, RealEnv(use_epoll=use_epoll)) as node:
        await node.create_topic("t")
        client = await node.connect()
        request = produce_request("t", batch(b"x" * size))
        await client.ask(request, 9)
        await trio.testing.wait_all_tasks_blocked()
        data = request_bytes(9, 5, "c", request)
        if end == "nonsense":
            data += b"GET / HTTP/1.1"
        # Both are there when the node looks, and the buffer takes the request as one.
        client.raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        assert client.raw.send(data) == len(data)
        if end == "its side":
            client.raw.shutdown(socket.SHUT_WR)
        assert int.from_bytes((await client.frame())[:4], "big") == 5
        assert await client.closed()
