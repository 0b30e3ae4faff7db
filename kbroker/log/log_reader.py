"""Reading a log from an offset on, and which transactions a reader has to skip.

Nothing here changes a log. :class:`~kbroker.log.segment.CorruptSegment` where its bytes are not what they should be.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from kbroker.log.segment_list import SegmentList
from kbroker.log.transaction_index import AbortedTxn, collect_aborted_txns
from kbroker.types import FileRegion


class ReadInfo(NamedTuple):
    """What a read found: whole batches from the one that holds ``start_offset`` on."""

    start_offset: int
    records: FileRegion | bytes
    """Where the bytes are; bytes themselves where the disk has no descriptors. Empty at the end."""
    first_batch_base_offset: int = -1
    """Base offset of the first batch, which may lie before ``start_offset``; -1 if there is none."""
    segment_base_offset: int = -1
    position: int = -1


def read(
    segment_list: SegmentList,
    offset: int,
    max_bytes: int,
    bound: int,
    log_end_offset: int,
    min_one_message: bool,
) -> ReadInfo:
    """Batches from the one that holds ``offset`` on, up to ``max_bytes`` and below offset ``bound``."""
    segments = segment_list.segments
    last = len(segments) - 1
    index = last
    if offset < segments[last].base_offset:
        index = max(0, bisect_right(segment_list.bases, offset) - 1)
    located = segments[index].locate(offset)
    while located is None:
        # The end of a segment may hold no batch for the offset: the last ones were compacted away.
        index += 1
        if index > last or segments[index].base_offset >= bound:
            return ReadInfo(offset, b"")
        located = segments[index].locate(offset)
    segment = segments[index]
    end = segment.size
    segment_end = log_end_offset if index == last else segments[index + 1].base_offset
    if bound < segment_end:
        stop = segment.locate(bound)
        if stop is not None:
            end = stop.position
    position, first_size, base_offset, _ = located
    available = end - position
    if available <= 0:
        return ReadInfo(offset, b"")
    if available > max_bytes:
        if first_size > max_bytes:
            if not min_one_message:
                return ReadInfo(offset, b"")
            available = first_size
        else:
            cut = segment.cut_position(position, position + max_bytes)
            available = cut - position if cut > position else max_bytes
    else:
        segment.expect_read_at(end)
    file = segment.log_file()
    fd = file.fd
    records = FileRegion(fd, position, available, file) if fd >= 0 else file.pread(available, position)
    return ReadInfo(offset, records, base_offset, segment.base_offset, position)


def aborted_transactions(
    segment_list: SegmentList, offset: int, info: ReadInfo, log_end_offset: int
) -> list[AbortedTxn]:
    """The aborted transactions that a reader of ``info``, from ``offset`` on, has to skip."""
    length = len(info.records)
    if not length:
        return []
    segments, bases = segment_list.segments, segment_list.bases
    segment = next(s for s in segments if s.base_offset == info.segment_base_offset)
    upper = segment.offset_at(info.position + length)
    if upper is None:
        following = bisect_right(bases, segment.base_offset)
        upper = bases[following] if following < len(bases) else log_end_offset
    return collect_aborted_txns((s.txn_index for s in segments[segment_list.index_of(offset) :]), offset, upper)
