"""Frames and messages as text, by their layouts: a line a field, with its offset, first bytes, name, type and value."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

from kbroker.wire.batch_header import walk_headers
from kbroker.wire.errors import WireError
from kbroker.wire.layouts import DamagedFrame, Node, parse, parse_frame
from kbroker.wire.record_batch import iter_records
from kbroker.wire.schema import is_hidden


def render_frame(data: bytes, *, response_to: tuple[int, int] | None = None) -> str:
    """A frame as text: one line a field, with its offset, first bytes, name, type and value.

    ``DamagedFrame`` if it cannot be read to its end; its ``tree`` is the text as far as it goes.
    """
    try:
        nodes = parse_frame(data, response_to=response_to)
    except DamagedFrame as damage:
        damage.tree = "\n".join(render(damage.nodes, data))
        raise
    return "\n".join(render(nodes, data))


def render_message(cls: type[Any], version: int, data: bytes | bytearray | memoryview, offset: int = 0) -> str:
    """A message without a header (a record's key or value, say) as ``render_frame`` shows it."""
    nodes, _ = parse(cls, version, data, offset)
    return "\n".join(render(nodes, bytes(data)))


_SHOWN: Final = 8
"""Bytes of a field in the margin."""


class Row(NamedTuple):
    """A line of a tree: a field, a group of fields, or a batch of records."""

    start: int
    stop: int
    depth: int
    has_bytes: bool
    """Whether the bytes are shown beside it: those of a group are beside its fields, those of a secret nowhere."""
    text: str


def rows(nodes: list[Node], depth: int = 0) -> Iterator[Row]:
    """The lines of a tree."""
    sibling = next((node.value for node in nodes if node.name == "name"), None)
    for node in nodes:
        hides = is_hidden(node.name, sibling)
        yield Row(node.start, node.stop, depth, not node.children and not hides, _line(node, hides))
        if node.children:
            yield from rows(node.children, depth + 1)
        elif node.type in ("Records", "ResponseRecords") and node.value:
            yield from _batches(node, depth + 1)


def render(nodes: list[Node], data: bytes, depth: int = 0) -> Iterator[str]:
    """The lines of a tree as text."""
    for row in rows(nodes, depth):
        raw = data[row.start : row.stop] if row.has_bytes else b""
        shown = raw[:_SHOWN].hex(" ") + (" .." if len(raw) > _SHOWN else "")
        yield f"{row.start:>8}  {shown:<26}  {'  ' * row.depth}{row.text}".rstrip()


def _line(node: Node, hides: bool) -> str:
    size = node.stop - node.start
    if node.type == "":
        return f"{node.name} ({size} bytes)"
    if node.children is not None:
        if node.type.startswith("list["):
            count = len(node.children)
            return f"{node.name}: {node.type}, {count} element{'' if count == 1 else 's'}"
        return f"{node.name}: {node.type}"
    value = node.value
    if hides:
        text = "[hidden]"
    elif isinstance(value, bytes):
        if node.type == "UuidField":
            text = value.hex()
        elif len(value) > 48:
            text = f"{len(value)} bytes"
        else:
            text = value.hex(" ") or "empty"
    else:
        text = "null" if value is None else repr(value)
    return f"{node.name}: {node.type} = {text}"


def _batches(node: Node, depth: int) -> Iterator[Row]:
    """The headers of the record batches in a field, and the point where they stop making sense."""
    value: bytes = node.value
    begin = node.stop - len(value)
    position = 0
    try:
        for position, header in walk_headers(value):
            text = (
                f"batch of {header.size} bytes: offsets "
                f"{header.base_offset}..{header.last_offset}, {header.records_count} records, "
                f"{header.compression_type.name.lower()}, leader epoch {header.partition_leader_epoch}, "
                f"producer {header.producer_id}/{header.producer_epoch} from sequence {header.base_sequence}"
            )
            start, stop = begin + position, begin + position + header.size
            yield Row(start, stop, depth, False, text)
            yield from (Row(start, stop, depth + 1, False, each) for each in _records(value, position))
    except WireError as error:
        yield Row(begin + position, node.stop, depth, False, f"no further batch: {error}")


_SHOWN_RECORDS: Final = 3
_SHOWN_VALUE: Final = 40
_MAX_RECORD: Final = 4 << 20


def _records(value: bytes, position: int) -> Iterator[str]:
    """The first records of the batch at a position; fewer, or none, where the bytes are not those of records."""
    try:
        records = iter_records(value, position, max_record=_MAX_RECORD)
        for record in islice(records, _SHOWN_RECORDS):
            headers = f", {len(record.headers)} headers" if record.headers else ""
            yield f"record {record.offset}: key {_short(record.key)}, value {_short(record.value)}{headers}"
        if next(records, None) is not None:
            yield "..."
    except WireError as error:
        yield f"no further record: {error}"


def _short(data: bytes | None) -> str:
    if data is None:
        return "null"
    text = repr(data[:_SHOWN_VALUE])[1:]
    return f"{text} .. ({len(data)} bytes)" if len(data) > _SHOWN_VALUE else text
