"""Verifies a segment that may not be whole, and takes out of it what is damaged.

What is taken out of a log and cannot be explained stays in the partition's directory.
``<20 digits>.log.<position>.set-aside`` has the bytes that stood in the segment of that name from ``position`` on, as
they were. The file of the same name with ``.json`` behind it says why they were taken out, and between which offsets.
No log opens these files, Apache Kafka's neither, and they are removed with the directory alone.
"""

from __future__ import annotations

import json
import logging
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from heapq import merge

from kbroker.log.disk import Disk, write_atomically
from kbroker.log.file_names import CLEANED_SUFFIX, SEGMENT_SUFFIXES, SET_ASIDE_SUFFIX, SWAP_SUFFIX, TEMPORARY_SUFFIX
from kbroker.log.segments.batch_walk import Bounds, Damaged, Whole, walk
from kbroker.log.segments.cleaned_segment import CleanedSegment, CleanedSegmentWriter
from kbroker.log.segments.indexed_file import MAX_RELATIVE_OFFSET, CorruptSegment
from kbroker.log.segments.segment import Segment
from kbroker.log.segments.segment_files import finish_interrupted_work, remove_files
from kbroker.wire.batch_header import CRC_AT, HEADER_SIZE, NO_TIMESTAMP, BatchHeader, check_crc, parse_header
from kbroker.wire.compression import CorruptRecord
from kbroker.wire.record_batch import assemble

logger = logging.getLogger(__name__)

_CHUNK = 1024 * 1024
_MARKER_SIZE = 128
"""No marker of a transaction has more bytes."""
MAX_OFFSET = 2**63 - 1


def bounds_of(
    segment: Segment, next_offset: int, end_offset: int | None = None, epoch: int = -1, latest_epoch: int | None = None
) -> Bounds:
    """Returns what a batch of a segment may be that comes after ``next_offset``."""
    return Bounds(next_offset, segment.base_offset + MAX_RELATIVE_OFFSET, end_offset, epoch, latest_epoch)


def open_bounds_of(segment: Segment, following: int | None) -> Bounds:
    """Returns what a batch of a segment may be that is in use: no offset is one of the next segment, which begins at
    ``following``."""
    bounds = bounds_of(segment, segment.base_offset)
    return bounds if following is None else bounds._replace(limit=min(bounds.limit, following - 1))


def recover_segment(
    segment: Segment,
    bounds: Bounds,
    note_batch: Callable[[BatchHeader], None],
    before_read: Callable[[], None],
    *,
    has_txn_index: bool,
    is_hole: Callable[[Damaged], bool],
) -> tuple[int, list[Damaged], int]:
    """Verify every batch and build the indexes anew, around the damage that ``is_hole``, and up to the first other.

    ``before_read`` is called before each piece of the file is read; an exception of its own leaves the segment as a
    kill does. Returns the offset after the last batch that was indexed (``bounds.next_offset`` if there is none), what
    is to be taken out, by the caller, and the offset after the last whole batch.
    """
    next_offset = reached = bounds.next_offset
    found: list[Damaged] = []
    is_cut = False
    segment.begin_rebuild()
    if has_txn_index:
        segment.txn_index.reset()
    if segment.size:
        for item in walk(segment.log_file(), segment.size, bounds, before_read=before_read):
            if isinstance(item, Whole):
                header = item.header
            elif not is_cut and put_right(segment, item):
                header = parse_header(segment.log_file().pread(HEADER_SIZE, item.position))
            else:
                if not is_cut:
                    is_cut = not is_hole(item)
                    found.append(item._replace(end=segment.size, end_offset=None) if is_cut else item)
                continue
            reached = header.next_offset
            if not is_cut:
                note_batch(header)
                segment.note_batch(item.position, header)
                next_offset = reached
    segment.unverified = 0
    return next_offset, found, reached


def find_damaged(segment: Segment, position: int, end_offset: int | None = None) -> Damaged | None:
    """Returns what is damaged at a position of a segment that is in use; ``None`` if all is whole there.

    Batches of offsets from ``end_offset`` on, where the next segment begins, are another segment's.
    """
    bounds = open_bounds_of(segment, end_offset)
    for start in sorted({segment.indexed_before(position - 1), 0}, reverse=True):
        for item in walk(segment.log_file(), segment.size, bounds, position=start):
            if isinstance(item, Damaged) and item.end >= position:
                if start and item.position == start != position:
                    break  # the index led astray
                return item
            if item.position > position:
                return None
    return None


