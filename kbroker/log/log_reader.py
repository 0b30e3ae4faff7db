"""Reads a log from an offset or a time on, and finds the transactions that a reader has to skip.

Nothing here changes a log. Where its bytes are not what they should be, the functions raise
:class:`~kbroker.log.segments.indexed_file.CorruptSegment`, and the methods of `LogReader` what `LogReader.damaged`
returns.
What was not written by this process, nor read with checksums, is read so before it is given away.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterator, Sequence

from kbroker.errors import ApiError, ErrorCode
from kbroker.log.damage import Damage
from kbroker.log.disk import DiskFile
from kbroker.log.segments import timestamp_lookup
from kbroker.log.segments.indexed_file import CorruptSegment, ReadBytes
from kbroker.log.segments.segment import Segment
from kbroker.log.segments.segment_list import SegmentList
from kbroker.log.segments.segment_recovery import find_damaged
from kbroker.log.segments.timestamp_lookup import TimestampOffset
from kbroker.log.segments.transaction_index import AbortedTxn, collect_aborted_txns
from kbroker.types import FileRegion, TopicPartition
from kbroker.value_types import NamedTuple
from kbroker.wire.batch_header import BatchHeader

_WORTH_A_WALK = 16
"""Index intervals. A read with a lower limit looks for its last whole batch; to a greater one the part of an interval
that it goes without is little."""


class ReadInfo(NamedTuple):
    """The result of a read: whole batches from the one that holds ``start_offset`` on."""

    start_offset: int
    records: FileRegion | bytes
    """The place of the bytes; bytes themselves if they were read to find them, or where the disk has no descriptors.
    Empty at the end."""
    first_batch_base_offset: int = -1
    """Base offset of the first batch, which may lie before ``start_offset``; -1 if there is none."""
    segment_base_offset: int = -1
    position: int = -1
    readable: int = 0
    """Bytes that there are for a reader with this limit, the part of a batch that the limit leaves out included."""


def read(
    segment_list: SegmentList, offset: int, max_bytes: int, bound: int, log_end_offset: int, min_one_message: bool
) -> ReadInfo:
    """Batches from the one that holds ``offset`` on, up to ``max_bytes`` and below offset ``bound``."""
    segments = segment_list.segments
    last = len(segments) - 1
    index = last
    if offset < segments[last].base_offset:
        index = max(0, bisect_right(segment_list.bases, offset) - 1)
    seen = ReadBytes()
    located = segments[index].locate(offset, seen)
    while located is None:
        # The end of a segment may hold no batch for the offset: the last ones were compacted away.
        index += 1
        if index > last or segments[index].base_offset >= bound:
            return ReadInfo(offset, b"")
        seen = ReadBytes()
        located = segments[index].locate(offset, seen)
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
    readable = available
    if available > max_bytes:
        readable = max_bytes
        if first_size > max_bytes:
            if not min_one_message:
                return ReadInfo(offset, b"", readable=readable)
            available = readable = first_size
        else:
            cut = segment.cut_position(position, position + max_bytes)
            if max_bytes < _WORTH_A_WALK * segment_list.index_interval:
                cut = _last_start(segment, cut, position + max_bytes, seen)
            available = cut - position if cut > position else max_bytes
    else:
        segment.expect_read_at(end, bound if bound < segment_end else segment_end)
    if position < segment.unverified:
        if base_offset > offset:
            expect_gap(segment, position, segment_end)
        whole = segment.whole_until(position, position + available, segment_end)
        if whole < position + available:
            available = whole - position
            segment.expect_read_at(whole, -1)
    if seen.chunk and (found := seen.take(position, available)) is not None:
        return ReadInfo(offset, found, base_offset, segment.base_offset, position, readable)
    file = segment.log_file()
    fd = file.fd
    records = FileRegion(fd, position, available, file) if fd >= 0 else file.pread(available, position)
    return ReadInfo(offset, records, base_offset, segment.base_offset, position, readable)


def expect_gap(segment: Segment, position: int, end_offset: int) -> None:
    """Offsets are missing before the batch at ``position`` of a segment that ends at ``end_offset``:
    :class:`CorruptSegment` if that is damage."""
    damaged = find_damaged(segment, position, end_offset)
    if damaged is not None:
        raise CorruptSegment(segment.path, damaged.position, damaged.reason)


def _last_start(segment: Segment, position: int, limit: int, seen: ReadBytes) -> int:
    """The start of the last batch that begins at ``limit`` or before, as far as the bytes can be batches.

    A batch begins at ``position``; the search goes on from there.
    """
    found, offset = position, -1
    try:
        for at, header in segment.scan(position, seen=seen):
            if at > limit:
                break
            found, offset = at, header.base_offset
    except CorruptSegment:
        pass  # it is told to the reader who gets there
    segment.expect_read_at(found, offset)
    return found


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


class LogReader:
    """The log of one partition, to be read. ``PartitionLog`` writes it."""

    __slots__ = ("_bases", "_damage", "_list", "_segments", "log_end_offset", "log_start_offset", "topic_partition")

    def __init__(
        self, topic_partition: TopicPartition, segment_list: SegmentList, log_start_offset: int, log_end_offset: int
    ) -> None:
        self.topic_partition = topic_partition
        self.log_start_offset = log_start_offset
        """Offset of the first record that may be read."""
        self.log_end_offset = log_end_offset
        """Offset that the next record gets."""
        self._list = segment_list
        self._damage: tuple[Damage, ...] = ()
        # The list's own, a step nearer.
        self._segments = segment_list.segments
        self._bases = segment_list.bases

    @property
    def active_segment(self) -> Segment:
        """The segment that is appended to."""
        return self._segments[-1]

    @property
    def segments(self) -> Sequence[Segment]:
        """All segments, oldest first; to be read only."""
        return self._segments

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        segments = self._segments
        if len(segments) == 1:
            return segments[0].size
        return sum(segment.size for segment in segments)

    @property
    def largest_timestamp(self) -> int:
        """Greatest timestamp of any record, or -1."""
        return max(segment.max_timestamp for segment in self._segments)

    def read(
        self, offset: int, max_bytes: int, *, max_offset: int | None = None, min_one_message: bool = True
    ) -> ReadInfo:
        """Batches from the one that holds ``offset`` on, up to ``max_bytes`` and below ``max_offset``.

        With ``min_one_message`` the first batch comes even if it alone is larger. A read stays in one
        segment, and ends where a batch does if such a place is known (else in a batch, which clients drop).
        OFFSET_OUT_OF_RANGE outside of the log; empty at or beyond ``max_offset``.
        """
        end_offset = self.log_end_offset
        if offset > end_offset or offset < self.log_start_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {self.topic_partition} is not in [{self.log_start_offset}, {end_offset}]",
            )
        bound = end_offset if max_offset is None or max_offset > end_offset else max_offset
        if offset >= bound:
            return ReadInfo(offset, b"")
        if self._damage and (error := self.damage_at(offset)) is not None:
            raise error
        try:
            return read(self._list, offset, max_bytes, bound, end_offset, min_one_message)
        except CorruptSegment as error:
            raise self.damaged(error) from error

    def damaged(self, error: CorruptSegment) -> ApiError:
        """Returns what is told to whoever comes upon damage: CORRUPT_MESSAGE. A `PartitionLog` does more."""
        return ApiError(ErrorCode.CORRUPT_MESSAGE, str(error))

    def damage_at(self, offset: int) -> ApiError | None:
        """Returns what is told to who reads at ``offset``, if damage is known that is still in the log there."""
        for each in self._damage:
            if each.is_in_log and each.start_offset <= offset < each.end_offset:
                error = self.damaged(CorruptSegment(each.path(self._list.directory), each.position, each.reason))
                return error if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER else None  # it was written anew
        return None

    def read_bytes(
        self, offset: int, max_bytes: int, *, max_offset: int | None = None, min_one_message: bool = True
    ) -> bytes:
        """:meth:`read`, and the bytes themselves."""
        records = self.read(offset, max_bytes, max_offset=max_offset, min_one_message=min_one_message).records
        if isinstance(records, FileRegion):
            file: DiskFile = records.owner  # type: ignore[assignment]
            return file.pread(records.length, records.position)
        return records

    def aborted_transactions(self, offset: int, info: ReadInfo) -> list[AbortedTxn]:
        """The aborted transactions that a reader of ``info``, from ``offset`` on, has to skip."""
        return aborted_transactions(self._list, offset, info, self.log_end_offset)

    def batches(self, info: ReadInfo) -> Iterator[tuple[int, BatchHeader]]:
        """The place in ``info.records``, and the header, of each batch that a read has as a whole.

        ``ApiError`` CORRUPT_MESSAGE on the way.
        """
        length = len(info.records)
        if not length:
            return
        segment = self._segments[self._list.index_of(info.segment_base_offset)]
        try:
            for position, header in segment.scan(info.position):
                start = position - info.position
                if start + header.size > length:
                    return
                yield start, header
        except CorruptSegment as error:
            raise self.damaged(error) from error

    def offset_for_timestamp(self, timestamp: int) -> Generator[None, None, TimestampOffset | None]:
        """The first record whose timestamp is at least ``timestamp`` (milliseconds), or ``None``; in steps."""
        return self._looked_up(timestamp_lookup.offset_for_timestamp(self._list, timestamp, self.log_start_offset))

    def offset_of_max_timestamp(self) -> Generator[None, None, TimestampOffset | None]:
        """The first record that has the greatest timestamp of all, or ``None`` without timestamps; in steps."""
        return self._looked_up(timestamp_lookup.offset_of_max_timestamp(self._list))

    def _looked_up(
        self, steps: Generator[None, None, TimestampOffset | None]
    ) -> Generator[None, None, TimestampOffset | None]:
        try:
            return (yield from steps)
        except CorruptSegment as error:
            raise self.damaged(error) from error
