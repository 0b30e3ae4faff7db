"""Answers that come piece by piece: exports and live tails."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

import trio
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from kbroker.client import ClientError
from kbroker.tools.console.call import RequestRefused

logger = logging.getLogger(__name__)

Give: TypeAlias = Callable[[bytes], Awaitable[None]]
"""Sends a piece, and returns when the browser takes the next."""


class CutShort(Exception):
    """The answer must not seem whole, and that is nobody's mistake."""


class LimiterSlot:
    """A place of a limiter, held until ``leave``, by whatever task; ``RequestRefused`` if none is free."""

    def __init__(self, limiter: trio.CapacityLimiter, told: str) -> None:
        self._limiter = limiter
        try:
            limiter.acquire_on_behalf_of_nowait(self)
        except trio.WouldBlock:
            raise RequestRefused(429, told) from None

    def leave(self) -> None:
        """Give the place to somebody else."""
        self._limiter.release_on_behalf_of(self)


class Streamed(Response):
    """An answer whose pieces ``produce`` gives. It owns all tasks, so each ends with the answer, whatever ends it."""

    def __init__(
        self,
        produce: Callable[[Give], Awaitable[None]],
        media_type: str,
        headers: Mapping[str, str] | None = None,
        *,
        close: Callable[[], None] | None = None,
    ) -> None:
        """``close`` is called when the answer has ended, however it ends."""
        self._produce = produce
        self._close = close
        self.status_code = 200
        self.media_type = media_type
        self.background = None
        self.init_headers(headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the pieces until there are no more, or the browser has gone; one cut short has no proper end."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_wait_until_gone, receive, nursery.cancel_scope)
                await self._send_pieces(send, str(scope["path"]))
                nursery.cancel_scope.cancel()
        finally:
            if self._close is not None:
                self._close()

    async def _send_pieces(self, send: Send, path: str) -> None:
        async def give(piece: bytes) -> None:
            await send(_body(piece, more=True))

        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            await self._produce(give)
        except CutShort:
            return
        except ClientError as error:
            # The status is sent already: that the answer breaks off tells the browser that it is not whole.
            logger.warning("%s breaks off: %s", path, error)
        except Exception:
            logger.exception("%s breaks off", path)
        else:
            await send(_body(b"", more=False))


def _body(piece: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": piece, "more_body": more}


async def _wait_until_gone(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
