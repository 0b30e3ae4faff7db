"""Record batches of format v2 (magic 2): header, walk, checksum, records, building, patching in place.

Layout (big-endian; the CRC covers everything from the attributes on, so the base offset and the leader
epoch can be set by the broker without touching it)::

    base_offset int64 | batch_length int32 | partition_leader_epoch int32 | magic int8 | crc uint32
    attributes int16 | last_offset_delta int32 | base_timestamp int64 | max_timestamp int64
    producer_id int64 | producer_epoch int16 | base_sequence int32 | records_count int32 | records

``batch_length`` counts from the leader epoch on: the whole batch is 12 bytes longer. The records are
compressed as one block after the header. The older formats, magic 0 and 1, are recognised and refused:
clients of Produce v3 and later may not send them, and logs of Kafka 4 hold none.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import struct
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from kbroker.wire.compression import (
    DEFAULT_MAX_DECOMPRESSED,
    CompressionType,
    CorruptRecord,
    compress,
    decompress,
)

__all__ = [
    "BatchHeader",
    "CompressionType",
    "ControlRecordType",
    "CorruptRecord",
    "EndTxnMarker",
    "Record",
    "TimestampType",
    "assemble",
    "build_batch",
    "build_control_batch",
    "build_end_txn_marker",
    "check_crc",
    "crc32c",
    "iter_payload",
    "iter_records",
    "parse_control_record",
    "parse_end_txn_marker",
    "parse_header",
    "patch_in_place",
    "recompress",
    "records_payload",
    "set_log_append_time",
    "set_timestamp",
    "walk_headers",
]

Buffer = bytes | bytearray | memoryview


def _load_crc32c() -> Callable[..., int]:
    """The C function of package crc32c, without its ``__init__``, which reads package metadata for 20 ms."""
    package = importlib.util.find_spec("crc32c")
    if package is not None and package.submodule_search_locations:
        locations = list(package.submodule_search_locations)
        spec = importlib.machinery.PathFinder.find_spec("crc32c._crc32c", locations)
        if spec is not None and spec.loader is not None:
            module: Any = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            function: Callable[..., int] = module.crc32c
            return function
    from crc32c import crc32c as function_of_package

    return function_of_package


crc32c = _load_crc32c()
"""``crc32c(data, value=0)``: the checksum (Castagnoli) of anything with a buffer, without a copy."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
_BASE_OFFSET = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
_LEADER_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
_TWO_INT16 = struct.Struct(">hh")
_INT16_INT32 = struct.Struct(">hi")

HEADER_SIZE = _HEADER.size
"""61: the bytes of a batch before its records."""

LOG_OVERHEAD = 12
"""Base offset and length, which ``batch_length`` does not count."""

LEADER_EPOCH_AT = 12
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
MAX_TIMESTAMP_AT = 35

MIN_RECORD_SIZE = 7
"""A record with neither key, value nor headers: length, attributes, two deltas, -1, -1, 0."""

# Kafka's reader takes a size below 14 (the overhead of magic 0) for damage at once.
_MIN_LEGACY_LENGTH = 14

_COMPRESSION_MASK = 0x07
_TIMESTAMP_TYPE_FLAG = 0x08
_TRANSACTIONAL_FLAG = 0x10
_CONTROL_FLAG = 0x20
_DELETE_HORIZON_FLAG = 0x40

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_PARTITION_LEADER_EPOCH = -1
_MAX_INT32 = 2**31 - 1


class TimestampType(IntEnum):
    """Bit 3 of the attributes: who set the records' timestamps."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class ControlRecordType(IntEnum):
    """What a control record says; int16 in its key, after the key's version."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class BatchHeader(NamedTuple):
    """The 61 bytes before a batch's records, in their order."""

    base_offset: int
    batch_length: int
    """Bytes after this field; see ``size``."""
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        """Offset of the last record (kept by compaction even when that record is gone)."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression_type(self) -> CompressionType:
        """The records' codec; ``CorruptRecord`` for the three numbers that mean none."""
        try:
            return CompressionType(self.attributes & _COMPRESSION_MASK)
        except ValueError:
            raise CorruptRecord(f"unknown compression type {self.attributes & _COMPRESSION_MASK}") from None

    @property
    def timestamp_type(self) -> TimestampType:
        """Who set the timestamps: the producer, or the broker on append."""
        return TimestampType(self.attributes >> 3 & 1)

    @property
    def is_transactional(self) -> bool:
        """Part of a transaction: data, or the marker that ends it."""
        return self.attributes & _TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        """The one record is for brokers and never shown to consumers."""
        return self.attributes & _CONTROL_FLAG != 0

    @property
    def has_producer_id(self) -> bool:
        """Written by an idempotent or transactional producer."""
        return self.producer_id > NO_PRODUCER_ID

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop the tombstones and markers in here (KIP-534); the base timestamp then."""
        return self.base_timestamp if self.attributes & _DELETE_HORIZON_FLAG else None

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, -1 without one; numbers wrap from 2^31-1 to 0."""
        base = self.base_sequence
        if base == NO_SEQUENCE:
            return NO_SEQUENCE
        return (base + self.last_offset_delta) & _MAX_INT32


