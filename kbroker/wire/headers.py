"""Request and response headers, in both directions."""

from __future__ import annotations

import struct
from typing import Final

from kbroker.errors import ErrorCode
from kbroker.value_types import NamedTuple
from kbroker.wire.errors import UnknownApi, WireError
from kbroker.wire.primitives import Buffer, skip_tagged_fields
from kbroker.wire.registry import API_KEYS, API_VERSIONS_KEY, request_header_version, response_header_version

_FIXED: Final = struct.Struct(">hhih")
_CORRELATION_ID: Final = struct.Struct(">i")
_UNSUPPORTED_VERSION: Final = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")


class RequestHeader(NamedTuple):
    """The header of a request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_request_header(buffer: Buffer, offset: int = 0) -> tuple[RequestHeader, int]:
    """The header at ``offset`` and the offset of the body.

    The version may be one that does not exist (ApiVersions has to answer that). A client id that is not
    UTF-8 is accepted, as in Kafka, with replacement characters. ``UnknownApi`` for a key that does not
    exist, ``WireError`` for a header cut short.
    """
    try:
        api_key, api_version, correlation_id, length = _FIXED.unpack_from(buffer, offset)
    except struct.error:
        raise WireError("request header cut short") from None
    offset += 10
    description = API_KEYS.get(api_key)
    if description is None:
        raise UnknownApi(f"unknown API key {api_key}")
    client_id: str | None
    if length < 0:
        client_id = None
    else:
        stop = offset + length
        if stop > len(buffer):
            raise WireError("client id ends beyond the frame")
        client_id = str(buffer[offset:stop], "utf-8", "replace")
        offset = stop
    if description.is_flexible(api_version):
        # The client id keeps its old form even here: a broker has to read the header of any ApiVersions.
        try:
            count = buffer[offset]
        except IndexError:
            raise WireError("request header cut short") from None
        offset += 1
        if count:
            offset = skip_tagged_fields(buffer, offset, count)
    return RequestHeader(api_key, api_version, correlation_id, client_id), offset


def encode_request_header(api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> bytes:
    """The header that a client, or a broker towards another, puts before a request."""
    if client_id is None:
        header = _FIXED.pack(api_key, api_version, correlation_id, -1)
    else:
        raw = client_id.encode()
        header = _FIXED.pack(api_key, api_version, correlation_id, len(raw)) + raw
    return header + b"\0" if request_header_version(api_key, api_version) == 2 else header


def encode_response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    """The header before a response to a request of that key and version."""
    header = _CORRELATION_ID.pack(correlation_id)
    return header + b"\0" if response_header_version(api_key, api_version) else header


def decode_response_header(api_key: int, api_version: int, buffer: Buffer, offset: int = 0) -> tuple[int, int]:
    """``(correlation id, offset of the body)``; ``WireError`` if cut short."""
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(buffer, offset)
        offset += 4
        if response_header_version(api_key, api_version):
            count = buffer[offset]
            offset += 1
            if count:
                offset = skip_tagged_fields(buffer, offset, count)
    except (struct.error, IndexError):
        raise WireError("response header cut short") from None
    return correlation_id, offset


def response_version(api_key: int, api_version: int, buffer: Buffer, offset: int) -> int:
    """Returns the version of the body at ``offset``.

    ApiVersions refuses a version that it does not have in version 0 (KIP-511), so that any client can read it.
    """
    is_refused = api_key == API_VERSIONS_KEY and bytes(buffer[offset : offset + 2]) == _UNSUPPORTED_VERSION
    return 0 if is_refused else api_version