def put_right(segment: Segment, damaged: Damaged) -> bool:
    """Flip the bit of a transaction's marker back, durably, if one is all that is wrong; whether it was.

    Without its marker a transaction of the same producer that comes next would end this one, too, perhaps the other
    way. A checksum tells two batches of this size apart unless four bits differ, so only one bit can be meant; of large
    batches, garbage would too often look like one bit.
    """
    size = damaged.end - damaged.position
    if not HEADER_SIZE < size <= _MARKER_SIZE:
        return False
    data = bytearray(segment.log_file().pread(size, damaged.position))
    for bit in range(CRC_AT * 8, size * 8):
        data[bit // 8] ^= 1 << bit % 8
        with suppress(CorruptRecord):
            header = parse_header(data)
            if header.is_control and header.size == size and header.base_offset == damaged.start_offset:
                check_crc(data, 0, header)
                file = segment.own_file(segment.size)
                file.write_at(damaged.position, [data])
                file.sync()
                logger.warning("%s: at byte %d a flipped bit was flipped back", segment.path, damaged.position)
                return True
        data[bit // 8] ^= 1 << bit % 8
    return False


def empty_batch(offset: int, leader_epoch: int) -> tuple[BatchHeader, bytes]:
    """Returns a batch without records that has one offset, as compaction leaves where a log would seem to end early."""
    header = BatchHeader(offset, 0, leader_epoch, 2, 0, 0, 0, NO_TIMESTAMP, NO_TIMESTAMP, -1, -1, -1, 0)
    data = assemble(header, b"")
    return parse_header(data), data


def write_around(
    disk: Disk,
    segment: Segment,
    damaged: Sequence[Damaged],
    index_interval: int,
    before_read: Callable[[], None],
    *,
    end_offset: int | None = None,
) -> CleanedSegment:
    """Write the batches of a segment without what is damaged, as compaction does: durable ``.cleaned`` files beside it.

    Entries of the transaction index stay whose markers do. A segment that lacks its end gets an empty batch there, if
    ``end_offset`` says where the next one begins.
    """
    writer = CleanedSegmentWriter(
        disk, os.path.dirname(segment.path), segment.base_offset, index_interval, lambda size: before_read()
    )
    file, position = segment.log_file(), 0
    epoch, reached = -1, segment.base_offset
    lost = [(each.start_offset, each.end_offset) for each in damaged]
    for each in (*damaged, None):
        end = segment.size if each is None else each.position
        for item in walk(file, end, bounds_of(segment, segment.base_offset), position=position):
            if isinstance(item, Damaged):
                raise CorruptSegment(segment.path, item.position, item.reason)
            epoch, reached = item.header.partition_leader_epoch, item.header.next_offset
            writer.add(item.header, memoryview(item.chunk)[item.at : item.at + item.header.size])
        position = end if each is None else each.end
    if end_offset is not None and reached < end_offset and damaged[-1].end == segment.size:
        writer.add(*empty_batch(end_offset - 1, epoch))
    for aborted in segment.txn_index:
        if not any(start <= aborted.last_offset and (end is None or aborted.last_offset < end) for start, end in lost):
            writer.add_aborted(aborted)
    writer.finish(disk.modified_ms(segment.path))
    disk.sync_dir(os.path.dirname(segment.path))
    return CleanedSegment(segment.base_offset, writer.size, [segment.base_offset])


def write_with(
    disk: Disk, segment: Segment, end_offset: int, batches: Iterable[Whole], index_interval: int
) -> tuple[CleanedSegment | None, list[tuple[int, int]], list[tuple[int, int]]]:
    """Write a segment with those of the ``batches`` that it lacks and that come before ``end_offset``, as
    :func:`write_around` does; None without any. Returns, too, the first and last offset of each batch that it had, and
    of each that is new."""
    last = min(end_offset - 1, segment.base_offset + MAX_RELATIVE_OFFSET)

    def own() -> Iterator[Whole]:
        for item in walk(segment.log_file(), segment.size, bounds_of(segment, segment.base_offset, end_offset)):
            if isinstance(item, Damaged):
                raise CorruptSegment(segment.path, item.position, item.reason)
            yield item

    had = [_offsets(each) for each in own() if each.header.records_count] if segment.size else []
    missing = [
        each for each in batches if segment.base_offset <= each.header.base_offset <= each.header.last_offset <= last
    ]
    missing = sorted((each for each in missing if not _overlaps(each, had)), key=lambda each: each.header.base_offset)
    new = [_offsets(each) for each in missing]
    if not new:
        return None, had, []
    directory = os.path.dirname(segment.path)
    writer = CleanedSegmentWriter(disk, directory, segment.base_offset, index_interval, lambda size: None)
    # An empty batch that stands for what was missing gives way.
    kept = (each for each in own() if each.header.records_count or not _overlaps(each, new)) if segment.size else ()
    for _, header, chunk, at in merge(kept, missing, key=lambda each: each.header.base_offset):
        writer.add(header, memoryview(chunk)[at : at + header.size])
    for aborted in segment.txn_index:
        writer.add_aborted(aborted)
    writer.finish(disk.modified_ms(segment.path) if segment.size else 0)
    disk.sync_dir(directory)
    return CleanedSegment(segment.base_offset, writer.size, [segment.base_offset]), had, new


def _offsets(batch: Whole) -> tuple[int, int]:
    return batch.header.base_offset, batch.header.last_offset


def _overlaps(batch: Whole, ranges: Sequence[tuple[int, int]]) -> bool:
    """Whether one of some ranges of offsets, which are in order, has an offset of the batch."""
    first, last = _offsets(batch)
    index = bisect_right(ranges, (last, MAX_OFFSET)) - 1
    return index >= 0 and ranges[index][1] >= first


def put_in_place(disk: Disk, segment: Segment) -> list[str]:
    """Have what :func:`write_around` wrote take the segment's place, in a log that is not open yet; its names then.

    Wherever the power fails, the next start finds the old segment or the new one.
    """
    segment.close_files()
    stem, directory = segment.path.removesuffix(".log"), os.path.dirname(segment.path)
    for suffix in SEGMENT_SUFFIXES:
        if disk.exists(stem + suffix + CLEANED_SUFFIX):
            disk.rename(stem + suffix + CLEANED_SUFFIX, stem + suffix + SWAP_SUFFIX)
    disk.sync_dir(directory)
    return finish_interrupted_work(disk, directory, disk.list_dir(directory))


def keep_segment(disk: Disk, segment: Segment, offset: int, reason: str, now_ms: int) -> str:
    """Set a whole segment aside, durably; the name of the file. Its indexes go, as they can be made anew.

    ``offset`` is where the log ends without it.
    """
    path = _note(disk, segment, 0, segment.size, (offset, None), reason, now_ms)
    segment.close_files()
    disk.rename(segment.path, path)
    disk.sync_dir(os.path.dirname(path))
    remove_files(disk, segment)
    return os.path.basename(path)


def keep_bytes(
    disk: Disk,
    segment: Segment,
    position: int,
    end: int,
    offsets: tuple[int, int | None],
    reason: str,
    now_ms: int,
    before_read: Callable[[], None],
) -> str | None:
    """Set the bytes of a segment from ``position`` to ``end`` aside, durably; the name of the file, ``None`` if all are
    zeros.

    The caller takes them out then. ``offsets`` are the first that is missing without them, and the next one that is
    not. ``before_read`` is called before each piece of the file is read.
    """
    source = segment.log_file()
    copy, is_blank = segment.path + SET_ASIDE_SUFFIX + TEMPORARY_SUFFIX, True
    try:
        disk.write_bytes(copy, b"")
        target = disk.open(copy)
        for start in range(position, end, _CHUNK):
            before_read()
            data = source.pread(min(_CHUNK, end - start), start)
            is_blank = is_blank and not any(data)
            target.write_at(start - position, [data])
        if is_blank:
            disk.remove(copy)
            return None
        target.sync()
        path = _note(disk, segment, position, end - position, offsets, reason, now_ms)
    except OSError:
        with suppress(OSError):
            disk.remove(copy)  # a full disk needs the room
        raise
    disk.rename(copy, path)
    disk.sync_dir(os.path.dirname(path))
    return os.path.basename(path)


def _note(
    disk: Disk, segment: Segment, position: int, size: int, offsets: tuple[int, int | None], reason: str, now_ms: int
) -> str:
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
        "size": size,
        "start_offset": offsets[0],
        "end_offset": offsets[1],
        "reason": reason,
        "time_ms": now_ms,
    }
    write_atomically(disk, path + ".json", json.dumps(content, indent=1).encode() + b"\n")
    return path
