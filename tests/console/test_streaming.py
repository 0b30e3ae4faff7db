"""Answers that come piece by piece end with the browser, with an error, and with the server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio
from starlette.types import Message

from kbroker.client import ConnectionFailed
from kbroker.console.streaming import Give, Streamed


def sent_by(produce: Callable[[Give], Awaitable[None]], *, gone: bool = False) -> list[Message]:
    """What an answer sends to a browser, which may leave after the first piece."""
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
        with trio.fail_after(5):
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
