"""A connection to a broker: versions agreed on, requests out, responses in, in order."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kbroker.client.errors import ApiNotServed, ClientError, ConnectionFailed, RequestTimedOut
from kbroker.errors import name_of
from kbroker.version import __version__
from kbroker.wire.conversation import RESPONSE_LIMIT, Conversation
from kbroker.wire.errors import WireError
from kbroker.wire.framing import FrameReader
from kbroker.wire.messages.api_versions import ApiVersionsResponse
from kbroker.wire.primitives import Buffer
from kbroker.wire.registry import API_KEYS
from kbroker.wire.schema import Request, VersionRange

if TYPE_CHECKING:
    from kbroker.client.security import ClientSecurity

R = TypeVar("R")
T = TypeVar("T")

SOFTWARE_NAME: Final = "kbroker"

SEND_SECONDS: Final = 30.0
"""The time that a broker may take no bytes before the connection is given up."""

_GATHER_BELOW: Final = 64 << 10

_SESSION_SHARE: Final = 0.85
"""Of a SASL session's time, after which the client authenticates again; Kafka's clients do between this and 0.95."""


class Connection:
    """A connected socket on which the broker's versions are known.

    Any number of requests may be sent before their responses are received; responses come in the order of the
    requests. After any error but ``ApiNotServed`` the connection is closed: what had been sent may or may not have
    been carried out.
    """

    def __init__(
        self, host: str, port: int, *, client_id: str, deadline: float, security: ClientSecurity | None = None
    ) -> None:
        """Connect, ask for the versions and log in, before ``deadline`` (of ``time.monotonic``).

        ``security`` is None for a plain listener.
        """
        self.host = host
        self.port = port
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._conversation = Conversation(client_id)
        self._reader = FrameReader(limit=RESPONSE_LIMIT, api_keys=None)
        self._early: deque[Any] = deque()
        """Responses that had to be taken in before that of a later request; the oldest first."""
        self._socket: socket.socket | None = None
        self._security = security
        self._has_answered = False
        """Whether it has answered more than ApiVersions, which some listeners do before they refuse a client."""
        self._renew_at: float | None = None
        """When to authenticate again, of ``time.monotonic``; None if the session has no end."""
        try:
            self._socket = socket.create_connection((host, port), timeout=_left(deadline))
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except TimeoutError:
            raise ConnectionFailed(f"cannot connect to {self.address}: no answer") from None
        except (OSError, UnicodeError, OverflowError) as error:
            refused = isinstance(error, ConnectionRefusedError)
            raise ConnectionFailed(f"cannot connect to {self.address}: {_reason(error)}", is_refused=refused) from None
        if security is not None:
            self._socket.settimeout(_left(deadline))
            try:
                self._socket = security.wrap(self._socket, host, self.address)
            except ClientError:
                self.close()
                raise
        self.api_versions: ApiVersionsResponse = self._negotiate(deadline)
        """The broker's description of itself, features included."""
        self.versions: Mapping[int, VersionRange] = self._conversation.versions
        """API key -> versions that the broker serves."""
        self._authenticate(deadline)

    def _authenticate(self, deadline: float) -> None:
        """Log in, for the first time or again (KIP-368); after an error the connection is closed."""
        if self._security is None:
            return
        self._renew_at = None
        try:
            seconds = self._security.authenticate(self, deadline)
        except ClientError:
            self.close()
            raise
        if seconds is not None:
            self._renew_at = time.monotonic() + _SESSION_SHARE * seconds

    def _negotiate(self, deadline: float) -> ApiVersionsResponse:
        """Agree on versions (KIP-511); ``ConnectionFailed`` if the broker refuses to tell its own."""
        talk = self._conversation
        request = talk.negotiate(SOFTWARE_NAME, _plain(__version__))
        while True:
            self._write(request)
            again = self._take(deadline, talk.negotiated)
            if again is None:
                break
            request = again
        response = talk.api_versions
        assert response is not None
        if response.error_code:
            self.close()
            raise ConnectionFailed(f"{self.address} refuses to tell its versions: {name_of(response.error_code)}")
        return response

    @property
    def closed(self) -> bool:
        return self._socket is None

    @property
    def in_flight(self) -> int:
        """Requests whose responses have not been received."""
        return len(self._early) + len(self._conversation.pending)

    @property
    def has_response(self) -> bool:
        """Whether ``receive`` need not wait, although nothing may come over the socket any more."""
        # Bytes that TLS has decrypted are no news to a selector any more.
        connected, security = self._socket, self._security
        return bool(self._early) or (security is not None and connected is not None and security.has_pending(connected))

    def fileno(self) -> int:
        """The socket's descriptor, for ``selectors``. ``ConnectionFailed`` once it is closed."""
        return self._open().fileno()

    def version_for(self, request_class: type[Request[object]], highest: int | None = None) -> int:
        """The highest version that both sides speak, and not above ``highest``; ``ApiNotServed`` if there is none."""
        api = API_KEYS[request_class.api_key]
        served = self.versions.get(api.key)
        if served is None:
            raise ApiNotServed(f"{self.address} does not serve {api.name}")
        lowest, ours = api.stable_versions
        ours = ours if highest is None else min(ours, highest)
        version = min(served[1], ours)
        if version < max(lowest, served[0]):
            raise ApiNotServed(
                f"{self.address} serves {api.name} in versions {served[0]} to {served[1]},"
                f" and this client speaks {lowest} to {ours}"
            )
        return version

    def serves(self, request_class: type[Request[object]], version: int = 0) -> bool:
        """Whether the broker serves an API in at least ``version``, as far as this client speaks it."""
        served = self.versions.get(request_class.api_key)
        return served is not None and served[1] >= version

    def send(self, request: Request[object], *, version: int | None = None, expect_response: bool = True) -> int:
        """Send a request; returns its version. ``expect_response=False`` for Produce with acks=0 only."""
        if version is None:
            version = self.version_for(type(request))
        self._open()
        if self._renew_at is not None and time.monotonic() >= self._renew_at:
            self._authenticate(time.monotonic() + SEND_SECONDS)
        self._write(self._conversation.send(request, version, expect_response=expect_response))
        return version

    def _write(self, parts: list[Buffer]) -> None:
        connected = self._open()
        try:
            connected.settimeout(SEND_SECONDS)
            small = bytearray()
            for part in parts:
                if len(part) < _GATHER_BELOW:
                    small += part
                    continue
                if small:
                    connected.sendall(small)
                    small = bytearray()
                connected.sendall(part)
            if small:
                connected.sendall(small)
        except TimeoutError:
            self.close()
            raise RequestTimedOut(f"{self.address} does not take the request") from None
        except OSError as error:
            if self._security is not None:
                error = self._security.reason(connected, error)
            raise self._lost(error) from None

    def receive(self, deadline: float) -> Any:
        """The response to the oldest request that has none yet."""
        return self._early.popleft() if self._early else self._take_response(deadline)

    def _take_response(self, deadline: float) -> Any:
        response = self._take(deadline, self._conversation.receive)
        self._has_answered = True
        return response

    def _take(self, deadline: float, take: Callable[[memoryview], T]) -> T:
        """Give the next frame to ``take``, which is a method of the conversation; what it makes of it."""
        connected = self._open()
        try:
            while (frame := self._reader.next_frame()) is None:
                connected.settimeout(_left(deadline))
                count = connected.recv_into(self._reader.get_buffer())
                if not count:
                    self.close()
                    raise self._failed(f"{self.address} closed the connection")
                self._reader.buffer_updated(count)
            return take(frame)
        except TimeoutError:
            name = API_KEYS[self._conversation.pending[0].api_key].name
            self.close()
            raise RequestTimedOut(f"{self.address} did not answer {name} in time") from None
        except OSError as error:
            raise self._lost(error) from None
        except WireError as error:
            self.close()
            raise ClientError(f"{self.address} does not speak Kafka's protocol: {error}") from None

    def request(self, request: Request[R], deadline: float, *, version: int | None = None) -> R:
        """Send and receive; responses that are due before are kept for ``receive``."""
        self.send(request, version=version)
        while len(self._conversation.pending) > 1:
            self._early.append(self._take_response(deadline))
        response: R = self._take_response(deadline)
        return response

    def close(self) -> None:
        """Close; does nothing when it is closed already."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._conversation.pending.clear()
        self._early.clear()

    def _lost(self, error: OSError) -> ClientError:
        """Close; the error to raise for one of the socket."""
        self.close()
        refusal = None if self._security is None else self._security.refusal(error, self.address)
        return refusal or self._failed(f"connection to {self.address} lost: {_reason(error)}")

    def _failed(self, text: str) -> ConnectionFailed:
        """The error for a connection that has ended; before the first answer, the protocol may be the reason."""
        hint = "" if self._has_answered else " (is security.protocol right?)"
        return ConnectionFailed(f"{text}{hint}", perhaps_secured=not self._has_answered)

    def _open(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionFailed(f"connection to {self.address} lost")
        return self._socket

    def __repr__(self) -> str:
        return f"<Connection to {self.address}{', closed' if self.closed else ''}>"


def _left(deadline: float) -> float:
    """Seconds until the deadline, at least a moment: 0 would make the socket non-blocking."""
    return max(deadline - time.monotonic(), 0.001)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _plain(version: str) -> str:
    """A version as ApiVersions allows it: letters, digits, dots and dashes."""
    return "".join(letter if letter.isalnum() or letter in ".-" else "-" for letter in version).strip(".-") or "0"
