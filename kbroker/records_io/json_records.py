"""Records as JSON: keys, values and headers are text where they are UTF-8, and in base64 under another name else.

The object of a record is written by `kbroker.cli.record_format` and read by `line_records`; here are its parts, which
other formats use, too.
"""

from __future__ import annotations

import base64
import binascii
import json
from json.encoder import encode_basestring
from typing import Any, Final, NoReturn

Headers = tuple[tuple[str, bytes | None], ...]


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"not JSON: {name}")


_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)


def parse_json(text: bytes) -> Any:
    """A JSON document, without the NaN and Infinity that Python takes; ``ValueError`` says what is wrong."""
    try:
        return _DECODER.decode(text.decode())
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from None
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None


def to_base64(data: bytes) -> str:
    """Bytes as base64."""
    return base64.b64encode(data).decode("ascii")


def from_base64(text: Any, what: str) -> bytes:
    """The bytes of base64; ``ValueError`` names ``what`` if it is none."""
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, binascii.Error, ValueError):
        raise ValueError(f"{what} is not base64") from None


def member(name: str, data: bytes | None) -> str:
    """Bytes as a member of an object: text where they are UTF-8, in base64 under another name otherwise."""
    if data is None:
        return f'"{name}": null'
    try:
        return f'"{name}": {encode_basestring(data.decode())}'
    except UnicodeDecodeError:
        return f'"{name}_base64": "{to_base64(data)}"'


def headers_text(headers: Headers) -> str:
    """Headers as a list of [name, value], on one line."""
    return f"[{', '.join([f'[{encode_basestring(name)}, {_header(content)}]' for name, content in headers])}]"


def _header(data: bytes | None) -> str:
    if data is None:
        return "null"
    try:
        return encode_basestring(data.decode())
    except UnicodeDecodeError:
        return f'{{"value_base64": "{to_base64(data)}"}}'


def as_bytes(value: Any) -> bytes | None:
    """The bytes of a JSON value: text as it is, null as none, anything else as JSON."""
    if isinstance(value, str):
        return value.encode()
    return None if value is None else json.dumps(value, ensure_ascii=False).encode()


def bytes_of(document: dict[str, Any], name: str) -> bytes | None:
    """``name`` as text, or ``name_base64``; null and what is not there are None, other JSON is its text."""
    encoded = document.get(f"{name}_base64")
    return as_bytes(document.get(name)) if encoded is None else from_base64(encoded, f"{name}_base64")


def headers_of(document: Any) -> Headers:
    """Headers out of a list of [name, value], or an object; ``ValueError`` if it is neither."""
    pairs = document.items() if isinstance(document, dict) else document
    found: list[tuple[str, bytes | None]] = []
    try:
        for name, value in pairs:
            if not isinstance(name, str):
                raise TypeError
            found.append((name, bytes_of(value if isinstance(value, dict) else {"value": value}, "value")))
    except TypeError:
        raise ValueError("headers are neither an object nor a list of [name, value]") from None
    return tuple(found)
