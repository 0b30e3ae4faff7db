"""Verifies a segment that may not be whole: it is cut at the first bad batch, and its indexes are made anew."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from kbroker.log.room import unless_full
from kbroker.log.segments.indexed_file import MAX_RELATIVE_OFFSET
from kbroker.log.segments.segment import Segment
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
