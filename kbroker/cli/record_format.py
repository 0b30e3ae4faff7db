"""How ``kbroker consume`` shows a record: a readable line, JSON, a template, or the value alone. Pure."""

from __future__ import annotations

import base64
import json
import string
from collections.abc import Callable
from typing import Any, Final

from kbroker.cli.output import as_json_text, printable, timestamp
from kbroker.wire.record_batch import Record, TimestampType

Formatter = Callable[[str, int, Record, TimestampType], bytes]
"""(topic, partition, record, timestamp type) -> what is written, with its newline."""

FIELDS: Final = (
    "topic", "partition", "offset", "timestamp", "timestamp_ms", "timestamp_type", "key", "value", "headers", "key_hex",
    "value_hex", "key_base64", "value_base64", "key_size", "value_size",
)  # fmt: skip
"""What a template may name."""


def readable(value: bytes | None, *, as_hex: bool = False) -> str:
    """Bytes for people: text where it is UTF-8, with control characters escaped; hexadecimal otherwise."""
    if value is None:
        return "null"
    if not as_hex:
        try:
            return printable(value.decode())
        except UnicodeDecodeError:
            pass
    return f"0x{value.hex()}"


def _raw_text(value: bytes | None) -> str:
    """Bytes for a template: as they are; what is not UTF-8 comes out unchanged through ``surrogateescape``."""
    return "" if value is None else value.decode("utf-8", "surrogateescape")


def line_formatter(*, as_hex: bool = False) -> Formatter:
    """``2026-01-31T12:00:00.000Z 0:42 key value {header: value}``."""

    def show(topic: str, partition: int, record: Record, kind: TimestampType) -> bytes:
        text = (
            f"{timestamp(record.timestamp)} {partition}:{record.offset}"
            f" {readable(record.key, as_hex=as_hex)} {readable(record.value, as_hex=as_hex)}"
        )
        if record.headers:
            pairs = ", ".join(f"{printable(name)}: {readable(value, as_hex=as_hex)}" for name, value in record.headers)
            text += f" {{{pairs}}}"
        return (text + "\n").encode("utf-8", "backslashreplace")

    return show


def value_formatter(topic: str, partition: int, record: Record, kind: TimestampType) -> bytes:
    """The value's bytes and a newline; an empty line for null."""
    return (record.value or b"") + b"\n"


def json_formatter(*, parse_values: bool = False) -> Formatter:
    """An object a line. What is not UTF-8 is in base64, under a name that says so.

    With ``parse_values`` a value that is JSON is put in as JSON, and others as text.
    """

    def show(topic: str, partition: int, record: Record, kind: TimestampType) -> bytes:
        document: dict[str, Any] = {
            "topic": topic,
            "partition": partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestamp_type": "LogAppendTime" if kind else "CreateTime",
        }
        as_json_text(record.key, "key", document)
        if not (parse_values and _parsed(record.value, document)):
            as_json_text(record.value, "value", document)
        document["headers"] = [[name, _header(value)] for name, value in record.headers]
        return json.dumps(document, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"

    return show


def _parsed(value: bytes | None, document: dict[str, Any]) -> bool:
    if value is None:
        return False
    try:
        document["value"] = json.loads(value)
    except (ValueError, RecursionError):
        return False
    return True


def _header(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"value_base64": base64.b64encode(value).decode("ascii")}


def template_formatter(template: str) -> Formatter:
    """``{offset} {key}={value}\\n``: names in braces, ``{{`` and ``}}`` for braces, ``\\n`` and ``\\t``.

    Unlike ``str.format`` nothing but the names of ``FIELDS`` is taken. ``ValueError`` says what is wrong.
    """
    parts: list[tuple[str, str | None]] = []
    text = template.replace("\\n", "\n").replace("\\t", "\t").replace("\\0", "\0")
    try:
        parsed = list(string.Formatter().parse(text))
    except ValueError as error:
        raise ValueError(f"template {template!r}: {error}") from None
    for literal, name, spec, conversion in parsed:
        if name is not None and (name not in FIELDS or spec or conversion):
            raise ValueError(f"template {template!r}: {{{name}}} is none of {', '.join(FIELDS)}")
        parts.append((literal, name))

    def show(topic: str, partition: int, record: Record, kind: TimestampType) -> bytes:
        out: list[str] = []
        for literal, name in parts:
            out.append(literal)
            if name is not None:
                out.append(_field(name, topic, partition, record, kind))
        return "".join(out).encode("utf-8", "surrogateescape")

    return show


def _field(name: str, topic: str, partition: int, record: Record, kind: TimestampType) -> str:
    match name:
        case "topic":
            return topic
        case "partition":
            return str(partition)
        case "offset":
            return str(record.offset)
        case "timestamp":
            return timestamp(record.timestamp)
        case "timestamp_ms":
            return str(record.timestamp)
        case "timestamp_type":
            return "LogAppendTime" if kind else "CreateTime"
        case "key":
            return _raw_text(record.key)
        case "value":
            return _raw_text(record.value)
        case "headers":
            return ",".join(f"{header}={_raw_text(value)}" for header, value in record.headers)
    part, _, how = name.rpartition("_")
    data = record.key if part == "key" else record.value
    if how == "size":
        return str(-1 if data is None else len(data))
    if data is None:
        return ""
    return data.hex() if how == "hex" else base64.b64encode(data).decode("ascii")
