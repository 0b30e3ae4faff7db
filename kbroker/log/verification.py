"""Verifies that a partition's directory is what it should be. Reads all of it, changes nothing.

Checked are: every batch's checksum, length and offsets; that each index entry points to the batch it names; the time
indexes; the transaction indexes against the markers; the producer snapshots; the leader epochs against the batches;
and, on demand, every record. What a crash may leave (a torn end of the last segment, an index that lags) is told as a
note.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kbroker.log.checkpoint_files import PARTITION_METADATA, CorruptCheckpoint, read_partition_metadata
from kbroker.log.disk import Disk, ReadOnlyDisk
from kbroker.log.file_names import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
)
from kbroker.log.leader_epochs import FILE_NAME as LEADER_EPOCHS
from kbroker.log.leader_epochs import LeaderEpochs
from kbroker.log.producer_snapshot import CorruptSnapshot, decode_snapshot
from kbroker.log.segments.batch_walk import Bounds, Damaged, walk
from kbroker.log.segments.indexed_file import MAX_RELATIVE_OFFSET
from kbroker.log.segments.sparse_index import CorruptIndex, OffsetIndex, SparseIndex, TimeIndex
from kbroker.log.segments.transaction_index import TransactionIndex
from kbroker.wire.batch_header import BatchHeader, Buffer
from kbroker.wire.compression import CorruptRecord
from kbroker.wire.control_batch import ControlRecordType, parse_control_record
from kbroker.wire.record_batch import iter_records


@dataclass(slots=True)
class PartitionReport:
    """The findings in one directory."""

    directory: str
    problems: list[str] = field(default_factory=list)
    """Damage: file, place, reason."""
    notes: list[str] = field(default_factory=list)
    """Findings that a clean stop does not leave behind, and that the next start mends."""
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    start_offset: int = 0
    end_offset: int = 0


def verify_partition(
    directory: str | os.PathLike[str],
    *,
    records: bool = False,
    disk: Disk | None = None,
    on_bytes: Callable[[int], None] = lambda size: None,
) -> PartitionReport:
    """Verify one directory. ``on_bytes`` is told how much was read. ``OSError`` if it cannot be read at all."""
    verifier = _Verifier(os.fspath(directory), disk if disk is not None else ReadOnlyDisk(), records, on_bytes)
    verifier.run()
    return verifier.report


class _Verifier:
    def __init__(self, directory: str, disk: Disk, records: bool, on_bytes: Callable[[int], None]) -> None:
        self.directory = directory
        self.disk = disk
        self.check_records = records
        self.on_bytes = on_bytes
        self.report = PartitionReport(directory)
        self.epochs: list[tuple[int, int]] = []
        """Leader epochs in the batches, with the first offset of each."""
        self.aborts: dict[int, list[tuple[int, int]]] = {}
        """Base offset of a segment -> producer id and offset of its ABORT markers."""

    def path(self, base: int, suffix: str) -> str:
        return os.path.join(self.directory, file_name(base) + suffix)

    def problem(self, text: str) -> None:
        self.report.problems.append(text)

    def run(self) -> None:
        report = self.report
        names = self.disk.list_dir(self.directory)
        bases = sorted(int(name[:20]) for name in names if name.endswith(LOG_SUFFIX) and name[:20].isdigit())
        report.segments = len(bases)
        for name in names:
            if name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX)):
                report.notes.append(f"{os.path.join(self.directory, name)}: compaction was interrupted")
            elif name.endswith(SNAPSHOT_SUFFIX):
                self.snapshot(os.path.join(self.directory, name))
        if bases:
            report.start_offset = report.end_offset = bases[0]
        for index, base in enumerate(bases):
            following = bases[index + 1] if index + 1 < len(bases) else None
            self.segment(base, following)
        self.leader_epochs()
        self.metadata(names)

    # -- a segment

    def segment(self, base: int, following: int | None) -> None:
        path = self.path(base, LOG_SUFFIX)
        positions: dict[int, tuple[int, int]] = {}
        """Position -> last offset, greatest timestamp so far."""
        latest = -1
        next_offset = base
        position = 0
        for position, header in self.batches(path, base, following):
            latest = max(latest, header.max_timestamp)
            positions[position] = header.last_offset, latest
            next_offset = header.next_offset
        self.report.end_offset = max(self.report.end_offset, next_offset, base)
        if following is not None and next_offset > following:
            self.problem(f"{path}: it ends at offset {next_offset}, behind the next segment's {following}")
        is_active = following is None
        self.offset_index(base, positions, is_active)
        self.time_index(base, positions, is_active)
        self.transaction_index(base, is_active)

    def batches(self, path: str, base: int, following: int | None) -> Iterator[tuple[int, BatchHeader]]:
        file = self.disk.open(path)
        size = file.size()
        for item in walk(file, size, Bounds(base, base + MAX_RELATIVE_OFFSET, following)):
            text = f"{path}: at byte {item.position} of {size}: "
            if isinstance(item, Damaged):
                if following is None and item.is_torn:
                    self.report.notes.append(f"{text}{item.reason} (what a crash may leave; a start cuts it off)")
                else:
                    self.problem(text + item.reason)
                continue
            try:
                self.batch(base, item.header, item.chunk, item.at)
            except CorruptRecord as error:
                self.problem(text + str(error))
            yield item.position, item.header
            self.report.bytes += item.header.size
            self.on_bytes(item.header.size)

    def batch(self, base: int, header: BatchHeader, data: Buffer, at: int) -> None:
        report = self.report
        report.batches += 1
        report.records += header.records_count
        epoch = header.partition_leader_epoch
        if epoch >= 0 and (not self.epochs or epoch > self.epochs[-1][0]):
            self.epochs.append((epoch, header.base_offset))
        elif epoch >= 0 and epoch < self.epochs[-1][0]:
            raise CorruptRecord(f"leader epoch {epoch} at offset {header.base_offset} follows {self.epochs[-1][0]}")
        if header.is_control and header.is_transactional:
            for record in iter_records(data, at):
                if parse_control_record(record) == ControlRecordType.ABORT:
                    self.aborts.setdefault(base, []).append((header.producer_id, record.offset))
        if self.check_records:
            last = header.base_offset - 1
            for record in iter_records(data, at):
                if not last < record.offset <= header.last_offset:
                    raise CorruptRecord(f"a record of offset {record.offset} follows {last}")
                last = record.offset

    # -- beside it

    def offset_index(self, base: int, positions: dict[int, tuple[int, int]], is_active: bool) -> None:
        index = OffsetIndex(self.disk, self.path(base, OFFSET_INDEX_SUFFIX), exists=True)
        for relative, position in self.entries(index, is_active, bool(positions)):
            found = positions.get(position)
            if found is None:
                self.index_problem(index.path, f"no batch begins at {position}", is_active)
                return
            if found[0] != base + relative:
                text = f"the batch at {position} ends at offset {found[0]}, not {base + relative}"
                self.index_problem(index.path, text, is_active)
                return

    def time_index(self, base: int, positions: dict[int, tuple[int, int]], is_active: bool) -> None:
        index = TimeIndex(self.disk, self.path(base, TIME_INDEX_SUFFIX), exists=True)
        by_offset = dict(positions.values())
        for timestamp, relative in self.entries(index, is_active, bool(positions)):
            found = by_offset.get(base + relative)
            if found != timestamp:
                text = f"timestamp {timestamp} at offset {base + relative}, where the greatest so far is {found}"
                self.index_problem(index.path, text, is_active)
                return

    def entries(self, index: SparseIndex, is_active: bool, has_batches: bool) -> Iterator[tuple[int, int]]:
        """All of them, until one cannot be right."""
        try:
            size = self.disk.size(index.path)
        except FileNotFoundError:
            if has_batches:
                self.report.notes.append(f"{index.path}: missing; it is built again")
            return
        width = index.ENTRY.size
        data = self.disk.read_bytes(index.path)
        previous: tuple[int, int] | None = None
        for at in range(0, size - size % width, width):
            entry: tuple[int, int] = index.ENTRY.unpack_from(data, at)
            if not any(entry) and not any(data[at:]):
                self.report.notes.append(f"{index.path}: {size - at} bytes at the end are preallocated")
                return
            if not index.plausible(*entry) or (
                previous is not None and not (previous[0] < entry[0] and previous[1] <= entry[1])
            ):
                self.index_problem(index.path, f"entry {at // width} is {entry}, after {previous}", is_active)
                return
            yield entry
            previous = entry
        if size % width:
            self.index_problem(index.path, f"its {size} bytes are no multiple of {width}", is_active)

    def index_problem(self, path: str, text: str, is_active: bool) -> None:
        if is_active:
            self.report.notes.append(f"{path}: {text} (of the segment that is written; a start builds it again)")
        else:
            self.problem(f"{path}: {text}")

    def transaction_index(self, base: int, is_active: bool) -> None:
        index = TransactionIndex(base, self.path(base, TXN_INDEX_SUFFIX), self.disk)
        try:
            index.sanity_check()
            entries = [(txn.producer_id, txn.last_offset) for txn in index]
        except CorruptIndex as error:
            self.index_problem(index.path, str(error).removeprefix(f"{index.path}: "), is_active)
            return
        markers = self.aborts.get(base, [])
        for entry in entries:
            if entry not in markers:
                self.problem(f"{index.path}: no ABORT marker of producer {entry[0]} at offset {entry[1]}")

    def snapshot(self, path: str) -> None:
        try:
            decode_snapshot(self.disk.read_bytes(path))
        except CorruptSnapshot as error:
            self.report.notes.append(f"{path}: {error} (the state is built again from the log)")

    def leader_epochs(self) -> None:
        try:
            epochs = LeaderEpochs.read(self.disk, self.directory)
        except CorruptCheckpoint as error:
            self.problem(str(error))
            return
        if epochs is None:
            return
        for epoch, offset in self.epochs:
            known = epochs.epoch_for(offset)
            # The file is written when the log is flushed: it may know nothing yet of the latest epochs.
            if known is not None and known != epoch and epoch <= epochs.latest:
                path = os.path.join(self.directory, LEADER_EPOCHS)
                self.problem(f"{path}: offset {offset} is of epoch {known}, its batch says {epoch}")
                return

    def metadata(self, names: list[str]) -> None:
        if PARTITION_METADATA in names:
            try:
                read_partition_metadata(self.disk, self.directory)
            except CorruptCheckpoint as error:
                self.problem(str(error))
