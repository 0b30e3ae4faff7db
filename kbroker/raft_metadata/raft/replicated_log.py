"""The metadata log of one replica: batches of records, snapshots, and the voter sets that they name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from kbroker.errors import FatalError
from kbroker.log.damage import Damage
from kbroker.raft_metadata.raft.batches import BatchEncoder, MetadataBatch, decode_batches, encode_control_records
from kbroker.raft_metadata.raft.promises import Promises
from kbroker.raft_metadata.raft.record_store import MAX_BATCH_BYTES, FlushWork, RecordStore
from kbroker.raft_metadata.raft.snapshot import SnapshotContent
from kbroker.raft_metadata.raft.voters import VoterSet, VoterSetHistory
from kbroker.types import OffsetAndEpoch
from kbroker.wire.batch_header import check_crc, walk_headers
from kbroker.wire.errors import WireError
from kbroker.wire.records import control

_READ_BYTES = 1024 * 1024


class SnapshotFiles(Protocol):
    """The snapshots on disk, as the metadata log uses them."""

    def ids(self) -> list[OffsetAndEpoch]:
        """The ids of the snapshots, oldest first."""
        ...

    def read(self, snapshot_id: OffsetAndEpoch) -> SnapshotContent: ...

    def read_range(self, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int) -> tuple[int, bytes] | None:
        """A snapshot's size, and up to ``max_bytes`` from ``position``; None if there is no such snapshot."""
        ...

    def write_chunk(self, snapshot_id: OffsetAndEpoch, position: int, data: bytes) -> None:
        """Keep a part of a snapshot that is being fetched; position 0 begins it anew."""
        ...

    def finish(self, snapshot_id: OffsetAndEpoch) -> SnapshotContent:
        """Make a snapshot whose parts are all there durable under its name; its content."""
        ...

    def write(self, snapshot_id: OffsetAndEpoch, data: bytes) -> None: ...

    def delete_before(self, snapshot_id: OffsetAndEpoch) -> list[OffsetAndEpoch]: ...


