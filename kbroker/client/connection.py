"""One connection to one broker: versions agreed on, requests out, responses in, in order."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from kbroker.client.errors import ApiNotServed, ClientError, ConnectionFailed, RequestTimedOut, name_of
from kbroker.errors import ErrorCode
from kbroker.types import FileRegion
from kbroker.wire.compiler import decode
from kbroker.wire.errors import WireError
from kbroker.wire.framing import FrameReader, request_parts
from kbroker.wire.headers import decode_response_header
from kbroker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kbroker.wire.registry import API_KEYS
from kbroker.wire.schema import VersionRange

SOFTWARE_NAME: Final = "kbroker"
RESPONSE_LIMIT: Final = (1 << 31) - 1

SEND_SECONDS: Final = 30.0
"""How long a broker may not take bytes before the connection is given up."""

_API_VERSIONS: Final = 18
_GATHER_BELOW: Final = 64 << 10


class Connection:
    """A connected socket on which the broker's versions are known.

    Any number of requests may be sent before their responses are received; responses come in the order of the
    requests. After any error but ``ApiNotServed`` the connection is closed: what had been sent may or may not have
    been carried out.
    """

    def __init__(self, host: str, port: int, *, client_id: str, deadline: float) -> None:
        """Connect and ask for the versions, before ``deadline`` (of ``time.monotonic``)."""
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.client_id = client_id
        self._reader = FrameReader(limit=RESPONSE_LIMIT, api_keys=None)
        self._pending: deque[tuple[int, int, int]] = deque()
        self._early: deque[Any] = deque()
        """Responses that had to be taken in before that of a later request; the oldest first."""
        self._correlation_id = 0
        self._socket: socket.socket | None = None
        try:
            self._socket = socket.create_connection((host, port), timeout=_left(deadline))
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except TimeoutError:
            raise ConnectionFailed(f"cannot connect to {self.address}: no answer") from None
        except (OSError, UnicodeError, OverflowError) as error:
            raise ConnectionFailed(f"cannot connect to {self.address}: {_reason(error)}") from None
        self.api_versions: ApiVersionsResponse = self._negotiate(deadline)
        """What the broker said about itself, features included."""
        self.versions: Mapping[int, VersionRange] = {
            entry.api_key: VersionRange((entry.min_version, entry.max_version)) for entry in self.api_versions.api_keys
        }
        """API key -> versions that the broker serves."""

    def _negotiate(self, deadline: float) -> ApiVersionsResponse:
        """ApiVersions in our highest version; a broker that has it not says in version 0 which it has (KIP-511)."""
        from kbroker import __version__

        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=_plain(__version__))
        version = API_KEYS[_API_VERSIONS].stable_versions[1]
        while True:
            self.send(request, version=version)
            response: ApiVersionsResponse = self.receive(deadline)
            if response.error_code != ErrorCode.UNSUPPORTED_VERSION:
                break
            ranges = [entry for entry in response.api_keys if entry.api_key == _API_VERSIONS]
            lower = min(version - 1, ranges[0].max_version) if ranges else 0
            if version == 0 or lower < 0:
                break
            version = lower
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
        return len(self._early) + len(self._pending)

    @property
    def has_response(self) -> bool:
        """Whether ``receive`` need not wait, although nothing may come over the socket any more."""
        return bool(self._early)

    def fileno(self) -> int:
        """For ``selectors``; ``ConnectionFailed`` once closed."""
        return self._open().fileno()

    def version_for(self, request_class: type[Any], highest: int | None = None) -> int:
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

    def serves(self, request_class: type[Any], version: int = 0) -> bool:
        """Whether the broker serves an API in at least ``version``, as far as this client speaks it."""
        served = self.versions.get(request_class.api_key)
        return served is not None and served[1] >= version

    def send(self, request: Any, *, version: int | None = None, expect_response: bool = True) -> int:
        """Send a request; returns its version. ``expect_response=False`` for Produce with acks=0 only."""
        api_key: int = type(request).api_key
        if version is None:
            version = self.version_for(type(request))
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        parts = request_parts(api_key, version, self._correlation_id, self.client_id, request)
        connected = self._open()
        try:
            connected.settimeout(SEND_SECONDS)
            small = bytearray()
            for part in parts:
                assert not isinstance(part, FileRegion)
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
            self.close()
            raise ConnectionFailed(f"connection to {self.address} lost: {_reason(error)}") from None
        if expect_response:
            self._pending.append((self._correlation_id, api_key, version))
        return version

    def receive(self, deadline: float) -> Any:
        """The response to the oldest request that has none yet."""
        return self._early.popleft() if self._early else self._receive(deadline)

    def _receive(self, deadline: float) -> Any:
        correlation_id, api_key, version = self._pending[0]
        connected = self._open()
        try:
            while (frame := self._reader.next_frame()) is None:
                connected.settimeout(_left(deadline))
                count = connected.recv_into(self._reader.get_buffer())
                if not count:
                    self.close()
                    raise ConnectionFailed(f"{self.address} closed the connection")
                self._reader.buffer_updated(count)
            self._pending.popleft()
            received_id, offset = decode_response_header(api_key, version, frame)
            if received_id != correlation_id:
                raise WireError(f"response {received_id} where {correlation_id} was due")
            if api_key == _API_VERSIONS and bytes(frame[offset : offset + 2]) == b"\0\x23":
                version = 0
            response, _ = decode(API_KEYS[api_key].response, version, frame, offset)
        except TimeoutError:
            self.close()
            raise RequestTimedOut(f"{self.address} did not answer {API_KEYS[api_key].name} in time") from None
        except OSError as error:
            self.close()
            raise ConnectionFailed(f"connection to {self.address} lost: {_reason(error)}") from None
        except WireError as error:
            self.close()
            raise ClientError(f"{self.address} does not speak Kafka's protocol: {error}") from None
        return response

    def request(self, request: Any, deadline: float, *, version: int | None = None) -> Any:
        """Send and receive; responses that are due before are kept for ``receive``."""
        before = len(self._pending)
        self.send(request, version=version)
        self._early.extend([self._receive(deadline) for _ in range(before)])
        return self._receive(deadline)

    def close(self) -> None:
        """Close; does nothing when it is closed already."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._pending.clear()
        self._early.clear()

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
