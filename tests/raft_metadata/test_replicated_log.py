"""The metadata log: what it takes from a leader, and the voters that it names."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kbroker.errors import FatalError
from kbroker.log.disk import OsDisk
from kbroker.raft_metadata.raft.batches import encode_control_records, encode_records
from kbroker.raft_metadata.raft.record_store import PartitionStore, RecordStore
from kbroker.raft_metadata.raft.replicated_log import ReplicatedLog
from kbroker.raft_metadata.raft.snapshot import CorruptSnapshot, SnapshotStore, encode_snapshot
from kbroker.raft_metadata.raft.voters import ReplicaKey, VoterNode, VoterSet, VoterSetHistory
from kbroker.sim.quorum.disk import MemoryStore
from kbroker.types import OffsetAndEpoch, Uuid
from kbroker.wire.records import control
from kbroker.wire.records.metadata import NoOpRecord


def voter_set(*ids: int) -> VoterSet:
    return VoterSet.of(VoterNode(ReplicaKey(node_id, Uuid(bytes([node_id]) * 16))) for node_id in ids)


def data(offset: int, epoch: int, count: int = 1) -> bytes:
    return encode_records([NoOpRecord()] * count, base_offset=offset, epoch=epoch, timestamp_ms=0, metadata_version=30)


def voters_batch(offset: int, epoch: int, voters: VoterSet) -> bytes:
    records = [control.KRaftVersionRecord(version=0, kraft_version=1), voters.to_record()]
    return encode_control_records(records, base_offset=offset, epoch=epoch, timestamp_ms=0)


@pytest.fixture(params=["memory", "disk"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> RecordStore:
    if request.param == "memory":
        return MemoryStore()
    return PartitionStore.open(str(tmp_path / "log"), OsDisk(), segment_bytes=1 << 20, now_ms=0)


def snapshots(path: Path) -> SnapshotStore:
    path.mkdir(exist_ok=True)
    return SnapshotStore(OsDisk(), str(path))


def write_snapshot(path: Path, snapshot_id: OffsetAndEpoch, voters: VoterSet | None = None) -> None:
    level = None if voters is None else 1
    content = encode_snapshot(
        (), epoch=snapshot_id.epoch, now_ms=0, last_contained_log_timestamp=0, kraft_version=level, voters=voters
    )
    snapshots(path).write(snapshot_id, content)


def test_what_continues_the_log_is_taken(store: RecordStore) -> None:
    log = ReplicatedLog(store)
    assert log.append_fetched(data(0, 1, 3) + data(3, 2), 2) is None
    assert (log.end_offset, log.last_epoch) == (4, 2)
    whole = data(4, 2) + data(5, 2)
    assert log.append_fetched(whole[:-1], 2) is None  # the last batch is cut, as the fetch limit may
    assert log.end_offset == 5


@pytest.mark.parametrize(
    ("batches", "fault"),
    [
        (data(1, 1), "a batch at offset 1 where 0 is next"),
        (data(0, 1) + data(1, 5), "a batch of epoch 5 between 1 and 3"),
        (data(0, 3) + data(1, 2), "a batch of epoch 2 between 3 and 3"),
    ],
)
def test_what_does_not_continue_the_log_is_refused(store: RecordStore, batches: bytes, fault: str) -> None:
    log = ReplicatedLog(store)
    assert log.append_fetched(batches, 3) == fault


def test_a_flipped_bit_never_gets_into_the_log(store: RecordStore) -> None:
    rng = random.Random(1)
    batches = [data(0, 1), data(1, 1, 2), data(3, 1)]
    whole, positions, start = b"".join(batches), [], 0
    for batch in batches:
        # All but the leader epoch, which no checksum covers: it is judged by what comes before and by the leader's.
        positions += [start + at for at in range(len(batch)) if not 12 <= at < 16]
        start += len(batch)
    for _ in range(100):
        log = ReplicatedLog(MemoryStore())
        damaged = bytearray(whole)
        at = rng.choice(positions)
        damaged[at] ^= 1 << rng.randrange(8)
        log.append_fetched(bytes(damaged), 1)
        kept = log.read_bytes(0, 1 << 20)
        assert whole.startswith(kept)


def test_where_epochs_end(store: RecordStore) -> None:
    log = ReplicatedLog(store)
    log.append_fetched(data(0, 1, 3) + data(3, 4, 2), 4)
    assert log.end_offset_for(1) == (3, 1)
    assert log.end_offset_for(2) == (3, 1)
    assert log.end_offset_for(4) == (5, 4)
    assert log.end_offset_for(9) == (5, 4)
    log.truncate_to(4)
    assert (log.end_offset, log.truncations) == (3, 1)  # a batch goes as a whole


def test_the_latest_voters_count_from_the_moment_they_are_in_the_log(store: RecordStore) -> None:
    log = ReplicatedLog(store, static_voters=voter_set(9))
    assert log.voters.last.ids == [9] and log.kraft_version == 0
    log.append_fetched(data(0, 1) + voters_batch(1, 1, voter_set(1, 2, 3)), 1)
    assert log.voters.last.ids == [1, 2, 3] and log.kraft_version == 1 and log.voters.last_offset == 2
    log.append_control([voter_set(1, 2).to_record()], 1, timestamp_ms=0)
    assert log.voters.last.ids == [1, 2]
    again = ReplicatedLog(store, static_voters=voter_set(9))
    assert (again.voters.last.ids, again.voters.at(2).ids) == ([1, 2], [1, 2, 3])
    log.truncate_to(3)
    assert log.voters.last.ids == [1, 2, 3]
    log.truncate_to(1)
    assert log.voters.last.ids == [9] and log.kraft_version == 0


def test_a_fetched_snapshot_takes_the_logs_place(store: RecordStore, tmp_path: Path) -> None:
    files = snapshots(tmp_path / "snapshots")
    log = ReplicatedLog(store, files)
    log.append_fetched(data(0, 1, 3), 1)
    snapshot_id = OffsetAndEpoch(40, 7)
    content = encode_snapshot(
        [NoOpRecord()], epoch=7, now_ms=0, last_contained_log_timestamp=0, kraft_version=1, voters=voter_set(1, 2)
    )
    for at in range(0, len(content), 50):
        log.write_snapshot_chunk(snapshot_id, at, content[at : at + 50])
    assert log.latest_snapshot_id is None
    log.install_snapshot(snapshot_id, log.finish_snapshot(snapshot_id))
    assert (log.start_offset, log.end_offset, log.last_epoch) == (40, 40, 7)
    assert log.voters.last.ids == [1, 2] and log.latest_snapshot_id == snapshot_id
    assert log.append_fetched(data(40, 7), 7) is None
    assert log.read_snapshot(snapshot_id, 10, 20) == (len(content), content[10:30])
    assert log.read_snapshot(OffsetAndEpoch(41, 7), 0, 20) is None


def test_a_damaged_snapshot_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    log = ReplicatedLog(MemoryStore(), snapshots(tmp_path))
    log.append_fetched(data(0, 1, 3), 1)
    log.write_snapshot_chunk(OffsetAndEpoch(40, 7), 0, b"nothing of the kind")
    with pytest.raises(CorruptSnapshot):
        log.finish_snapshot(OffsetAndEpoch(40, 7))
    assert (log.start_offset, log.end_offset, log.latest_snapshot_id) == (0, 3, None)
    assert list(tmp_path.iterdir()) == []


def test_a_crash_between_the_snapshot_and_the_cut_is_made_good(tmp_path: Path) -> None:
    files, store = snapshots(tmp_path), MemoryStore()
    log = ReplicatedLog(store, files)
    log.append_fetched(data(0, 1, 3), 1)
    files.write(OffsetAndEpoch(40, 7), encode_snapshot((), epoch=7, now_ms=0, last_contained_log_timestamp=0))
    again = ReplicatedLog(store, files)
    assert (again.start_offset, again.end_offset, again.last_epoch) == (40, 40, 7)


def test_a_crash_before_older_snapshots_were_removed_is_made_good(tmp_path: Path) -> None:
    files, store = snapshots(tmp_path), MemoryStore()
    log = ReplicatedLog(store, files)
    log.append_fetched(data(0, 1, 3) + data(3, 2, 3), 2)
    for each in (OffsetAndEpoch(2, 1), OffsetAndEpoch(5, 2)):
        files.write(each, encode_snapshot((), epoch=each.epoch, now_ms=0, last_contained_log_timestamp=0))
    store.delete_before(5, 0)
    again = ReplicatedLog(store, files)
    assert again.start_offset == 5
    assert again.earliest_snapshot_id == again.latest_snapshot_id == OffsetAndEpoch(5, 2)
    assert files.ids() == [OffsetAndEpoch(5, 2)]


def test_voters_at_the_end_of_a_snapshot_may_be_cut_off(store: RecordStore, tmp_path: Path) -> None:
    """They were not committed, and the snapshot's count again."""
    log = ReplicatedLog(store, snapshots(tmp_path / "snapshots"))
    log.append_fetched(voters_batch(0, 1, voter_set(1, 2, 3)) + data(2, 1), 1)
    write_snapshot(tmp_path / "snapshots", OffsetAndEpoch(3, 1), voter_set(1, 2, 3))
    log.append_control([voter_set(1, 2).to_record()], 1, timestamp_ms=0)
    log.on_snapshot_written(OffsetAndEpoch(3, 1), 0)
    assert log.voters.last.ids == [1, 2]
    log.truncate_to(3)
    assert log.voters.last.ids == [1, 2, 3]


