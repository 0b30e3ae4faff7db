"""Cuts off the end of a log's segments, in an order that leaves a log wherever the power fails.

Works on the segments and the producers' snapshots; ``PartitionLog.truncate_to`` keeps the rest of the log in step.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from kbroker.errors import ApiError, ErrorCode
from kbroker.log.damage import Damage
from kbroker.log.producer_state import ProducerStateManager
from kbroker.log.segments.batch_walk import Damaged
from kbroker.log.segments.indexed_file import CorruptSegment
from kbroker.log.segments.segment import LocatedBatch, Segment
from kbroker.log.segments.segment_list import SegmentList
from kbroker.log.segments.segment_recovery import find_damaged
from kbroker.log.segments.sparse_index import CorruptIndex
from kbroker.value_types import NamedTuple


class Cut(NamedTuple):
    """The place where a log is cut."""

    segment: Segment
    """The last segment that stays."""
    batch: LocatedBatch | None
    """The first batch that goes; None if the segment stays whole."""
    end_offset: int
    """The log's end afterwards. It is below the wanted offset if that lies inside a batch, which goes whole, or in a
    gap: nothing in the files would tell the next start that the log ends there."""


def find_cut(segment_list: SegmentList, offset: int, damage: Iterable[Damage] = ()) -> Cut:
    """Find the batch that holds ``offset``, or damage on the way there. ``ApiError`` CORRUPT_MESSAGE.

    Bytes that are ``damage`` from ``offset`` on go, too: of what is there twice, they may come before the batch.
    """
    segments, bases = segment_list.segments, segment_list.bases
    before = bisect_left(bases, offset) - 1
    for each in damage:
        if each.is_in_log and each.start_offset == offset and before >= 0:
            following = bases[before + 1] if before + 1 < len(bases) else None
            found = find_damaged(segments[before], each.position, following)
            if found is not None and found.start_offset == offset:
                return _cut_at(segments[before], found)
    segment = segments[bisect_right(bases, offset) - 1]
    try:
        batch = segment.locate(offset)
    except CorruptSegment as error:
        damaged = find_damaged(segment, error.position)
        if damaged is None:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        return _cut_at(segment, damaged)
    return Cut(segment, batch, _end_before(segment, offset if batch is None else min(offset, batch.base_offset)))


def _end_before(segment: Segment, offset: int) -> int:
    """Returns the end of the last batch before ``offset``, or that if damage is in the way."""
    try:
        entry = segment.offset_index.floor(offset - 1 - segment.base_offset)
        end = segment.base_offset
        for _, header in segment.scan(entry[1] if entry is not None else 0):
            if header.base_offset >= offset:
                break
            end = header.next_offset
        return end
    except (CorruptIndex, CorruptSegment):
        return offset


def _cut_at(segment: Segment, damaged: Damaged) -> Cut:
    position, start = damaged.position, damaged.start_offset
    return Cut(segment, LocatedBatch(position, segment.size - position, start, start), start)


def cut_off(segment_list: SegmentList, producers: ProducerStateManager, cut: Cut) -> None:
    """Drop everything from the cut on."""
    segments, kept = segment_list.segments, cut.segment
    if segments[-1] is not kept:
        while segments[-1] is not kept:
            segment = segment_list.pop()
            producers.snapshots.remove(segment.base_offset)
            segment_list.discard(segment)
        # Or, after a crash, they might follow what is written in their place.
        segment_list.disk.sync_dir(segment_list.directory)
    if cut.batch is not None:
        kept.truncate_at(cut.batch)
    else:
        kept.set_size(kept.size)  # it goes on from its end


def start_at(segment_list: SegmentList, offset: int, now_ms: int) -> bool:
    """Drop all segments for an empty one at ``offset``; true if that one is new, and not an old one made empty.

    The new file comes first: whenever the power fails, there is a file that names an offset.
    """
    first = next((segment for segment in segment_list.segments if segment.base_offset == offset), None)
    is_new = first is None
    if first is None:
        segment_list.add(offset, now_ms)  # a full disk may refuse it, and all stay
        first = segment_list.pop()
    else:
        first.begin_rebuild()
        first.txn_index.reset()
        first.set_size(0)
    old = segment_list.clear()
    segment_list.restore(first)
    for segment in reversed(old):
        if segment is not first:
            segment_list.discard(segment)
    return is_new
