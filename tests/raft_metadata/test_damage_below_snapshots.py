"""Damage to the metadata log below the end of its newest snapshot, which has all that is lost there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from kbroker.log.checkpoint_files import MetaProperties
from kbroker.log.fake_disk import FakeDisk
from kbroker.raft_metadata.raft.batches import encode_records
from kbroker.raft_metadata.raft.election_state import ElectionState, QuorumStateFile
from kbroker.raft_metadata.raft.promises import PromisesFile
from kbroker.raft_metadata.raft.record_store import DamagedLog, PartitionStore
from kbroker.raft_metadata.raft.replicated_log import ReplicatedLog
from kbroker.raft_metadata.raft.snapshot import SnapshotStore, encode_snapshot
from kbroker.types import OffsetAndEpoch
from kbroker.wire.batch_header import walk_headers
from kbroker.wire.records.metadata import NoOpRecord

DIRECTORY = "/data/__cluster_metadata-0"
OLDER, LATEST, END = OffsetAndEpoch(8, 1), OffsetAndEpoch(14, 2), 24
LARGE, SMALL = 1 << 20, 400


def opened(disk: FakeDisk, segment_bytes: int = LARGE) -> ReplicatedLog:
    """The log as a node opens it."""
    snapshots = SnapshotStore(disk, DIRECTORY)
    promises = PromisesFile(disk, "/data", MetaProperties("c", 1))
    offsets = [each.offset for each in snapshots.set_damaged_aside()]
    election = QuorumStateFile(disk, DIRECTORY, promises).read()
    store = PartitionStore.open(
        DIRECTORY,
        disk,
        segment_bytes=segment_bytes,
        now_ms=0,
        snapshot_offsets=offsets,
        known_end=promises.end,
        latest_epoch=None if election is None else election.epoch,
    )
    return ReplicatedLog(store, snapshots, promises=promises)


def append(log: ReplicatedLog, epoch: int) -> None:
    records, base = [NoOpRecord()] * 2, log.end_offset
    data = encode_records(records, base_offset=base, epoch=epoch, timestamp_ms=base, metadata_version=30)
    assert log.append_fetched(data, epoch) is None
    work = log.begin_flush()
    assert work is not None
    work.run()
    work.end()


def take_snapshot(log: ReplicatedLog, disk: FakeDisk, snapshot_id: OffsetAndEpoch) -> None:
    data = encode_snapshot([NoOpRecord()], epoch=snapshot_id.epoch, now_ms=0, last_contained_log_timestamp=0)
    SnapshotStore(disk, DIRECTORY).write(snapshot_id, data)
    log.on_snapshot_written(snapshot_id, 0)


def filled(segment_bytes: int = LARGE, lag: int = 4) -> FakeDisk:
    """A log of twelve batches with two snapshots, the later one after the seventh batch; its node was killed.

    A segment ends ``lag`` offsets behind the snapshot.
    """
    disk = FakeDisk()
    disk.make_dirs("/data")
    log = opened(disk, segment_bytes)
    QuorumStateFile(disk, DIRECTORY, log.promises).write(ElectionState(3, leader_id=1), 1, [1])
    while log.end_offset < END:
        append(log, 1 + log.end_offset // 10)
        for each in (OLDER, LATEST):
            if log.end_offset == each.offset + lag:
                take_snapshot(log, disk, each)
    return disk


def segments(disk: FakeDisk) -> list[str]:
    return [f"{DIRECTORY}/{name}" for name in sorted(disk.list_dir(DIRECTORY)) if name.endswith(".log")]


def places(disk: FakeDisk) -> Iterator[tuple[str, int, int, int]]:
    """Each batch: file, position, size, and the offset behind it."""
    for path in segments(disk):
        for position, header in walk_headers(disk.read_bytes(path)):
            yield path, position, header.size, header.next_offset


def content(log: ReplicatedLog) -> list[int]:
    """The batches from the newest snapshot on."""
    assert log.latest_snapshot_id is not None
    return [batch.base_offset for batch in log.read(log.latest_snapshot_id.offset, log.end_offset)]


def assert_whole(log: ReplicatedLog) -> None:
    assert log.is_whole, log.promises.lost
    assert (log.end_offset, log.latest_snapshot_id) == (END, LATEST)
    assert content(log) == list(range(LATEST.offset, END, 2))
    assert log.start_offset in (0, OLDER.offset, LATEST.offset)


def flip(disk: FakeDisk, path: str, at: int) -> None:
    disk.flip_bit(path, 8 * at + 3)


def without_index(disk: FakeDisk, path: str, at: int) -> None:
    flip(disk, path, at)
    disk.remove(path.replace(".log", ".index"))


def zero_the_rest(disk: FakeDisk, path: str, at: int) -> None:
    """Zeros up to the end of the batch, or of the next one."""
    data = bytearray(disk.read_bytes(path))
    end = min(at + 60, len(data))
    data[at:end] = bytes(end - at)
    disk.write_bytes(path, bytes(data))


@pytest.mark.parametrize("way", [flip, without_index, zero_the_rest])
@pytest.mark.parametrize(("segment_bytes", "lag"), [(LARGE, 0), (LARGE, 4), (SMALL, 0), (SMALL, 2)])
def test_nothing_is_lost_that_the_newest_snapshot_has(
    way: Callable[[FakeDisk, str, int], None], segment_bytes: int, lag: int, caplog: pytest.LogCaptureFixture
) -> None:
    whole = filled(segment_bytes, lag)
    tried = told = 0
    for path, position, size, end in places(whole):
        for at in range(position, position + size, 7):
            if end > LATEST.offset or (way is zero_the_rest and end == LATEST.offset):
                continue
            disk = whole.snapshot()
            way(disk, path, at)
            caplog.clear()
            with caplog.at_level(logging.WARNING):
                log = opened(disk, segment_bytes)
            assert_whole(log)
            tried += 1
            told += "nothing of that is lost" in caplog.text
            for _ in range(2):  # also when it is started again
                log = opened(disk, segment_bytes)
                assert_whole(log)
            append(log, 3)
            take_snapshot(log, disk, log.end)
            append(log, 3)
            assert content(opened(disk, segment_bytes))[-1] == END + 2
    assert told > tried // 4 or not lag, "damage in the segment of the snapshot is found at the start"


def test_what_is_taken_out_is_set_aside() -> None:
    disk = filled()
    path, position, size, _ = list(places(disk))[5]
    before = disk.read_bytes(path)[position : position + size]
    flip(disk, path, position + size - 1)
    damaged = disk.read_bytes(path)[position : position + size]
    assert damaged != before
    assert opened(disk).start_offset == LATEST.offset
    (aside,) = [name for name in disk.list_dir(DIRECTORY) if name.endswith(".set-aside")]
    assert disk.read_bytes(f"{DIRECTORY}/{aside}") == damaged


def test_damage_at_the_snapshots_end_or_behind_loses_what_was_there() -> None:
    whole = filled()
    for path, position, size, end in places(whole):
        if end > LATEST.offset:
            disk = whole.snapshot()
            flip(disk, path, position + size - 1)
            log = opened(disk)
            assert not log.is_whole and log.end_offset == end - 2
            log = opened(disk)
            assert not log.is_whole and log.end_offset == end - 2


def test_damage_on_both_sides_loses_what_is_behind() -> None:
    disk = filled()
    for index in (5, 9):
        path, position, size, end = list(places(disk.snapshot()))[index]
        flip(disk, path, position + size - 1)
    log = opened(disk)
    assert not log.is_whole and (log.start_offset, log.end_offset) == (LATEST.offset, end - 2)


def test_a_log_that_ends_at_its_snapshot_may_be_damaged_anywhere() -> None:
    whole = filled()
    log = opened(whole)
    take_snapshot(log, whole, log.end)
    for path, position, size, _ in places(whole):
        disk = whole.snapshot()
        flip(disk, path, position + size - 1)
        again = opened(disk)
        assert again.is_whole and again.end_offset == END
        append(again, 3)
        assert content(opened(disk))[-1] == END


def test_the_last_batch_gets_its_leader_epoch_again() -> None:
    """No checksum covers it, and a voter that seems to know a later epoch than the others wins elections."""
    whole = filled()
    *_, (path, position, _, _) = places(whole)
    for bit in range(32):
        disk = whole.snapshot()
        disk.flip_bit(path, 8 * (position + 12) + bit)
        for _ in range(2):
            log = opened(disk)
            if log.end_offset == END:
                assert (log.last_epoch, log.is_whole, content(log)[-1]) == (3, True, END - 2)
            else:  # an epoch that cannot be or follow, or that does not bear out the one before
                assert bit in (7, 24, 25) and not log.is_whole


def test_an_epoch_that_was_is_left_alone() -> None:
    """Another broker, or a copy, may have written another end of the same offset."""
    disk = filled()
    log = opened(disk)
    log.truncate_to(END - 2)
    QuorumStateFile(disk, DIRECTORY, log.promises).write(ElectionState(9, leader_id=1), 1, [1])
    append(log, 9)
    assert opened(disk).end == OffsetAndEpoch(END, 9)
    PromisesFile(disk, "/data", MetaProperties("c", 1)).accept(OffsetAndEpoch(END, 3))
    assert opened(disk).end == OffsetAndEpoch(END, 9)


def garbage(disk: FakeDisk, path: str, at: int) -> None:
    disk.write_bytes(path, disk.read_bytes(path) + b"\x07" * 99)


@pytest.mark.parametrize("way", [flip, garbage])
def test_damage_that_is_found_later_has_the_log_begin_at_the_snapshot(
    way: Callable[[FakeDisk, str, int], None], caplog: pytest.LogCaptureFixture
) -> None:
    disk = filled(lag=0)
    path, position, size, _ = list(places(disk))[5]
    assert path != segments(disk)[-1], "what is before the snapshot's segment is not verified at the start"
    way(disk, path, position + size - 1)
    log = opened(disk)
    assert log.start_offset < LATEST.offset
    with caplog.at_level(logging.WARNING), pytest.raises(DamagedLog):
        for offset in range(OLDER.offset, LATEST.offset):
            log.read_bytes(offset, 1 << 20)
    assert "nothing of that is lost" in caplog.text
    assert (log.start_offset, log.earliest_snapshot_id) == (LATEST.offset, LATEST)
    assert any(name.endswith(".set-aside") for name in disk.list_dir(DIRECTORY))
    assert_whole(log)
    assert_whole(opened(disk))
