"""The header of a record batch of format v2 (magic 2): reading, walking, checksum, patching in place.

Layout (big-endian; the CRC covers everything from the attributes on, so the base offset and the leader
epoch can be set by the broker without touching it)::

    base_offset int64 | batch_length int32 | partition_leader_epoch int32 | magic int8 | crc uint32
    attributes int16 | last_offset_delta int32 | base_timestamp int64 | max_timestamp int64
    producer_id int64 | producer_epoch int16 | base_sequence int32 | records_count int32 | records

``batch_length`` counts from the leader epoch on: the whole batch is 12 bytes longer. The records are
compressed as one block after the header: ``record_batch.py`` has what looks at them. The older formats, magic 0
and 1, are recognised and refused: clients of Produce v3 and later may not send them, and ``kbroker.log.old_formats``
writes anew what a log has of them.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import struct
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any

from kbroker.value_types import NamedTuple
from kbroker.wire.compression import CompressionType, CorruptRecord

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

HEADER = struct.Struct(">qiibIhiqqqhii")
_BASE_OFFSET = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
_LEADER_EPOCH = struct.Struct(">i")
CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")

HEADER_SIZE = HEADER.size
"""61: the bytes of a batch before its records."""

LOG_OVERHEAD = 12
"""Base offset and length, which ``batch_length`` does not count."""

LEADER_EPOCH_AT = 12
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
MAX_TIMESTAMP_AT = 35

# Kafka's reader takes a size below 14 (the overhead of magic 0) for damage at once.
_MIN_LEGACY_LENGTH = 14

COMPRESSION_MASK = 0x07
TIMESTAMP_TYPE_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

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
            return CompressionType(self.attributes & COMPRESSION_MASK)
        except ValueError:
            raise CorruptRecord(f"unknown compression type {self.attributes & COMPRESSION_MASK}") from None

    @property
    def timestamp_type(self) -> TimestampType:
        """The origin of the timestamps: the producer, or the broker on append."""
        return TimestampType(self.attributes >> 3 & 1)

    @property
    def is_transactional(self) -> bool:
        """Part of a transaction: data, or the marker that ends it."""
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        """The one record is for brokers and never shown to consumers."""
        return self.attributes & CONTROL_FLAG != 0

    @property
    def has_producer_id(self) -> bool:
        """Written by an idempotent or transactional producer."""
        return self.producer_id > NO_PRODUCER_ID

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop the tombstones and markers in here (KIP-534); the base timestamp then."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, -1 without one; numbers wrap from 2^31-1 to 0."""
        base = self.base_sequence
        if base == NO_SEQUENCE:
            return NO_SEQUENCE
        return (base + self.last_offset_delta) & _MAX_INT32


def parse_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """The header at ``pos``.

    ``CorruptRecord`` if the bytes end within the header, the magic is not 2, or the length does not even
    cover the header. That the whole batch is there is not checked: see ``walk_headers``.
    """
    try:
        header = BatchHeader._make(HEADER.unpack_from(buf, pos))
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


def patch_in_place(buf: bytearray | memoryview, pos: int, base_offset: int, leader_epoch: int) -> None:
    """Give the batch at ``pos`` its place in the log. Neither field is under the checksum."""
    _BASE_OFFSET.pack_into(buf, pos, base_offset)
    _LEADER_EPOCH.pack_into(buf, pos + LEADER_EPOCH_AT, leader_epoch)


def set_timestamp(
    buf: bytearray | memoryview, pos: int, header: BatchHeader, timestamp_type: TimestampType, max_timestamp: int
) -> BatchHeader:
    """Set the timestamps' type, the latest of them and the checksum; returns the new header."""
    attributes = header.attributes & ~TIMESTAMP_TYPE_FLAG | (TIMESTAMP_TYPE_FLAG if timestamp_type else 0)
    if attributes == header.attributes and max_timestamp == header.max_timestamp:
        return header
    _ATTRIBUTES.pack_into(buf, pos + ATTRIBUTES_AT, attributes)
    _MAX_TIMESTAMP.pack_into(buf, pos + MAX_TIMESTAMP_AT, max_timestamp)
    crc = crc32c(memoryview(buf)[pos + ATTRIBUTES_AT : pos + header.batch_length + LOG_OVERHEAD])
    CRC.pack_into(buf, pos + CRC_AT, crc)
    return header._replace(attributes=attributes, max_timestamp=max_timestamp, crc=crc)
