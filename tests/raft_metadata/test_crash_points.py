"""The power fails in the middle of every single operation on the metadata log, its snapshots and the vote file."""

from __future__ import annotations

from kbroker.log.checkpoint_files import MetaProperties
from kbroker.log.fake_disk import FakeDisk
from kbroker.raft_metadata.raft.batches import encode_records
from kbroker.raft_metadata.raft.election_state import ElectionState, QuorumStateFile
from kbroker.raft_metadata.raft.promises import PromisesFile
from kbroker.raft_metadata.raft.record_store import PartitionStore
from kbroker.raft_metadata.raft.replicated_log import ReplicatedLog
from kbroker.raft_metadata.raft.snapshot import SnapshotStore, encode_snapshot
from kbroker.raft_metadata.raft.voters import ReplicaKey
from kbroker.types import OffsetAndEpoch, Uuid
from kbroker.wire.batch_header import walk_headers
from kbroker.wire.records.metadata import NoOpRecord
from tests.log.log_helpers import at_every_point

DIRECTORY = "/data/__cluster_metadata-0"


class Replica:
    """The files of one node, opened as its driver does."""

    def __init__(self, disk: FakeDisk) -> None:
        self.snapshots = SnapshotStore(disk, DIRECTORY)
        ids = self.snapshots.ids()
        for snapshot_id in ids:
            self.snapshots.read(snapshot_id)  # whole, or not there
        self.store = PartitionStore.open(
            DIRECTORY, disk, segment_bytes=400, now_ms=0, snapshot_offsets=[snapshot_id.offset for snapshot_id in ids]
        )
        self.promises = PromisesFile(disk, "/data", MetaProperties("c", 1))
        self.log = ReplicatedLog(self.store, self.snapshots, promises=self.promises)
        self.votes = QuorumStateFile(disk, DIRECTORY, self.promises)


class Life:
    """A fixed story. What was promised so far stands in the attributes."""

    def __init__(self, disk: FakeDisk) -> None:
        self.disk = disk
        self.batches: dict[int, bytes] = {}
        self.durable = 0
        self.voted: ElectionState | None = None
        self.voting: ElectionState | None = None
        self.snapshot_offset = 0

    def run(self) -> None:
        self.disk.make_dirs("/data")
        self.disk.sync_dir("/")
        for start in range(3):
            replica = Replica(self.disk)
            log = replica.log
            for election in range(3):
                epoch = start * 3 + election + 1
                for state in (
                    ElectionState(epoch, voted=ReplicaKey(election, Uuid(bytes([election + 1]) * 16))),
                    ElectionState(epoch, leader_id=election),
                ):
                    self.voting = state
                    replica.votes.write(state, 1, [])
                    self.voted, self.voting = state, None
                for _ in range(4):
                    self.append(log, epoch)
                self.flush(log)
                self.append(log, epoch)
                log.truncate_to(log.end_offset - 1)  # of a leader that was not followed
                self.durable = min(self.durable, log.end_offset)
            self.flush(log)
            self.take_snapshot(replica)
            self.append(log, start * 3 + 3)
            if start == 1:
                self.fetch_snapshot(replica)
            if start != 2:
                log.close()
                self.durable = log.end_offset

    def append(self, log: ReplicatedLog, epoch: int) -> None:
        offset = log.end_offset
        data = encode_records(
            [NoOpRecord()] * 2, base_offset=offset, epoch=epoch, timestamp_ms=len(self.batches), metadata_version=30
        )
        self.batches[offset] = data
        assert log.append_fetched(data, epoch) is None

    def flush(self, log: ReplicatedLog) -> None:
        work = log.begin_flush()
        if work is not None:
            work.run()
            work.end()
        self.durable = log.end_offset

    def take_snapshot(self, replica: Replica) -> None:
        log = replica.log
        snapshot_id = OffsetAndEpoch(log.end_offset, log.last_epoch)
        content = encode_snapshot([NoOpRecord()] * 30, epoch=log.last_epoch, now_ms=0, last_contained_log_timestamp=0)
        replica.snapshots.write(snapshot_id, content)
        self.snapshot_offset = snapshot_id.offset
        log.on_snapshot_written(snapshot_id, 0)

    def fetch_snapshot(self, replica: Replica) -> None:
        log = replica.log
        snapshot_id = OffsetAndEpoch(log.end_offset + 10, log.last_epoch)
        content = encode_snapshot([NoOpRecord()] * 30, epoch=log.last_epoch, now_ms=0, last_contained_log_timestamp=0)
        for position in range(0, len(content), 200):
            log.write_snapshot_chunk(snapshot_id, position, content[position : position + 200])
        log.install_snapshot(snapshot_id, log.finish_snapshot(snapshot_id))
        self.snapshot_offset = self.durable = snapshot_id.offset


def verify(life: Life, disk: FakeDisk, point: int) -> None:
    if not disk.is_dir(DIRECTORY):
        assert life.durable == 0 and life.voted is None, point
        return
    replica = Replica(disk)
    log = replica.log
    assert replica.votes.read() in ({life.voted, life.voting} if life.voting is not None else {life.voted}), point
    assert log.end_offset >= life.durable, point
    assert log.is_whole, (point, replica.promises.lost)  # nothing was damaged
    assert log.start_offset == 0 or OffsetAndEpoch(log.start_offset, 0) <= replica.snapshots.ids()[-1], point
    assert not life.snapshot_offset or replica.snapshots.ids()[-1].offset >= life.snapshot_offset, point
    offset = log.start_offset
    while offset < life.durable:  # what follows may be what a truncation took away
        data = log.read_bytes(offset, 1 << 20)
        assert data, (point, offset)
        for position, header in walk_headers(data):
            if header.base_offset < life.durable:
                assert data[position : position + header.size] == life.batches[header.base_offset], point
            offset = header.next_offset
    epoch = max(log.last_epoch, 1) + 1
    offset = log.end_offset
    assert (
        log.append_fetched(
            encode_records([NoOpRecord()], base_offset=offset, epoch=epoch, timestamp_ms=0, metadata_version=30), epoch
        )
        is None
    )
    log.close()


def test_every_point() -> None:
    disk = FakeDisk()
    life = Life(disk)

    def fail(stopped: FakeDisk, point: int) -> None:
        stopped.crash(lose_all=point % 3 == 0)
        verify(life, stopped, point)

    assert at_every_point(disk, life.run, fail) > 300
