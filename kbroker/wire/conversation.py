"""The client's side of a connection: versions agreed on, requests numbered, responses recognised. Sans-IO.

:class:`~kbroker.wire.framing.FrameReader` cuts what is received into frames; a :class:`Conversation` does the rest::

    conversation = Conversation("my-client")
    reader = FrameReader(limit=RESPONSE_LIMIT, api_keys=None)
    request = conversation.negotiate("my-software", "1.0")
    while request is not None:
        sock.sendall(b"".join(request))
        request = conversation.negotiated(next_frame(sock, reader))
    version = conversation.common_versions(HeartbeatRequest.api_key).highest
    sock.sendall(b"".join(conversation.send(HeartbeatRequest(...), version)))
    response = conversation.receive(next_frame(sock, reader))

A broker answers the requests of a connection in their order, so a response belongs to the oldest request that has none.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from kbroker.errors import ErrorCode
from kbroker.wire.compiler import decode
from kbroker.wire.errors import WireError
from kbroker.wire.framing import request_parts
from kbroker.wire.headers import decode_response_header, response_version
from kbroker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kbroker.wire.primitives import Buffer
from kbroker.wire.registry import API_KEYS
from kbroker.wire.schema import NO_VERSIONS, VersionRange

RESPONSE_LIMIT: Final = (1 << 31) - 1
"""The largest frame that a response may be, for the ``FrameReader`` of a client: as large as its size field can say."""

_API_VERSIONS: Final = 18
_HIGHEST_ID: Final = 0x7FFFFFFF


class Pending(NamedTuple):
    """A request that has no response yet."""

    correlation_id: int
    api_key: int
    api_version: int


class Conversation:
    """One connection's requests and responses, as its client counts them.

    ``correlation_ids`` are for those who number the requests of several connections together. With ``is_exact`` bytes
    after a response are an error; otherwise they are ignored, as Kafka's clients do.
    """

    __slots__ = (
        "_common",
        "_correlation_ids",
        "_is_exact",
        "_versions_request",
        "api_versions",
        "client_id",
        "pending",
        "versions",
    )

    def __init__(
        self, client_id: str | None, *, correlation_ids: Iterator[int] | None = None, is_exact: bool = False
    ) -> None:
        self.client_id = client_id
        self.pending: deque[Pending] = deque()
        """The oldest first."""
        self.api_versions: ApiVersionsResponse | None = None
        """The broker's description of itself, features included, once negotiated; it may be an error."""
        self.versions: Mapping[int, VersionRange] = {}
        """API key -> versions that the broker serves; empty before they are negotiated."""
        self._common: dict[int, VersionRange] = {}
        self._correlation_ids = itertools.count(1) if correlation_ids is None else correlation_ids
        self._is_exact = is_exact
        self._versions_request: ApiVersionsRequest

    def negotiate(self, software_name: str, software_version: str) -> list[Buffer]:
        """Begin with ApiVersions in the highest version there is; its answers go to :meth:`negotiated`."""
        self._versions_request = ApiVersionsRequest(
            client_software_name=software_name, client_software_version=software_version
        )
        return self.send(self._versions_request, API_KEYS[_API_VERSIONS].stable_versions.highest)

    def negotiated(self, frame: Buffer) -> list[Buffer] | None:
        """Take an answer to ApiVersions: the request to send next, or ``None`` once ``api_versions`` is final.

        A broker that does not have our version answers in version 0, with the versions that it has (KIP-511);
        one older than that has version 0.
        """
        asked = self.pending[0].api_version
        response: ApiVersionsResponse = self.receive(frame)
        versions = {entry.api_key: VersionRange(entry.min_version, entry.max_version) for entry in response.api_keys}
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION and asked > 0:
            lower = min(asked - 1, versions[_API_VERSIONS].highest) if _API_VERSIONS in versions else 0
            if lower >= 0:
                return self.send(self._versions_request, lower)
        self.api_versions = response
        self.versions = versions
        self._common.clear()
        return None

    def common_versions(self, api_key: int) -> VersionRange:
        """The versions of an API that both sides speak: an empty range if there is none."""
        known = self._common.get(api_key)
        if known is None:
            served = self.versions.get(api_key)
            if served is None:
                return NO_VERSIONS
            ours = API_KEYS[api_key].stable_versions
            known = VersionRange(max(served.lowest, ours.lowest), min(served.highest, ours.highest))
            self._common[api_key] = known
        return known

    def send(self, request: Any, version: int, *, expect_response: bool = True) -> list[Buffer]:
        """The bytes of a request, in any version that this side can encode; ``EncodeError`` if it cannot.

        ``expect_response=False`` for Produce with acks=0 only.
        """
        api_key: int = request.api_key
        correlation_id = next(self._correlation_ids) & _HIGHEST_ID
        parts = request_parts(api_key, version, correlation_id, self.client_id, request)
        if expect_response:
            self.pending.append(Pending(correlation_id, api_key, version))
        return parts

    def receive(self, frame: Buffer) -> Any:
        """The response in a frame, to the oldest pending request; records in it are views of the frame.

        ``WireError`` for a response to another request, or to none, and for one that cannot be decoded: nothing that
        follows on the connection can be trusted then.
        """
        if not self.pending:
            raise WireError("a response to no request")
        correlation_id, api_key, version = self.pending.popleft()
        received_id, offset = decode_response_header(api_key, version, frame)
        if received_id != correlation_id:
            raise WireError(f"response {received_id} where {correlation_id} was due")
        version = response_version(api_key, version, frame, offset)
        response, end = decode(API_KEYS[api_key].response, version, frame, offset)
        if self._is_exact and end != len(frame):
            raise WireError(f"{len(frame) - end} bytes left over after the response")
        return response
