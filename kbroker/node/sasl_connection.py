"""SASL as a step of connecting to another node, and the end of the session that comes of it.

A session that ends (KIP-368) is not renewed: a new connection takes its place before, when a request is to be made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode
from kbroker.node.client_stream import ClientStream
from kbroker.security.sasl.errors import SaslError
from kbroker.security.sasl.mechanism import SaslClient
from kbroker.wire.errors import WireError
from kbroker.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kbroker.wire.messages.sasl_handshake import SaslHandshakeRequest

if TYPE_CHECKING:
    from kbroker.env import Buffer, Stream

SESSION_SHARE = 0.85
"""The part of a session's time after which a connection is used no more, as Kafka's clients have it at the least."""


class AuthenticationFailed(OSError):
    """The other node does not let this one in, or does not prove itself. The text holds no secret."""


class SaslConnection:
    """The step of one listener's connections (:class:`~kbroker.node.secure_network.ConnectionStep`)."""

    def __init__(self, make_client: Callable[[], SaslClient], client_id: str, now: Callable[[], float]) -> None:
        """``now`` gives seconds, on the clock of those who use the connections."""
        self._make_client = make_client
        self._client_id = client_id
        self._now = now

    async def connected(self, stream: Stream, host: str, port: int) -> Stream:
        """Log in; :class:`AuthenticationFailed` or another ``OSError`` if that fails."""
        client = self._make_client()
        talk = ClientStream(stream, self._client_id)
        where = f"{host}:{port}"
        began = self._now()
        lifetime_ms = 0
        try:
            await talk.send(SaslHandshakeRequest(mechanism=client.mechanism), 1)
            handshake = await talk.receive()
            if handshake.error_code != ErrorCode.NONE:
                raise AuthenticationFailed(
                    f"{where} does not have SASL mechanism {client.mechanism}"
                    f" (it has {', '.join(handshake.mechanisms) or 'none'})"
                )
            token = client.first()
            while True:
                await talk.send(SaslAuthenticateRequest(auth_bytes=token), 2)
                answer = await talk.receive()
                if answer.error_code != ErrorCode.NONE:
                    raise AuthenticationFailed(f"{where} does not let this node in: {answer.error_message}")
                lifetime_ms = answer.session_lifetime_ms
                token = client.respond(bytes(answer.auth_bytes))
                if client.is_done:
                    break
        except SaslError as error:
            raise AuthenticationFailed(f"{where}: {error}") from None
        except WireError as error:
            raise AuthenticationFailed(f"{where} does not speak SASL: {error}") from None
        return SessionStream(stream, began + lifetime_ms / 1000 * SESSION_SHARE) if lifetime_ms > 0 else stream


class SessionStream:
    """A stream that is to be used until ``session_ends_at`` alone."""

    def __init__(self, stream: Stream, session_ends_at: float) -> None:
        self.session_ends_at = session_ends_at
        self._stream = stream
        self.peer, self.local = stream.peer, stream.local
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
