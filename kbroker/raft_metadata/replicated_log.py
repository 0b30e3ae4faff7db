"""``__cluster_metadata-0``: the metadata log on this node's disk, a partition log of batches of metadata records."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from kbroker.errors import ApiError, FatalError
from kbroker.log import opening
from kbroker.log.disk import Disk
from kbroker.log.leader_epochs import LeaderEpochs
from kbroker.log.log_config import LogConfig
from kbroker.log.partition_log import PartitionLog
from kbroker.raft_metadata.batches import (
    MetadataBatch,
    decode_batches,
    encode_control_records,
    encode_records,
)
from kbroker.raft_metadata.snapshot import SnapshotContent
from kbroker.raft_metadata.voters import VoterSet, VoterSetHistory
from kbroker.types import METADATA_TOPIC, METADATA_TOPIC_ID, OffsetAndEpoch, TopicPartition
from kbroker.wire.batch_header import check_crc, walk_headers
from kbroker.wire.errors import WireError
from kbroker.wire.records import control

_READ_BYTES = 1024 * 1024
MAX_BATCH_BYTES = 8 * 1024 * 1024
"""Largest batch of the metadata log (``KafkaRaftClient.MAX_BATCH_SIZE_BYTES``)."""


class FlushWork(Protocol):
    """A flush in two steps."""

    def run(self) -> None: ...

    def end(self) -> None: ...


class RecordStore(Protocol):
    """The part of a partition log that the metadata log is built on."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def last_epoch(self) -> int: ...

    def append(self, data: bytearray) -> None:
        """Append batches whose offsets and epochs are in place."""
        ...

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that holds ``offset``; at least one if there is any."""
        ...

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch:
        """Where the largest epoch not above ``epoch`` ends; (-1, -1) for an epoch above all, or an empty log."""
        ...

    def begin_flush(self) -> FlushWork | None:
        """What makes all durable that is appended so far: None if it is. ``run`` may be called from another thread
        while appends go on, then ``end`` from the owner's."""
        ...

    def truncate_to(self, offset: int) -> None: ...

    def restart_at(self, offset: int) -> None:
        """Drop everything; a snapshot holds what was below ``offset``."""
        ...

    def delete_before(self, offset: int, now_ms: int) -> None:
        """Forget what a snapshot holds."""
        ...

    def close(self) -> None: ...


