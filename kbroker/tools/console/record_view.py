"""A record as the page gets it: text, JSON or bytes, each part with its size. Pure."""

from __future__ import annotations

from typing import Final

from kbroker.client.records_io.json_types import Json, load_json, to_bytes
from kbroker.client.schemas.decoder import PartNote
from kbroker.tools.console.masking import MASKED, Masking
from kbroker.tools.console.scan import Found

LIST_LIMIT: Final = 2_000
"""Characters of a key or value in a list; all of it is in the record's own view."""

WHOLE_LIMIT: Final = 1 << 20
"""Bytes of a key or value in the record's own view."""

LIST_JSON_LIMIT: Final = 64 << 10
"""Bytes of a value up to which a list tells whether it is JSON: a page of large ones would take minutes."""

MAX_HEADERS: Final = 200
"""Headers of a record that are told: a few kilobytes can be millions of empty ones, compressed."""

_HEX_LIMIT: Final = 16 << 10


def shown_part(data: bytes | None, *, limit: int, masked: bool = False, whole: bool = False) -> dict[str, Json]:
    """A key, value or header: ``kind`` (null, text, json, binary, masked), ``text``, ``size`` and ``cut``.

    ``whole`` adds ``pretty`` for JSON, ``not_json`` with the reason for what begins like it and is none, and ``hex``
    with up to 16 KiB.
    """
    if data is None:
        return {"kind": "null", "text": "", "size": 0, "cut": False}
    if masked and data == MASKED:
        return {"kind": "masked", "text": data.decode(), "size": 0, "cut": False}
    view: dict[str, Json] = {"size": len(data)}
    # A few bytes more than characters may be needed, so that no letter is torn at the limit.
    is_cut = len(data) > 4 * limit
    try:
        text = data.decode()
        view["kind"] = "text"
    except UnicodeDecodeError:
        text = data[: limit // 2].hex(" ")
        view["kind"] = "binary"
        is_cut = len(data) > limit // 2
    if view["kind"] == "text" and text[:1] in ("{", "[") and (whole or len(data) <= LIST_JSON_LIMIT):
        try:
            document = load_json(data)
            view["kind"] = "json"
            if whole and len(data) <= WHOLE_LIMIT:
                view["pretty"] = to_bytes(document, indent=2).decode()
        except (ValueError, RecursionError) as error:
            if whole and view["kind"] != "json":
                view["not_json"] = str(error)
    view["text"] = text[:limit]
    view["cut"] = is_cut or len(text) > limit
    if whole:
        view["hex"] = data[:_HEX_LIMIT].hex()
        view["hex_cut"] = len(data) > _HEX_LIMIT
    return view


def _with_schema(view: dict[str, Json], note: PartNote | None, data: bytes | None, *, limit: int) -> dict[str, Json]:
    """The view of a key or value with its ``schema`` (id, type); what could not be decoded is bytes, with ``error``."""
    if note is None or data is None or view["kind"] == "masked":
        return view
    view["schema"] = {"id": str(note.schema_id), "type": note.kind}
    if note.error is not None:
        view |= {
            "error": note.error,
            "kind": "binary",
            "text": data[: limit // 2].hex(" "),
            "cut": len(data) > limit // 2,
        }
        view.pop("pretty", None)
    return view


def _with_original(view: dict[str, Json], data: bytes | None) -> dict[str, Json]:
    """The view with the bytes as they are in the log, instead of those of the JSON that they are decoded to."""
    if data is not None and "hex" in view:
        view |= {"hex": data[:_HEX_LIMIT].hex(), "hex_cut": len(data) > _HEX_LIMIT, "size": len(data)}
    return view


def shown_record(found: Found, masking: Masking, *, whole: bool = False) -> dict[str, Json]:
    """A record of a list, or with ``whole`` of its own view."""
    partition, record, kind = found.partition, found.record, found.timestamp_type
    limit = WHOLE_LIMIT if whole else LIST_LIMIT
    masked = bool(masking)
    headers: list[Json] = [
        [name, shown_part(content, limit=limit, masked=masked, whole=whole)]
        for name, content in record.headers[:MAX_HEADERS]
    ]
    key = _with_schema(
        shown_part(record.key, limit=limit, masked=masked, whole=whole), found.key_note, record.key, limit=limit
    )
    value = _with_schema(
        shown_part(record.value, limit=limit, masked=masked, whole=whole), found.value_note, record.value, limit=limit
    )
    if found.original is not None:
        key, value = _with_original(key, found.original.key), _with_original(value, found.original.value)
    return {
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": "LogAppendTime" if kind else "CreateTime",
        "key": key,
        "value": value,
        "headers": headers,
        "more_headers": max(len(record.headers) - MAX_HEADERS, 0),
    }
