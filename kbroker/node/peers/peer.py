"""Requests to another node: one connection, one request at a time, in the versions that both sides know."""

from __future__ import annotations

import itertools
import math
import socket
from collections.abc import Callable
from typing import TypeVar

import trio

from kbroker.node.peers.client_stream import ClientStream
from kbroker.runtime.env import Network
from kbroker.wire.schema import Request

R = TypeVar("R")

PATIENCE = 2.0
"""Seconds for which a request waits for an earlier request's attempt to connect; then it makes an attempt of its own.

The earlier one goes on, for a node that is far away. But after lost packets TCP tries again ever more rarely, and a new
attempt may succeed long before."""

LEAST_LEFT = 0.6
"""The share of a request's time that must be left once there is a connection; otherwise the request is given up unsent.

Connecting takes two round trips, so the answer would probably come too late, and giving up a sent request costs the
connection."""


class PeerRefused(OSError):
    """The connection is refused, or the host name is unknown: the node is probably down."""


class GivenUp(OSError):
    """A newer request took this one's place."""


class UnsupportedByPeer(Exception):
    """The peer does not serve the API, or no version of it that this node speaks."""


class _Attempt:
    """An attempt to connect: its beginning, a scope to cancel it by, and an event that says that it has ended."""

    __slots__ = ("began", "ended", "scope")

    def __init__(self, timeout: float) -> None:
        self.began = trio.current_time()
        self.scope = trio.CancelScope(deadline=self.began + timeout)
        self.ended = trio.Event()


class Peer:
    """A node at an address. ``ask`` connects when it has to; after any failure the next request begins anew."""

    def __init__(
        self, network: Network, host: str, port: int, *, client_id: str, setup_timeout: float = math.inf
    ) -> None:
        """``setup_timeout``: seconds that an attempt to connect may take (``socket.connection.setup.timeout.ms``)."""
        self.host = host
        self.port = port
        self._network = network
        self._client_id = client_id
        self._setup_timeout = setup_timeout
        self._attempts: list[_Attempt] = []
        self._connection: ClientStream | None = None
        self._correlation_ids = itertools.count(1)
        self._asking: object | None = None
        """Stands for the latest request."""

    async def ask(self, request: Request[R], version: int | None = None) -> R:
        """Send a request that does not depend on its version, in ``version`` or the latest; the response."""
        response, _ = await self.ask_versioned(type(request), lambda _: request, version)
        return response

    async def ask_versioned(
        self,
        request_class: type[Request[R]],
        make: Callable[[int], Request[R]],
        version: int | None = None,
        *,
        within: float = math.inf,
    ) -> tuple[R, int]:
        """Send ``make(version)``, an instance of ``request_class``; the response and the version.

        A request that is under way is given up: its connection is closed. One that waits for a connection is given up
        too, but what it waits for is shared. :class:`PeerRefused`, :class:`UnsupportedByPeer`, ``OSError`` or
        ``WireError`` if nothing comes of it.

        ``within`` are the seconds that an answer is of use for, :class:`trio.TooSlowError` after them. To connect may
        take longer: then :class:`GivenUp`, and the next request finds the connection.
        """
        connection, now = self._connection, trio.current_time()
        if connection is not None and (connection.busy or now >= connection.ends_at):
            self.close()
        asking = self._asking = object()
        deadline = now + within
        connection = self._connection
        if connection is None:
            connection = await self._connected(asking)
            if deadline - trio.current_time() < within * LEAST_LEFT:
                raise GivenUp("to connect took too long for this request")
        try:
            connection.busy = True
            chosen = self._version_of(connection, int(request_class.api_key), version)
            if within == math.inf:  # a scope costs ten microseconds: followers ask all the time
                await connection.send(make(chosen), chosen)
                response = await connection.receive()
            else:
                with trio.fail_at(deadline):
                    await connection.send(make(chosen), chosen)
                    response = await connection.receive()
            connection.busy = False
            return response, chosen
        except trio.ClosedResourceError as error:
            raise GivenUp("given up for another request") from error
        except BaseException as error:
            if connection is not self._connection and isinstance(error, OSError):
                raise GivenUp("given up on this side") from error
            if self._asking is asking:
                self.close()
            raise

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, and the other end has not closed it."""
        return self._connection is not None and self._connection.is_open

    def close(self) -> None:
        """End the connection; whoever waits for it gets an ``OSError``."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.stream.close()

    def _version_of(self, connection: ClientStream, key: int, wanted: int | None) -> int:
        common = connection.conversation.common_versions(key)
        version = common.highest if wanted is None else wanted
        if version in common:
            return version
        raise UnsupportedByPeer(f"{self.host}:{self.port} does not serve API key {key} in a version that is wanted")

    async def _connected(self, asking: object) -> ClientStream:
        """The connection, once there is one; :class:`GivenUp` if by then it is for another request."""
        while self._connection is None:
            latest = self._attempts[-1] if self._attempts else None
            if latest is not None and trio.current_time() < latest.began + PATIENCE:
                with trio.move_on_at(latest.began + PATIENCE):
                    await latest.ended.wait()
            else:
                await self._attempt()
            if self._asking is not asking:
                raise GivenUp("given up for another request")
        return self._connection

    async def _attempt(self) -> None:
        """Connect, unless another attempt is quicker; ``OSError``."""
        attempt = _Attempt(self._setup_timeout)
        self._attempts.append(attempt)
        connection: ClientStream | None = None
        try:
            with attempt.scope:
                connection = await self._connect()
        finally:
            self._attempts.remove(attempt)
            attempt.ended.set()
        if connection is None:
            if trio.current_time() >= attempt.scope.deadline:
                raise TimeoutError("does not answer in time")
        elif self._connection is not None:
            connection.stream.close()
        else:
            self._connection = connection
            for other in self._attempts:
                other.scope.cancel()

    async def _connect(self) -> ClientStream:
        try:
            stream = await self._network.connect(self.host, self.port)
        except OSError as error:
            if nobody_listens(error):
                raise PeerRefused("nobody listens there") from error
            raise
        connection = ClientStream(stream, self._client_id, self._correlation_ids)
        try:
            await connection.negotiate()
        except BaseException:
            connection.stream.close()
            raise
        return connection


def nobody_listens(error: BaseException) -> bool:
    """Whether every attempt to connect met a refusal, or the name is gone."""
    if isinstance(error, ConnectionRefusedError):
        return True
    if isinstance(error, socket.gaierror):
        return error.errno != socket.EAI_AGAIN  # a name server that does not answer says nothing of the node
    cause = error.__cause__
    if isinstance(cause, BaseExceptionGroup):
        return all(nobody_listens(inner) for inner in cause.exceptions)
    return cause is not None and nobody_listens(cause)