class PartitionStore:
    """A :class:`RecordStore` on the node's disk."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log

    @classmethod
    def open(
        cls, directory: str, disk: Disk, *, segment_bytes: int, now_ms: int, snapshot_offset: int = 0
    ) -> PartitionStore:
        """Open or create the log in ``directory``; a torn tail is cut, as no one was told of it.

        ``snapshot_offset``: the end offset of the latest snapshot, below which nothing is needed or trusted.
        """
        config = LogConfig(
            segment_bytes=segment_bytes,
            max_message_bytes=MAX_BATCH_BYTES,
            retention_ms=-1,
            retention_bytes=-1,
            cleanup_policy=frozenset({"delete"}),
            file_delete_delay_ms=0,
        )
        if not disk.is_dir(directory):
            disk.make_dirs(directory)
            # ``quorum-state`` will be in it, and must not be lost with it.
            disk.sync_dir(os.path.dirname(directory))
        try:
            log = opening.open_log(
                directory,
                TopicPartition(METADATA_TOPIC, 0),
                METADATA_TOPIC_ID,
                config,
                disk,
                now_ms=now_ms,
                clean_shutdown=False,
                recovery_point=snapshot_offset,
                log_start_offset=snapshot_offset,
            )
        except ApiError as error:  # INCONSISTENT_TOPIC_ID
            raise FatalError(f"{directory}/partition.metadata is not that of the metadata log") from error
        return cls(log)

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def last_epoch(self) -> int:
        return max(self.log.leader_epochs.latest, 0)

    def append(self, data: bytearray) -> None:
        # The time matters only for rolling by age, which this log does not do.
        self.log.append_as_follower(memoryview(data), now_ms=0)

    def read(self, offset: int, max_bytes: int) -> bytes:
        return bytes(self.log.read_bytes(offset, max_bytes, max_offset=self.log.log_end_offset))

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch:
        return self.log.leader_epochs.end_offset_for(epoch, self.log.log_end_offset)

    def begin_flush(self) -> FlushWork | None:
        return self.log.begin_flush()

    def truncate_to(self, offset: int) -> None:
        self.log.truncate_to(offset)
        self._remove_expired(0)

    def restart_at(self, offset: int) -> None:
        self.log.truncate_fully_and_start_at(offset)
        self._remove_expired(0)

    def delete_before(self, offset: int, now_ms: int) -> None:
        log = self.log
        log.maybe_increment_log_start_offset(offset)
        if log.active_segment.base_offset < offset:
            log.roll(now_ms)
        log.delete_old_segments(now_ms)
        self._remove_expired(now_ms)

    def _remove_expired(self, now_ms: int) -> None:
        for path in self.log.take_expired_files(now_ms)[0]:
            self.log.disk.remove(path)

    def close(self) -> None:
        self.log.close()


class MemoryStore:
    """A :class:`RecordStore` without a disk, for tests and simulations. ``crash`` forgets what is not flushed."""

    def __init__(self) -> None:
        self.log_start_offset = 0
        self.flushed_offset = 0
        self._bases: list[int] = []
        self._ends: list[int] = []
        self._raw: list[bytes] = []
        self._epochs = LeaderEpochs()
        self._generation = 0

    @property
    def log_end_offset(self) -> int:
        return self._ends[-1] if self._ends else self.log_start_offset

    @property
    def last_epoch(self) -> int:
        return max(self._epochs.latest, 0)

    def append(self, data: bytearray) -> None:
        whole = bytes(data)
        for position, header in walk_headers(whole):
            if header.base_offset != self.log_end_offset:
                raise ValueError(f"batch at {header.base_offset} appended at {self.log_end_offset}")
            self._epochs.maybe_assign(header.partition_leader_epoch, header.base_offset)
            self._bases.append(header.base_offset)
            self._ends.append(header.last_offset + 1)
            self._raw.append(whole[position : position + header.size])

    def read(self, offset: int, max_bytes: int) -> bytes:
        first = bisect_right(self._ends, offset)
        size, last = 0, first
        while last < len(self._raw) and (last == first or size + len(self._raw[last]) <= max_bytes):
            size += len(self._raw[last])
            last += 1
        return b"".join(self._raw[first:last])

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch:
        return self._epochs.end_offset_for(epoch, self.log_end_offset)

    def begin_flush(self) -> FlushWork | None:
        return _MemoryFlush(self, self.log_end_offset, self._generation)

    def on_flushed(self, offset: int, generation: int) -> None:
        """All below ``offset`` survives a crash, if nothing was cut since."""
        if generation == self._generation:
            self.flushed_offset = max(self.flushed_offset, offset)

    def crash(self, keep: float = 0.0) -> None:
        """Lose what was not flushed, but for the first ``keep`` of it (0 to 1), which then is durable."""
        unflushed = self.log_end_offset - self.flushed_offset
        self.truncate_to(self.flushed_offset + int(unflushed * keep))
        self.flushed_offset = self.log_end_offset

    def truncate_to(self, offset: int) -> None:
        if offset >= self.log_end_offset:
            return
        kept = bisect_right(self._ends, offset)
        del self._bases[kept:], self._ends[kept:], self._raw[kept:]
        self._epochs.truncate_from_end(self.log_end_offset)
        self.flushed_offset = min(self.flushed_offset, self.log_end_offset)
        self._generation += 1

    def restart_at(self, offset: int) -> None:
        self._bases.clear()
        self._ends.clear()
        self._raw.clear()
        self._epochs.clear()
        self.log_start_offset = self.flushed_offset = offset
        self._generation += 1

    def delete_before(self, offset: int, now_ms: int) -> None:
        gone = bisect_right(self._ends, offset)
        del self._bases[:gone], self._ends[:gone], self._raw[:gone]
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self._epochs.truncate_from_start(offset)

    def close(self) -> None:
        """Nothing to give back."""


class _MemoryFlush:
    def __init__(self, store: MemoryStore, offset: int, generation: int) -> None:
        self._store = store
        self._offset = offset
        self._generation = generation

    def run(self) -> None:
        """Memory is durable enough."""

    def end(self) -> None:
        self._store.on_flushed(self._offset, self._generation)


class SnapshotFiles(Protocol):
    """The part of a snapshot store that the metadata log needs."""

    def ids(self) -> list[OffsetAndEpoch]:
        """Which there are, oldest first."""
        ...

    def read(self, snapshot_id: OffsetAndEpoch) -> SnapshotContent: ...

    def read_range(self, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int) -> tuple[int, bytes] | None:
        """Size of a snapshot and bytes of it; None if there is no such snapshot."""
        ...

    def write_chunk(self, snapshot_id: OffsetAndEpoch, position: int, data: bytes) -> None:
        """Keep a part of a snapshot that is being fetched; position 0 begins anew."""
        ...

    def finish(self, snapshot_id: OffsetAndEpoch) -> None:
        """All of it is there: make it durable under its name."""
        ...

    def write(self, snapshot_id: OffsetAndEpoch, data: bytes) -> None: ...

    def delete_before(self, snapshot_id: OffsetAndEpoch) -> list[OffsetAndEpoch]: ...


class ReplicatedLog:
    """The metadata log with its snapshots: records in, batches out, and the voters that it names.

    Invariant: a snapshot lies at the log's start, unless the log starts at offset 0.
    """

    def __init__(
        self, store: RecordStore, snapshots: SnapshotFiles | None = None, static_voters: VoterSet | None = None
    ) -> None:
        self._store = store
        self._snapshots = snapshots
        self._ids: list[OffsetAndEpoch] = snapshots.ids() if snapshots is not None else []
        self.bytes_seen = 0
        """Bytes appended or read since this object was made: how much a snapshot would save."""
        self.truncations = 0
        """How often something was cut off: a flush that began before says nothing about what follows."""
        self.voters = VoterSetHistory(static_voters)
        self._kraft_versions: list[tuple[int, int]] = []
        self._load()

    # What it is

    @property
    def start_offset(self) -> int:
        """The first offset that is still there."""
        return self._store.log_start_offset

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._store.log_end_offset

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, or of the snapshot before it."""
        return self._store.last_epoch or (self._ids[-1].epoch if self._ids else 0)

    @property
    def kraft_version(self) -> int:
        """The level of ``kraft.version`` that the log names, committed or not."""
        return self._kraft_versions[-1][1] if self._kraft_versions else 0

    @property
    def earliest_snapshot_id(self) -> OffsetAndEpoch | None:
        """The oldest snapshot."""
        return self._ids[0] if self._ids else None

    @property
    def latest_snapshot_id(self) -> OffsetAndEpoch | None:
        """The newest snapshot."""
        return self._ids[-1] if self._ids else None

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch:
        """Where the largest epoch not above ``epoch`` ends; the log's end for an epoch above all."""
        end = self._store.end_offset_for(epoch)
        return end if end.offset >= 0 else OffsetAndEpoch(self.end_offset, self.last_epoch)

    # Opening

    def _load(self) -> None:
        """Bring log and snapshots in line, and find the voters. :class:`FatalError` if something is missing."""
        latest = self.latest_snapshot_id
        if latest is not None and latest.offset > 0:
            diverges = self.end_offset > latest.offset and self._store.last_epoch < latest.epoch
            if diverges or self.end_offset < latest.offset:
                # The node stopped between the last byte of a fetched snapshot and the cut.
                self._store.restart_at(latest.offset)
        snapshot_offset = latest.offset if latest is not None else 0
        if self.start_offset > snapshot_offset:
            raise FatalError(
                f"the metadata log starts at offset {self.start_offset}, and no snapshot holds what was before"
            )
        if self._snapshots is not None:
            # The node stopped between the log's cut and the removal of older snapshots. The oldest tells a follower of
            # which epoch the record before the log was: by another one no follower would ever get past its snapshot.
            self._forget_snapshots_before(OffsetAndEpoch(self.start_offset, 0))
        self._load_control_state()

    def _load_control_state(self) -> None:
        self.voters.clear()
        self._kraft_versions.clear()
        latest = self.latest_snapshot_id
        start = self.start_offset
        if latest is not None and self._snapshots is not None:
            content = self._snapshots.read(latest)
            start = latest.offset
            if content.kraft_version is not None:
                self._kraft_versions.append((latest.offset - 1, content.kraft_version))
            if content.voters is not None:
                self.voters.add(latest.offset - 1, content.voters)
        while start < self.end_offset:
            data = self._store.read(start, _READ_BYTES)
            if not data:
                break
            start = self._note_control(data, start)

    def _note_control(self, data: bytes, start: int) -> int:
        """Remember the voters that batches name; the offset after the last batch."""
        for position, header in walk_headers(data):
            if header.last_offset < start:
                continue
            if header.is_control:
                for batch in decode_batches(data[position : position + header.size]):
                    for offset, record in enumerate(batch.records, batch.base_offset):
                        if isinstance(record, control.KRaftVersionRecord):
                            self._kraft_versions.append((offset, record.kraft_version))
                        elif isinstance(record, control.VotersRecord):
                            self.voters.add(offset, VoterSet.from_record(record))
            start = header.last_offset + 1
        return start

    # Writing

    def append_records(
        self, records: Sequence[Any], epoch: int, *, timestamp_ms: int, metadata_version: int
    ) -> OffsetAndEpoch:
        """Append one batch and say where its last record is. Not durable before a flush.

        ``ValueError`` if the batch is too big for the log.
        """
        base_offset = self.end_offset
        data = encode_records(
            records,
            base_offset=base_offset,
            epoch=epoch,
            timestamp_ms=timestamp_ms,
            metadata_version=metadata_version,
        )
        if len(data) > MAX_BATCH_BYTES:
            raise ValueError(f"{len(records)} metadata records take {len(data)} bytes, more than a batch may have")
        self._store.append(bytearray(data))
        self.bytes_seen += len(data)
        return OffsetAndEpoch(base_offset + len(records) - 1, epoch)

    def append_control(self, records: Sequence[Any], epoch: int, *, timestamp_ms: int) -> OffsetAndEpoch:
        """Append one batch of control records."""
        base_offset = self.end_offset
        data = encode_control_records(records, base_offset=base_offset, epoch=epoch, timestamp_ms=timestamp_ms)
        self._store.append(bytearray(data))
        self.bytes_seen += len(data)
        self._note_control(data, base_offset)
        return OffsetAndEpoch(base_offset + len(records) - 1, epoch)

    def append_fetched(self, data: bytes, epoch: int) -> str | None:
        """Append what the leader of ``epoch`` sent, up to the first batch that is damaged, of a later epoch, or does
        not continue the log; what is wrong with that one, None if nothing is. A cut last batch is no fault."""
        end, last_epoch, fault = self.end_offset, self.last_epoch, None
        taken = 0
        try:
            for position, header in walk_headers(data):
                check_crc(data, position, header)
                if header.base_offset != end:
                    fault = f"a batch at offset {header.base_offset} where {end} is next"
                elif not last_epoch <= header.partition_leader_epoch <= epoch:
                    fault = f"a batch of epoch {header.partition_leader_epoch} between {last_epoch} and {epoch}"
                if fault is not None:
                    break
                end, last_epoch = header.last_offset + 1, header.partition_leader_epoch
                taken = position + header.size
        except WireError as error:
            fault = str(error)
        if taken:
            kept = data[:taken]
            start = self.end_offset
            self._store.append(bytearray(kept))
            self.bytes_seen += taken
            self._note_control(kept, start)
        return fault

    def truncate_to(self, offset: int) -> None:
        """Cut the log: what is there from ``offset`` on is not the leader's."""
        self._store.truncate_to(offset)
        self.truncations += 1
        end = self.end_offset
        self.voters.truncate_to(end)
        while self._kraft_versions and self._kraft_versions[-1][0] >= end:
            self._kraft_versions.pop()

    def begin_flush(self) -> FlushWork | None:
        """The work that makes durable what is appended so far."""
        return self._store.begin_flush()

    # Reading

    def read_bytes(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that holds ``offset``; at least one if there is any."""
        return self._store.read(offset, max_bytes)

    def read(self, start: int, end: int) -> Iterator[MetadataBatch]:
        """The batches from offset ``start`` to ``end`` (excluded); :class:`FatalError` if one cannot be decoded."""
        offset = start
        while offset < end:
            data = self._store.read(offset, _READ_BYTES)
            if not data:
                raise FatalError(f"the metadata log ends at offset {offset}, before {end}")
            try:
                for batch in decode_batches(data):
                    if batch.last_offset < offset:
                        continue
                    if batch.base_offset >= end:
                        return
                    yield batch
                    offset = batch.last_offset + 1
            except WireError as error:
                raise FatalError(f"the metadata log is damaged at or after offset {offset}: {error}") from error

    # Snapshots

    def load_snapshot(self, snapshot_id: OffsetAndEpoch) -> SnapshotContent:
        """What a snapshot says."""
        assert self._snapshots is not None
        return self._snapshots.read(snapshot_id)

    def read_snapshot(self, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int) -> tuple[int, bytes] | None:
        """A snapshot's size and some of its bytes; None if there is no such snapshot."""
        if self._snapshots is None or snapshot_id not in self._ids:
            return None
        return self._snapshots.read_range(snapshot_id, position, max_bytes)

    def write_snapshot_chunk(self, snapshot_id: OffsetAndEpoch, position: int, data: bytes) -> None:
        """Keep a part of a snapshot that is being fetched."""
        assert self._snapshots is not None
        self._snapshots.write_chunk(snapshot_id, position, data)

    def install_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """A snapshot was fetched whole: it takes the place of the log. :class:`CorruptSnapshot` if it is damaged."""
        assert self._snapshots is not None
        self._snapshots.finish(snapshot_id)
        self._ids = self._snapshots.ids()
        # The snapshot is durable under its name before the log goes: whatever the moment of a crash, one is there.
        self._store.restart_at(snapshot_id.offset)
        self.truncations += 1
        self._forget_snapshots_before(snapshot_id)
        self._load_control_state()

    def on_snapshot_written(self, snapshot_id: OffsetAndEpoch, now_ms: int) -> None:
        """The owner has written a snapshot of all below ``snapshot_id.offset``: forget what it stands for."""
        assert self._snapshots is not None
        self._ids = self._snapshots.ids()
        if snapshot_id not in self._ids or snapshot_id.offset < self.start_offset:
            return  # a fetched one has overtaken it
        # The log goes before the older snapshots: whatever the moment of a crash, a snapshot meets the log's start.
        self._store.delete_before(snapshot_id.offset, now_ms)
        self._forget_snapshots_before(snapshot_id)
        self.voters.forget_before(snapshot_id.offset)

    def _forget_snapshots_before(self, snapshot_id: OffsetAndEpoch) -> None:
        assert self._snapshots is not None
        self._snapshots.delete_before(snapshot_id)
        self._ids = self._snapshots.ids()

    def close(self) -> None:
        """Give the files back."""
        self._store.close()
