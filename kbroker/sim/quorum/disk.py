"""The disk of one replica of the metadata log: when the node dies, unflushed data is lost in part or whole."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Union

from kbroker.log.checkpoint_files import MetaProperties
from kbroker.log.damage import Damage
from kbroker.log.fake_disk import FakeDisk
from kbroker.log.leader_epochs import LeaderEpochs
from kbroker.raft_metadata.raft.election_state import ElectionState, QuorumStateFile
from kbroker.raft_metadata.raft.promises import Promises, PromisesFile
from kbroker.raft_metadata.raft.record_store import FlushWork, PartitionStore
from kbroker.raft_metadata.raft.replicated_log import SnapshotFiles
from kbroker.raft_metadata.raft.snapshot import CorruptSnapshot, SnapshotContent, SnapshotStore, decode_snapshot
from kbroker.types import OffsetAndEpoch
from kbroker.wire.batch_header import walk_headers
from kbroker.wire.errors import WireError


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
        self.on_damage: Callable[[], None] = lambda: None

    @property
    def log_end_offset(self) -> int:
        return self._ends[-1] if self._ends else self.log_start_offset

    @property
    def last_epoch(self) -> int:
        return max(self._epochs.latest, 0)

    @property
    def damage(self) -> Sequence[Damage]:
        return ()

    def healed(self) -> None:
        """Nothing is noted here."""

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

    def doubt(self, offset: int) -> None:
        """Memory is beyond doubt."""

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch:
        return self._epochs.end_offset_for(epoch, self.log_end_offset)

    def begin_flush(self) -> FlushWork | None:
        return _MemoryFlush(self, self.log_end_offset, self._generation)

    def on_flushed(self, offset: int, generation: int) -> None:
        """All below ``offset`` survives a crash, if nothing was cut since."""
        if generation == self._generation:
            self.flushed_offset = max(self.flushed_offset, offset)

    def crash(self, keep: float = 0.0) -> None:
        """Lose what was not flushed, but for its first part ``keep`` (0 to 1), which then is durable."""
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

    def close(self) -> bool:
        return self.flushed_offset == self.log_end_offset


class _MemoryFlush:
    def __init__(self, store: MemoryStore, offset: int, generation: int) -> None:
        self._store = store
        self._offset = offset
        self._generation = generation

    def run(self) -> None:
        """Memory is durable enough."""

    def end(self) -> None:
        self._store.on_flushed(self._offset, self._generation)


LOG_DIR = "/node"
DIRECTORY = f"{LOG_DIR}/__cluster_metadata-0"
SEGMENT_BYTES = 2048
"""Small, so that segments are rolled."""

SimStore = Union[MemoryStore, "FileStore"]


class SimSnapshots:
    """Snapshots in memory; one is durable as soon as it has its name."""

    def __init__(self) -> None:
        self._files: dict[OffsetAndEpoch, bytes] = {}
        self._parts: dict[OffsetAndEpoch, bytes] = {}

    def ids(self) -> list[OffsetAndEpoch]:
        """The ids that there are, oldest first."""
        return sorted(self._files)

    def read(self, snapshot_id: OffsetAndEpoch) -> SnapshotContent:
        """A snapshot's content."""
        return decode_snapshot(self._files[snapshot_id])

    def read_range(self, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int) -> tuple[int, bytes] | None:
        """Size and some bytes."""
        data = self._files.get(snapshot_id)
        return None if data is None else (len(data), data[position : position + max_bytes])

    def write_chunk(self, snapshot_id: OffsetAndEpoch, position: int, data: bytes) -> None:
        """Keep a part."""
        self._parts[snapshot_id] = self._parts.get(snapshot_id, b"")[:position] + data

    def finish(self, snapshot_id: OffsetAndEpoch) -> SnapshotContent:
        """All parts are there."""
        data = self._parts.pop(snapshot_id)
        try:
            content = decode_snapshot(data)
        except WireError as error:
            raise CorruptSnapshot(str(error)) from error
        self._files[snapshot_id] = data
        return content

    def write(self, snapshot_id: OffsetAndEpoch, data: bytes) -> None:
        """Put one in place."""
        self._files[snapshot_id] = data

    def delete_before(self, snapshot_id: OffsetAndEpoch) -> list[OffsetAndEpoch]:
        """Remove older ones."""
        old = [other for other in self.ids() if other < snapshot_id]
        for other in old:
            del self._files[other]
        return old


