"""The ``.log`` file of a segment with its indexes: batches are read in order, indexes are made, loaded and mended."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator, Sequence

from kbroker.log.disk import Disk
from kbroker.log.file_names import LOG_SUFFIX, TXN_INDEX_SUFFIX, file_name
from kbroker.log.full_disk import unless_full
from kbroker.log.segments.open_files import OpenFiles
from kbroker.log.segments.sparse_index import CorruptIndex, OffsetIndex, TimeIndex
from kbroker.log.segments.transaction_index import TransactionIndex
from kbroker.wire.batch_header import HEADER_SIZE, LOG_OVERHEAD, NO_TIMESTAMP, BatchHeader, check_crc, parse_header
from kbroker.wire.compression import CorruptRecord

FIRST_CHUNK = 4096
LARGEST_CHUNK = 256 * 1024
"""Bytes of the file that are read at once, at the most, where headers are looked for."""

MAX_RELATIVE_OFFSET = 2**31 - 1


class CorruptSegment(Exception):
    """Bytes of a segment cannot be batches. The text names file, position and reason."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path}: at byte {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


class ReadBytes:
    """Bytes of a segment that were read to find something in it, and their position: a small read needs no others."""

    chunk = b""
    start = 0

    def take(self, position: int, length: int) -> bytes | None:
        """These bytes of the segment, if all of them were read."""
        at = position - self.start
        return self.chunk[at : at + length] if 0 <= at <= len(self.chunk) - length else None


class IndexedFile:
    """Batches in a file with its indexes; `Segment` writes it, and finds offsets in it.

    What is known of the batches is kept here, because whoever makes the indexes anew makes that anew, too.
    """

    __slots__ = (
        "_bytes_since_index",
        "_disk",
        "_files",
        "_first_timestamp",
        "_hint",
        "_hint_offset",
        "_index_interval",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_recent_bases",
        "_recent_lasts",
        "_recent_positions",
        "_txn_index",
        "_verified",
        "base_offset",
        "created_ms",
        "known_damage",
        "offset_index",
        "path",
        "size",
        "time_index",
        "unverified",
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
        self._disk = disk
        self._files = files
        self._index_interval = index_interval
        self.base_offset = base_offset
        self.path = os.path.join(directory, file_name(base_offset) + LOG_SUFFIX)
        self.size = size
        """Bytes of the file that are valid batches; nothing beyond is ever read."""
        self.created_ms = created_ms
        self.offset_index = OffsetIndex(disk, self.path, exists=exists, files=files)
        self.time_index = TimeIndex(disk, self.path, exists=exists, files=files)
        # -2: still to be read from the time index
        self._max_timestamp = -2 if size else NO_TIMESTAMP
        self._max_timestamp_offset = base_offset
        self._first_timestamp: int | None = None
        self._bytes_since_index = 0
        self._hint = -1
        """A position where a batch begins and, probably, the next read does."""
        self._hint_offset = -1
        """The offset that is looked for there; -1 if that is not known."""
        self._recent_bases: array[int] | None = None
        self._recent_lasts: array[int] | None = None
        self._recent_positions: array[int] | None = None
        self._txn_index: TransactionIndex | None = None
        self.unverified = size
        """Bytes from the start that may be damaged: this process has not written them, nor read all with checksums."""
        self.known_damage: tuple[int, ...] = ()
        """Positions of damage that was told."""
        self._verified: Sequence[tuple[int, int]] = ()
        """Parts of them that were read with checksums, in order; neighbours are one."""

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

    # -- reading in order

    def scan(
        self,
        position: int,
        length: int = FIRST_CHUNK,
        before_read: Callable[[], None] = lambda: None,
        seen: ReadBytes | None = None,
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch from ``position``, where one must begin, to the end.

        ``length`` bytes are read at first; ``before_read`` is called before each piece. The last piece is in ``seen``
        then, and is not read if it is there already. :class:`CorruptSegment` at the first bytes that cannot be a batch
        in their place.
        """
        file = self._files.get(self.path)
        size = self.size
        chunk, start = b"", position
        if seen is not None and seen.start <= position:
            chunk, start = seen.chunk, seen.start
        next_offset = self.base_offset
        limit = next_offset + MAX_RELATIVE_OFFSET
        while position < size:
            at = position - start
            if at + HEADER_SIZE > len(chunk):
                if at <= len(chunk) and chunk and length < LARGEST_CHUNK:
                    length *= 2  # small batches: a longer read finds many
                before_read()
                chunk = file.pread(min(length, size - position), position)
                start, at = position, 0
                if seen is not None:
                    seen.chunk, seen.start = chunk, start
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

    def batch_bytes(self, position: int, header: BatchHeader) -> bytes:
        """A whole batch, its checksum verified (:class:`CorruptSegment`)."""
        data = self._files.get(self.path).pread(header.size, position)
        try:
            check_crc(data, 0, header)
        except CorruptRecord as error:
            raise CorruptSegment(self.path, position, str(error)) from None
        return data

    # -- facts

    def named_end(self) -> int:
        """Returns the offset after the last that the indexes name; the base offset if they name none."""
        end = self.base_offset
        for index, column in ((self.offset_index, 0), (self.time_index, 1)):
            try:
                entry = index.last()
            except (CorruptIndex, FileNotFoundError):
                continue
            if entry is not None:
                end = max(end, self.base_offset + entry[column] + 1)
        return end

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
        """The time by which retention judges the segment: its greatest timestamp, or the last change of the file."""
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

    # -- loading

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
        """Scan the tail of a log that is in use: damage is told to those who read there, and to nobody else."""
        try:
            self.scan_tail()
        except (CorruptIndex, CorruptSegment):
            if not self.repair_indexes():
                self._index_next_batch()

    # -- the indexes

    def set_index_interval(self, index_interval: int) -> None:
        """Bytes between index entries, from the next append on."""
        self._index_interval = index_interval

    def complete_indexes(self, *, sync: bool = False) -> None:
        """End the time index with the greatest timestamp, as Kafka does on a roll and a clean stop, and
        bring both indexes into their files. They are built anew if one of them is damaged."""
        if self.size:
            try:
                self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
                self.offset_index.write_out(sync=sync)
                self.time_index.write_out(sync=sync)
            except CorruptIndex:
                self.rebuild_indexes()

    def write_indexes(self) -> None:
        """Bring what entries there are in memory into the files."""
        if self.offset_index.is_ahead:
            with unless_full():
                self.offset_index.write_out()
                self.time_index.write_out()

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

    def _add_index_entry(self, last_offset: int, position: int) -> None:
        base = self.base_offset
        try:
            self.offset_index.append(last_offset - base, position)
            self.time_index.maybe_append(self._max_timestamp, self._max_timestamp_offset - base)
        except CorruptIndex:
            pass  # `complete_indexes` sees to it, or who looks something up in it first; the batch is written

    def _index_next_batch(self) -> None:
        """Let the batch that is appended next be found in spite of damage before it."""
        self._bytes_since_index = self._index_interval + 1

    def rebuild_indexes(self, before_read: Callable[[], None] = lambda: None) -> None:
        """Build both indexes anew from the batch headers, up to the first damage if there is some.

        ``before_read`` is called before each piece of the file is read.
        """
        self.begin_rebuild()
        try:
            for position, header in self.scan(0, before_read=before_read):
                self.note_batch(position, header)
        except CorruptSegment:
            # Readers of what comes before are served; those who get here are told.
            self._index_next_batch()
        # No flush will ask for them: a part of a time index would make the segment seem old, which retention deletes.
        self.complete_indexes(sync=True)

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
