"""The record batches of a coordinator's topic: records of one time, without headers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kbroker.cores.coordinator.result import NO_TRANSACTION, CoordinatorRecord, TransactionalWriter
from kbroker.wire.batch_header import CRC, HEADER, HEADER_SIZE, LOG_OVERHEAD, crc32c
from kbroker.wire.compression import CompressionType, compress
from kbroker.wire.primitives import VARINTS, encode_varint

_TRANSACTIONAL = 0x10
_CRC_AT = 17
_CRC_FROM = 21
_MAGIC = 2
_BATCH_BYTES = 256 * 1024
"""Records of one step go into batches of at most this size, or of ``max.message.bytes`` where that is less."""
_RECORD_OVERHEAD = 22
"""The most that a record takes besides its key and value."""


def coordinator_batch(
    records: Sequence[CoordinatorRecord],
    now_ms: int,
    writer: TransactionalWriter = NO_TRANSACTION,
    codec: CompressionType = CompressionType.NONE,
) -> bytearray:
    """Encode records (at least one) as a batch: the bytes of ``build_batch``, in a third of the time."""
    parts = [b""]
    size = HEADER_SIZE
    for delta, (key, value) in enumerate(records):
        key_size = len(key)
        body = (
            (b"\0\0" + VARINTS[delta] if delta < 1024 else b"\0\0" + encode_varint(delta))
            + (VARINTS[key_size] if key_size < 1024 else encode_varint(key_size))
            + key
        )
        if value is None:
            body += b"\1\0"
        else:
            value_size = len(value)
            body += (VARINTS[value_size] if value_size < 1024 else encode_varint(value_size)) + value + b"\0"
        body_size = len(body)
        length = VARINTS[body_size] if body_size < 1024 else encode_varint(body_size)
        parts.append(length)
        parts.append(body)
        size += len(length) + body_size
    if codec:
        parts = [b"", compress(codec, b"".join(parts))]
        size = HEADER_SIZE + len(parts[1])
    parts[0] = HEADER.pack(
        0,
        size - LOG_OVERHEAD,
        -1,
        _MAGIC,
        0,
        codec if writer is NO_TRANSACTION else codec | _TRANSACTIONAL,
        len(records) - 1,
        now_ms,
        now_ms,
        writer.producer_id,
        writer.producer_epoch,
        0,  # in every batch, producer or not, as Kafka's coordinators write them
        len(records),
    )
    batch = bytearray().join(parts)
    CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[_CRC_FROM:]))
    return batch


def coordinator_batches(
    records: Sequence[CoordinatorRecord],
    now_ms: int,
    writer: TransactionalWriter = NO_TRANSACTION,
    codec: CompressionType = CompressionType.NONE,
    max_message_bytes: int = 1 << 20,
) -> Iterator[bytearray]:
    """The batches of a step, each made when it is asked for. One that is larger than ``max_message_bytes`` has a single
    record."""
    most = min(_BATCH_BYTES, max_message_bytes - HEADER_SIZE)
    chunk: list[CoordinatorRecord] = []
    size = 0
    for record in records:
        added = len(record.key) + len(record.value or b"") + _RECORD_OVERHEAD
        if chunk and size + added > most:
            yield coordinator_batch(chunk, now_ms, writer, codec)
            chunk, size = [], 0
        chunk.append(record)
        size += added
    if chunk:
        yield coordinator_batch(chunk, now_ms, writer, codec)
