"""The format of ``kbroker consume --registry``: keys and values as the JSON that their schemas make. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

from kbroker.client.records_io.json_records import headers_text, json_formatter, member, one_line_json, to_base64
from kbroker.tools.cli.output import printable, timestamp
from kbroker.tools.cli.record_format import as_hex, readable, template_formatter

if TYPE_CHECKING:
    from kbroker.client.schemas.decoder import Decoded, PartNote
    from kbroker.wire.batch_header import TimestampType

Show = Callable[[int, "Decoded", "TimestampType"], bytes]
"""(partition, record, timestamp type) -> what is written, with its newline."""


def decoded_formatter(
    topic: str, *, as_json: bool, parse_values: bool = False, value_only: bool = False, template: str | None = None
) -> Show:
    """The formatter of a topic's decoded records, by the options of ``consume``; ``ValueError`` for a bad template."""
    if as_json:
        return _json_formatter(topic, parse_values=parse_values)
    if value_only:
        return lambda partition, decoded, kind: (decoded.record.value or b"") + b"\n"
    if template is not None:
        formatter = template_formatter(template)
        return lambda partition, decoded, kind: formatter(topic, partition, decoded.record, kind)
    return _line


def _line(partition: int, decoded: Decoded, kind: TimestampType) -> bytes:
    """``2026-01-31T12:00:00.000Z 0:42 {"id": 7} {"name": "Ann"}``; where it fails, hexadecimal and the reason."""
    offset, timestamp_ms, key, value, headers = decoded.record
    shown_key, shown_value = _shown(key, decoded.key), _shown(value, decoded.value)
    text = f"{timestamp(timestamp_ms)} {partition}:{offset} {shown_key} {shown_value}"
    if headers:
        text += f" {{{', '.join(f'{printable(name)}: {readable(content)}' for name, content in headers)}}}"
    return f"{text}\n".encode("utf-8", "backslashreplace")


def _shown(data: bytes | None, note: PartNote | None) -> str:
    if note is None or note.error is None:
        return readable(data)
    return f"{as_hex(data)} (not decoded: {printable(note.error)})"


def _json_formatter(topic: str, *, parse_values: bool) -> Show:
    """The object of ``--json`` with decoded parts put in, and ``key_schema``, ``value_schema``.

    A part that cannot be decoded is in base64, with the reason as ``key_error`` or ``value_error``.
    """
    plain = json_formatter(parse_values=parse_values)

    def show(partition: int, decoded: Decoded, kind: TimestampType) -> bytes:
        record = decoded.record
        offset, time_ms, _, _, headers = record
        if decoded.key is None and decoded.value is None:
            return plain(topic, partition, record, kind)
        who = "LogAppendTime" if kind else "CreateTime"
        key, value = _member("key", record.key, decoded.key), _member("value", record.value, decoded.value)
        if parse_values and decoded.value is None and record.value is not None:
            parsed = one_line_json(record.value)
            value = value if parsed is None else f'"value": {parsed}'
        return (
            f'{{"topic": "{topic}", "partition": {partition}, "offset": {offset}, "timestamp": {time_ms},'
            f' "timestamp_type": "{who}", {key}, {value}, "headers": {headers_text(headers)}}}\n'
        ).encode("utf-8", "backslashreplace")

    return show


def _member(name: str, data: bytes | None, note: PartNote | None) -> str:
    if note is None or data is None:
        return member(name, data)
    schema_id = str(note.schema_id) if isinstance(note.schema_id, UUID) else note.schema_id
    schema = json.dumps({"id": schema_id, "type": note.kind})
    if note.error is None:
        return f'"{name}": {data.decode()}, "{name}_schema": {schema}'
    error = json.dumps(note.error, ensure_ascii=False)
    return f'"{name}_base64": "{to_base64(data)}", "{name}_schema": {schema}, "{name}_error": {error}'
