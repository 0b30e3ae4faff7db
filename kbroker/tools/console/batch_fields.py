"""The bytes of a batch with their names: what each field is, where it is, and what it means. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from kbroker.wire.batch_header import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
)
from kbroker.wire.compression import CompressionType, CorruptRecord
from kbroker.wire.control_batch import ControlRecordType
from kbroker.wire.primitives import read_varint
from kbroker.wire.record_windows import RecordWindows, run_steps

MAX_RECORDS: Final = 20
"""Records whose fields are told."""

MAX_HEADERS: Final = 50
"""Headers of a record that are told: a few kilobytes can be millions of empty ones, compressed."""

MAX_SHOWN: Final = 64
"""Bytes of a field that are told."""

MAX_DECOMPRESSED: Final = 16 << 20
"""Bytes of the records that are decompressed for it: the first of them."""

_HEADER: Final = (
    ("base offset", ">q", "the offset of the first record; not under the checksum"),
    ("length", ">i", "bytes after this field"),
    ("leader epoch", ">i", "of the leader that appended it; not under the checksum"),
    ("magic", ">b", "the format of the batch"),
    ("CRC-32C", ">I", "of everything from the attributes on"),
    ("attributes", ">h", ""),
    ("last offset delta", ">i", "from the base offset to the last record, which compaction may have taken away"),
    ("base timestamp", ">q", "milliseconds since 1970; the records' timestamps are told from it"),
    ("max timestamp", ">q", "milliseconds since 1970"),
    ("producer id", ">q", "-1 without idempotence"),
    ("producer epoch", ">h", "of the producer: a newer one fences it"),
    ("base sequence", ">i", "number of the first record, by which a batch that is sent again is known"),
    ("records", ">i", "how many there are"),
)


class ByteField(NamedTuple):
    """A field, or a group of fields. Of a group there are no ``data``; ``start`` and ``stop`` are positions."""

    start: int
    stop: int
    depth: int
    name: str
    value: str
    note: str = ""
    data: bytes = b""


def codec_name(attributes: int) -> str:
    """The compression that attributes name."""
    try:
        return CompressionType(attributes & COMPRESSION_MASK).name.lower()
    except ValueError:
        return f"unknown ({attributes & COMPRESSION_MASK})"


def attribute_notes(attributes: int) -> str:
    """The bits of the attributes in words."""
    words = [f"compression {codec_name(attributes)}"]
    words.append("time of the broker" if attributes & TIMESTAMP_TYPE_FLAG else "time of the producer")
    if attributes & TRANSACTIONAL_FLAG:
        words.append("transactional")
    if attributes & CONTROL_FLAG:
        words.append("control")
    if attributes & DELETE_HORIZON_FLAG:
        words.append("the base timestamp says when tombstones may go")
    return ", ".join(words)


def header_fields(data: bytes) -> Iterator[ByteField]:
    """The 61 bytes of the header."""
    yield ByteField(0, HEADER_SIZE, 0, "header", f"{HEADER_SIZE} bytes")
    position = 0
    for name, layout, note in _HEADER:
        [value] = struct.unpack_from(layout, data, position)
        stop = position + struct.calcsize(layout)
        told = attribute_notes(value) if name == "attributes" else note
        shown = f"0x{value:08x}" if name == "CRC-32C" else str(value)
        yield ByteField(position, stop, 1, name, shown, told, data[position:stop])
        position = stop


def batch_fields(header: BatchHeader, data: bytes) -> Iterator[ByteField]:
    """All of a batch: its header, and the fields of its first records, decompressed where they are compressed.

    Positions of decompressed records count from the beginning of the decompressed block. What is no record is told.
    """
    yield from header_fields(data)
    codec = header.attributes & COMPRESSION_MASK
    try:
        windows = RecordWindows(data, 0, header, MAX_DECOMPRESSED)
        first = run_steps(windows.next())
        payload = b"" if first is None else first.data
    except CorruptRecord as error:
        yield ByteField(HEADER_SIZE, len(data), 0, "records", f"{len(data) - HEADER_SIZE} bytes", str(error))
        return
    base = 0 if codec else HEADER_SIZE
    if codec:
        packed = len(data) - HEADER_SIZE
        times = f"{len(payload) / packed:.1f} times as many" if packed and windows.whole is not None else ""
        note = f"compressed with {codec_name(codec)}"
        yield ByteField(HEADER_SIZE, len(data), 0, "records", f"{packed} bytes", note, data[HEADER_SIZE:])
        size = f"{len(payload)} bytes" if windows.whole is not None else f"more than {len(payload)} bytes"
        yield ByteField(0, len(payload), 0, "records, decompressed", size, times)
    else:
        yield ByteField(HEADER_SIZE, len(data), 0, "records", f"{len(payload)} bytes")
    position = 0
    for number in range(min(header.records_count, MAX_RECORDS)):
        try:
            fields, position = _record(header, payload, position, base, number)
        except (CorruptRecord, IndexError, UnicodeDecodeError) as error:
            note = f"no record: {error}"
            yield ByteField(base + position, base + len(payload), 1, f"record {number}", "", note)
            return
        yield from fields
    if header.records_count > MAX_RECORDS:
        left = header.records_count - MAX_RECORDS
        yield ByteField(base + position, base + len(payload), 1, "and more", f"{left} records")


def _record(header: BatchHeader, payload: bytes, start: int, base: int, number: int) -> tuple[list[ByteField], int]:
    """The fields of the record that begins at a position, and where the next one begins."""
    reader = _Fields(payload, base)
    reader.position = start
    length = reader.varint("length", 5, "bytes of the record after this field")
    end = reader.position + length
    if length < 0 or end > len(payload):
        raise CorruptRecord(f"{length} bytes, and {len(payload) - reader.position} are left")
    reader.take("attributes", 1, "no bit is in use")
    delta = reader.varint("timestamp delta", 10, "")
    reader.note_last(f"{header.base_timestamp + delta} ms since 1970")
    delta = reader.varint("offset delta", 5, "")
    offset = header.base_offset + delta
    reader.note_last(f"offset {offset}")
    key = reader.blob("key")
    if header.is_control and key is not None and len(key) >= 4:
        reader.note_last(_marker(key))
    reader.blob("value")
    count = reader.varint("headers", 5, "how many there are")
    for _ in range(min(max(count, 0), MAX_HEADERS)):
        reader.blob("header's name")
        reader.blob("header's value")
    if count > MAX_HEADERS:
        reader.take_rest("and more", end, f"{count - MAX_HEADERS} headers")
    whole = ByteField(base + start, base + end, 1, f"record {number}", f"offset {offset}", f"{end - start} bytes")
    return [whole, *reader.found], end


class _Fields:
    """Reads fields of a record one after the other, and notes each."""

    def __init__(self, data: bytes, base: int) -> None:
        self._data = data
        self._base = base
        self.position = 0
        self.found: list[ByteField] = []

    def varint(self, name: str, longest: int, note: str) -> int:
        start = self.position
        value, self.position = read_varint(self._data, start, longest)
        self._note(start, name, str(value), note)
        return value

    def take(self, name: str, size: int, note: str) -> bytes:
        start = self.position
        self.position += size
        if self.position > len(self._data):
            raise CorruptRecord("the bytes end within it")
        data = self._data[start : self.position]
        self._note(start, name, data.hex(), note)
        return data

    def take_rest(self, name: str, end: int, value: str) -> None:
        start, self.position = self.position, end
        self._note(start, name, value, "")

    def blob(self, name: str) -> bytes | None:
        """Bytes after their size; None, which is null, for a negative size."""
        size = self.varint(f"{name}: size", 5, "")
        if size < 0:
            self.note_last("null")
            return None
        data = self.take(name, size, "")
        self.found[-1] = self.found[-1]._replace(value=_shown(data))
        return data

    def note_last(self, note: str) -> None:
        """Say what the last field means."""
        self.found[-1] = self.found[-1]._replace(note=note)

    def _note(self, start: int, name: str, value: str, note: str) -> None:
        data = self._data[start : min(self.position, start + MAX_SHOWN)]
        self.found.append(ByteField(self._base + start, self._base + self.position, 2, name, value, note, data))


def _shown(data: bytes) -> str:
    """Text where it is text; what is longer is cut."""
    part = data[:MAX_SHOWN]
    text = part.decode("utf-8", "replace")
    shown = text if "\ufffd" not in text and text.isprintable() else f"0x{part.hex()}"
    return f"{shown} … ({len(data)} bytes)" if len(data) > MAX_SHOWN else shown


def _marker(key: bytes) -> str:
    """The kind of a control record, by its key: a version and a type."""
    kind = int.from_bytes(key[2:4], "big", signed=True)
    try:
        return f"a marker: {ControlRecordType(kind).name}"
    except ValueError:
        return f"a control record of the unknown type {kind}"
