"""Batches whose records are far more, decompressed, than a log keeps in memory; made without them in memory."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import cramjam

from kbroker.wire.batch_header import BatchHeader
from kbroker.wire.compression import CompressionType, Compressor
from kbroker.wire.primitives import write_varint
from kbroker.wire.record_batch import Record, assemble


def encoded(record: Record, base_timestamp: int) -> bytes:
    """A record as it is in a batch of base offset 0."""
    body = bytearray(1)
    write_varint(body, record.timestamp - base_timestamp)
    write_varint(body, record.offset)
    for part in (record.key, record.value):
        write_varint(body, -1 if part is None else len(part))
        body += part or b""
    body.append(0)
    out = bytearray()
    write_varint(out, len(body))
    return bytes(out + body)


def large_batch(records: Iterable[Record], codec: CompressionType, **header: Any) -> bytearray:
    """A batch of these records with their offsets and timestamps; the first one's is 0."""
    compressor = Compressor(codec)
    payload = bytearray()
    count = offset = base = latest = 0
    for record in records:
        base = base if count else record.timestamp
        latest = max(latest, record.timestamp)
        payload += compressor.add(encoded(record, base))
        count, offset = count + 1, record.offset
    payload += compressor.finish()
    values = BatchHeader(0, 0, -1, 2, 0, int(codec), offset, base, latest, -1, -1, -1, count)
    return bytearray(assemble(values._replace(**header), payload))


def in_raw_snappy(records: Iterable[Record]) -> bytearray:
    """The same as librdkafka and Go clients compress: one block, without framing."""
    plain = large_batch(records, CompressionType.NONE)
    block = bytes(cramjam.snappy.compress_raw(plain[61:]))
    header = BatchHeader._make(struct.unpack_from(">qiibIhiqqqhii", plain))
    return bytearray(assemble(header._replace(attributes=int(CompressionType.SNAPPY)), block))
