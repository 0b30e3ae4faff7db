"""Records as JSON: keys, values and headers are text where they are UTF-8, and in base64 under another name else.

The object of a record is written here, and read by `line_records`. Other formats use its parts, too.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from json.encoder import encode_basestring
from typing import Any, Final, NoReturn

from kbroker.client.records_io.json_types import ExactFloat
from kbroker.wire.batch_header import TimestampType
from kbroker.wire.record_batch import Record

Headers = tuple[tuple[str, bytes | None], ...]

Formatter = Callable[[str, int, Record, TimestampType], bytes]
"""(topic, partition, record, timestamp type) -> what is written, with its newline."""


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"not JSON: {name}")


_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant, parse_float=ExactFloat)


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


def json_formatter(*, parse_values: bool = False) -> Formatter:
    """An object a line. What is not UTF-8 is in base64, under a name that says so.

    With ``parse_values`` a value that is JSON is put in as JSON, and others as text.
    """

    # Written by hand: json.dumps takes three times as long for an object of these few fields.
    def show(topic: str, partition: int, record: Record, kind: TimestampType) -> bytes:
        offset, timestamp_ms, key, value, headers = record
        parsed = one_line_json(value) if parse_values and value is not None else None
        shown_value = member("value", value) if parsed is None else f'"value": {parsed}'
        shown_key = member("key", key)
        shown_headers = headers_text(headers) if headers else "[]"
        who = "LogAppendTime" if kind else "CreateTime"
        return (
            f'{{"topic": "{topic}", "partition": {partition}, "offset": {offset}, "timestamp": {timestamp_ms},'
            f' "timestamp_type": "{who}", {shown_key}, {shown_value}, "headers": {shown_headers}}}\n'
        ).encode("utf-8", "backslashreplace")

    return show


def one_line_json(value: bytes) -> str | None:
    """A value that is JSON, as it stands but on one line; None if it is none.

    Python's own numbers and dictionaries do not hold all digits and names. Line ends are between JSON's words alone.
    """
    try:
        parse_json(value)
    except (ValueError, RecursionError):
        return None
    return value.decode().strip().replace("\r", " ").replace("\n", " ")


def as_bytes(value: Any) -> bytes | None:
    """The bytes of a JSON value: text as it is, null as none, anything else as JSON."""
    if isinstance(value, str):
        return value.encode()
    return None if value is None else _exact(value).encode()


def _exact(value: Any) -> str:
    """A JSON value with the digits of its numbers as they were."""
    match value:
        case ExactFloat():
            return value.text
        case dict():
            return f"{{{', '.join([f'{encode_basestring(name)}: {_exact(each)}' for name, each in value.items()])}}}"
        case list():
            return f"[{', '.join(map(_exact, value))}]"
    return json.dumps(value, ensure_ascii=False)


def bytes_of(document: dict[str, Any], name: str) -> bytes | None:
    """``name`` as text, or ``name_base64``; null and what is not there are None, other JSON is its text."""
    encoded = document.get(f"{name}_base64")
    return as_bytes(document.get(name)) if encoded is None else from_base64(encoded, f"{name}_base64")


def check_name(name: str) -> None:
    """``ValueError`` for the name of a header that no bytes have."""
    try:
        name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ValueError("a header has half a surrogate pair in its name") from None


def headers_of(document: Any) -> Headers:
    """Headers out of a list of [name, value], or an object; ``ValueError`` if it is neither."""
    pairs = document.items() if isinstance(document, dict) else document
    found: list[tuple[str, bytes | None]] = []
    try:
        for name, value in pairs:
            if not isinstance(name, str):
                raise TypeError
            check_name(name)
            found.append((name, bytes_of(value if isinstance(value, dict) else {"value": value}, "value")))
    except TypeError:
        raise ValueError("headers are neither an object nor a list of [name, value]") from None
    return tuple(found)
