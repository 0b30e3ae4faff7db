"""SASL as a step of connecting to another node, and the end of the session that comes of it.

A session that ends (KIP-368) is not renewed: a new connection takes its place before, when a request is to be made.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from kbroker.node.peers.client_stream import ClientStream
from kbroker.security.sasl.client import ClientMechanism, Login, LoginFailed
from kbroker.wire.errors import WireError

if TYPE_CHECKING:
    from kbroker.runtime.env import Buffer, Stream

SESSION_SHARE = 0.85
"""The part of a session's time after which a connection is used no more, as Kafka's clients have it at the least."""


class AuthenticationFailed(OSError):
    """The other node does not let this one in, or does not prove itself. The text holds no secret."""


class SaslConnection:
    """The step of one listener's connections (:class:`~kbroker.node.security.secure_network.ConnectionStep`)."""

    def __init__(
        self,
        mechanism: ClientMechanism,
        client_id: str,
        run_blocking: Callable[..., Awaitable[object]],
        now: Callable[[], float],
    ) -> None:
        """``run_blocking`` calls a function in a thread, for mechanisms that wait for others.

        ``now`` gives seconds, on the clock of those who use the connections.
        """
        self._mechanism = mechanism
        self._client_id = client_id
        self._run_blocking = run_blocking
        self._now = now

    async def connected(self, stream: Stream, host: str, port: int) -> Stream:
        """Log in; :class:`AuthenticationFailed` or another ``OSError`` if that fails."""
        login = Login(self._mechanism, host)
        talk = ClientStream(stream, self._client_id)
        where = f"{host}:{port}"
        began = self._now()
        try:
            await talk.send(login.handshake(), 1)
            request: Any = await self._step(login.shaken, await talk.receive())
            while request is not None:
                await talk.send(request, 2)
                request = await self._step(login.answered, await talk.receive())
        except LoginFailed as error:
            raise AuthenticationFailed(f"{where} {error}") from None
        except WireError as error:
            raise AuthenticationFailed(f"{where} does not speak SASL: {error}") from None
        lifetime_ms = login.session_lifetime_ms
        return SessionStream(stream, began + lifetime_ms / 1000 * SESSION_SHARE) if lifetime_ms else stream

    async def _step(self, step: Callable[[Any], object], response: object) -> Any:
        return await self._run_blocking(step, response) if self._mechanism.may_block else step(response)


class SessionStream:
    """A stream that is to be used until ``session_ends_at`` alone."""

    def __init__(self, stream: Stream, session_ends_at: float) -> None:
        self.session_ends_at = session_ends_at
        self._stream = stream
        self.peer = stream.peer
        self.recv_into, self.send, self.sendmsg = stream.recv_into, stream.send, stream.sendmsg

    def send_more(self, buffers: Sequence[Buffer]) -> int:
        return self._stream.send_more(buffers)

    def sendfile(self, fd: int, position: int, length: int) -> int:
        return self._stream.sendfile(fd, position, length)

    async def wait_readable(self) -> None:
        await self._stream.wait_readable()

    async def wait_writable(self) -> None:
        await self._stream.wait_writable()

    def close(self) -> None:
        self._stream.close()
