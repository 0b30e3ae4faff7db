"""One segment of a log: the ``.log`` file with its two indexes, and how an offset is found in it."""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from kbroker.log.disk import Buffer, Disk, DiskFile
from kbroker.log.file_names import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
)
from kbroker.log.segments.offset_index import OffsetIndex
from kbroker.log.segments.open_files import OpenFiles
from kbroker.log.segments.sparse_index import CorruptIndex
from kbroker.log.segments.time_index import TimeIndex
from kbroker.log.segments.transaction_index import TransactionIndex
from kbroker.value_types import NamedTuple
from kbroker.wire.batch_header import HEADER_SIZE, LOG_OVERHEAD, NO_TIMESTAMP, BatchHeader, check_crc, parse_header
from kbroker.wire.compression import CorruptRecord

_RECENT = 128
"""Batches at the end of the active segment whose positions are kept in memory, for readers at the tail."""

_FIRST_CHUNK = 4096
_SMALL_BATCH = 512
_LARGEST_CHUNK = 256 * 1024

MAX_RELATIVE_OFFSET = 2**31 - 1


class CorruptSegment(Exception):
    """Bytes of a segment cannot be batches. The text names file, position and reason."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path}: at byte {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


class LocatedBatch(NamedTuple):
    """A batch's position and size in bytes within a segment's file, and its first and last offset."""

    position: int
    size: int
    base_offset: int
    last_offset: int


class Segment:
    """Batches with offsets from ``base_offset`` on. Only a log's last segment, the active one, is written."""

    __slots__ = (
        "_bytes_since_index",
        "_disk",
        "_files",
        "_first_timestamp",
        "_hint",
        "_index_interval",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_recent_bases",
        "_recent_lasts",
        "_recent_positions",
        "_txn_index",
        "base_offset",
        "created_ms",
        "offset_index",
        "path",
        "size",
        "time_index",
    )

    def __init__(
        self,
        disk: Disk,
        files: OpenFiles,
        directory: str,
        base_offset: int,
        *,
        index_interval: int,
        size: int = 0,
        created_ms: int = 0,
        exists: bool = False,
    ) -> None:
        stem = os.path.join(directory, file_name(base_offset))
        self._disk = disk
        self._files = files
        self._index_interval = index_interval
        self.base_offset = base_offset
        self.path = stem + LOG_SUFFIX
        self.size = size
        """Bytes of the file that are valid batches; nothing beyond is ever read."""
        self.created_ms = created_ms
        self.offset_index = OffsetIndex(disk, stem + OFFSET_INDEX_SUFFIX, exists=exists, files=files)
        self.time_index = TimeIndex(disk, stem + TIME_INDEX_SUFFIX, exists=exists, files=files)
        # -2: still to be read from the time index
        self._max_timestamp = -2 if size else NO_TIMESTAMP
        self._max_timestamp_offset = base_offset
        self._first_timestamp: int | None = None
        self._bytes_since_index = 0
        self._hint = -1
        """A position where a batch begins and, probably, the next read does."""
        self._recent_bases: array[int] | None = None
        self._recent_lasts: array[int] | None = None
        self._recent_positions: array[int] | None = None
        self._txn_index: TransactionIndex | None = None

    # -- writing

    def create_files(self) -> None:
        """Create what is not there yet of ``.log``, ``.index`` and ``.timeindex``: Kafka's tools take a segment for
        damaged that has no index files. The log comes first, as an index without one belongs to nothing."""
        self._files.get(self.path, create=True)
        self.offset_index.create_file()
        self.time_index.create_file()

    def append(self, buffers: Sequence[Buffer], headers: Sequence[BatchHeader]) -> None:
        """Write batches at the end. ``headers`` describe what the buffers hold, in order, offsets assigned.

        On ``OSError`` nothing has changed as far as readers can see.
        """
        position = self.size
        file = self._files.get(self.path, create=True)
        try:
            file.write_at(position, buffers)
        except OSError:
            self._cut_quietly(file, position)
            raise
        if self._max_timestamp == -2:
            self._load_max_timestamp()
        bases, lasts, positions = self._recent_bases, self._recent_lasts, self._recent_positions
        if bases is None or lasts is None or positions is None:
            self._recent_bases = bases = array("q")
            self._recent_lasts = lasts = array("q")
            self._recent_positions = positions = array("q")
        elif len(bases) >= _RECENT:
            half = _RECENT // 2
            del bases[:half], lasts[:half], positions[:half]
        if not position:
            self._first_timestamp = headers[0].max_timestamp
        since_index = self._bytes_since_index
        for header in headers:
            base = header.base_offset
            last = base + header.last_offset_delta
            if header.max_timestamp > self._max_timestamp:
                self._max_timestamp = header.max_timestamp
                self._max_timestamp_offset = last
            if since_index > self._index_interval:
                self._add_index_entry(last, position)
                since_index = 0
            bases.append(base)
            lasts.append(last)
            positions.append(position)
            size = header.batch_length + LOG_OVERHEAD
            since_index += size
            position += size
        self._bytes_since_index = since_index
        self.size = position

    def _cut_quietly(self, file: DiskFile, size: int) -> None:
        """Remove what a failed write left. If that fails too, recovery will do it: the checksum tells."""
        try:
            file.truncate(size)
        except OSError:
            pass

    def _add_index_entry(self, last_offset: int, position: int) -> None:
        base = self.base_offset
        try:
            self.offset_index.append(last_offset - base, position)
            self.time_index.maybe_append(self._max_timestamp, self._max_timestamp_offset - base)
        except CorruptIndex:
            pass  # `complete_indexes` sees to it, or who looks something up in it first; the batch is written

    def seal(self) -> None:
        """The segment is not active any more: its indexes are completed and written, its memory freed."""
        self.complete_indexes()
        self.offset_index.drop_memory()
        self.time_index.drop_memory()
        self._recent_bases = self._recent_lasts = self._recent_positions = None

    def complete_indexes(self) -> None:
        """End the time index with the greatest timestamp, as Kafka does on a roll and a clean stop, and
        bring both indexes into their files. They are built anew if one of them is damaged."""
        if self.size:
            try:
                self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
                self.offset_index.write_out()
                self.time_index.write_out()
            except CorruptIndex:
                self.rebuild_indexes()

    @property
    def txn_index(self) -> TransactionIndex:
        """The aborted transactions whose markers are in this segment."""
        index = self._txn_index
        if index is None:
            path = self.path[: -len(LOG_SUFFIX)] + TXN_INDEX_SUFFIX
            self._txn_index = index = TransactionIndex(self.base_offset, path, self._disk)
        return index

    def index_paths(self) -> list[str]:
        """Paths of the indexes, whether or not they exist."""
        stem = self.path[: -len(LOG_SUFFIX)]
        return [self.offset_index.path, self.time_index.path, stem + TXN_INDEX_SUFFIX]

    def close_files(self) -> None:
        """Let all open files go, as before a rename; regions that readers hold stay valid."""
        self._files.forget(self.path)
        self.offset_index.close()
        self.time_index.close()

    def log_file(self) -> DiskFile:
        """The open ``.log`` file."""
        return self._files.get(self.path)

    def truncate_at(self, located: LocatedBatch) -> None:
        """Cut from this batch on."""
        try:
            self._truncate_indexes(located.base_offset)
        except CorruptIndex:
            self.rebuild_indexes()
            self._truncate_indexes(located.base_offset)
        self.txn_index.truncate_to(located.base_offset)
        self.set_size(located.position)

    def _truncate_indexes(self, offset: int) -> None:
        relative = offset - self.base_offset
        self.offset_index.truncate_from_key(relative)
        self.time_index.truncate_from_value(relative)

    def set_size(self, size: int) -> None:
        """Cut the file to ``size``, where a batch ends; the indexes must not reach beyond already."""
        self._files.get(self.path, create=True).truncate(size)
        self.size = size
        self._hint = -1
        self._recent_bases = self._recent_lasts = self._recent_positions = None
        self._bytes_since_index = 0
        if size == 0:
            self._first_timestamp = None
            self._max_timestamp, self._max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        else:
            self._take_in_tail()

    # -- facts

    @property
    def max_timestamp(self) -> int:
        """The greatest timestamp of any record, or -1."""
        if self._max_timestamp == -2:
            self._load_max_timestamp()
        return self._max_timestamp

    @property
    def max_timestamp_offset(self) -> int:
        """Last offset of the first batch that holds the greatest timestamp."""
        if self._max_timestamp == -2:
            self._load_max_timestamp()
        return self._max_timestamp_offset

    @property
    def largest_timestamp(self) -> int:
        """By what retention judges the segment: the greatest timestamp, or when the file last changed."""
        timestamp = self.max_timestamp
        if timestamp >= 0:
            return timestamp
        try:
            return self._disk.modified_ms(self.path)
        except FileNotFoundError:
            return self.created_ms

    def _load_max_timestamp(self) -> None:
        try:
            last = self.time_index.last()
        except CorruptIndex:
            self.rebuild_indexes()
            return
        if last is None:
            self._take_in_tail()
        else:
            self._max_timestamp, relative = last
            self._max_timestamp_offset = self.base_offset + relative

    def first_timestamp(self) -> int:
        """The first batch's greatest timestamp, from which the time to roll is counted; -1 without one.

        Also if the batch is damaged: that is told to readers, and must not hold up who appends.
        """
        timestamp = self._first_timestamp
        if timestamp is None:
            if not self.size:
                return NO_TIMESTAMP
            try:
                _, header = next(self.scan(0))
                timestamp = header.max_timestamp
            except CorruptSegment:
                timestamp = NO_TIMESTAMP
            self._first_timestamp = timestamp
        return timestamp

    def index_full(self, max_index_bytes: int) -> bool:
        """Whether one of the index files has reached the size that the topic allows."""
        entries = len(self.offset_index)
        return entries >= max_index_bytes // 8 or len(self.time_index) >= max_index_bytes // 12 - 1

    # -- finding

    def scan(self, position: int, length: int = _FIRST_CHUNK) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch from ``position``, where one must begin, to the end.

        ``length`` bytes are read at first. :class:`CorruptSegment` at the first bytes that cannot be a batch in their
        place.
        """
        file = self._files.get(self.path)
        size = self.size
        chunk, start = b"", position
        next_offset = self.base_offset
        limit = next_offset + MAX_RELATIVE_OFFSET
        while position < size:
            at = position - start
            if at + HEADER_SIZE > len(chunk):
                if at <= len(chunk) and chunk and length < _LARGEST_CHUNK:
                    length *= 2  # small batches: a longer read finds many
                chunk = file.pread(min(length, size - position), position)
                start, at = position, 0
            try:
                header = parse_header(chunk, at)
            except CorruptRecord as error:
                raise CorruptSegment(self.path, position, str(error)) from None
            end = position + header.batch_length + LOG_OVERHEAD
            if end > size:
                reason = f"a batch of {header.size} bytes is cut off at {size}"
                raise CorruptSegment(self.path, position, reason)
            if header.last_offset_delta < 0 or not next_offset <= header.base_offset <= limit:
                found = f"offsets {header.base_offset} to {header.last_offset}"
                raise CorruptSegment(self.path, position, f"{found} where {next_offset} or so comes next")
            next_offset = header.base_offset + header.last_offset_delta + 1
            yield position, header
            position = end

    def set_index_interval(self, index_interval: int) -> None:
        """Bytes between index entries, from the next append on."""
        self._index_interval = index_interval

    def expect_read_at(self, position: int) -> None:
        """A reader was given all bytes up to ``position``, where a batch begins: it comes back for that one."""
        self._hint = position

    def offset_at(self, position: int) -> int | None:
        """Base offset of the first batch that begins at ``position`` or later; ``None`` if none does."""
        if position >= self.size:
            return None
        try:
            entry = self.offset_index.floor_by_value(position)
        except CorruptIndex:
            entry = None
        try:
            for at, header in self.scan(entry[1] if entry is not None else 0):
                if at >= position:
                    return header.base_offset
        except CorruptSegment:
            pass  # a bound is asked for, and the segment's end is one
        return None

    def locate(self, offset: int) -> LocatedBatch | None:
        """The first batch whose last offset is at least ``offset``; ``None`` if all are lower.

        :class:`CorruptSegment` if the bytes on the way there are not batches.
        """
        bases, lasts, positions = self._recent_bases, self._recent_lasts, self._recent_positions
        if bases and lasts and positions and offset >= bases[0]:
            slot = bisect_left(lasts, offset)
            if slot == len(lasts):
                return None
            position = positions[slot]
            end = positions[slot + 1] if slot + 1 < len(positions) else self.size
            return LocatedBatch(position, end - position, bases[slot], lasts[slot])
        if not self.size:
            return None
        hint = self._hint
        if 0 <= hint < self.size:
            try:
                for position, header in self.scan(hint):
                    if header.base_offset <= offset <= header.last_offset:
                        return LocatedBatch(position, header.size, header.base_offset, header.last_offset)
                    break
            except CorruptSegment:
                self._hint = -1  # an index that was wrong led there, or the log itself is, which then shows
        return self._locate_by_index(offset)

    def _locate_by_index(self, offset: int) -> LocatedBatch | None:
        try:
            entry = self.offset_index.floor(offset - self.base_offset)
            if entry is not None:
                return self._walk_to(offset, entry[1], entry[0] + self.base_offset)
        except (CorruptIndex, CorruptSegment):
            # Index or log: if walking from the start meets no damage either, it was the index.
            found = self._walk_to(offset, 0, None)
            self.repair_indexes()
            return found
        return self._walk_to(offset, 0, None)

    def _walk_to(self, offset: int, position: int, entry_offset: int | None) -> LocatedBatch | None:
        if not 0 <= position < self.size:
            raise CorruptIndex(f"{self.offset_index.path}: position {position} is not in the log")
        # The next entry is an interval and the rest of a batch away: one read has all the headers up to there, unless
        # batches are so large that each has an entry.
        length = min(self._index_interval + _SMALL_BATCH, _LARGEST_CHUNK)
        for at, header in self.scan(position, length):
            if entry_offset is not None:
                if header.base_offset > entry_offset:
                    path = self.offset_index.path
                    raise CorruptIndex(f"{path}: no batch with {entry_offset} at {position}")
                entry_offset = None
            if header.last_offset >= offset:
                return LocatedBatch(at, header.batch_length + LOG_OVERHEAD, header.base_offset, header.last_offset)
        return None

    def cut_position(self, start: int, limit: int) -> int:
        """A position in ``(start, limit]`` where a batch is known to begin, or ``start`` if none is known."""
        positions = self._recent_positions
        if positions and limit >= positions[0]:
            found = positions[bisect_right(positions, limit) - 1]
        else:
            try:
                entry = self.offset_index.floor_by_value(limit)
            except CorruptIndex:
                return start
            found = entry[1] if entry is not None else 0
        if found <= start:
            return start
        self._hint = found
        return found

    def batch_bytes(self, position: int, header: BatchHeader) -> bytes:
        """A whole batch, its checksum verified (:class:`CorruptSegment`)."""
        data = self._files.get(self.path).pread(header.size, position)
        try:
            check_crc(data, 0, header)
        except CorruptRecord as error:
            raise CorruptSegment(self.path, position, str(error)) from None
        return data

    # -- loading and rebuilding

    def scan_tail(self) -> int:
        """Read what follows the last index entry; answer the offset after the last batch.

        Sets the greatest timestamp and the distance to the next index entry. :class:`CorruptIndex` or
        :class:`CorruptSegment` if something is wrong: the segment then needs recovery.
        """
        if not self.size:
            self._max_timestamp, self._max_timestamp_offset = NO_TIMESTAMP, self.base_offset
            return self.base_offset
        entry = self.offset_index.last()
        timed = self.time_index.last()
        if timed is None:
            self._max_timestamp, self._max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        else:
            self._max_timestamp, self._max_timestamp_offset = timed[0], self.base_offset + timed[1]
        position = entry[1] if entry is not None else 0
        if position >= self.size:
            raise CorruptIndex(f"{self.offset_index.path}: position {position} is not in the log")
        last_offset = self.base_offset - 1
        for at, header in self.scan(position):
            last_offset = header.base_offset + header.last_offset_delta
            if at == position and entry is not None and header.base_offset > entry[0] + self.base_offset:
                raise CorruptIndex(f"{self.offset_index.path}: its last entry does not match the log")
            if header.max_timestamp > self._max_timestamp:
                self._max_timestamp, self._max_timestamp_offset = header.max_timestamp, last_offset
        if timed is not None and self.base_offset + timed[1] > last_offset:
            raise CorruptIndex(f"{self.time_index.path}: its last entry is not in the log")
        self._bytes_since_index = self.size - position
        return last_offset + 1

    def _take_in_tail(self) -> None:
        """As :meth:`scan_tail`, of a log that is in use: damage is told to those who read there, and to nobody else."""
        try:
            self.scan_tail()
        except (CorruptIndex, CorruptSegment):
            if not self.repair_indexes():
                self._index_next_batch()

    def _index_next_batch(self) -> None:
        """Let the batch that is appended next be found in spite of damage before it."""
        self._bytes_since_index = self._index_interval + 1

    def begin_rebuild(self) -> None:
        """Forget the indexes and what is known of the batches, which :meth:`note_batch` then tells anew."""
        self.offset_index.reset()
        self.time_index.reset()
        self._recent_bases = self._recent_lasts = self._recent_positions = None
        self._hint = -1
        self._first_timestamp = None
        self._max_timestamp, self._max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        self._bytes_since_index = 0

    def note_batch(self, position: int, header: BatchHeader) -> None:
        """Index the next batch of a segment whose indexes are being built."""
        last = header.base_offset + header.last_offset_delta
        if header.max_timestamp > self._max_timestamp:
            self._max_timestamp, self._max_timestamp_offset = header.max_timestamp, last
        if self._bytes_since_index > self._index_interval:
            self._add_index_entry(last, position)
            self._bytes_since_index = 0
        self._bytes_since_index += header.batch_length + LOG_OVERHEAD

    def rebuild_indexes(self) -> None:
        """Build both indexes anew from the batch headers, up to the first damage if there is some."""
        self.begin_rebuild()
        try:
            for position, header in self.scan(0):
                self.note_batch(position, header)
        except CorruptSegment:
            # Readers of what comes before are served; those who get here are told.
            self._index_next_batch()
        self.complete_indexes()

    def repair_indexes(self) -> bool:
        """Something was not where an index said, in a log that is in use; whether the indexes were built anew.

        They are if the log can be walked to its end, so that it was not the log, or if they cannot be searched at all.
        Else they stay, as they lead past the damage: to records that could not be found without them, and that after
        the next clean stop recovery would cut off, as it begins at the last entry.
        """
        try:
            for _ in self.scan(0):
                pass
        except CorruptSegment:
            if self._are_searchable():
                return False
        self.rebuild_indexes()
        return True

    def _are_searchable(self) -> bool:
        try:
            len(self.offset_index), len(self.time_index)
        except CorruptIndex:
            return False
        return True

    # -- removal

    def rename_to_deleted(self) -> list[str]:
        """Mark the files for deletion (suffix ``.deleted``); answer their paths. Open regions stay valid."""
        self.close_files()
        stem = self.path[: -len(LOG_SUFFIX)]
        renamed = []
        for suffix in SEGMENT_SUFFIXES:
            if self._disk.exists(stem + suffix):
                self._disk.rename(stem + suffix, stem + suffix + DELETED_SUFFIX)
                renamed.append(stem + suffix + DELETED_SUFFIX)
        return renamed
