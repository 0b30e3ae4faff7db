"""Look-ups by timestamp, as ListOffsets asks for them: a segment, an entry of its time index, a batch, a record.

They are work in steps, as a batch of some kilobytes may decompress to gigabytes. A batch is read in one step, with the
file that the log has then; what follows looks at those bytes alone.
"""

from __future__ import annotations

from collections.abc import Generator

from kbroker.log.record_walk import first_late
from kbroker.log.segments.indexed_file import CorruptSegment
from kbroker.log.segments.segment import LocatedBatch, Segment
from kbroker.log.segments.segment_list import SegmentList
from kbroker.log.segments.sparse_index import CorruptIndex
from kbroker.value_types import NamedTuple
from kbroker.wire.batch_header import BatchHeader, TimestampType
from kbroker.wire.compression import CorruptRecord
from kbroker.wire.record_windows import RecordWindows, inline

_MOST_LOOKED_AT_BEFORE = 100_000
"""Records that a look-up by timestamp examines in vain in the batches before the one that may have it: their headers
do not tell the truth then."""

_ANY = -(2**64)
"""Less than any timestamp."""

_MAX_LONG = 2**63 - 1


class TimestampOffset(NamedTuple):
    """A record found by its timestamp."""

    timestamp: int
    offset: int
    leader_epoch: int | None


class _FoundBatch(NamedTuple):
    segment: Segment
    position: int
    header: BatchHeader


def offset_for_timestamp(
    segment_list: SegmentList, timestamp: int, start_offset: int
) -> Generator[None, None, TimestampOffset | None]:
    """The first record from ``start_offset`` on whose timestamp is at least ``timestamp`` (milliseconds), in steps."""
    looked_at = 0
    offset = start_offset
    while (batch := _find_batch(segment_list, timestamp, offset)) is not None:
        if looked_at > _MOST_LOOKED_AT_BEFORE:
            reason = f"before it, no record bears out its header at {timestamp}"
            raise CorruptSegment(batch.segment.path, batch.position, reason)
        found = yield from _first_record(batch, timestamp, offset)
        if found is not None:
            return found
        header = batch.header
        offset = header.next_offset
        if header.base_offset >= start_offset:  # else the record may be one below the log start
            looked_at += header.records_count
    return None


def offset_of_max_timestamp(segment_list: SegmentList) -> Generator[None, None, TimestampOffset | None]:
    """The first record that has the greatest timestamp of all, or ``None`` without timestamps, in steps."""
    best: Segment | None = None
    for segment in segment_list.segments:
        if segment.size and (best is None or segment.max_timestamp > best.max_timestamp):
            best = segment
    if best is None or best.max_timestamp < 0:
        return None
    return (yield from offset_for_timestamp(segment_list, best.max_timestamp, best.base_offset))


def _find_batch(segment_list: SegmentList, timestamp: int, start_offset: int) -> _FoundBatch | None:
    """The first batch with offsets from ``start_offset`` on whose header claims a timestamp that is late enough."""
    for segment, end_offset in zip(segment_list.segments, [*segment_list.bases[1:], _MAX_LONG], strict=True):
        if not segment.size or segment.max_timestamp < timestamp:
            continue
        try:
            located = locate_by_time(segment, timestamp)
        except CorruptIndex:
            located = locate_by_time(segment, timestamp) if segment.repair_indexes() else None
        # Before that batch all timestamps are smaller: search from there on.
        if located is None or located.last_offset < start_offset:
            located = segment.locate(max(start_offset, segment.base_offset))
        if located is not None:
            for position, header in segment.scan(located.position):
                if header.max_timestamp >= timestamp and header.last_offset >= start_offset:
                    if header.last_offset >= end_offset:
                        reason = f"offset {header.last_offset} cannot come before the next segment's {end_offset}"
                        raise CorruptSegment(segment.path, position, reason)
                    return _FoundBatch(segment, position, header)
        # It lies below the log start, or compaction took it.
    return None


def locate_by_time(segment: Segment, timestamp: int) -> LocatedBatch | None:
    """Returns the batch of the last entry up to ``timestamp`` in the time index, if there is one. It is held against
    that entry (:class:`CorruptIndex`): one that has too low a time, or points too far, would hide records."""
    entry = segment.time_index.floor(timestamp)
    if entry is None:
        return None
    offset = segment.base_offset + entry[1]
    located = segment.locate(offset)
    if located is not None and located.base_offset <= offset:
        for _, header in segment.scan(located.position):
            if header.max_timestamp == entry[0]:
                return located
            break
    raise CorruptIndex(f"{segment.time_index.path}: no batch with {offset} has {entry[0]} as its greatest timestamp")


def _first_record(
    batch: _FoundBatch, timestamp: int, start_offset: int
) -> Generator[None, None, TimestampOffset | None]:
    """The batch's first record from ``start_offset`` on that is late enough (:class:`CorruptSegment`: a client may
    have stored garbage under a right checksum)."""
    segment, position, header = batch
    epoch = header.partition_leader_epoch
    windows = RecordWindows(segment.batch_bytes(position, header), 0, header)
    append_time = header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    late = timestamp - header.base_timestamp if append_time is None else _ANY
    try:
        while (window := (yield from inline(windows.next()))) is not None:
            found = yield from first_late(
                window.data, window.stop, window.records_count, late, start_offset - header.base_offset
            )
            if found is not None:
                reached = header.base_timestamp + found[0] if append_time is None else append_time
                reached = min(reached, _MAX_LONG)  # a client may have stored more
                return TimestampOffset(reached, header.base_offset + found[1], epoch if epoch >= 0 else None)
    except CorruptRecord as error:
        raise CorruptSegment(segment.path, position, str(error)) from None
    return None
