"""Record batches of format v2: the records in them, and building.

The records follow the header (``batch_header.py``) as one block, compressed as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kbroker.value_types import NamedTuple
from kbroker.wire.batch_header import (
    ATTRIBUTES_AT,
    CONTROL_FLAG,
    CRC,
    CRC_AT,
    DELETE_HORIZON_FLAG,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Buffer,
    TimestampType,
    crc32c,
    parse_header,
)
from kbroker.wire.compression import CompressionType, CorruptRecord, DecompressesTooLarge, compress, decompress
from kbroker.wire.primitives import read_uvarint, read_varint, write_varint
from kbroker.wire.record_windows import MIN_RECORD_SIZE, RecordWindows, Window, run_steps

MAX_RECORD_SIZE = 2**31 - 9
"""The size of the largest record, as for ``max.decompressed.message.bytes``."""


class Record(NamedTuple):
    """One record. ``offset`` and ``timestamp`` are absolute; header values may be null."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def records_payload(buf: Buffer, pos: int, header: BatchHeader, limit: int) -> bytes:
    """The records of the batch at ``pos``, decompressed (``CorruptRecord`` if that fails or is more than ``limit``)."""
    end = pos + header.batch_length + LOG_OVERHEAD
    if end > len(buf):
        raise CorruptRecord(f"batch at {pos} is cut off: {len(buf) - pos} of {header.size} bytes")
    codec = header.compression_type
    view = memoryview(buf)[pos + HEADER_SIZE : end]
    if codec is CompressionType.NONE:
        return bytes(view)
    if header.records_count == 0 and not view:
        return b""
    return decompress(codec, view, limit)


def iter_records(buf: Buffer, pos: int = 0, *, max_record: int = MAX_RECORD_SIZE) -> Iterator[Record]:
    """The records of the batch at ``pos``, with ``CorruptRecord`` where it is not what its header says.

    The checksum is not looked at. A LogAppendTime batch gives its append time to every record. ``max_record``: bytes
    of the largest one (``DecompressesTooLarge``); more than that, and two megabytes, are not in memory at once.
    """
    for records, _ in iter_windows(buf, pos, max_record=max_record):
        yield from records


def iter_windows(
    buf: Buffer, pos: int = 0, *, max_record: int = MAX_RECORD_SIZE
) -> Iterator[tuple[Iterator[Record], int]]:
    """The same in parts: records of about a megabyte, and how many bytes these are."""
    header = parse_header(buf, pos)
    windows = RecordWindows(buf, pos, header)
    windows.begin()
    if windows.whole is not None:
        data = windows.whole.data
        yield iter_payload(data, header), len(data)
        return
    while (window := run_steps(windows.next())) is not None:
        data, count, _, stop = window
        if stop > len(data):
            if stop > max_record:
                raise DecompressesTooLarge(f"a record of {stop} bytes where {max_record} are the limit")
            parts = [data]
            while (part := run_steps(windows.rest())) is not None:
                parts.append(part)
            data = b"".join(parts)
        yield iter_payload(data, header if count == header[12] else header._replace(records_count=count)), len(data)


def records_of(window: Window, header: BatchHeader) -> Iterator[Record]:
    """The records of a window of the batch; one that is larger than a window without headers, and its value empty."""
    data, count, _, stop = window
    if stop == len(data):
        return iter_payload(data, header if count == header[12] else header._replace(records_count=count))
    _, position = read_uvarint(data, 0, 5)
    timestamp, position = read_varint(data, position + 1, 10)  # behind the attributes
    delta, position = read_varint(data, position, 5)
    size, position = read_varint(data, position, 5)
    timestamp = header.max_timestamp if header.attributes & TIMESTAMP_TYPE_FLAG else header.base_timestamp + timestamp
    key = None
    if size >= 0:
        key = data[position : position + size]
        position += size
    value = None if data[position] == 1 else b""
    return iter((Record(header.base_offset + delta, timestamp, key, value),))


def iter_payload(data: bytes, header: BatchHeader) -> Iterator[Record]:
    """The records in ``data``, the decompressed bytes of the batch of ``header``."""
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    append_time = header.max_timestamp if header.attributes & TIMESTAMP_TYPE_FLAG else None
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
                    length, position = read_uvarint(data, position - 2, 5)
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
                    delta, position = read_uvarint(data, position - 2, 10)
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
                    delta, position = read_uvarint(data, position - 2, 5)
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
                    size, position = read_uvarint(data, position - 2, 5)
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
                    size, position = read_uvarint(data, position - 2, 5)
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
    count, position = read_varint(data, position, 5)
    if not 0 <= count <= (end - position) // 2:
        raise CorruptRecord(f"{count} headers cannot be in {end - position} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, position = read_varint(data, position, 5)
        if not 0 <= size <= end - position:
            raise CorruptRecord(f"header key of {size} bytes leaves its record")
        # surrogateescape: what is not UTF-8 comes out of build_batch as the same bytes
        key = data[position : position + size].decode("utf-8", "surrogateescape")
        position += size
        size, position = read_varint(data, position, 5)
        if size < 0:
            headers.append((key, None))
            continue
        if size > end - position:
            raise CorruptRecord(f"header value of {size} bytes leaves its record")
        headers.append((key, data[position : position + size]))
        position += size
    return tuple(headers), position


def _attributes(
    compression: CompressionType,
    timestamp_type: TimestampType,
    is_transactional: bool,
    is_control: bool,
    delete_horizon_ms: int | None,
) -> int:
    return (
        compression
        | (TIMESTAMP_TYPE_FLAG if timestamp_type else 0)
        | (TRANSACTIONAL_FLAG if is_transactional else 0)
        | (CONTROL_FLAG if is_control else 0)
        | (DELETE_HORIZON_FLAG if delete_horizon_ms is not None else 0)
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
    """Encode ``records`` as a batch.

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
        write_varint(body, record.timestamp - base_timestamp)
        write_varint(body, delta)
        for part in (record.key, record.value):
            if part is None:
                body.append(1)  # zigzag -1
            else:
                write_varint(body, len(part))
                body += part
        write_varint(body, len(record.headers))
        for name, content in record.headers:
            raw = name.encode("utf-8", "surrogateescape")
            write_varint(body, len(raw))
            body += raw
            if content is None:
                body.append(1)
            else:
                write_varint(body, len(content))
                body += content
        write_varint(out, len(body))
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
    HEADER.pack_into(batch, 0, header[0], len(batch) - LOG_OVERHEAD, *header[2:])
    batch[HEADER_SIZE:] = payload
    CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
    return bytes(batch)
