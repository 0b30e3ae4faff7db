"""Ends of a wait for a delayed request, and the memory left behind."""

from __future__ import annotations

import gc
import logging
import socket
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from kbroker.cores.replication.purgatory import Purgatory
from kbroker.node.serving.connection import Connection
from kbroker.node.serving.reply_queue import ReplyQueue
from kbroker.node.serving.request_wait import ConnectionLost, RequestWait
from kbroker.runtime.env import RealEnv, RealStream
from kbroker.runtime.epoll_poller import EpollPoller
from kbroker.wire.framing import FrameReader
from tests.node.node_harness import fetch_request, running_node
from tests.patience import LONG

NEVER = float("inf")


@contextmanager
def connected() -> Iterator[tuple[RealStream, socket.socket]]:
    """A stream, and the other end of it."""
    near, far = socket.socketpair()
    stream = RealStream(near, use_sendfile=False)
    with far:
        yield stream, far
        stream.close()


def waiting_operation() -> Any:
    return SimpleNamespace(done=False, wake=None)


def request_wait(stream: RealStream, poller: EpollPoller | None) -> RequestWait:
    return RequestWait(stream, FrameReader(1000), poller, lambda count: None)


def closed_stream(stream: RealStream, poller: EpollPoller) -> None:
    stream.close()


def closed_poller(stream: RealStream, poller: EpollPoller) -> None:
    poller._epoll.close()


@pytest.mark.parametrize("close", [closed_stream, closed_poller])
async def test_what_was_closed_before_the_wait_is_a_lost_connection(
    close: Callable[[RealStream, EpollPoller], None],
) -> None:
    with connected() as (stream, _):
        poller = EpollPoller()
        close(stream, poller)
        with pytest.raises(ConnectionLost):
            await request_wait(stream, poller).until_done(waiting_operation(), NEVER, gives_way=False)


async def test_a_stream_that_is_closed_while_its_own_task_waits_is_a_lost_connection() -> None:
    with connected() as (stream, _):

        async def wait() -> None:
            with pytest.raises(ConnectionLost):
                await request_wait(stream, None).until_done(waiting_operation(), NEVER, gives_way=False)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            stream.close()


async def test_a_fetch_that_begins_to_wait_while_the_node_stops_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The poller's task ends first; the connection's own task is about to run, and hears of it later."""
    ended: list[Connection] = []
    close = Connection.close

    def remember(connection: Connection) -> None:
        ended.append(connection)
        close(connection)

    async with running_node(tmp_path, RealEnv(use_epoll=True)) as node:
        await node.create_topic("t")
        client = await node.connect()
        monkeypatch.setattr(Connection, "close", remember)
        watch = Purgatory.watch_fetch

        def watch_and_stop(purgatory: Purgatory, *args: Any) -> None:
            watch(purgatory, *args)
            for listener in node.broker.listeners:
                poller = listener._poller
                assert isinstance(poller, EpollPoller)
                poller._epoll.close()

        with caplog.at_level(logging.INFO):
            monkeypatch.setattr(Purgatory, "watch_fetch", watch_and_stop)
            await client.send(fetch_request("t", max_wait_ms=3_600_000), 12)
            with trio.fail_after(LONG):
                while not ended:
                    await trio.lowlevel.checkpoint()
        assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_client_that_is_gone_with_replies_unwritten_before_its_fetch_waits_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ended = trio.Event()
    close = Connection.close

    async def refuse(replies: ReplyQueue) -> None:
        raise BrokenPipeError

    def remember(connection: Connection) -> None:
        close(connection)
        ended.set()

    async with running_node(tmp_path) as node:
        await node.create_topic("t")
        client = await node.connect()
        await client.ask(fetch_request("t"), 12)
        monkeypatch.setattr(Connection, "close", remember)
        monkeypatch.setattr(ReplyQueue, "flush", refuse)
        with caplog.at_level(logging.INFO), trio.fail_after(LONG):
            await client.send(fetch_request("t", max_wait_ms=3_600_000), 12)
            await ended.wait()
        assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("with_poller", [True, False])
async def test_what_ended_a_wait_does_not_stay(with_poller: bool) -> None:
    """Its traceback has the frames of the request that waited, and with them all that the request brought."""

    class Request:
        """A request that the handler holds while it waits."""

    with connected() as (stream, far):
        poller = EpollPoller() if with_poller else None
        wait = request_wait(stream, poller)
        left: list[weakref.ref[Any]] = []

        async def handle() -> None:
            request = Request()
            left.append(weakref.ref(request))
            await wait.until_done(waiting_operation(), NEVER, gives_way=False)
            del request

        async def serve() -> None:
            try:
                await handle()
            except ConnectionLost as error:
                left.append(weakref.ref(error))

        async with trio.open_nursery() as nursery:
            if poller is not None:
                nursery.start_soon(poller.run)
            nursery.start_soon(serve)
            await trio.testing.wait_all_tasks_blocked()
            gc.disable()
            try:
                far.close()
                with trio.fail_after(LONG):
                    while len(left) < 2:
                        await trio.lowlevel.checkpoint()
                await trio.testing.wait_all_tasks_blocked()
                assert [ref() for ref in left] == [None, None]
            finally:
                gc.enable()
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("with_poller", [False, True])
async def test_time_that_is_ended_from_without(with_poller: bool) -> None:
    """Only where the wait has a limit: others count on what they wait for."""
    with connected() as (stream, _):
        poller = EpollPoller() if with_poller else None
        wait = request_wait(stream, poller)
        operation = waiting_operation()
        ended: list[float] = []

        async def until_done(timeout: float) -> None:
            await wait.until_done(operation, timeout, gives_way=False)
            ended.append(timeout)

        async with trio.open_nursery() as nursery:
            for timeout in (3600.0, NEVER):
                nursery.start_soon(until_done, timeout)
                await trio.testing.wait_all_tasks_blocked()
                wait.end_time()
                await trio.testing.wait_all_tasks_blocked()
            assert ended == [3600.0]
            nursery.cancel_scope.cancel()
        wait.end_time()