class Record(NamedTuple):
    """One record. ``offset`` and ``timestamp`` are absolute; header values may be null."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class EndTxnMarker(NamedTuple):
    """The record of a control batch that ends a transaction."""

    commit: bool
    coordinator_epoch: int
    timestamp: int


def parse_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """The header at ``pos``.

    ``CorruptRecord`` if the bytes end within the header, the magic is not 2, or the length does not even
    cover the header. That the whole batch is there is not checked: see ``walk_headers``.
    """
    try:
        header = BatchHeader._make(_HEADER.unpack_from(buf, pos))
    except struct.error:
        raise CorruptRecord(f"{len(buf) - pos} bytes are no batch header") from None
    if header.magic != 2:
        raise CorruptRecord(f"magic {header.magic} at {pos}: only format v2 is served")
    if header.batch_length < HEADER_SIZE - LOG_OVERHEAD:
        raise CorruptRecord(f"batch length {header.batch_length} at {pos} does not cover the header")
    return header


def walk_headers(buf: Buffer, pos: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each whole batch from ``pos`` on.

    A batch that the buffer cuts off ends the walk silently, as in Kafka: reads stop at a byte limit, in
    the middle of a batch. ``CorruptRecord`` where the bytes cannot be a batch.
    """
    end = len(buf)
    while end - pos >= LOG_OVERHEAD:
        if end - pos <= MAGIC_AT:
            (length,) = _LENGTH.unpack_from(buf, pos + 8)
            if length < _MIN_LEGACY_LENGTH:
                raise CorruptRecord(f"batch length {length} at {pos} is below any record's overhead")
            return
        if end - pos < HEADER_SIZE:
            (length,) = _LENGTH.unpack_from(buf, pos + 8)
            if length < HEADER_SIZE - LOG_OVERHEAD:
                raise CorruptRecord(f"batch length {length} at {pos} does not cover the header")
            if buf[pos + MAGIC_AT] != 2:
                raise CorruptRecord(f"magic {buf[pos + MAGIC_AT]} at {pos}: only format v2 is served")
            return
        header = parse_header(buf, pos)
        following = pos + header.batch_length + LOG_OVERHEAD
        if following > end:
            return
        yield pos, header
        pos = following


def check_crc(buf: Buffer, pos: int, header: BatchHeader) -> None:
    """``CorruptRecord`` unless the batch at ``pos`` is whole and has the checksum that ``header`` says."""
    end = pos + header.batch_length + LOG_OVERHEAD
    if end > len(buf):
        raise CorruptRecord(f"batch at {pos} is cut off: {len(buf) - pos} of {header.size} bytes")
    computed = crc32c(memoryview(buf)[pos + ATTRIBUTES_AT : end])
    if computed != header.crc:
        raise CorruptRecord(f"crc of the batch at {pos} is {header.crc}, its bytes give {computed}")


def records_payload(
    buf: Buffer, pos: int, header: BatchHeader, max_decompressed: int = DEFAULT_MAX_DECOMPRESSED
) -> bytes:
    """The records of the batch at ``pos``, decompressed (``CorruptRecord`` if that fails or is too large)."""
    end = pos + header.batch_length + LOG_OVERHEAD
    if end > len(buf):
        raise CorruptRecord(f"batch at {pos} is cut off: {len(buf) - pos} of {header.size} bytes")
    codec = header.compression_type
    view = memoryview(buf)[pos + HEADER_SIZE : end]
    if codec is CompressionType.NONE:
        return bytes(view)
    if header.records_count == 0 and not view:
        return b""
    return decompress(codec, view, max_decompressed)


