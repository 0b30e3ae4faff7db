"""One segment of a log: its file and indexes are written, and an offset is found in them."""

from __future__ import annotations

import errno
import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from contextlib import suppress
from itertools import count

from kbroker.log.disk import Buffer, Disk, DiskFile
from kbroker.log.file_names import (
    ABORTED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    OWN_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
)
from kbroker.log.segments.batch_walk import Bounds, Damaged, walk
from kbroker.log.segments.indexed_file import (
    FIRST_CHUNK,
    LARGEST_CHUNK,
    MAX_RELATIVE_OFFSET,
    CorruptSegment,
    IndexedFile,
    ReadBytes,
)
from kbroker.log.segments.open_files import OpenFiles
from kbroker.log.segments.sparse_index import CorruptIndex
from kbroker.value_types import NamedTuple
from kbroker.wire.batch_header import LOG_OVERHEAD, NO_TIMESTAMP, BatchHeader

_RECENT = 128
"""Batches at the end of the active segment whose positions are kept in memory, for readers at the tail."""

_SMALL_BATCH = 512
_COPIED = 1 << 20
_COPIED_IN_A_STEP = 64 << 20
_copies = count()

_TO_DELETED = (TIME_INDEX_SUFFIX, OFFSET_INDEX_SUFFIX, LOG_SUFFIX, TXN_INDEX_SUFFIX, ABORTED_SUFFIX)
"""The log comes after the indexes that name its offsets, which without it are those of a log that was lost. Its aborted
transactions come after it: where the power fails in between, a log without them would seem to have none."""

_VERIFIED_PARTS = 64
"""Parts of a segment that are remembered as verified: so many readers, each at a place of its own, read it once."""


class LocatedBatch(NamedTuple):
    """A batch's position and size in bytes within a segment's file, and its first and last offset."""

    position: int
    size: int
    base_offset: int
    last_offset: int


class OwnCopy:
    """A copy of the first bytes of a segment's file that another log has, too: it becomes the segment's own file.

    Call `step` in any thread until it is false, then `end` as the owner, or `drop`.
    """

    def __init__(self, disk: Disk, segment: Segment, size: int) -> None:
        self.segment, self.size = segment, size
        self._disk, self._path = disk, segment.path
        # Two may be made of one file at the same time. A start removes them.
        self._copy = f"{self._path}{OWN_SUFFIX}{next(_copies)}{DELETED_SUFFIX}"
        self._files: tuple[DiskFile, DiskFile] | None = None
        self._at = 0
        self.is_whole = False

    def step(self) -> bool:
        """Copy some, durably in the end; false when all is copied. ``OSError``."""
        disk, size = self._disk, self.size
        try:
            if self._files is None:
                self._files = disk.open(self._path), disk.open(self._copy, create=True)
            (old, new), until = self._files, min(self._at + _COPIED_IN_A_STEP, size)
            for at in range(self._at, until, _COPIED):
                new.write_at(at, [old.pread(min(_COPIED, until - at), at)])
            self._at = until
            if until < size:
                return True
            new.sync()
            self.is_whole = True
        except OSError:
            self.drop()  # a full disk needs the room
            raise
        return False

    def end(self, files: OpenFiles) -> None:
        """Have the segment go on in the copy. ``OSError``."""
        files.forget(self._path)
        try:
            self._disk.rename(self._copy, self._path)
        except OSError:
            self.drop()
            raise
        self._disk.sync_dir(os.path.dirname(self._path))

    def drop(self) -> None:
        """Give the copy up."""
        with suppress(OSError):
            self._disk.remove(self._copy)


