"""The files of a segment that compaction writes, beside those that it is to replace."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from kbroker.log.disk import Disk
from kbroker.log.file_names import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
)
from kbroker.log.segments.indexed_file import CorruptSegment
from kbroker.log.segments.sparse_index import OffsetIndex, TimeIndex
from kbroker.log.segments.transaction_index import AbortedTxn, TransactionIndex
from kbroker.value_types import NamedTuple
from kbroker.wire.batch_header import NO_TIMESTAMP, BatchHeader, Buffer

_WRITE_SIZE = 1024 * 1024
_SYNC_SIZE = 16 * 1024 * 1024
"""Bytes that wait for the disk at most: one sync of a whole segment would hold up everyone else's."""

_MAX_POSITION = 2**31 - 1


class CleanedSegment(NamedTuple):
    """A segment that compaction wrote: durable files with the suffix ``.cleaned``."""

    base_offset: int
    size: int
    replaces: list[int]
    """Base offsets of the segments that it stands for."""


def discard_cleaned(disk: Disk, directory: str, base_offsets: Iterable[int]) -> None:
    """Remove ``.cleaned`` files that will not be used."""
    for base_offset in base_offsets:
        stem = os.path.join(directory, file_name(base_offset))
        for suffix in SEGMENT_SUFFIXES:
            try:
                disk.remove(stem + suffix + CLEANED_SUFFIX)
            except OSError:
                pass


class CleanedSegmentWriter:
    """Writes one. Files that an earlier attempt left are removed first."""

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, index_interval: int, pace: Callable[[int], None]
    ) -> None:
        discard_cleaned(disk, directory, [base_offset])
        stem = os.path.join(directory, file_name(base_offset))
        self._disk = disk
        self._base_offset = base_offset
        self._index_interval = index_interval
        self._path = stem + LOG_SUFFIX + CLEANED_SUFFIX
        self._file = disk.open(self._path, create=True)
        self._offset_index = OffsetIndex(disk, stem + OFFSET_INDEX_SUFFIX + CLEANED_SUFFIX, exists=False)
        self._time_index = TimeIndex(disk, stem + TIME_INDEX_SUFFIX + CLEANED_SUFFIX, exists=False)
        self._txn_index = TransactionIndex(base_offset, stem + TXN_INDEX_SUFFIX + CLEANED_SUFFIX, disk)
        self._pace = pace
        self._pending = bytearray()
        self._since_index = 0
        self._since_sync = 0
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = base_offset
        self.size = 0

    def add(self, header: BatchHeader, data: Buffer) -> None:
        """The next batch."""
        last = header.base_offset + header.last_offset_delta
        position = self.size
        if position + len(data) > _MAX_POSITION:
            raise CorruptSegment(self._path, position, "the new segment would be larger than an index can express")
        if header.max_timestamp > self._max_timestamp:
            self._max_timestamp, self._max_timestamp_offset = header.max_timestamp, last
        if self._since_index > self._index_interval:
            self._offset_index.append(last - self._base_offset, position)
            self._note_time()
            self._since_index = 0
        self._since_index += len(data)
        self.size = position + len(data)
        self._pending += data
        if len(self._pending) >= _WRITE_SIZE:
            self._write()

    def add_aborted(self, aborted: AbortedTxn) -> None:
        """An entry for the transaction index."""
        self._txn_index.append(aborted)

    def _note_time(self) -> None:
        self._time_index.maybe_append(self._max_timestamp, self._max_timestamp_offset - self._base_offset)

    def _write(self) -> None:
        size = len(self._pending)
        if not size:
            return
        self._file.write_at(self.size - size, [self._pending])
        self._pending = bytearray()
        self._since_sync += size
        if self._since_sync >= _SYNC_SIZE:
            self._since_sync = 0
            self._file.sync()
        self._pace(size)

    def finish(self, modified_ms: int) -> None:
        """All of it is durable on return, but for the names."""
        self._write()
        if self.size:
            self._note_time()
        self._offset_index.write_out(sync=True)
        self._time_index.write_out(sync=True)
        self._txn_index.flush()
        self._file.sync()
        self._disk.set_modified_ms(self._path, modified_ms)
