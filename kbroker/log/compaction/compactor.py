"""Compaction: segments of a log are written anew, with the last record of each key and nothing else.

:func:`compact` is one round over one log, as Apache Kafka 4.3's ``Cleaner`` makes it. It reads the segments of a
:class:`CompactionJob` and writes ``.cleaned`` files beside them; it changes nothing that a reader could see, so it
can run in another process, and be given up at any time. ``PartitionLog.replace_segments`` then puts the new segments
in the place of the old ones.

A round goes twice over the *dirty* part (what was appended since the round before): once to note the offset at which
each key occurs last, once to copy what survives. Of the second time little is left to do, as the survivors' offsets
are known by then: a batch without one is passed over, one that survives whole is copied, and only the others are
looked into. The *clean* part before it is read once, its keys looked up.

What stays besides:

- a tombstone, for ``delete.retention.ms`` after the first round that saw it: that round writes into the batch when it
  may go (the delete horizon, KIP-534);
- the marker that ends a transaction, until no record of the transaction is left and then as long as a tombstone;
- a batch without any records where it tells a producer's last sequence number, or the last offset of the round.

Records of aborted transactions go, and with them the transaction index's entries, once the marker does not need
them any more. Offsets never change.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from kbroker.log.compaction.cleaned_transactions import CleanedTransactions
from kbroker.log.compaction.job import CompactionJob, CompactionResult, SegmentToClean
from kbroker.log.disk import Disk, DiskFile
from kbroker.log.file_names import LOG_SUFFIX, TXN_INDEX_SUFFIX, file_name
from kbroker.log.record_walk import (
    Runs,
    index_keys,
    max_timestamp_delta,
    select_by_index,
    select_by_key,
    shift_timestamps,
)
from kbroker.log.segments.batch_walk import Bounds
from kbroker.log.segments.cleaned_segment import CleanedSegment, CleanedSegmentWriter, discard_cleaned
from kbroker.log.segments.indexed_file import MAX_RELATIVE_OFFSET, CorruptSegment
from kbroker.log.segments.transaction_index import TransactionIndex
from kbroker.wire.batch_header import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Buffer,
    check_crc,
    parse_header,
)
from kbroker.wire.compression import CompressionType, Compressor, CorruptRecord, compress
from kbroker.wire.record_batch import Record, assemble, iter_records
from kbroker.wire.record_windows import RecordWindows, run_steps

_PART_BYTES = 4 * 1024 * 1024
"""A compressed batch that is larger is gone through in parts of this size, for each question anew."""

_MOST_GROWTH = 64 * 1024 * 1024
"""A batch that grows by more as it is compressed again stays as it is: the new one has to be in memory."""

KEY_OVERHEAD = 150
"""Bytes that a key costs in the offset map besides its own length (measured, CPython 3.11 and 3.13)."""

_MAX_LONG = 2**63 - 1


class _Batch(NamedTuple):
    data: bytes
    """A chunk of the file."""
    position: int
    """Position of the batch in ``data``."""
    header: BatchHeader
    path: str
    file_position: int

    def bytes(self) -> memoryview:
        """All of it."""
        return memoryview(self.data)[self.position : self.position + self.header.size]

    def control_record(self) -> Record | None:
        """The record of a control batch, unless it was removed."""
        return next(iter_records(self.data, self.position), None)

    def corrupt(self, error: CorruptRecord) -> CorruptSegment:
        """The error that names the place."""
        return CorruptSegment(self.path, self.file_position, str(error))


class _Part(NamedTuple):
    """Records that follow each other: bytes that hold them, where in there they begin and end, how many they are.

    One that is larger than a part ends behind these bytes, which have its key (`Window`).
    """

    data: bytes
    start: int
    stop: int
    records: int


_Selected = tuple[Runs | None, int, bool] | None
"""Of a batch's records those that stay: where they are (``None``: all of them; empty: to be selected in each part), how
many (-1: all), and whether one of them is a tombstone. ``None`` if none stays."""

_ALL: _Selected = (None, -1, False)


def compact(job: CompactionJob, disk: Disk, *, pace: Callable[[int], None] = lambda size: None) -> CompactionResult:
    """Compact a log once; see the module. ``pace(bytes)`` is called for bytes read and written; it may wait or raise.

    :class:`CorruptSegment` where the log's bytes are not what they should be, ``OSError`` where the disk refuses.
    Files that were begun are removed then, unless the disk refuses that too (they go on the next start).
    """
    cleaner = _Cleaner(job, disk, pace)
    try:
        return cleaner.run()
    except BaseException:
        discard_cleaned(disk, job.directory, [segment.base_offset for segment in job.segments])
        raise


def group_segments(
    segments: Sequence[SegmentToClean], segment_bytes: int, segment_index_bytes: int
) -> list[list[SegmentToClean]]:
    """Neighbours that fit into one segment together, by bytes, index entries, and what an index can express."""
    groups: list[list[SegmentToClean]] = []
    size = entries = time_entries = 0
    for segment in segments:
        if (
            groups
            and size + segment.size <= segment_bytes
            and (entries + segment.index_entries) * 8 <= segment_index_bytes
            and (time_entries + segment.time_index_entries) * 12 <= segment_index_bytes
            and (segment.size == 0 or segment.next_offset - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET)
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size = entries = time_entries = 0
        size += segment.size
        entries += segment.index_entries
        time_entries += segment.time_index_entries
    return groups


class _Cleaner:
    """The state of one round."""

    def __init__(self, job: CompactionJob, disk: Disk, pace: Callable[[int], None]) -> None:
        self._job = job
        self._disk = disk
        self._pace = pace
        self._aborted = [
            txn
            for base in job.transaction_indexes
            for txn in TransactionIndex(base, self._path(base, TXN_INDEX_SUFFIX), disk)
        ]
        self._offsets: dict[bytes, int] = {}
        """Key -> offset at which it occurs last in what was indexed, or ``~offset`` if it is null there."""
        self._latest = job.first_dirty_offset - 1
        """Last offset that was indexed."""
        self._irregular: set[int] = set()
        """Base offsets of batches whose records are not numbered one after the other."""
        self._survivors = array("q")
        self._tombstones = array("q")
        self._transactions = CleanedTransactions(())
        self._bytes_read = self._bytes_written = 0
        self._map_full = False
        self._map_size = 0
        self._windows: RecordWindows | None = None
        """The windows of the compressed batch that was looked into last."""
        self._windows_of: tuple[str, int] | None = None

    def _path(self, base_offset: int, suffix: str) -> str:
        return os.path.join(self._job.directory, file_name(base_offset) + suffix)

    def run(self) -> CompactionResult:
        job = self._job
        self._index_dirty()
        offsets = sorted(self._offsets.values(), key=lambda offset: offset if offset >= 0 else ~offset)
        self._survivors = array("q", [offset if offset >= 0 else ~offset for offset in offsets])
        self._tombstones = array("q", [~offset for offset in offsets if offset < 0])
        del offsets

        end_offset = self._latest + 1
        self._transactions = CleanedTransactions(self._aborted)
        to_clean = [segment for segment in job.segments if segment.base_offset < end_offset]
        cleaned = [
            self._clean_group(group) for group in group_segments(to_clean, job.segment_bytes, job.segment_index_bytes)
        ]
        self._disk.sync_dir(job.directory)
        return CompactionResult(end_offset, cleaned, self._bytes_read, self._bytes_written, self._map_full)

    # -- reading

    def _batches(self, segment: SegmentToClean) -> Iterator[_Batch]:
        """Every batch of a segment, verified."""
        path = self._path(segment.base_offset, LOG_SUFFIX)
        file = self._disk.open(path)
        size = segment.size
        position = start = 0
        chunk = b""
        next_offset, epoch = segment.base_offset, -1
        limit = min(segment.next_offset - 1, next_offset + MAX_RELATIVE_OFFSET)
        while position < size:
            at = position - start
            try:
                if at + HEADER_SIZE > len(chunk):
                    chunk, start, at = self._read(file, size - position, position), position, 0
                header = parse_header(chunk, at)
                length = header.batch_length + LOG_OVERHEAD
                if position + length > size:
                    raise CorruptRecord(f"a batch of {length} bytes is cut off at {size}")
                if at + length > len(chunk):
                    chunk, start, at = self._read(file, size - position, position, length), position, 0
                check_crc(chunk, at, header)
                base, latest = header.base_offset, header.partition_leader_epoch
                last = base + header.last_offset_delta
                if not next_offset <= base <= last <= limit or latest < epoch:  # seldom: it costs a fifth of a round
                    misfit = Bounds(next_offset, limit, epoch=epoch).misfit(header)
                    if misfit is not None:
                        raise CorruptRecord(misfit)
            except CorruptRecord as error:
                raise CorruptSegment(path, position, str(error)) from error
            yield _Batch(chunk, at, header, path, position)
            next_offset = last + 1
            if latest > epoch:
                epoch = latest
            position += length

    def _read(self, file: DiskFile, available: int, position: int, needed: int = 0) -> bytes:
        data = file.pread(min(available, max(self._job.read_bytes, needed)), position)
        self._pace(len(data))
        return data

    def _parts(self, batch: _Batch) -> Iterator[_Part]:
        """The records, uncompressed; in one part, unless they are very large."""
        header = batch.header
        if not header.attributes & COMPRESSION_MASK:
            position = batch.position
            yield _Part(batch.data, position + HEADER_SIZE, position + header.size, header.records_count)
            return
        place = batch.path, batch.file_position
        if self._windows is None or self._windows_of != place:
            self._windows = RecordWindows(batch.data, batch.position, header, _PART_BYTES)
            self._windows_of = place
        self._windows.rewind()
        while (window := run_steps(self._windows.next())) is not None:
            self._pace(0)
            yield _Part(window.data, 0, window.stop, window.records_count)

    def _rest(self, batch: _Batch) -> Iterator[bytes]:
        """The rest of the record that a part has the beginning of, if it is larger than a part."""
        if self._windows is not None and batch.header.attributes & COMPRESSION_MASK:
            while (piece := run_steps(self._windows.rest())) is not None:
                yield piece

    # -- the first pass

    def _index_dirty(self) -> None:
        job = self._job
        first_dirty = job.first_dirty_offset
        transactions = CleanedTransactions(txn for txn in self._aborted if txn.last_offset >= first_dirty)
        for segment in job.segments:
            if segment.next_offset <= first_dirty:
                continue
            for batch in self._batches(segment):
                header = batch.header
                last = header.base_offset + header.last_offset_delta
                if last < first_dirty:
                    continue
                try:
                    if header.attributes & CONTROL_FLAG:
                        transactions.on_control_batch(header, batch.control_record())
                    elif not transactions.on_batch(header):
                        self._index(batch)
                        if self._map_full:
                            return
                except CorruptRecord as error:
                    raise batch.corrupt(error) from error
                self._latest = last
            self._latest = max(self._latest, segment.next_offset - 1)

    def _index(self, batch: _Batch) -> None:
        """Note the batch's keys, as far as the map has room for them."""
        header, first_dirty = batch.header, self._job.first_dirty_offset
        offsets = self._offsets
        is_split = header.base_offset < first_dirty
        if is_split:
            self._irregular.add(header.base_offset)
        for number, (data, start, stop, count) in enumerate(self._parts(batch)):
            if number:
                self._irregular.add(header.base_offset)
            if self._map_size >= self._job.map_bytes and self._latest >= first_dirty:
                self._map_full = True
                return
            before = len(offsets)
            found = {} if is_split else offsets
            regular, latest = index_keys(data, start, stop, count, header.base_offset, found)
            if is_split:
                offsets.update((key, at) for key, at in found.items() if (at if at >= 0 else ~at) >= first_dirty)
            if not regular:
                self._irregular.add(header.base_offset)
            self._latest = max(self._latest, latest)
            added = len(offsets) - before
            if added:
                # The last key stands for the part's: exact sizes would cost as much as the map itself.
                self._map_size += added * (KEY_OVERHEAD + len(next(reversed(offsets))))

    # -- the second pass

    def _clean_group(self, group: list[SegmentToClean]) -> CleanedSegment:
        job, disk = self._job, self._disk
        writer = CleanedSegmentWriter(disk, job.directory, group[0].base_offset, job.index_interval_bytes, self._pace)
        for segment in group:
            for batch in self._batches(segment):
                try:
                    self._clean(batch, writer)
                except CorruptRecord as error:
                    raise batch.corrupt(error) from error
            self._bytes_read += segment.size
        # Retention judges a segment without timestamps by when it last changed, which this is not.
        writer.finish(disk.modified_ms(self._path(group[-1].base_offset, LOG_SUFFIX)))
        self._bytes_written += writer.size
        return CleanedSegment(group[0].base_offset, writer.size, [segment.base_offset for segment in group])

    def _clean(self, batch: _Batch, writer: CleanedSegmentWriter) -> None:
        """Write what is to be kept of a batch."""
        header = batch.header
        now_ms = self._job.now_ms
        horizon = header.delete_horizon_ms
        refers_to_nothing = False
        selected: _Selected = None
        if header.attributes & CONTROL_FLAG:
            refers_to_nothing, aborted = self._transactions.on_control_batch(header, batch.control_record())
            if aborted is not None:
                writer.add_aborted(aborted)
            if header.records_count and not (refers_to_nothing and horizon is not None and horizon <= now_ms):
                selected = _ALL
        elif not self._transactions.on_batch(header) and header.records_count:
            selected = self._select(batch)

        if selected is None:
            if self._is_needed_empty(header):
                writer.add(header, _empty(header))
            return
        runs, kept, tombstones = selected
        needs_horizon = horizon is None and (tombstones or refers_to_nothing)
        if runs is None and not needs_horizon:
            writer.add(header, batch.bytes())
            return
        new, data = self._rebuild(batch, runs, kept, needs_horizon)
        writer.add(new, data)

    def _is_needed_empty(self, header: BatchHeader) -> bool:
        last_offset = header.base_offset + header.last_offset_delta
        if last_offset + 1 == self._job.first_uncleanable_offset:
            return True  # or the log would seem to end earlier
        if header.producer_id < 0:
            return False
        producer = self._job.producers.get(header.producer_id)
        if producer is None:
            return False
        last_data_offset, epoch = producer
        if last_data_offset >= 0:
            return last_offset == last_data_offset  # it holds the last sequence number
        return header.is_control and header.producer_epoch == epoch  # and this one the epoch, for fencing

    def _select(self, batch: _Batch) -> _Selected:
        """The records of a data batch that stay; ``None`` for none of them."""
        header = batch.header
        base = header.base_offset
        if base > self._latest:
            return _ALL
        keep_tombstones = self._keeps_tombstones(header)
        if base < self._job.first_dirty_offset or base in self._irregular:
            return self._select_by_key(batch, keep_tombstones)
        end = header.next_offset
        survivors = self._survivors
        low = bisect_left(survivors, base)
        high = bisect_left(survivors, end, low)
        kept = high - low
        if not kept:
            return None
        slot = bisect_left(self._tombstones, base)
        tombstones = slot < len(self._tombstones) and self._tombstones[slot] < end
        if tombstones and not keep_tombstones:
            return self._select_by_key(batch, False)
        if kept == header.records_count:
            return None, kept, tombstones
        [(data, start, _, _)] = self._parts(batch)
        runs = select_by_index(data, start, [offset - base for offset in survivors[low:high]])
        return runs, kept, tombstones

    def _select_by_key(self, batch: _Batch, keep_tombstones: bool) -> _Selected:
        header = batch.header
        runs: Runs = []
        kept = 0
        tombstones = False
        for number, part in enumerate(self._parts(batch)):
            chosen, count, found = select_by_key(*part, header.base_offset, self._offsets, keep_tombstones)
            runs = [] if number else chosen
            kept += count
            tombstones = tombstones or found
        if not kept:
            return None
        return (None if kept == header.records_count else runs), kept, tombstones

    def _rebuild(self, batch: _Batch, runs: Runs | None, kept: int, needs_horizon: bool) -> tuple[BatchHeader, Buffer]:
        """The batch with these records alone, and with a delete horizon if it is to get one."""
        header = batch.header
        attributes = header.attributes
        base_timestamp, max_timestamp = header.base_timestamp, header.max_timestamp
        append_time = attributes & TIMESTAMP_TYPE_FLAG
        if needs_horizon:
            attributes |= DELETE_HORIZON_FLAG
            base_timestamp = min(self._job.now_ms + self._job.delete_retention_ms, _MAX_LONG)
        deltas: list[int] = []
        shift = header.base_timestamp - base_timestamp if needs_horizon and not append_time else None
        payload = self._compressed(header, self._chosen(batch, runs, shift, deltas))
        if payload is None:
            return header, batch.bytes()
        if deltas and not append_time:
            max_timestamp = max(-_MAX_LONG, min(header.base_timestamp + max(deltas), _MAX_LONG))  # a client may lie
        new = header._replace(
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            records_count=kept if kept >= 0 else header.records_count,
        )
        return new, assemble(new, payload)

    def _chosen(self, batch: _Batch, runs: Runs | None, shift: int | None, deltas: list[int]) -> Iterator[bytes]:
        """The records that stay, their timestamps shifted; ``deltas`` gets the greatest timestamps if some go."""
        header = batch.header
        for part in self._parts(batch):
            data, start, stop, _ = part
            chosen = runs
            if runs is None:
                chosen = [(start, stop)]
            elif not runs:
                chosen, _, _ = select_by_key(*part, header.base_offset, self._offsets, self._keeps_tombstones(header))
            if chosen:
                if runs is not None:
                    deltas.append(max_timestamp_delta(data, chosen))
                if shift is not None:
                    yield shift_timestamps(data, chosen, shift)
                else:
                    yield b"".join([data[first:last] for first, last in chosen])
                yield from self._rest(batch)

    @staticmethod
    def _compressed(header: BatchHeader, records: Iterator[bytes]) -> Buffer | None:
        """The records as they were compressed before; None if they grow by so much that they may not fit in memory."""
        codec = CompressionType(header.attributes & COMPRESSION_MASK)
        whole = next(records)
        second = next(records, None)
        if second is None:
            return compress(codec, whole)
        compressor = Compressor(codec)
        payload = bytearray()
        for piece in chain((whole, second), records):
            payload += compressor.add(piece)
            if len(payload) > header.size + _MOST_GROWTH:
                return None
        return payload + compressor.finish()

    def _keeps_tombstones(self, header: BatchHeader) -> bool:
        horizon = header.delete_horizon_ms
        return horizon is None or horizon > self._job.now_ms


def _empty(header: BatchHeader) -> bytes:
    """The batch without its records: producer, sequence numbers and offsets stay."""
    attributes = header.attributes & (TIMESTAMP_TYPE_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG)
    return assemble(header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, records_count=0), b"")
