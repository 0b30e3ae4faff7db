"""Secrets of requests and answers are overwritten in their bytes, before these leave the node.

Secret are the fields that no text shows (`kbroker.wire.schema.is_hidden`): tokens of SASL, keys of SCRAM users and of
delegation tokens, values of properties that are passwords or are not known. They keep their length. A message that
may have secrets and cannot be read again exactly is overwritten altogether.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from kbroker.wire.compiler import decode, encode
from kbroker.wire.errors import WireError
from kbroker.wire.headers import decode_request_header, decode_response_header
from kbroker.wire.registry import API_KEYS, API_VERSIONS_KEY
from kbroker.wire.schema import SECRET_FIELDS, Message, is_hidden, struct_spec

ENVELOPE: Final = 58
"""Holds another request, and its answer another answer."""

PREFIX: Final = 8
"""Bytes of a request that are no secret in any case: API key, version, correlation id."""

LARGEST: Final = 256 << 10
"""Bytes of a message that is looked through; all of a larger one is overwritten, but for its beginning."""


@cache
def may_have_secrets(api_key: int) -> bool:
    """Whether requests or answers of an API may have a field that is secret. Unknown APIs may."""
    api = API_KEYS.get(api_key)
    return api is None or api_key == ENVELOPE or _has_secrets(api.request) or _has_secrets(api.response)


def _has_secrets(cls: type[object]) -> bool:
    fields = struct_spec(cls).fields
    names = {field.name for field in fields}
    if names & SECRET_FIELDS or {"name", "value"} <= names:
        return True
    for field in fields:
        struct = field.type.struct or (field.type.element.struct if field.type.element is not None else None)
        if struct is not None and _has_secrets(struct):
            return True
    return False


def is_request(frame: bytes) -> bool:
    """Whether a frame is a request of a known API in all its bytes. A bare token, which has no header, is none.

    ApiVersions may be of a version that there is not, which its answer says (KIP-511).
    """
    try:
        header, offset = decode_request_header(frame)
        if (
            header.api_key == API_VERSIONS_KEY
            and header.api_version > API_KEYS[API_VERSIONS_KEY].valid_versions.highest
        ):
            return True
        _, end = decode(API_KEYS[header.api_key].request, header.api_version, frame, offset)
    except (WireError, KeyError, ValueError):
        return False
    return end == len(frame)


def redacted_request(frame: bytes) -> bytes:
    """A request without its secrets: as many bytes, others where a secret was."""
    if len(frame) > LARGEST:
        return _overwritten(frame, PREFIX)
    try:
        header, offset = decode_request_header(frame)
        message, end = decode(API_KEYS[header.api_key].request, header.api_version, frame, offset)
        if _hide(message, None) or end < len(frame):
            return _written_again(frame, offset, end, message, header.api_version)
    except (WireError, KeyError, ValueError):
        is_known = int.from_bytes(frame[:2], "big") in API_KEYS
        return _overwritten(frame, PREFIX if is_known else 0)
    return frame


def redacted_response(frame: bytes, request: bytes) -> bytes:
    """The answer to ``request`` without its secrets."""
    if len(frame) > LARGEST:
        return _overwritten(frame, 4)
    try:
        header, _ = decode_request_header(request)
        _, offset = decode_response_header(header.api_key, header.api_version, frame)
        message, end = decode(API_KEYS[header.api_key].response, header.api_version, frame, offset)
        inner = _inner(request) if header.api_key == ENVELOPE else None
        if _hide(message, inner) or end < len(frame):
            return _written_again(frame, offset, end, message, header.api_version)
    except (WireError, KeyError, ValueError):
        return _overwritten(frame, 4)
    return frame


def _inner(request: bytes) -> bytes:
    """The request in an Envelope."""
    header, offset = decode_request_header(request)
    envelope, _ = decode(API_KEYS[ENVELOPE].request, header.api_version, request, offset)
    return bytes(envelope.request_data)


def _hide(message: Message, inner: bytes | None) -> bool:
    """Overwrite the secrets in a message; whether there was one, or anything that may hold one."""
    found = False
    names = type(message).__slots__
    sibling = getattr(message, "name", None)
    for name in names:
        value = getattr(message, name)
        if value is None:
            continue
        if name == "request_data":
            value, found = redacted_request(bytes(value)), True
        elif name == "response_data" and inner is not None:
            value, found = redacted_response(bytes(value), inner), True
        elif isinstance(value, Message):
            found = _hide(value, None) or found
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, Message):
                    found = _hide(each, None) or found
        elif value and is_hidden(name, sibling):
            found = True
            value = "*" * len(value.encode()) if isinstance(value, str) else bytes(len(value))
        setattr(message, name, value)
    return found


def _written_again(frame: bytes, offset: int, end: int, message: Message, version: int) -> bytes:
    body = encode(message, version)
    if len(body) != end - offset:
        return _overwritten(frame, offset)  # it has fields that this side does not know
    return frame[:offset] + body + bytes(len(frame) - end)


def _overwritten(frame: bytes, kept: int) -> bytes:
    return frame[:kept] + bytes(max(0, len(frame) - kept))
