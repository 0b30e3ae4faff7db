"""The formats of ``kbroker consume``: a readable line, JSON, a template, or the value alone. Pure."""

from __future__ import annotations

import string
from typing import Final

from kbroker.client.records_io.json_records import Formatter, to_base64
from kbroker.tools.cli.output import printable, timestamp
from kbroker.wire.batch_header import TimestampType
from kbroker.wire.record_batch import Record

FIELDS: Final = (
    "topic", "partition", "offset", "timestamp", "timestamp_ms", "timestamp_type", "key", "value", "headers", "key_hex",
    "value_hex", "key_base64", "value_base64", "key_size", "value_size",
)  # fmt: skip
"""The fields that a template may name."""


def readable(value: bytes | None) -> str:
    """Bytes for people: text where it is UTF-8, with control characters escaped; hexadecimal otherwise."""
    if value is None:
        return "null"
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return as_hex(value)
    return text if text.isprintable() else printable(text)


def as_hex(value: bytes | None) -> str:
    """Bytes in hexadecimal after ``0x``, or ``null``."""
    return "null" if value is None else f"0x{value.hex()}"


def _raw_text(value: bytes | None) -> str:
    """Bytes for a template: as they are; what is not UTF-8 comes out unchanged through ``surrogateescape``."""
    return "" if value is None else value.decode("utf-8", "surrogateescape")


def line_formatter(*, in_hex: bool = False) -> Formatter:
    """``2026-01-31T12:00:00.000Z 0:42 key value {header: value}``."""

    shown = as_hex if in_hex else readable

    def show(topic: str, partition: int, record: Record, kind: TimestampType) -> bytes:
        offset, timestamp_ms, key, value, headers = record
        text = f"{timestamp(timestamp_ms)} {partition}:{offset} {shown(key)} {shown(value)}"
        if headers:
            text += f" {{{', '.join(f'{printable(name)}: {shown(content)}' for name, content in headers)}}}"
        return f"{text}\n".encode("utf-8", "backslashreplace")

    return show


def value_formatter(topic: str, partition: int, record: Record, kind: TimestampType) -> bytes:
    """The value's bytes and a newline; an empty line for null."""
    return (record.value or b"") + b"\n"


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
    return data.hex() if how == "hex" else to_base64(data)