def test_a_snapshot_that_was_overtaken_by_a_fetched_one_goes(store: RecordStore, tmp_path: Path) -> None:
    """It is not the one at the log's start, by which followers are told whether they have what was before."""
    files = snapshots(tmp_path / "snapshots")
    log = ReplicatedLog(store, files)
    log.append_fetched(data(0, 1, 3), 1)
    fetched = OffsetAndEpoch(40, 7)
    log.write_snapshot_chunk(fetched, 0, encode_snapshot((), epoch=7, now_ms=0, last_contained_log_timestamp=0))
    log.install_snapshot(fetched, log.finish_snapshot(fetched))
    write_snapshot(tmp_path / "snapshots", OffsetAndEpoch(3, 1))  # which had begun before
    log.on_snapshot_written(OffsetAndEpoch(3, 1), 0)
    assert log.earliest_snapshot_id == log.latest_snapshot_id == fetched
    assert files.ids() == [fetched]


def test_nothing_stays_of_a_snapshot_that_is_not_fetched_to_its_end(tmp_path: Path) -> None:
    log = ReplicatedLog(MemoryStore(), snapshots(tmp_path))
    log.write_snapshot_chunk(OffsetAndEpoch(40, 7), 0, b"the first bytes")
    content = encode_snapshot((), epoch=7, now_ms=0, last_contained_log_timestamp=0)
    log.write_snapshot_chunk(OffsetAndEpoch(50, 7), 0, content)
    log.install_snapshot(OffsetAndEpoch(50, 7), log.finish_snapshot(OffsetAndEpoch(50, 7)))
    assert [path.name for path in tmp_path.iterdir()] == ["00000000000000000050-0000000007.checkpoint"]


def test_a_log_without_its_snapshot_is_refused(tmp_path: Path) -> None:
    store = MemoryStore()
    store.restart_at(40)
    with pytest.raises(FatalError, match="starts at offset 40, and no snapshot"):
        ReplicatedLog(store, snapshots(tmp_path))


def test_the_history_of_voters() -> None:
    history = VoterSetHistory(voter_set(9))
    history.add(-1, voter_set(1))
    history.add(10, voter_set(1, 2))
    history.add(20, voter_set(1, 2, 3))
    assert [history.at(offset).ids for offset in (-1, 9, 10, 19, 20, 99)] == [
        [1],
        [1],
        [1, 2],
        [1, 2],
        [1, 2, 3],
        [1, 2, 3],
    ]
    with pytest.raises(ValueError, match="come after"):
        history.add(20, voter_set(1))
    history.forget_before(15)
    assert history.at(15).ids == [1, 2]
    history.truncate_to(20)
    assert history.last.ids == [1, 2] and history.last_offset == 10
