"""``.snapshot`` files: the producers of a partition at one offset (Kafka's ``ProducerSnapshot``, version 1)."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from kbroker.log.producer_entry import BatchMetadata, ProducerStateEntry
from kbroker.wire.batch_header import NO_SEQUENCE, crc32c

_SNAPSHOT_VERSION = 1
_SNAPSHOT_HEADER = struct.Struct(">hI")  # version, CRC32C of all that follows
_COUNT = struct.Struct(">i")
# producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, txn first offset
_ENTRY = struct.Struct(">qhiqiqiq")


class CorruptSnapshot(Exception):
    """A ``.snapshot`` file is not what Kafka or kbroker wrote; the state is rebuilt from older ones."""


def encode_snapshot(entries: Iterable[ProducerStateEntry]) -> bytes:
    """The content of a ``.snapshot`` file (Kafka's ``ProducerSnapshot``, version 1)."""
    body = bytearray(_COUNT.size)
    count = 0
    for entry in entries:
        last = entry.batches[-1] if entry.batches else BatchMetadata(NO_SEQUENCE, -1, 0, 0)
        first_offset = entry.current_txn_first_offset
        body += _ENTRY.pack(
            entry.producer_id,
            entry.producer_epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            -1 if first_offset is None else first_offset,
        )
        count += 1
    _COUNT.pack_into(body, 0, count)
    return _SNAPSHOT_HEADER.pack(_SNAPSHOT_VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[ProducerStateEntry]:
    """The entries of a ``.snapshot`` file, each with its last batch; ``CorruptSnapshot`` if it is damaged."""
    start = _SNAPSHOT_HEADER.size
    if len(data) < start + _COUNT.size:
        raise CorruptSnapshot(f"{len(data)} bytes are too few")
    version, crc = _SNAPSHOT_HEADER.unpack_from(data)
    if version != _SNAPSHOT_VERSION:
        raise CorruptSnapshot(f"version {version} is unknown")
    computed = crc32c(memoryview(data)[start:])
    if crc != computed:
        raise CorruptSnapshot(f"the checksum is {crc}, the bytes give {computed}")
    (count,) = _COUNT.unpack_from(data, start)
    start += _COUNT.size
    if not 0 <= count <= (len(data) - start) // _ENTRY.size:
        raise CorruptSnapshot(f"{count} entries cannot be in {len(data) - start} bytes")
    entries = []
    for index in range(count):
        (
            producer_id,
            epoch,
            last_sequence,
            last_offset,
            offset_delta,
            timestamp,
            coordinator_epoch,
            first_offset,
        ) = _ENTRY.unpack_from(data, start + index * _ENTRY.size)
        entry = ProducerStateEntry(
            producer_id, epoch, coordinator_epoch, timestamp, first_offset if first_offset >= 0 else None
        )
        if last_offset >= 0:
            entry.batches.append(BatchMetadata(last_sequence, last_offset, offset_delta, timestamp))
        entries.append(entry)
    return entries
