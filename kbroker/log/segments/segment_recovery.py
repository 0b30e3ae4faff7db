"""Verifies a segment that may not be whole: it is cut at the first bad batch, and its indexes are made anew.

What recovery takes out of a log and cannot explain stays in the partition's directory.
``<20 digits>.log.<position>.set-aside`` has the bytes that stood in the segment of that name from ``position`` on, as
they were. The file of the same name with ``.json`` behind it says why they were taken out, and where the log was cut.
No log opens these files, Apache Kafka's neither, and they are removed with the directory alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

from kbroker.log.disk import Disk, write_atomically
from kbroker.log.file_names import SET_ASIDE_SUFFIX, TEMPORARY_SUFFIX
from kbroker.log.full_disk import unless_full
from kbroker.log.segments.indexed_file import MAX_RELATIVE_OFFSET
from kbroker.log.segments.segment import Segment
from kbroker.log.segments.segment_files import remove_files
from kbroker.value_types import NamedTuple
from kbroker.wire.batch_header import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, check_crc, parse_header
from kbroker.wire.compression import CorruptRecord

_CHUNK = 1024 * 1024
_SECTOR = 512
"""Bytes that a disk writes as a whole, at least."""


class Cut(NamedTuple):
    """The place where a segment is about to be cut."""

    segment: Segment
    position: int
    end_offset: int
    """The offset after the last batch that stays."""
    reason: str
    is_torn: bool
    """Whether an append that was not completed leaves such an end: part of a batch, and nothing after it. The batch may
    have its length, and sectors without content."""


def recover_segment(
    segment: Segment,
    next_offset: int,
    note_epoch: Callable[[BatchHeader], None],
    before_cut: Callable[[Cut], str],
    before_read: Callable[[], None],
    *,
    end_offset: int | None = None,
) -> tuple[int, str | None]:
    """Verify every batch, cut the file at the first bad one and build the indexes anew.

    ``end_offset`` is where the next segment begins. ``before_cut`` is to keep what should be kept of the bytes that go,
    and returns what is to be said of the cut. ``before_read`` is called before each piece of the file is read; an
    exception of its own leaves the segment as a kill does. Returns the offset after the last batch kept
    (``next_offset`` if none is), and what was cut off and why.

    The checksum does not cover a batch's base offset. A wrong one shows as an offset that is too low after
    the batch before it; or as a gap, which may be right (compaction leaves some), unless it leads into the
    next segment, or the batches after it go on from before the gap. A segment that goes on without a gap
    into the next one is kept: the next one was begun after a truncation that is undone now.
    """
    start_offset = next_offset
    gap: tuple[int, int] | None = None
    size = segment.size
    segment.begin_rebuild()
    segment.txn_index.reset()
    if size == 0:
        return next_offset, None
    file = segment.log_file()
    position = start = 0
    chunk = memoryview(b"")
    reason: str | None = None
    end = size  # of the bytes that may be a batch which was not written whole
    limit = segment.base_offset + MAX_RELATIVE_OFFSET
    while position < size:
        at = position - start
        if at + HEADER_SIZE > len(chunk):
            before_read()
            chunk, start, at = memoryview(file.pread(_CHUNK, position)), position, 0
        end = position + HEADER_SIZE
        try:
            header = parse_header(chunk, at)
            length = header.batch_length + LOG_OVERHEAD
            end = position + length
            if end > size:
                raise CorruptRecord(f"a batch of {length} bytes is cut off after {size - position}")
            if at + length > len(chunk):
                before_read()
                chunk, start, at = memoryview(file.pread(max(_CHUNK, length), position)), position, 0
            check_crc(chunk, at, header)
            end = position  # it is whole
            if (
                header.last_offset_delta < 0
                or header.base_offset < next_offset
                or header.last_offset > limit
                or (end_offset is not None and next_offset < header.base_offset and header.last_offset >= end_offset)
            ):
                reason = f"offsets {header.base_offset} to {header.last_offset} cannot follow {next_offset - 1}"
                if gap is not None and gap[1] <= header.base_offset < next_offset:
                    reason += f"; the batch at {gap[0]} after offset {gap[1] - 1} has a wrong one"
                    position = gap[0]
                raise CorruptRecord(reason)
        except CorruptRecord as error:
            reason = f"{segment.path}: cut at byte {position} of {size}: {error}"
            break
        if header.base_offset > next_offset:
            gap = position, next_offset
        note_epoch(header)
        segment.note_batch(position, header)
        next_offset = header.base_offset + header.last_offset_delta + 1
        position += length
    del chunk
    if reason is not None:
        is_astray = gap is not None and position == gap[0]
        if gap is not None and is_astray:
            next_offset = gap[1]
        is_torn = end > size or (end == size and _lacks_sectors(file.pread(size - position, position), position))
        reason = before_cut(Cut(segment, position, next_offset, reason, is_torn))
        file.truncate(position)
        segment.size = position
        if is_astray:
            # What was noted since then was not in the log's order: read the rest once more.
            next_offset, _ = recover_segment(
                segment, start_offset, note_epoch, before_cut, before_read, end_offset=end_offset
            )
            return next_offset, reason
    with unless_full():
        segment.complete_indexes()  # or they stay in memory, until the log is flushed or closed
    return next_offset, reason


def _lacks_sectors(data: bytes, position: int) -> bool:
    """Whether one of the sectors of a file is blank, from ``position`` on, where ``data`` begins."""
    bounds = [0, *range(-position % _SECTOR or _SECTOR, len(data), _SECTOR), len(data)]
    return any(not data[start:end].strip(b"\0") for start, end in pairwise(bounds))


def keep_segment(disk: Disk, segment: Segment, offset: int, reason: str, now_ms: int) -> str:
    """Set a whole segment aside, durably; the name of the file. Its indexes go, as they can be made anew.

    ``offset`` is where the log ends without it.
    """
    path = _note(disk, segment, 0, offset, reason, now_ms)
    segment.close_files()
    disk.rename(segment.path, path)
    disk.sync_dir(os.path.dirname(path))
    remove_files(disk, segment)
    return os.path.basename(path)


def keep_end(
    disk: Disk,
    segment: Segment,
    position: int,
    offset: int,
    reason: str,
    now_ms: int,
    before_read: Callable[[], None],
) -> str | None:
    """Set the bytes of a segment from ``position`` on aside, durably; the name of the file, ``None`` if all are zeros.

    The caller cuts them off then, and ``offset`` is where the log ends. ``before_read`` is called before each piece of
    the file is read.
    """
    source = segment.log_file()
    copy, is_blank = segment.path + SET_ASIDE_SUFFIX + TEMPORARY_SUFFIX, True
    try:
        disk.write_bytes(copy, b"")
        target = disk.open(copy)
        for start in range(position, segment.size, _CHUNK):
            before_read()
            data = source.pread(min(_CHUNK, segment.size - start), start)
            is_blank = is_blank and not any(data)
            target.write_at(start - position, [data])
        if is_blank:
            disk.remove(copy)
            return None
        target.sync()
        path = _note(disk, segment, position, offset, reason, now_ms)
    except OSError:
        with suppress(OSError):
            disk.remove(copy)  # a full disk needs the room
        raise
    disk.rename(copy, path)
    disk.sync_dir(os.path.dirname(path))
    return os.path.basename(path)


def _note(disk: Disk, segment: Segment, position: int, offset: int, reason: str, now_ms: int) -> str:
    """Write down why bytes are set aside; the path that they are to have."""
    path = first = f"{segment.path}.{position}"
    count = 1
    while disk.exists(path + SET_ASIDE_SUFFIX):
        count += 1
        path = f"{first}-{count}"
    path += SET_ASIDE_SUFFIX
    content = {
        "version": 0,
        "segment": os.path.basename(segment.path),
        "position": position,
        "size": segment.size - position,
        "log_end_offset": offset,
        "reason": reason,
        "time_ms": now_ms,
    }
    write_atomically(disk, path + ".json", json.dumps(content, indent=1).encode() + b"\n")
    return path
