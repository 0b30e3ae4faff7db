"""Answers that come piece by piece end with the browser, with an error, and with the server."""

from __future__ import annotations

import socket
import sys
from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing
from starlette.types import Message

from kbroker.client import ConnectionFailed
from kbroker.tools.console.call import RequestRefused
from kbroker.tools.console.serving import SEND_SECONDS, listen
from kbroker.tools.console.sessions import Sessions
from kbroker.tools.console.streaming import CutShort, Give, LimiterSlot, Streamed
from tests.patience import SHORT


def sent_by(produce: Callable[[Give], Awaitable[None]], *, gone: bool = False) -> list[Message]:
    """The messages of an answer to a browser, which may leave after the first piece."""
    sent: list[Message] = []
    first = trio.Event()

    async def receive() -> Message:
        await first.wait()
        if not gone:
            await trio.sleep_forever()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        await trio.lowlevel.checkpoint()
        sent.append(message)
        if message.get("body"):
            first.set()

    async def main() -> None:
        with trio.fail_after(SHORT):
            await Streamed(produce, "text/plain")({"type": "http", "path": "/x"}, receive, send)

    trio.run(main)
    return sent


def pieces(sent: list[Message]) -> list[tuple[bytes, bool]]:
    return [(message["body"], message["more_body"]) for message in sent[1:]]


def test_pieces_and_a_proper_end() -> None:
    async def produce(give: Give) -> None:
        await give(b"one")
        await give(b"two")

    assert pieces(sent_by(produce)) == [(b"one", True), (b"two", True), (b"", False)]


def test_a_browser_that_has_gone_ends_the_thread_that_reads() -> None:
    ended: list[bool] = []

    def run(give: Give) -> None:
        try:
            while True:
                trio.from_thread.run(give, b"more")
        finally:
            ended.append(True)

    async def produce(give: Give) -> None:
        await trio.to_thread.run_sync(run, give)

    assert (b"", False) not in pieces(sent_by(produce, gone=True))
    assert ended == [True]


def test_what_breaks_off_has_no_proper_end() -> None:
    async def produce(give: Give) -> None:
        await give(b"one")
        raise ConnectionFailed("broker 1 has gone")

    assert pieces(sent_by(produce)) == [(b"one", True)]


async def test_what_runs_for_a_session_ends_with_it() -> None:
    sessions = Sessions()
    session = sessions.begin(None)
    with trio.fail_after(SHORT):
        async with trio.open_nursery() as nursery:

            async def run() -> None:
                with sessions.while_alive(session) as scope:
                    await trio.sleep_forever()
                assert scope.cancelled_caught

            nursery.start_soon(run)
            await trio.testing.wait_all_tasks_blocked()
            assert len(session.running) == 1
            sessions.end(session)
        assert session.running == []
        with sessions.while_alive(session):
            await trio.sleep_forever()


def test_a_file_that_is_cut_short_has_no_proper_end() -> None:
    async def produce(give: Give) -> None:
        await give(b"one")
        raise CutShort

    assert pieces(sent_by(produce)) == [(b"one", True)]


async def test_a_place_is_held_until_it_is_left() -> None:
    limiter = trio.CapacityLimiter(1)
    place = LimiterSlot(limiter, "no place is free")
    with pytest.raises(RequestRefused, match="no place"):
        LimiterSlot(limiter, "no place is free")
    place.leave()
    LimiterSlot(limiter, "no place is free").leave()


@pytest.mark.skipif(sys.platform != "linux", reason="the option is Linux's")
def test_a_browser_that_takes_nothing_is_given_up() -> None:
    [listening] = listen("127.0.0.1", 0)
    with listening, socket.create_connection(listening.getsockname()):
        listening.setblocking(True)
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == SEND_SECONDS * 1000


def test_the_console_listens_at_all_addresses_and_one_port() -> None:
    """Where it is told so; of the families that the machine has."""
    listening = listen("0.0.0.0", 0)
    try:
        [port] = {each.getsockname()[1] for each in listening}
        hosts = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
        for each in listening:
            socket.create_connection((hosts[each.family], port)).close()
    finally:
        for each in listening:
            each.close()
