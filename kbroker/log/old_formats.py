"""Writes segments with messages of the formats before Kafka 0.11 (magic 0 and 1) anew, as record batches.

A directory that was begun with an old Kafka may hold such messages for as long as its topics keep them: no broker since
3.0 writes them, but Apache Kafka still serves them, and its cleaner writes them anew (KIP-724). Here it is done once,
before the log is opened: nothing else in kbroker knows the formats. Offsets and times stay. A message::

    offset int64 | size int32 | crc uint32 | magic int8 | attributes int8 | [timestamp int64, from magic 1 on]
    key bytes | value bytes

A compressed message has others in its value, and the offset of the last one; from magic 1 on theirs count from 0.
"""

from __future__ import annotations

import logging
import os
import struct
import zlib
from collections.abc import Callable, Iterator

from kbroker.log.checkpoint_files import CorruptCheckpoint
from kbroker.log.disk import Disk, DiskFile
from kbroker.log.file_names import CLEANED_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX, is_offset_name
from kbroker.log.segments.open_files import OpenFiles
from kbroker.log.segments.segment_files import finish_interrupted_work
from kbroker.value_types import NamedTuple
from kbroker.wire.batch_header import LOG_OVERHEAD, MAGIC_AT, NO_TIMESTAMP, Buffer, TimestampType
from kbroker.wire.compression import CompressionType, CorruptRecord, decompress
from kbroker.wire.record_batch import Record, build_batch

logger = logging.getLogger(__name__)

_FRAME = struct.Struct(">qi")
_HEAD = struct.Struct(">Ibb")
_TIMESTAMP = struct.Struct(">q")
_SIZE = struct.Struct(">i")
_CHUNK = 1024 * 1024
_MOST_BYTES = 64 * 1024 * 1024
"""Bytes that a compressed message may have within."""
_BATCH_RECORDS = 1000
"""Records that go into a batch at most."""
_COMPRESSION_MASK = 0x07
_APPEND_TIME_FLAG = 0x08


class _Message(NamedTuple):
    record: Record
    timestamp_type: TimestampType
    compression: CompressionType


def upgrade(
    disk: Disk, files: OpenFiles, directory: str, names: list[str], is_compacted: bool, check: Callable[[], None]
) -> list[str]:
    """Write each segment anew that begins with a message of an old format. Returns the names in the directory then.

    They are looked for from the oldest segment on, up to the first in today's format; in all of a compacted log, of
    which the cleaner of Apache Kafka may have written a part anew. ``check`` is called now and then; an exception of
    its own ends the work, which begins again at the next start. ``CorruptCheckpoint`` if a message cannot be read: its
    segment stays as it is then. ``OSError``.
    """
    old = []
    for name in names:
        if name.endswith(LOG_SUFFIX) and is_offset_name(name[: -len(LOG_SUFFIX)]):
            if _is_old(files.get(os.path.join(directory, name))):
                old.append(name)
            elif not is_compacted:
                break
    if not old:
        return names
    names = finish_interrupted_work(disk, directory, names)
    for name in old:
        path = os.path.join(directory, name)
        files.forget(path)
        if name in names:
            logger.info("%s has messages of a format before Kafka 0.11, and is written anew", path)
            _rewrite(disk, path, check)
            # Opening the log completes the swap: the indexes of the old segment go, and are made anew.
            disk.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX)
    disk.sync_dir(directory)
    return disk.list_dir(directory)


def _is_old(file: DiskFile) -> bool:
    try:
        head = file.pread(MAGIC_AT + 1, 0)
        if len(head) <= MAGIC_AT or head[MAGIC_AT] >= 2:
            return False
        size = LOG_OVERHEAD + int(_FRAME.unpack_from(head)[1])
        if not LOG_OVERHEAD < size <= min(file.size(), _MOST_BYTES):
            return False
        _parse(file.pread(size, 0), 0)
        return True
    except (CorruptRecord, struct.error, ValueError):
        return False  # it is today's format, with a flipped bit or another block, perhaps


def _rewrite(disk: Disk, path: str, check: Callable[[], None]) -> None:
    disk.remove(path + CLEANED_SUFFIX)
    source, target = disk.open(path), disk.open(path + CLEANED_SUFFIX, create=True)
    try:
        written = 0
        for piece in _new_bytes(source, path):
            check()
            target.write_at(written, [piece])
            written += len(piece)
        target.sync()
    finally:
        source.close()
        target.close()


