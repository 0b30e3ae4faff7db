"""The stream of an explorer as lines of JSON: what a node sends, and what is saved as a file.

The first line says what it is. Bytes are base64, in pieces with their offsets where a frame was cut. An object has one
key that tells its kind: ``kbroker-exchanges`` (the beginning), ``connection``, ``closed``, ``exchange``, ``skipped``,
``names``. A reader passes over kinds and keys that it does not know.
"""

from __future__ import annotations

import base64
import binascii
import json
from binascii import b2a_base64
from collections.abc import Iterable, Iterator
from typing import Any, Final

from kbroker.observe.explorer.exchange import (
    ClientInfo,
    Closed,
    ConnectionInfo,
    Exchange,
    Frame,
    Names,
    Skipped,
    StreamStart,
)
from kbroker.wire.errors import WireError

FORMAT: Final = 1
START: Final = "kbroker-exchanges"
MAX_FRAME: Final = 128 << 20
"""Bytes of a frame that a line may claim: more is no frame that a broker takes."""

Item = StreamStart | ConnectionInfo | ClientInfo | Closed | Exchange | Skipped | Names

_dumps = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True).encode


class BadLine(WireError):
    """A line that is none of this format."""


def is_saved(data: bytes) -> bool:
    """Whether a file begins as one of this format does."""
    return data.startswith(b'{"' + START.encode() + b'"')


def line_of(item: Item) -> str:
    """An item as a line, its end included."""
    if type(item) is Exchange and not item.end and item.response is not None:
        return _line_of_exchange(item, item.response)  # a node that is watched spends its time here
    return _dumps(_object_of(item)) + "\n"


def _line_of_exchange(item: Exchange, response: Frame) -> str:
    """The text that ``json`` makes of most exchanges, in a third of its time."""
    redacted = ',"redacted":true' if item.is_redacted else ""
    return (
        f'{{"exchange":{item.number},"node":{item.node},"connection":{item.connection},"at":{item.at_ms:.3f},'
        f'"request":{_frame_text(item.request)},"response":{_frame_text(response)},"took":{item.took_ms:.3f}{redacted}}}\n'
    )


def _frame_text(frame: Frame) -> str:
    if frame.is_whole and len(frame.pieces) == 1:
        return f'"{b2a_base64(frame.pieces[0][1], newline=False).decode("ascii")}"'
    return _dumps(_frame_object(frame))


def item_of(line: str | bytes) -> Item | None:
    """The item of a line; None for an empty line, and for a kind that is not known. ``BadLine`` if it is malformed."""
    if not line.strip():
        return None
    try:
        data = json.loads(line)
        if not isinstance(data, dict):
            raise BadLine("a line of saved exchanges is an object")
        return _item(data)
    except BadLine:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, binascii.Error) as error:
        raise BadLine(f"not a line of saved exchanges: {type(error).__name__}: {error}") from None


def read_items(lines: Iterable[str | bytes]) -> Iterator[Item]:
    """The items of a stream. ``BadLine`` names the line that is none; the first has to be the beginning."""
    for number, line in enumerate(lines, 1):
        try:
            item = item_of(line)
        except BadLine as error:
            raise BadLine(f"line {number}: {error}") from None
        if number == 1 and not isinstance(item, StreamStart):
            raise BadLine("line 1: this is not the beginning of saved exchanges")
        if item is not None:
            yield item


def _object_of(item: Item) -> dict[str, Any]:
    match item:
        case Exchange():
            made: dict[str, Any] = {
                "exchange": item.number,
                "node": item.node,
                "connection": item.connection,
                "at": round(item.at_ms, 3),
                "request": _frame_object(item.request),
            }
            if item.response is not None:
                made["response"] = _frame_object(item.response)
                made["took"] = round(item.took_ms, 3)
            if item.end:
                made["end"] = item.end
            if item.is_redacted:
                made["redacted"] = True
            return made
        case ConnectionInfo():
            return _connection_object(item)
        case ClientInfo():
            # A reader that does not know the rest sees a connection.
            rest = item._asdict()
            return _connection_object(rest.pop("connection")) | rest
        case Closed():
            return {"closed": item.number, "node": item.node}
        case Skipped():
            return {"skipped": {str(key): count for key, count in item.counts.items()}, "why": item.why}
        case Names():
            return {"names": item.topics}
        case StreamStart():
            made = item._asdict()
            return {START: FORMAT, **made}


def _connection_object(item: ConnectionInfo) -> dict[str, Any]:
    made = item._asdict()
    return {"connection": made.pop("number"), **made}


def _item(data: dict[str, Any]) -> Item | None:
    if START in data:
        if data[START] != FORMAT:
            raise BadLine(f"saved exchanges of format {data[START]!r}; this is for format {FORMAT}")
        node, at_ms = int(data["node"]), float(data["at_ms"])
        return StreamStart(node, str(data["cluster"]), str(data["software"]), at_ms, str(data.get("run", "")))
    if "exchange" in data:
        response = data.get("response")
        return Exchange(
            int(data["node"]),
            int(data["exchange"]),
            int(data["connection"]),
            float(data["at"]),
            _frame(data["request"], is_request=True),
            None if response is None else _frame(response),
            float(data.get("took", -1)),
            str(data.get("end", "")),
            bool(data.get("redacted", False)),
        )
    if "connection" in data:
        info = ConnectionInfo(
            int(data["connection"]),
            str(data["peer"]),
            str(data["listener"]),
            bool(data["is_controller"]),
            str(data["principal"]),
            str(data["software"]),
            int(data["node"]),
        )
        if "since_ms" not in data:
            return info
        return ClientInfo(
            info,
            str(data["client_id"]),
            str(data["sasl"]),
            str(data["tls"]),
            float(data["since_ms"]),
            int(data["requests"]),
            int(data["bytes_received"]),
            str(data["run"]),
            bool(data.get("is_of_node", False)),
        )
    if "closed" in data:
        return Closed(int(data["closed"]), int(data["node"]))
    if "skipped" in data:
        return Skipped({int(key): int(count) for key, count in data["skipped"].items()}, str(data["why"]))
    if "names" in data:
        return Names({str(key): str(name) for key, name in data["names"].items()})
    return None


def _frame_object(frame: Frame) -> str | dict[str, Any]:
    if frame.is_whole and len(frame.pieces) == 1:
        return base64.b64encode(frame.pieces[0][1]).decode("ascii")
    pieces = [[offset, base64.b64encode(piece).decode("ascii")] for offset, piece in frame.pieces]
    return {"size": frame.size, "pieces": pieces}


def _frame(data: str | dict[str, Any], *, is_request: bool = False) -> Frame:
    if isinstance(data, str):
        piece = base64.b64decode(data, validate=True)
        frame = Frame(len(piece), ((0, piece),))
    else:
        pieces = tuple((int(offset), base64.b64decode(piece, validate=True)) for offset, piece in data["pieces"])
        frame = Frame(int(data["size"]), pieces)
    if not 0 <= frame.size <= MAX_FRAME:
        raise BadLine(f"a frame of {frame.size} bytes")
    end = 0
    for offset, piece in frame.pieces:
        if offset < end:
            raise BadLine("pieces of a frame are out of order")
        end = offset + len(piece)
    if end > frame.size:
        raise BadLine("a frame has more bytes than its size says")
    if is_request and not (frame.pieces and frame.pieces[0][0] == 0 and len(frame.pieces[0][1]) >= 8):
        raise BadLine("the header of a request is missing")
    return frame