class SimDisk:
    """The log, the snapshots and ``quorum-state`` of one node, in memory: quick, and close enough to files."""

    def __init__(self, rng: random.Random, max_latency_ms: int) -> None:
        self.store: SimStore = MemoryStore()
        self.snapshots: SnapshotFiles = SimSnapshots()
        self.promises = Promises()
        self.is_damaged = False
        """Whether the log was damaged, and the node that votes has not yet got back what it lost."""
        self.election: ElectionState | None = None
        self._writing: ElectionState | None = None
        self._rng = rng
        self._max_latency_ms = max_latency_ms

    def latency_ms(self) -> int:
        """The time that the next flush takes; now and then a disk is slow."""
        if self._rng.random() < 0.02:
            return self._rng.randrange(20 * self._max_latency_ms + 1)
        return self._rng.randrange(self._max_latency_ms + 1)

    def begin_election(self, state: ElectionState) -> None:
        """``quorum-state`` is being written."""
        self._writing = state

    def end_election(self) -> None:
        """Note that the written vote is durable."""
        if self._writing is not None:
            self.election, self._writing = self._writing, None

    def crash(self) -> None:
        """The power fails: of what was not durable, a part may be there."""
        if self._rng.random() < 0.5:
            self.end_election()
        self._writing = None
        self._lose()

    def _lose(self) -> None:
        assert isinstance(self.store, MemoryStore)
        self.store.crash(keep=self._rng.random())

    def damage(self) -> str:
        """Have the log, flushed or not, end at an earlier batch while the node is down; what was done."""
        assert isinstance(self.store, MemoryStore)
        self.is_damaged = True
        self.store.truncate_to(self._rng.randint(self.store.log_start_offset, self.store.log_end_offset))
        return f"the log ends at {self.store.log_end_offset}"


class FileSimDisk(SimDisk):
    """The node's real files on a disk in memory that loses sectors and names when the power fails: the partition log,
    its recovery, the snapshot files and ``quorum-state`` as a node writes them."""

    def __init__(self, rng: random.Random, max_latency_ms: int) -> None:
        super().__init__(rng, max_latency_ms)
        self._disk = FakeDisk(seed=rng.randrange(1 << 30))
        self._disk.make_dirs(LOG_DIR)
        self._disk.sync_dir("/")
        self._open()

    def _open(self) -> None:
        self.promises = PromisesFile(self._disk, LOG_DIR, MetaProperties("sim", 1))
        self._file = QuorumStateFile(self._disk, DIRECTORY, self.promises)
        self.election = self._file.read()
        self.snapshots = SnapshotStore(self._disk, DIRECTORY)
        offsets = [snapshot_id.offset for snapshot_id in self.snapshots.ids()]
        self.store = FileStore(self._disk, offsets, self.promises.end, self.election)
        if self.store.log_start_offset > (offsets[-1] if offsets else 0):
            # As a node does: no snapshot has what was before, so nothing of it can be used.
            self.promises.lose("its beginning is gone")
            if self.election is not None:
                self.promises.vote(self.election, [])
            self._disk.rename(DIRECTORY, f"{DIRECTORY}-{len(self._disk.list_dir(LOG_DIR))}")
            self._disk.sync_dir(LOG_DIR)
            self._open()

    def end_election(self) -> None:
        if self._writing is not None:
            self._file.write(self._writing, 1, [])
        super().end_election()

    def _lose(self) -> None:
        if self._rng.random() < 0.5:
            self._disk.kill()
        else:
            self._disk.crash()
        self._open()

    def damage(self) -> str:
        whole, end = self._disk.snapshot(), self.store.log_end_offset
        paths = [f"{DIRECTORY}/{name}" for name in self._disk.list_dir(DIRECTORY) if name.endswith(".log")]
        path = self._rng.choice(paths)
        if self._disk.size(path) and self._rng.random() < 0.5:
            self._disk.flip_bit(path, self._rng.randrange(8 * self._disk.size(path)))
            done = f"{path} has another bit"
        else:
            done = self._disk.spoil(path)
        if self._rng.random() < 0.3:
            done += f", {self._disk.spoil(self._file.path)}"
        self._open()
        left = OffsetAndEpoch(self.store.log_end_offset, self.store.last_epoch)
        if left.offset < end and self.promises.is_kept_by(left):
            # A power cut has taken back the promised end, which nobody flushes: this looks like a torn tail.
            self._disk = whole
            self._open()
            return "not at all, as nothing would tell of it"
        self.is_damaged = True
        return done


class FileStore(PartitionStore):
    """The node's metadata log, with what a simulation asks besides."""

    def __init__(
        self, disk: FakeDisk, snapshot_offsets: list[int], known_end: OffsetAndEpoch, election: ElectionState | None
    ) -> None:
        store = PartitionStore.open(
            DIRECTORY,
            disk,
            segment_bytes=SEGMENT_BYTES,
            now_ms=0,
            snapshot_offsets=snapshot_offsets,
            known_end=known_end,
            latest_epoch=None if election is None else election.epoch,
        )
        super().__init__(store.log)
        self._durable = self.log_end_offset  # what is there after a crash stays there

    @property
    def flushed_offset(self) -> int:
        """All below survives a crash."""
        return max(self._durable, min(self.log.recovery_point, self.log_end_offset))

    def truncate_to(self, offset: int) -> None:
        super().truncate_to(offset)
        self._durable = min(self._durable, self.log_end_offset)

    def restart_at(self, offset: int) -> None:
        super().restart_at(offset)
        self._durable = offset