def iter_records(buf: Buffer, pos: int = 0, *, max_decompressed: int = DEFAULT_MAX_DECOMPRESSED) -> Iterator[Record]:
    """The records of the batch at ``pos``, with ``CorruptRecord`` where it is not what its header says.

    The checksum is not looked at. A LogAppendTime batch gives its append time to every record.
    """
    header = parse_header(buf, pos)
    data = records_payload(buf, pos, header, max_decompressed)
    yield from iter_payload(data, header)


def iter_payload(data: bytes, header: BatchHeader) -> Iterator[Record]:
    """The records in ``data``, which ``records_payload`` gave for the batch of ``header``."""
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    append_time = header.max_timestamp if header.attributes & _TIMESTAMP_TYPE_FLAG else None
    position = 0
    end = len(data)
    if header.records_count < 0 or header.records_count * MIN_RECORD_SIZE > end:
        raise CorruptRecord(f"{header.records_count} records cannot be in {end} bytes")
    new = tuple.__new__
    try:
        # One varint after another, those of one and two bytes inline: this loop is what a record costs.
        for _ in range(header.records_count):
            length = data[position]
            position += 1
            if length >= 0x80:
                byte = data[position]
                position += 1
                if byte < 0x80:
                    length = length & 0x7F | byte << 7
                else:
                    length, position = _uvarint(data, position - 2, 5)
            length = (length >> 1) ^ -(length & 1)
            record_end = position + length
            if length < MIN_RECORD_SIZE - 1 or record_end > end:
                raise CorruptRecord(f"record of {length} bytes where {end - position} are left")

            position += 1  # the record's attributes: no bit of them is in use

            delta = data[position]
            position += 1
            if delta >= 0x80:
                byte = data[position]
                position += 1
                if byte < 0x80:
                    delta = delta & 0x7F | byte << 7
                else:
                    delta, position = _uvarint(data, position - 2, 10)
            delta = (delta >> 1) ^ -(delta & 1)
            timestamp = base_timestamp + delta if append_time is None else append_time

            delta = data[position]
            position += 1
            if delta >= 0x80:
                byte = data[position]
                position += 1
                if byte < 0x80:
                    delta = delta & 0x7F | byte << 7
                else:
                    delta, position = _uvarint(data, position - 2, 5)
            delta = (delta >> 1) ^ -(delta & 1)
            offset = base_offset + delta

            size = data[position]
            position += 1
            if size >= 0x80:
                byte = data[position]
                position += 1
                if byte < 0x80:
                    size = size & 0x7F | byte << 7
                else:
                    size, position = _uvarint(data, position - 2, 5)
            size = (size >> 1) ^ -(size & 1)
            if size < 0:
                key = None
            else:
                if size > record_end - position:
                    raise CorruptRecord(f"key of {size} bytes leaves its record")
                key = data[position : position + size]
                position += size

            size = data[position]
            position += 1
            if size >= 0x80:
                byte = data[position]
                position += 1
                if byte < 0x80:
                    size = size & 0x7F | byte << 7
                else:
                    size, position = _uvarint(data, position - 2, 5)
            size = (size >> 1) ^ -(size & 1)
            if size < 0:
                value = None
            else:
                if size > record_end - position:
                    raise CorruptRecord(f"value of {size} bytes leaves its record")
                value = data[position : position + size]
                position += size

            count = data[position]
            position += 1
            if count == 0:
                headers: tuple[tuple[str, bytes | None], ...] = ()
            else:
                headers, position = _headers(data, position - 1, record_end)
            if position != record_end:
                raise CorruptRecord(f"record of {length} bytes: its fields end {position - record_end} off")
            yield new(Record, (offset, timestamp, key, value, headers))
    except IndexError:
        raise CorruptRecord("records end early") from None
    if position != end:
        raise CorruptRecord(f"{end - position} bytes follow the last of {header.records_count} records")


