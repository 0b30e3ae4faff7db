"""Reading a partition's directory without a broker: nothing is locked, changed or cached.

The directory may belong to a broker that is running, kbroker or Apache Kafka: a batch that is being written ends the
reading, and segments that compaction replaces meanwhile are found again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from kbroker.errors import FatalError
from kbroker.log.checkpoint_files import LOG_START_OFFSETS, CorruptCheckpoint, read_offsets
from kbroker.log.disk import Disk, ReadOnlyDisk
from kbroker.log.file_names import LOG_SUFFIX, TXN_INDEX_SUFFIX, file_name
from kbroker.log.log_dir import parse_log_dir_name
from kbroker.log.segments.indexed_file import CorruptSegment
from kbroker.log.segments.transaction_index import TransactionIndex
from kbroker.types import TopicPartition
from kbroker.wire.batch_header import HEADER_SIZE, BatchHeader, check_crc, parse_header
from kbroker.wire.compression import CorruptRecord
from kbroker.wire.record_batch import Record, iter_records

_CHUNK = 1024 * 1024
_END = 2**63 - 1
_WALKS = 4


class SegmentsGone(Exception):
    """Retention took what was about to be read, up to ``end``."""

    def __init__(self, start: int, end: int) -> None:
        super().__init__(f"offsets {start} to {end - 1} are gone")
        self.start = start
        self.end = end


class FoundBatch(NamedTuple):
    """A whole batch, its checksum verified, and where it is."""

    header: BatchHeader
    data: bytes
    path: str
    position: int


class PartitionDirectory:
    """One ``<topic>-<partition>`` directory."""

    def __init__(self, path: str | os.PathLike[str], disk: Disk | None = None) -> None:
        self.path = os.path.abspath(os.fspath(path))
        self._disk = disk if disk is not None else ReadOnlyDisk()
        found = parse_log_dir_name(os.path.basename(self.path))
        if found is None or not self._disk.is_dir(self.path):
            raise FatalError(f"{self.path} is no directory of a partition (<topic>-<partition>)")
        self.topic_partition: TopicPartition = found
        self._walked: dict[int, tuple[int, int]] = {}
        """Offset -> segment and position, of the ends of the last walks: a reader goes on there."""

    def segments(self) -> list[int]:
        """The base offsets of the segments, as they are now."""
        return sorted(
            int(name[: -len(LOG_SUFFIX)])
            for name in self._disk.list_dir(self.path)
            if name.endswith(LOG_SUFFIX) and len(name) == 24 and name[:20].isdigit()
        )

    def log_start_offset(self) -> int:
        """The first offset that may be read: where the first segment begins, or as DeleteRecords said."""
        bases = self.segments()
        first = bases[0] if bases else 0
        try:
            starts = read_offsets(self._disk, os.path.join(os.path.dirname(self.path), LOG_START_OFFSETS))
        except CorruptCheckpoint:
            return first
        return max(first, (starts or {}).get(self.topic_partition, 0))

    def batches(self, start: int = 0, end: int = _END, *, whole: bool = False) -> Iterator[FoundBatch]:
        """Every batch that holds something of [``start``, ``end``); ``CorruptSegment`` where bytes are damaged.

        ``whole``: ``SegmentsGone`` where retention comes first; else it goes on behind that.
        """
        offset, went_to = start, -1
        while True:
            bases = self.segments()
            if whole and bases and bases[0] > offset:
                raise SegmentsGone(offset, bases[0])
            first = max((index for index, base in enumerate(bases) if base <= offset), default=0)
            try:
                for index in range(first, len(bases)):
                    if bases[index] >= end:
                        return
                    is_last = index == len(bases) - 1
                    known = self._known_position(bases[index], offset, is_last=is_last)
                    for batch in self._segment(bases[index], is_last, known):
                        if batch.header.base_offset >= end:
                            return
                        if batch.header.last_offset >= offset:
                            offset = batch.header.next_offset
                            self._walked.pop(went_to, None)
                            self._walked[offset] = bases[index], batch.position + len(batch.data)
                            went_to = offset
                            yield batch
            except FileNotFoundError:
                continue  # compaction or retention took the segment: look again
            finally:
                while len(self._walked) > _WALKS:
                    del self._walked[next(iter(self._walked))]
            return

    def _known_position(self, base_offset: int, offset: int, *, is_last: bool) -> int:
        """The position of an offset in a segment, if an earlier walk ended there; else 0.

        Only where the next batch begins with it, or nothing follows: compaction may have replaced the file.
        """
        base, position = self._walked.get(offset, (-1, 0))
        if base != base_offset:
            return 0
        header = self._disk.open(os.path.join(self.path, file_name(base) + LOG_SUFFIX)).pread(HEADER_SIZE, position)
        try:
            fits = parse_header(header).base_offset == offset if len(header) == HEADER_SIZE else is_last
        except CorruptRecord:
            return 0
        return position if fits else 0

    def _segment(self, base_offset: int, is_last: bool, position: int = 0) -> Iterator[FoundBatch]:
        path = os.path.join(self.path, file_name(base_offset) + LOG_SUFFIX)
        file = self._disk.open(path)
        start = position
        chunk = b""
        while True:
            at = position - start
            if at + HEADER_SIZE > len(chunk):
                chunk, start, at = file.pread(_CHUNK, position), position, 0
            if not chunk or (is_last and len(chunk) - at < HEADER_SIZE):
                return
            try:
                header = parse_header(chunk, at)
                length = header.size
                if at + length > len(chunk):
                    chunk, start, at = file.pread(max(_CHUNK, length), position), position, 0
                    if at + length > len(chunk) and is_last:
                        return  # it is being written
                check_crc(chunk, at, header)
            except CorruptRecord as error:
                if is_last and not any(chunk[at : at + HEADER_SIZE]):
                    return  # what was preallocated
                raise CorruptSegment(path, position, str(error)) from error
            yield FoundBatch(header, chunk[at : at + length], path, position)
            position += length

    def last_stable_offset(self, end: int = _END, *, stable: int = 0) -> int:
        """Start of the first transaction that has no marker before ``end``, or the log's start if it began before that;
        the log's end if there is none. ``stable``: an earlier last stable offset, behind which alone is looked."""
        open_since: dict[int, int] = {}
        start = next_offset = max(self.log_start_offset(), stable)
        for batch in self.batches(next_offset, end):
            header = batch.header
            next_offset = header.next_offset
            if header.is_transactional:
                if header.is_control:
                    open_since.pop(header.producer_id, None)
                else:
                    open_since.setdefault(header.producer_id, header.base_offset)
        return max(start, min(open_since.values(), default=next_offset))

    def records(
        self,
        start: int | None = None,
        end: int = _END,
        *,
        read_committed: bool = True,
        stable: int | None = None,
        whole: bool = False,
    ) -> Iterator[Record]:
        """The records of [``start``, ``end``) as a consumer sees them, in order.

        With ``read_committed`` those of aborted transactions are left out, and what follows the beginning of one that
        is open. ``stable``: the last stable offset, if it is known. ``whole``: as of `batches`.
        """
        first = self.log_start_offset()
        if start is not None:
            if whole and start < first:
                raise SegmentsGone(start, first)
            first = max(first, start)
        aborted: dict[int, list[tuple[int, int]]] = {}
        if read_committed:
            end = min(end, self.last_stable_offset() if stable is None else stable)
            for base in self.segments():
                path = os.path.join(self.path, file_name(base) + TXN_INDEX_SUFFIX)
                for txn in TransactionIndex(base, path, self._disk):
                    aborted.setdefault(txn.producer_id, []).append((txn.first_offset, txn.last_offset))
        for batch in self.batches(first, end, whole=whole):
            header = batch.header
            if header.is_control:
                continue
            if header.is_transactional and any(
                low <= header.base_offset <= high for low, high in aborted.get(header.producer_id, ())
            ):
                continue
            try:
                records = iter_records(batch.data)
                if first <= header.base_offset and header.next_offset <= end:
                    yield from records
                else:
                    yield from (record for record in records if first <= record.offset < end)
            except CorruptRecord as error:
                raise CorruptSegment(batch.path, batch.position, str(error)) from error


def find_partitions(log_dir: str | os.PathLike[str], topic: str | None = None) -> list[PartitionDirectory]:
    """The partitions (of one topic) in a log dir, in order."""
    path = os.fspath(log_dir)
    disk = ReadOnlyDisk()
    try:
        names = disk.list_dir(path)
    except OSError as error:
        raise FatalError(f"cannot read {path}: {error.strerror}") from error
    found = []
    for name in names:
        tp = parse_log_dir_name(name)
        if tp is not None and (topic is None or tp.topic == topic) and disk.is_dir(os.path.join(path, name)):
            found.append((tp, PartitionDirectory(os.path.join(path, name), disk)))
    return [directory for _, directory in sorted(found, key=lambda entry: entry[0])]


__all__ = ["FoundBatch", "PartitionDirectory", "SegmentsGone", "find_partitions"]
