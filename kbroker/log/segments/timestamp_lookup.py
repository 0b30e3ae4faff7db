"""Look-ups by timestamp, as ListOffsets asks for them: a segment, an entry of its time index, a batch, a record."""

from __future__ import annotations

from collections.abc import Iterator

from kbroker.log.segments.indexed_file import CorruptSegment
from kbroker.log.segments.segment import LocatedBatch, Segment
from kbroker.log.segments.segment_list import SegmentList
from kbroker.log.segments.sparse_index import CorruptIndex
from kbroker.value_types import NamedTuple
from kbroker.wire.batch_header import BatchHeader
from kbroker.wire.compression import CorruptRecord
from kbroker.wire.record_batch import Record, iter_records

_MOST_LOOKED_AT = 1_000_000
"""Records that a look-up by timestamp examines in vain within a batch, a second's worth. Clients make none larger."""

_MOST_LOOKED_AT_BEFORE = 100_000
"""And in the batches before it, whose headers do not tell the truth then."""


class TimestampOffset(NamedTuple):
    """A record found by its timestamp."""

    timestamp: int
    offset: int
    leader_epoch: int | None


def offset_for_timestamp(segment_list: SegmentList, timestamp: int, start_offset: int) -> TimestampOffset | None:
    """The first record from ``start_offset`` on whose timestamp is at least ``timestamp`` (milliseconds)."""
    for segment in segment_list.segments:
        if segment.size and segment.max_timestamp >= timestamp:
            found = _find_timestamp(segment, timestamp, start_offset)
            if found is not None:  # else it lies below the log start, or compaction took it
                return _timestamp_offset(found)
    return None


def offset_of_max_timestamp(segment_list: SegmentList) -> TimestampOffset | None:
    """The first record that has the greatest timestamp of all, or ``None`` without timestamps."""
    best: Segment | None = None
    for segment in segment_list.segments:
        if segment.size and (best is None or segment.max_timestamp > best.max_timestamp):
            best = segment
    return _timestamp_offset(_find_max_timestamp(best)) if best is not None else None


def _timestamp_offset(found: tuple[int, int, int] | None) -> TimestampOffset | None:
    if found is None:
        return None
    timestamp, offset, epoch = found
    return TimestampOffset(timestamp, offset, epoch if epoch >= 0 else None)


def _find_timestamp(segment: Segment, timestamp: int, start_offset: int) -> tuple[int, int, int] | None:
    """``(timestamp, offset, leader epoch)`` of the first record at or after ``start_offset`` whose
    timestamp is at least the one asked for."""
    try:
        located = _locate_by_time(segment, timestamp)
    except CorruptIndex:
        located = _locate_by_time(segment, timestamp) if segment.repair_indexes() else None
    # Before that batch all timestamps are smaller: search from there on.
    if located is None or located.last_offset < start_offset:
        located = segment.locate(max(start_offset, segment.base_offset))
    if located is None:
        return None
    looked_at = 0
    for position, header in segment.scan(located.position):
        if header.max_timestamp < timestamp or header.last_offset < start_offset:
            continue
        if looked_at > _MOST_LOOKED_AT_BEFORE:
            raise CorruptSegment(segment.path, position, f"before it, no record bears out its header at {timestamp}")
        for number, record in enumerate(_records(segment, position, header)):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return record.timestamp, record.offset, header.partition_leader_epoch
            if number >= _MOST_LOOKED_AT:
                raise CorruptSegment(segment.path, position, f"{number} records, and none of them at {timestamp}")
        if header.base_offset >= start_offset:  # else the record may be one below the log start
            looked_at += header.records_count
    return None


def _locate_by_time(segment: Segment, timestamp: int) -> LocatedBatch | None:
    """The batch of the time index's last entry up to ``timestamp``, if there is one. It is held against the entry
    (:class:`CorruptIndex`): one that has too low a time, or points too far, would hide records."""
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


def _find_max_timestamp(segment: Segment) -> tuple[int, int, int] | None:
    """``(timestamp, offset, leader epoch)`` of the first record with the greatest timestamp."""
    timestamp = segment.max_timestamp
    if timestamp < 0:
        return None
    located = segment.locate(segment.max_timestamp_offset)
    if located is None:
        return None
    for position, header in segment.scan(located.position):
        if header.max_timestamp == timestamp:
            for record in _records(segment, position, header):
                if record.timestamp == timestamp:
                    return timestamp, record.offset, header.partition_leader_epoch
    return None


def _records(segment: Segment, position: int, header: BatchHeader) -> Iterator[Record]:
    """A batch's records (:class:`CorruptSegment`: a client may have stored garbage under a right checksum)."""
    try:
        yield from iter_records(segment.batch_bytes(position, header))
    except CorruptRecord as error:
        raise CorruptSegment(segment.path, position, str(error)) from None