def _headers(data: bytes, position: int, end: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, position = _varint(data, position, 5)
    if not 0 <= count <= (end - position) // 2:
        raise CorruptRecord(f"{count} headers cannot be in {end - position} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, position = _varint(data, position, 5)
        if not 0 <= size <= end - position:
            raise CorruptRecord(f"header key of {size} bytes leaves its record")
        # surrogateescape: what is not UTF-8 comes out of build_batch as the same bytes
        key = data[position : position + size].decode("utf-8", "surrogateescape")
        position += size
        size, position = _varint(data, position, 5)
        if size < 0:
            headers.append((key, None))
            continue
        if size > end - position:
            raise CorruptRecord(f"header value of {size} bytes leaves its record")
        headers.append((key, data[position : position + size]))
        position += size
    return tuple(headers), position


def _uvarint(data: bytes, position: int, longest: int) -> tuple[int, int]:
    """A varint of at most ``longest`` bytes (5: int32, 10: int64), unsigned, and the position after it."""
    result = 0
    for index in range(longest):
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return result & (0xFFFFFFFF if longest == 5 else 0xFFFFFFFFFFFFFFFF), position
    raise CorruptRecord(f"a varint has more than {longest} bytes")


def _varint(data: bytes, position: int, longest: int) -> tuple[int, int]:
    """The same, zigzag."""
    result, position = _uvarint(data, position, longest)
    return (result >> 1) ^ -(result & 1), position


def _write_varint(out: bytearray, value: int) -> None:
    value = value << 1 if value >= 0 else (-value << 1) - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _attributes(
    compression: CompressionType,
    timestamp_type: TimestampType,
    is_transactional: bool,
    is_control: bool,
    delete_horizon_ms: int | None,
) -> int:
    return (
        compression
        | (_TIMESTAMP_TYPE_FLAG if timestamp_type else 0)
        | (_TRANSACTIONAL_FLAG if is_transactional else 0)
        | (_CONTROL_FLAG if is_control else 0)
        | (_DELETE_HORIZON_FLAG if delete_horizon_ms is not None else 0)
    )


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    compression: CompressionType = CompressionType.NONE,
    compression_level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    keep_offsets: bool = False,
    last_offset_delta: int | None = None,
    delete_horizon_ms: int | None = None,
    max_timestamp: int | None = None,
) -> bytes:
    """One batch of ``records``.

    They are numbered from ``base_offset`` on; their own ``offset`` counts only with ``keep_offsets``
    (compaction, which also keeps the old ``last_offset_delta`` and so may write a batch of no records).
    For LogAppendTime give the append time as ``max_timestamp``; otherwise it is the latest record's.
    """
    if delete_horizon_ms is not None:
        base_timestamp = delete_horizon_ms
    else:
        base_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    latest = NO_TIMESTAMP
    out = bytearray()
    body = bytearray()
    delta = -1
    for delta, record in enumerate(records):
        if keep_offsets:
            delta = record.offset - base_offset
        if record.timestamp > latest:
            latest = record.timestamp
        body.clear()
        body.append(0)
        _write_varint(body, record.timestamp - base_timestamp)
        _write_varint(body, delta)
        for part in (record.key, record.value):
            if part is None:
                body.append(1)  # zigzag -1
            else:
                _write_varint(body, len(part))
                body += part
        _write_varint(body, len(record.headers))
        for name, content in record.headers:
            raw = name.encode("utf-8", "surrogateescape")
            _write_varint(body, len(raw))
            body += raw
            if content is None:
                body.append(1)
            else:
                _write_varint(body, len(content))
                body += content
        _write_varint(out, len(body))
        out += body
    payload = compress(compression, out, compression_level) if records else b""
    return assemble(
        BatchHeader(
            base_offset,
            0,
            partition_leader_epoch,
            2,
            0,
            _attributes(compression, timestamp_type, is_transactional, is_control, delete_horizon_ms),
            delta if last_offset_delta is None else last_offset_delta,
            base_timestamp,
            latest if max_timestamp is None else max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            len(records),
        ),
        payload,
    )


def assemble(header: BatchHeader, payload: Buffer) -> bytes:
    """A batch of this header, but for its length and checksum, and of records that are compressed already."""
    batch = bytearray(HEADER_SIZE + len(payload))
    _HEADER.pack_into(batch, 0, header[0], len(batch) - LOG_OVERHEAD, *header[2:])
    batch[HEADER_SIZE:] = payload
    _CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
    return bytes(batch)


def recompress(
    buf: Buffer,
    pos: int,
    header: BatchHeader,
    compression: CompressionType,
    level: int | None = None,
    *,
    max_decompressed: int = DEFAULT_MAX_DECOMPRESSED,
) -> bytes:
    """The same batch with its records in another codec; no record is looked at, everything else stays."""
    payload = compress(compression, records_payload(buf, pos, header, max_decompressed), level)
    attributes = header.attributes & ~_COMPRESSION_MASK | compression
    return assemble(header._replace(attributes=attributes), payload)


def patch_in_place(buf: bytearray | memoryview, pos: int, base_offset: int, leader_epoch: int) -> None:
    """Give the batch at ``pos`` its place in the log. Neither field is under the checksum."""
    _BASE_OFFSET.pack_into(buf, pos, base_offset)
    _LEADER_EPOCH.pack_into(buf, pos + LEADER_EPOCH_AT, leader_epoch)


def set_timestamp(
    buf: bytearray | memoryview,
    pos: int,
    header: BatchHeader,
    timestamp_type: TimestampType,
    max_timestamp: int,
) -> BatchHeader:
    """Set the timestamps' type, the latest of them and the checksum; returns the new header."""
    attributes = header.attributes & ~_TIMESTAMP_TYPE_FLAG | (_TIMESTAMP_TYPE_FLAG if timestamp_type else 0)
    if attributes == header.attributes and max_timestamp == header.max_timestamp:
        return header
    _ATTRIBUTES.pack_into(buf, pos + ATTRIBUTES_AT, attributes)
    _MAX_TIMESTAMP.pack_into(buf, pos + MAX_TIMESTAMP_AT, max_timestamp)
    crc = crc32c(memoryview(buf)[pos + ATTRIBUTES_AT : pos + header.batch_length + LOG_OVERHEAD])
    _CRC.pack_into(buf, pos + CRC_AT, crc)
    return header._replace(attributes=attributes, max_timestamp=max_timestamp, crc=crc)


def set_log_append_time(buf: bytearray | memoryview, pos: int, header: BatchHeader, now_ms: int) -> BatchHeader:
    """Stamp the batch with its append time, which readers then see on every record of it."""
    return set_timestamp(buf, pos, header, TimestampType.LOG_APPEND_TIME, now_ms)


def build_control_batch(
    control_type: ControlRecordType,
    value: bytes,
    *,
    timestamp_ms: int,
    base_offset: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    is_transactional: bool = False,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytes:
    """A batch of one control record (transaction markers, and the records of KRaft logs and snapshots)."""
    key = _TWO_INT16.pack(0, control_type)
    return build_batch(
        [Record(0, timestamp_ms, key, value)],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=is_transactional,
        is_control=True,
        partition_leader_epoch=partition_leader_epoch,
    )


def build_end_txn_marker(
    *,
    commit: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytes:
    """The control batch that ends a producer's transaction in one partition."""
    return build_control_batch(
        ControlRecordType.COMMIT if commit else ControlRecordType.ABORT,
        _INT16_INT32.pack(0, coordinator_epoch),
        timestamp_ms=timestamp_ms,
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        partition_leader_epoch=partition_leader_epoch,
    )


def parse_control_record(record: Record) -> int:
    """The type in a control record's key: a ``ControlRecordType``, or a number that a newer Kafka gave."""
    if record.key is None or len(record.key) < _TWO_INT16.size:
        raise CorruptRecord("a control record's key is too short to say its type")
    version, control_type = _TWO_INT16.unpack_from(record.key)
    if version < 0:
        raise CorruptRecord(f"a control record's key has version {version}")
    return int(control_type)


def parse_end_txn_marker(buf: Buffer, pos: int = 0) -> EndTxnMarker | None:
    """The transaction marker in the control batch at ``pos``; None if compaction has emptied the batch.

    ``CorruptRecord`` if the batch holds some other control record.
    """
    for record in iter_records(buf, pos):
        control_type = parse_control_record(record)
        if control_type not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
            raise CorruptRecord(f"control type {control_type} does not end a transaction")
        if record.value is None or len(record.value) < _INT16_INT32.size:
            raise CorruptRecord("a transaction marker's value is too short")
        version, coordinator_epoch = _INT16_INT32.unpack_from(record.value)
        if version < 0:
            raise CorruptRecord(f"a transaction marker's value has version {version}")
        return EndTxnMarker(control_type == ControlRecordType.COMMIT, int(coordinator_epoch), record.timestamp)
    return None
