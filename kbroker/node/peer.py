"""Requests to another node: one connection, one request at a time, in the versions that both sides know."""

from __future__ import annotations

import math
import socket
from collections.abc import Callable
from typing import Any, NamedTuple

import trio

from kbroker.env import Network, Stream
from kbroker.errors import ErrorCode
from kbroker.types import FileRegion
from kbroker.wire.compiler import decode
from kbroker.wire.errors import WireError
from kbroker.wire.framing import FrameReader, request_parts
from kbroker.wire.headers import decode_response_header
from kbroker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kbroker.wire.registry import API_KEYS

CLIENT_SOFTWARE = "kbroker"

PATIENCE = 2.0
"""Seconds for which a request relies on another's attempt to connect. One that is far away answers later all the same;
but where packets were lost TCP tries again ever more rarely, and the network may be well again long before."""

LEAST_LEFT = 0.6
"""The share of a request's time that has to be left once there is a connection. Connecting takes two round trips, so
with less the answer may well come too late, and to give up a request costs the connection."""


class PeerRefused(OSError):
    """Nobody listens at the address, or it is not known any more: the node is down, as far as can be told."""


class GivenUp(OSError):
    """A newer request took this one's place."""


class UnsupportedByPeer(Exception):
    """The peer does not serve the API, or no version of it that this node speaks."""


class VersionRange(NamedTuple):
    """What a peer serves of an API."""

    min: int
    max: int


class _Connection:
    """A stream and what is left over of what was received on it."""

    __slots__ = ("busy", "reader", "stream")

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.busy = False
        """A request is under way."""
        self.reader = FrameReader(api_keys=None)

    @property
    def is_open(self) -> bool:
        """Whether the peer has neither closed it nor said anything unasked."""
        try:
            self.stream.recv_into(bytearray(1))
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    async def receive(self) -> memoryview:
        """The next response."""
        reader = self.reader
        while True:
            frame = reader.next_frame()
            if frame is not None:
                return frame
            try:
                received = self.stream.recv_into(reader.get_buffer())
            except BlockingIOError:
                await self.stream.wait_readable()
                continue
            if received == 0:
                raise OSError("the peer has closed the connection")
            reader.buffer_updated(received)


class _Attempt:
    """To connect: when it began, a scope to cancel it by, and an event once it has ended, however that was."""

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
        self._connection: _Connection | None = None
        self._versions: dict[int, VersionRange] = {}
        self._correlation_id = 0
        self._asking: object | None = None
        """Whose request is the latest."""

    async def ask(self, request: Any, version: int | None = None) -> Any:
        """Send a request that does not depend on its version, in ``version`` or the latest; the response."""
        response, _ = await self.ask_versioned(type(request), lambda _: request, version)
        return response

    async def ask_versioned(
        self,
        request_class: type[Any],
        make: Callable[[int], Any],
        version: int | None = None,
        *,
        within: float = math.inf,
    ) -> tuple[Any, int]:
        """Send ``make(version)``, an instance of ``request_class``; the response and the version.

        A request that is under way is given up: its connection is closed. One that waits for a connection is given up
        too, but what it waits for is shared. :class:`PeerRefused`, :class:`UnsupportedByPeer`, ``OSError`` or
        ``WireError`` if nothing comes of it.

        ``within`` are the seconds that an answer is of use for, :class:`trio.TooSlowError` after them. To connect may
        take longer: then :class:`GivenUp`, and the next request finds the connection.
        """
        if self._connection is not None and self._connection.busy:
            self.close()
        asking = self._asking = object()
        deadline = trio.current_time() + within
        connection = self._connection
        if connection is None:
            connection = await self._connected(asking)
            if deadline - trio.current_time() < within * LEAST_LEFT:
                raise GivenUp("to connect took too long for this request")
        try:
            connection.busy = True
            key = int(request_class.api_key)
            chosen = self._version_of(key, version)
            if within == math.inf:  # a scope costs ten microseconds: followers ask all the time
                response = await self._exchange(connection, key, chosen, make(chosen))
            else:
                with trio.fail_at(deadline):
                    response = await self._exchange(connection, key, chosen, make(chosen))
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

    def _version_of(self, key: int, wanted: int | None) -> int:
        served = self._versions.get(key)
        known = API_KEYS[key].stable_versions
        if served is not None:
            low, high = max(served.min, known.lowest), min(served.max, known.highest)
            if wanted is None and low <= high:
                return high
            if wanted is not None and low <= wanted <= high:
                return wanted
        raise UnsupportedByPeer(f"{self.host}:{self.port} does not serve API key {key} in a version that is wanted")

    async def _connected(self, asking: object) -> _Connection:
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
        connection: _Connection | None = None
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

    async def _connect(self) -> _Connection:
        try:
            connection = _Connection(await self._network.connect(self.host, self.port))
        except OSError as error:
            if nobody_listens(error):
                raise PeerRefused("nobody listens there") from error
            raise
        try:
            request = ApiVersionsRequest(client_software_name=CLIENT_SOFTWARE, client_software_version="1")
            response: ApiVersionsResponse = await self._exchange(connection, 18, 4, request)
            if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
                response = await self._exchange(connection, 18, 3, request)
            if response.error_code:
                raise OSError(f"ApiVersions is answered with error {response.error_code}")
        except BaseException:
            connection.stream.close()
            raise
        self._versions = {
            entry.api_key: VersionRange(entry.min_version, entry.max_version) for entry in response.api_keys
        }
        return connection

    async def _exchange(self, connection: _Connection, key: int, version: int, request: Any) -> Any:
        self._correlation_id += 1
        correlation_id = self._correlation_id
        parts = request_parts(key, version, correlation_id, self._client_id, request)
        await _send(connection.stream, b"".join(part for part in parts if not isinstance(part, FileRegion)))
        frame = await connection.receive()
        if int.from_bytes(frame[:4], "big") != correlation_id:
            raise WireError("a response to another request")
        if key == 18 and int.from_bytes(frame[4:6], "big", signed=True) == ErrorCode.UNSUPPORTED_VERSION:
            version = 0  # KIP-511: so that any client can read it
        _, offset = decode_response_header(key, version, frame)
        return decode(API_KEYS[key].response, version, frame, offset)[0]


async def _send(stream: Stream, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[stream.send(rest) :]
        except BlockingIOError:
            await stream.wait_writable()


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
