"""A conversation with another node over an ``env.Stream``: what a :class:`~.peer.Peer` connects with."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from kbroker.errors import ErrorCode
from kbroker.runtime.env import Stream
from kbroker.wire.conversation import RESPONSE_LIMIT, Conversation
from kbroker.wire.framing import FrameReader
from kbroker.wire.primitives import Buffer

SOFTWARE_NAME = "kbroker"


class ConnectionEnded(OSError):
    """The other side has closed the connection."""


class ClientStream:
    """The client's side of one connection. Any number of requests may be under way; responses come in their order.

    After any error the connection is of no use any more; closing it is the owner's business.
    """

    __slots__ = ("_reader", "busy", "conversation", "ends_at", "stream")

    def __init__(self, stream: Stream, client_id: str, correlation_ids: Iterator[int] | None = None) -> None:
        self.stream = stream
        self.busy = False
        """Whether a request is under way, as the owner says."""
        self.ends_at: float = getattr(stream, "session_ends_at", math.inf)
        """From when on the connection is to be used no more (trio's clock): its session ends (KIP-368)."""
        self.conversation = Conversation(client_id, correlation_ids=correlation_ids)
        self._reader = FrameReader(RESPONSE_LIMIT, api_keys=None)

    @property
    def is_open(self) -> bool:
        """Whether the other side has neither closed the connection nor sent anything unasked."""
        try:
            self.stream.recv_into(bytearray(1))
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    async def negotiate(self) -> None:
        """Ask for the versions that the other side serves. ``OSError``, also when it refuses; ``WireError``."""
        request = self.conversation.negotiate(SOFTWARE_NAME, "1")
        while True:
            await self._write(request)
            again = self.conversation.negotiated(await self._frame())
            if again is None:
                break
            request = again
        response = self.conversation.api_versions
        if response is not None and response.error_code != ErrorCode.NONE:
            raise OSError(f"ApiVersions is answered with error {response.error_code}")

    async def send(self, request: object, version: int) -> None:
        """Send a request, to be answered. ``OSError``."""
        await self._write(self.conversation.send(request, version))

    async def receive(self) -> Any:
        """The response to the oldest request that has none. ``OSError``, ``WireError``."""
        return self.conversation.receive(await self._frame())

    async def _write(self, parts: list[Buffer]) -> None:
        stream = self.stream
        rest = memoryview(b"".join(parts))
        while rest:
            try:
                written = stream.send(rest)
                rest = rest[written:]
            except BlockingIOError:
                await stream.wait_writable()

    async def _frame(self) -> memoryview:
        reader, stream = self._reader, self.stream
        while (frame := reader.next_frame()) is None:
            try:
                received = stream.recv_into(reader.get_buffer())
            except BlockingIOError:
                await stream.wait_readable()
                continue
            if received == 0:
                raise ConnectionEnded("the peer has closed the connection")
            reader.buffer_updated(received)
        return frame