def _new_bytes(source: DiskFile, path: str) -> Iterator[Buffer]:
    """The batches of a segment; those in today's format, and all that follows one, as they are."""
    position, end = 0, source.size()
    gathered: list[_Message] = []
    while position + LOG_OVERHEAD <= end:
        head = source.pread(MAGIC_AT + 1, position)
        if len(head) <= MAGIC_AT or head[MAGIC_AT] >= 2:
            break
        size = _FRAME.unpack_from(head)[1]
        if size <= 0 or position + LOG_OVERHEAD + size > end:
            raise CorruptCheckpoint(f"{path}: the message of an old format at byte {position} is cut off")
        try:
            found = list(_messages(source.pread(LOG_OVERHEAD + size, position)))
        except (CorruptRecord, struct.error, ValueError) as error:
            text = f"{path}: the message of an old format at byte {position} is damaged: {error}"
            raise CorruptCheckpoint(text) from None
        for message in found:
            if gathered and not _go_together(gathered, message):
                yield _batch(gathered)
                gathered = []
            gathered.append(message)
        position += LOG_OVERHEAD + size
    if gathered:
        yield _batch(gathered)
    while position < end:
        piece = source.pread(min(_CHUNK, end - position), position)
        yield piece
        position += len(piece)


def _go_together(gathered: list[_Message], message: _Message) -> bool:
    first, last = gathered[0], gathered[-1]
    if message[1:] != first[1:] or len(gathered) >= _BATCH_RECORDS:
        return False
    if message.timestamp_type and message.record.timestamp != first.record.timestamp:
        return False  # a batch has one time of appending
    return last.record.offset < message.record.offset <= first.record.offset + 2**31 - 1


def _batch(messages: list[_Message]) -> bytes:
    records = [each.record for each in messages]
    return build_batch(
        records,
        base_offset=records[0].offset,
        compression=messages[0].compression,
        timestamp_type=messages[0].timestamp_type,
        keep_offsets=True,
    )


def _messages(data: bytes) -> Iterator[_Message]:
    """The message in ``data``, or those that it has within. ``CorruptRecord``, ``struct.error``, ``ValueError``."""
    outer, magic, codec = _parse(data, 0)
    if codec is CompressionType.NONE:
        yield outer
        return
    inner, position = [], 0
    packed = decompress(codec, outer.record.value or b"", _MOST_BYTES)
    while position < len(packed):
        message, _, nested = _parse(packed, position)
        if nested is not CompressionType.NONE:
            raise ValueError("compressed twice")
        inner.append(message)
        position += LOG_OVERHEAD + _FRAME.unpack_from(packed, position)[1]
    base = outer.record.offset - inner[-1].record.offset if magic and inner else 0
    for message in inner:
        record = message.record._replace(offset=base + message.record.offset)
        if outer.timestamp_type:
            record = record._replace(timestamp=outer.record.timestamp)
        yield _Message(record, outer.timestamp_type, codec)


def _parse(data: Buffer, position: int) -> tuple[_Message, int, CompressionType]:
    """The message at a position, its magic and the codec of its value."""
    offset, size = _FRAME.unpack_from(data, position)
    position += LOG_OVERHEAD
    body = memoryview(data)[position : position + size]
    crc, magic, attributes = _HEAD.unpack_from(body)
    if len(body) < size or zlib.crc32(body[4:]) != crc:
        raise ValueError("its checksum is wrong")
    at, timestamp = _HEAD.size, NO_TIMESTAMP
    if magic:
        (timestamp,) = _TIMESTAMP.unpack_from(body, at)
        at += _TIMESTAMP.size
    key, at = _bytes(body, at)
    value, at = _bytes(body, at)
    append_time = (
        TimestampType.LOG_APPEND_TIME if magic and attributes & _APPEND_TIME_FLAG else TimestampType.CREATE_TIME
    )
    codec = CompressionType(attributes & _COMPRESSION_MASK)
    return _Message(Record(offset, timestamp, key, value), append_time, CompressionType.NONE), magic, codec


def _bytes(body: memoryview, at: int) -> tuple[bytes | None, int]:
    (size,) = _SIZE.unpack_from(body, at)
    at += _SIZE.size
    if size < 0:
        return None, at
    if at + size > len(body):
        raise ValueError("its key or value ends beyond it")
    return bytes(body[at : at + size]), at + size