class Segment(IndexedFile):
    """Batches with offsets from ``base_offset`` on. Only a log's last segment, the active one, is written."""

    __slots__ = ()

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
            self._cut(file, position)
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

    def _cut(self, file: DiskFile, size: int) -> None:
        """Remove what a failed write left. If that fails, too, recovery will do it: the checksum tells. Until then
        nothing can be written, however much room there is."""
        try:
            file.truncate(size)
        except OSError as error:
            raise OSError(errno.EIO, f"what a failed write left cannot be removed: {error}", self.path) from error

    def seal(self) -> None:
        """The segment is not active any more: its indexes are completed and written, its memory freed."""
        self.complete_indexes()
        self.offset_index.drop_memory()
        self.time_index.drop_memory()
        self._recent_bases = self._recent_lasts = self._recent_positions = None

    def close_files(self) -> None:
        """Let all open files go, as before a rename; regions that readers hold stay valid."""
        self._files.forget(self.path)
        self.offset_index.close()
        self.time_index.close()

    def log_file(self) -> DiskFile:
        """The open ``.log`` file."""
        return self._files.get(self.path)

    def own_file(self, size: int) -> DiskFile:
        """The open ``.log`` file, to be changed in place. If another log has it, too (``log.hand_over``), its first
        ``size`` bytes are copied before, durably: that log keeps what it has."""
        if self._disk.is_shared(self.path):
            copy = OwnCopy(self._disk, self, size)
            while copy.step():
                pass
            copy.end(self._files)
        return self._files.get(self.path, create=True)

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
        self.own_file(size).truncate(size)
        self.size = size
        self.unverified = min(self.unverified, size)
        self.known_damage = tuple(position for position in self.known_damage if position < size)
        self._verified = [(start, min(end, size)) for start, end in self._verified if start < size]
        self._hint = -1
        self._recent_bases = self._recent_lasts = self._recent_positions = None
        self._bytes_since_index = 0
        if size == 0:
            self._first_timestamp = None
            self._max_timestamp, self._max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        else:
            self._take_in_tail()

    # -- finding

    def expect_read_at(self, position: int, offset: int) -> None:
        """A reader was given all bytes up to ``position``, where a batch begins: it comes back for ``offset``."""
        self._hint, self._hint_offset = position, offset

    def indexed_before(self, position: int) -> int:
        """Returns the position of the last batch that the index names at ``position`` or before; 0 if there is none."""
        try:
            entry = self.offset_index.floor_by_value(position)
        except CorruptIndex:
            return 0
        return 0 if entry is None else entry[1]

    def offset_at(self, position: int) -> int | None:
        """Base offset of the first batch that begins at ``position`` or later; ``None`` if none does."""
        if position >= self.size:
            return None
        try:
            for at, header in self.scan(self.indexed_before(position)):
                if at >= position:
                    return header.base_offset
        except CorruptSegment:
            pass  # a bound is asked for, and the segment's end is one
        return None

    def end_before(self, position: int) -> int | None:
        """Returns the offset after the batch that ends at ``position``; ``None`` if damage is on the way there."""
        if not position:
            return self.base_offset
        for start in sorted({self.indexed_before(position - 1), 0}, reverse=True):
            with suppress(CorruptSegment):
                for at, header in self.scan(start):
                    if at + header.size == position:
                        return header.next_offset
        return None

    def headers_around(self, offset: int) -> tuple[BatchHeader | None, BatchHeader | None]:
        """Returns the headers of the last batch before ``offset`` and of the next one; ``None`` for one that is not in
        the segment, or not found for damage on the way."""
        try:
            entry = self.offset_index.floor(offset - 1 - self.base_offset)
        except CorruptIndex:
            entry = None
        for position in (entry[1], 0) if entry is not None else (0,):
            before = None
            try:
                for _, header in self.scan(position):
                    if header.last_offset >= offset:
                        return before, header
                    before = header
                return before, None
            except CorruptSegment:
                pass  # the index led astray, or the log is damaged, which then shows
        return before, None

    def locate(self, offset: int, seen: ReadBytes | None = None) -> LocatedBatch | None:
        """The first batch whose last offset is at least ``offset``; ``None`` if all are lower.

        :class:`CorruptSegment` if the bytes on the way there are not batches. ``seen`` gets the last that were read.
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
        if 0 <= hint < self.size and (self._hint_offset == offset or self._hint_offset == -1):
            try:
                for position, header in self.scan(hint, seen=seen):
                    if header.base_offset <= offset <= header.last_offset:
                        return LocatedBatch(position, header.size, header.base_offset, header.last_offset)
                    break
            except CorruptSegment:
                self._hint = -1  # an index that was wrong led there, or the log itself is, which then shows
        return self._locate_by_index(offset, seen)

    def _locate_by_index(self, offset: int, seen: ReadBytes | None) -> LocatedBatch | None:
        try:
            entry = self.offset_index.floor(offset - self.base_offset)
            if entry is not None:
                return self._walk_to(offset, entry[1], entry[0] + self.base_offset, seen)
        except (CorruptIndex, CorruptSegment):
            # Index or log: if walking from the start meets no damage either, it was the index.
            found = self._walk_to(offset, 0, None, seen)
            self.repair_indexes()
            return found
        return self._walk_to(offset, 0, None, seen)

    def _walk_to(
        self, offset: int, position: int, entry_offset: int | None, seen: ReadBytes | None
    ) -> LocatedBatch | None:
        if not 0 <= position < self.size:
            raise CorruptIndex(f"{self.offset_index.path}: position {position} is not in the log")
        # The next entry is an interval and the rest of a batch away: one read has all the headers up to there, unless
        # batches are so large that each has an entry. A small read finds its batches in the same piece.
        more = _SMALL_BATCH if seen is None else FIRST_CHUNK
        for at, header in self.scan(position, min(self._index_interval + more, LARGEST_CHUNK), seen=seen):
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
            found = self.indexed_before(limit)
        if found <= start:
            return start
        self._hint, self._hint_offset = found, -1
        return found

    # -- verifying

    def whole_until(self, position: int, end: int, end_offset: int) -> int:
        """The position up to which the batches from ``position`` on are whole: ``end`` or beyond, unless much has to be
        read before, or damage comes that is known. :class:`CorruptSegment` if it is not, or if the first is damaged.

        What this process has not written, nor read with checksums, is read once. A batch begins at ``position``. The
        segment ends at ``end_offset``, which alone tells of a wrong base offset in its last batch.
        """
        parts, at = self._verified, position
        slot = bisect_right(parts, (position, self.size)) - 1
        if slot >= 0 and parts[slot][1] >= position:
            at = parts[slot][1]
        if at < min(end, self.unverified):
            bounds = Bounds(self.base_offset, min(self.base_offset + MAX_RELATIVE_OFFSET, end_offset - 1), epoch=None)
            damaged: Damaged | None = None
            for item in walk(self.log_file(), self.size, bounds, position=at, piece=LARGEST_CHUNK):
                if isinstance(item, Damaged):
                    damaged = item
                    break
                at = item.position + item.header.size
                if at >= min(end, position + LARGEST_CHUNK * 4):
                    break
            if at > position:
                self._note_verified(position, at)
            if damaged is not None and (at == position or damaged.position not in self.known_damage):
                raise CorruptSegment(self.path, damaged.position, damaged.reason)
        return at if at < self.unverified else self.size

    def doubt(self) -> None:
        """Take nothing of the segment for verified any more."""
        self.unverified, self._verified = self.size, ()

    def distrust(self, position: int) -> None:
        """There is damage at ``position``, and whoever is concerned knows: believe nothing that was not read again."""
        if position not in self.known_damage:
            self.known_damage = (*self.known_damage, position)
            self.unverified, self._verified = self.size, ()

    def _note_verified(self, start: int, end: int) -> None:
        parts = [part for part in self._verified if part[1] < start or part[0] > end]
        joined = [part for part in self._verified if part[1] >= start and part[0] <= end]
        parts.append((min([start, *(part[0] for part in joined)]), max([end, *(part[1] for part in joined)])))
        self._verified = sorted(parts[-_VERIFIED_PARTS:])
        if self._verified[0][0] == 0 and self._verified[0][1] >= self.unverified:
            self.unverified, self._verified = 0, ()

    # -- removal

    def rename_to_deleted(self) -> list[str]:
        """Mark the files for deletion (suffix ``.deleted``); answer their paths. Open regions stay valid."""
        self.close_files()
        stem = self.path[: -len(LOG_SUFFIX)]
        renamed = []
        for suffix in _TO_DELETED:
            if self._disk.exists(stem + suffix):
                self._disk.rename(stem + suffix, stem + suffix + DELETED_SUFFIX)
                renamed.append(stem + suffix + DELETED_SUFFIX)
        return renamed