class ReplicatedLog:
    """The metadata log with its snapshots: records in, batches out, and the voters that it names.

    Invariant: a snapshot lies at the log's start, unless the log starts at offset 0. There are two snapshots and the
    log from the older one on, once there have been two: the latest one may turn out to be damaged.
    """

    def __init__(
        self,
        store: RecordStore,
        snapshots: SnapshotFiles | None = None,
        static_voters: VoterSet | None = None,
        promises: Promises | None = None,
    ) -> None:
        self._store = store
        self._snapshots = snapshots
        self.promises = promises or Promises()
        """The promises of this replica, as a voter."""
        self._ids: list[OffsetAndEpoch] = snapshots.ids() if snapshots is not None else []
        self.bytes_seen = 0
        """Bytes appended since this object was made, by which the owner decides about the next snapshot."""
        self.truncations = 0
        """The number of times that the log was cut. A flush that began before the last cut proves nothing after it."""
        self.want_snapshot: Callable[[], None] = lambda: None
        """Called when a snapshot is to take the place of what was found damaged."""
        self.check_room: Callable[[int], None] = lambda size: None
        """Called with the size of what is fetched before it is written; ``OSError`` if the disk has no room for it."""
        self.voters = VoterSetHistory(static_voters)
        self._kraft_versions: list[tuple[int, int]] = []
        self._load()
        self._find_loss()
        store.on_damage = self._on_damage

    # What it is

    @property
    def start_offset(self) -> int:
        """The first offset in the log."""
        return self._store.log_start_offset

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._store.log_end_offset

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, or of the snapshot before it."""
        # Of a log that has just begun at a snapshot, the store may know older epochs alone.
        return max(self._store.last_epoch, self._ids[-1].epoch if self._ids else 0)

    @property
    def kraft_version(self) -> int:
        """The level of ``kraft.version`` in the log, committed or not."""
        return self._kraft_versions[-1][1] if self._kraft_versions else 0

    def kraft_version_at(self, offset: int) -> int:
        """The level of ``kraft.version`` of a snapshot that ends after ``offset``."""
        return next((level for at, level in reversed(self._kraft_versions) if at <= offset), 0)

    @property
    def earliest_snapshot_id(self) -> OffsetAndEpoch | None:
        """The id of the oldest snapshot."""
        return self._ids[0] if self._ids else None

    @property
    def latest_snapshot_id(self) -> OffsetAndEpoch | None:
        """The id of the newest snapshot."""
        return self._ids[-1] if self._ids else None

    @property
    def end(self) -> OffsetAndEpoch:
        """The log's end, with the epoch of the last record."""
        return OffsetAndEpoch(self.end_offset, self.last_epoch)

    @property
    def damage(self) -> Sequence[Damage]:
        """The places where the log was found damaged and cut, until it has all again."""
        return self._store.damage

    @property
    def is_whole(self) -> bool:
        """Whether all that this replica has promised is known, and the log has it."""
        return self.promises.lost is None and not self.promises.vote_lost

    def keeps_promises_to(self, end_offset: int) -> bool:
        """Whether the log below ``end_offset`` has all that this replica had promised, if that is known."""
        return not self.promises.vote_lost and self.promises.is_kept_by(OffsetAndEpoch(end_offset, self.last_epoch))

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch:
        """The end offset of the largest epoch not above ``epoch``; the log's end for an epoch above all."""
        end = self._store.end_offset_for(epoch)
        return end if end.offset >= 0 else OffsetAndEpoch(self.end_offset, self.last_epoch)

    # Opening

    def _load(self) -> None:
        """Reconcile log and snapshots after a crash, and read the voters. :class:`FatalError` if a part is missing."""
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

    def _find_loss(self) -> None:
        """Compare the log to the promises; note what is lost before anybody hears of this replica."""
        promises, end, at = self.promises, self.end, self.promises.end
        found = "; ".join(str(damage) for damage in self._store.damage)
        if not promises.is_kept_by(end):
            ends = f"offset {end.offset}, of epoch {end.epoch}"
            found = f"{found or 'it was cut'}; it ends at {ends}, and had ended at {at.offset}, of epoch {at.epoch}"
        elif found and not promises.is_missing:
            self._store.healed()  # what was not flushed is no promise
            return
        if found and (promises.lost is None or promises.is_damaged):
            promises.is_damaged = False
            promises.lose(found)

    def _on_damage(self) -> None:
        """Begin the log at its latest snapshot if that has what was found damaged while the log is in use."""
        latest = self.latest_snapshot_id
        if latest is None or any(each.end_offset > latest.offset for each in self._store.damage):
            self.want_snapshot()
        else:
            self.begin_at_latest_snapshot()

    def begin_at_latest_snapshot(self) -> None:
        """Forget the snapshot before the latest one, and the log before that."""
        latest = self.latest_snapshot_id
        if latest is not None and latest.offset > self.start_offset:
            self._store.delete_before(latest.offset, 0)
            self._forget_snapshots_before(latest)

    def regain(self) -> None:
        """The log has all again that was lost. Durable on return."""
        self.promises.regain(self.end)
        self._store.healed()

    def _load_control_state(self, content: SnapshotContent | None = None) -> None:
        self.voters.clear()
        self._kraft_versions.clear()
        latest = self.latest_snapshot_id
        start = self.start_offset
        if latest is not None and self._snapshots is not None:
            content = content or self._snapshots.read(latest)
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
        """Remember the voter sets and levels of ``kraft.version`` in batches; the offset after the last batch."""
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
        self, records: Sequence[object], epoch: int, *, timestamp_ms: int, metadata_version: int
    ) -> OffsetAndEpoch:
        """Append one batch, which is durable only after a flush; offset and epoch of its last record.

        ``ValueError`` if the batch is too big for the log.
        """
        batch = BatchEncoder(timestamp_ms, metadata_version)
        batch.add(records)
        return self.append_batch(batch, epoch)

    def append_batch(self, batch: BatchEncoder, epoch: int) -> OffsetAndEpoch:
        """Append a batch that was encoded some records at a time; as `append_records`."""
        base_offset = self.end_offset
        data = batch.whole(base_offset, epoch)
        if len(data) > MAX_BATCH_BYTES:
            raise ValueError(f"{batch.count} metadata records take {len(data)} bytes, more than a batch may have")
        self._store.append(bytearray(data))
        self.bytes_seen += len(data)
        return OffsetAndEpoch(base_offset + batch.count - 1, epoch)

    def append_control(self, records: Sequence[object], epoch: int, *, timestamp_ms: int) -> OffsetAndEpoch:
        """Append one batch of control records; offset and epoch of its last record."""
        base_offset = self.end_offset
        data = encode_control_records(records, base_offset=base_offset, epoch=epoch, timestamp_ms=timestamp_ms)
        self._store.append(bytearray(data))
        self.bytes_seen += len(data)
        self._note_control(data, base_offset)
        return OffsetAndEpoch(base_offset + len(records) - 1, epoch)

    def append_fetched(self, data: bytes, epoch: int) -> str | None:
        """Append the batches of the leader of ``epoch``, up to the first that is damaged, of a later epoch, or does not
        continue the log; the fault of that one, or None. A last batch that is cut short is no fault."""
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
            self.check_room(taken)
            self._store.append(bytearray(kept))
            self.bytes_seen += taken
            self._note_control(kept, start)
        return fault

    def truncate_to(self, offset: int) -> None:
        """Cut the log at ``offset``, from which on it is not the leader's."""
        self.promises.lower_end(self._end_below(offset))
        self._store.truncate_to(offset)
        self.truncations += 1
        end = self.end_offset
        self.voters.truncate_to(end)
        while self._kraft_versions and self._kraft_versions[-1][0] >= end:
            self._kraft_versions.pop()

    def _end_below(self, offset: int) -> OffsetAndEpoch:
        """The end that the log has once it is cut at ``offset``, which may be within a batch."""
        while offset > self.start_offset:
            _, header = next(walk_headers(self._store.read(offset - 1, 1)))
            if header.next_offset <= offset:
                return OffsetAndEpoch(header.next_offset, header.partition_leader_epoch)
            offset = header.base_offset
        return OffsetAndEpoch(self.start_offset, self._ids[-1].epoch if self._ids else 0)

    def begin_flush(self) -> FlushWork | None:
        """The work that makes all appended batches durable; None if they are."""
        work = self._store.begin_flush()
        return None if work is None else _PromisedFlush(work, self)

    # Reading

    def doubt(self, offset: int) -> None:
        """Have what is read at ``offset`` verified once more."""
        self._store.doubt(offset)

    def read_bytes(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that holds ``offset``; at least one if there is any. :class:`DamagedLog`."""
        return self._store.read(offset, max_bytes)

    def read(self, start: int, end: int, *, lazily: bool = False) -> Iterator[MetadataBatch]:
        """The batches from offset ``start`` to ``end`` (excluded); :class:`FatalError` if one cannot be decoded.

        Their records may be decoded ``lazily``, as they are read: :class:`WireError` then.
        """
        offset = start
        while offset < end:
            data = self._store.read(offset, _READ_BYTES)
            if not data:
                raise FatalError(f"the metadata log ends at offset {offset}, before {end}")
            try:
                for batch in decode_batches(data, lazily=lazily):
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
        """The content of a snapshot."""
        assert self._snapshots is not None
        return self._snapshots.read(snapshot_id)

    def read_snapshot(self, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int) -> tuple[int, bytes] | None:
        """A snapshot's size, and up to ``max_bytes`` from ``position``; None if there is no such snapshot."""
        if self._snapshots is None or snapshot_id not in self._ids:
            return None
        return self._snapshots.read_range(snapshot_id, position, max_bytes)

    def write_snapshot_chunk(self, snapshot_id: OffsetAndEpoch, position: int, data: bytes) -> None:
        """Keep a part of a snapshot that is being fetched."""
        assert self._snapshots is not None
        self._snapshots.write_chunk(snapshot_id, position, data)

    def finish_snapshot(self, snapshot_id: OffsetAndEpoch) -> SnapshotContent:
        """Check a snapshot that was fetched whole, and give it its name; in any thread, for it may be large.
        :class:`CorruptSnapshot` if it is damaged."""
        assert self._snapshots is not None
        return self._snapshots.finish(snapshot_id)

    def install_snapshot(self, snapshot_id: OffsetAndEpoch, content: SnapshotContent) -> None:
        """Replace the log by a snapshot that was fetched and finished."""
        assert self._snapshots is not None
        self._ids = self._snapshots.ids()
        self.promises.lower_end(snapshot_id)
        # The snapshot is durable under its name before the log goes: whatever the moment of a crash, one is there.
        self._store.restart_at(snapshot_id.offset)
        self.truncations += 1
        self._forget_snapshots_before(snapshot_id)
        self._load_control_state(content)

    def on_snapshot_written(self, snapshot_id: OffsetAndEpoch, now_ms: int) -> None:
        """Forget what a snapshot that the owner has written, and the one before it, make needless."""
        assert self._snapshots is not None
        self._ids = self._snapshots.ids()
        if snapshot_id not in self._ids or snapshot_id.offset < self.start_offset:
            self._forget_snapshots_before(OffsetAndEpoch(self.start_offset, 0))
            return  # a fetched one has overtaken it
        kept = max((other for other in self._ids if other < snapshot_id), default=snapshot_id)
        if self._store.damage:
            kept = snapshot_id
        elif kept == snapshot_id and not self.start_offset:
            kept = OffsetAndEpoch(0, 0)
        # The log goes before the older snapshots: whatever the moment of a crash, a snapshot meets the log's start.
        self._store.delete_before(kept.offset, now_ms)
        self._forget_snapshots_before(kept)
        self.voters.forget_before(snapshot_id.offset)

    def _forget_snapshots_before(self, snapshot_id: OffsetAndEpoch) -> None:
        assert self._snapshots is not None
        self._snapshots.delete_before(snapshot_id)
        self._ids = self._snapshots.ids()

    def close(self) -> None:
        """Close the files."""
        end = self.end
        if self._store.close():
            self.promises.note_end(end)
        self.promises.close()


class _PromisedFlush:
    """A flush of the log, after which the end that is on the disk is noted."""

    def __init__(self, work: FlushWork, log: ReplicatedLog) -> None:
        self._work = work
        self._log = log
        self._end = log.end
        self._truncations = log.truncations

    def run(self) -> None:
        self._work.run()
        if self._log.truncations == self._truncations:
            self._log.promises.note_end(self._end)

    def end(self) -> None:
        self._work.end()
