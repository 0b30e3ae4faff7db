"""Reading and verifying directories without a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.errors import FatalError
from kbroker.log import opening
from kbroker.log.disk import OsDisk, ReadOnlyDisk
from kbroker.log.fake_disk import FakeDisk
from kbroker.log.log_config import LogConfig
from kbroker.log.partition_log import PartitionLog
from kbroker.log.read_only import PartitionDirectory, find_partitions
from kbroker.log.segments.indexed_file import CorruptSegment
from kbroker.log.verification import verify_partition
from kbroker.wire.compression import CompressionType
from tests.log.log_helpers import DIRECTORY, NOW, TP, append, open_log, read_all, remove_expired
from tests.log.test_compaction import CONFIG as COMPACT
from tests.log.test_compaction import clean, end_txn, pairs, put


def filled(disk: FakeDisk | None = None) -> PartitionLog:
    """Several segments, two producers, a committed, an aborted and an open transaction."""
    log = open_log(disk, LogConfig(segment_bytes=700, index_interval_bytes=100))
    for number in range(10):
        put(log, [(b"k", b"plain-%d" % number)], timestamp=NOW + number)
    put(log, [(b"k", b"aborted")] * 3, producer_id=1, sequence=0, transactional=True)
    put(log, [(b"k", b"committed")] * 3, producer_id=2, sequence=0, transactional=True)
    end_txn(log, 1, commit=False)
    put(log, [(b"k", b"later")], producer_id=1, sequence=3, transactional=True)
    end_txn(log, 2, commit=True)
    end_txn(log, 1, commit=True)
    put(log, [(b"k", b"zstd-%d" % number) for number in range(20)], codec=CompressionType.ZSTD)
    put(log, [(b"k", b"open")], producer_id=2, sequence=3, transactional=True)
    put(log, [(b"k", b"after")])
    assert len(log.segments) > 2
    return log


def test_all_that_a_consumer_sees() -> None:
    log = filled()
    directory = PartitionDirectory(DIRECTORY, log.disk)
    assert directory.topic_partition == TP
    everything = [(record.offset, record.key, record.value) for record in directory.records(read_committed=False)]
    assert everything == pairs(log)
    committed = [record.value for record in directory.records()]
    assert committed == [
        *(b"plain-%d" % number for number in range(10)),
        *[b"committed"] * 3,
        b"later",
        *(b"zstd-%d" % number for number in range(20)),
    ]
    assert directory.last_stable_offset() == log.first_unstable_offset
    assert [record.offset for record in directory.records(3, 6)] == [3, 4, 5]
    assert [record.offset for record in directory.records(25, 27)] == [25, 26], "inside a batch"


def test_a_compacted_log_and_one_that_deleterecords_cut() -> None:
    log = open_log(config=COMPACT)
    for number in range(60):
        put(log, [(b"k%d" % (number % 7), b"v%d" % number + b"x" * 50)])
    log.roll(NOW)
    clean(log)
    directory = PartitionDirectory(DIRECTORY, log.disk)
    assert [(record.offset, record.key, record.value) for record in directory.records()] == pairs(log)
    log.disk.write_bytes("/data/log-start-offset-checkpoint", b"0\n1\ntopic 0 56\n")
    assert [record.offset for record in directory.records()] == [offset for offset, _, _ in pairs(log) if offset >= 56]


def test_what_is_being_written_ends_it_and_damage_is_told() -> None:
    disk = FakeDisk()
    log = filled(disk)
    expected = read_all(log)
    directory = PartitionDirectory(DIRECTORY, disk)
    active = disk.open(log.active_segment.path)
    active.truncate(active.size() - 3)
    assert [record.offset for record in directory.records(read_committed=False)] == [
        record.offset for record in directory.records(0, expected[-1][0], read_committed=False)
    ]
    disk.flip_bit(log.segments[0].path, 8 * 100)
    with pytest.raises(CorruptSegment, match=r"00000\.log: at byte"):
        list(directory.records(read_committed=False))


def test_segments_that_are_replaced_meanwhile_are_found_again() -> None:
    log = open_log(config=COMPACT)
    for number in range(80):
        put(log, [(b"k%d" % (number % 50), b"v%d" % number + b"x" * 50)])
    log.roll(NOW)
    directory = PartitionDirectory(DIRECTORY, log.disk)
    found = []
    for record in directory.records():
        found.append(record.offset)
        if len(found) == 10:
            clean(log)
            remove_expired(log, NOW + 10**9)
    assert found == sorted(set(found))
    assert {offset for offset, _, _ in pairs(log) if offset > 9} <= set(found)


def test_a_log_that_grows_is_read_on() -> None:
    """From where the last look ended, also across transactions that end later, new segments, and compaction."""
    log = open_log(config=COMPACT)
    put(log, [(b"k", b"first")])
    directory = PartitionDirectory(DIRECTORY, log.disk)
    found: list[tuple[int, bytes | None]] = []
    position = 0

    def look() -> None:
        nonlocal position
        stable = directory.last_stable_offset(stable=position)
        assert stable == PartitionDirectory(DIRECTORY, log.disk).last_stable_offset()
        found.extend((each.offset, each.value) for each in directory.records(position, stable=stable))
        position = stable

    def plain(first: int) -> None:
        for number in range(first, first + 5):
            put(log, [(b"k%d" % (number % 3), b"v%d" % number + b"x" * 50)])

    wanted: dict[int, bytes | None] = {}
    for step in range(12):
        plain(step * 5)
        put(log, [(b"t", b"kept" if step % 2 else b"aborted")], producer_id=1, sequence=step, transactional=True)
        look()
        plain(step * 5 + 60)
        end_txn(log, 1, commit=step % 2 == 1)
        if step != 5:
            look()
        wanted |= {each.offset: each.value for each in PartitionDirectory(DIRECTORY, log.disk).records()}
        if step in (3, 7):
            log.roll(NOW)
            clean(log)
    look()
    assert found == sorted(wanted.items()) and len(log.segments) > 1


def test_nothing_is_changed_on_a_real_disk(tmp_path: Path) -> None:
    log = opening.open_log(tmp_path / "topic-0", TP, None, LogConfig(segment_bytes=300), OsDisk(), now_ms=NOW)
    for number in range(10):
        append(log, [b"%d" % number * 30])
    log.close()
    before = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in (tmp_path / "topic-0").iterdir()}
    (found,) = find_partitions(tmp_path, "topic")
    assert len(list(found.records())) == 10
    assert verify_partition(found.path, records=True).problems == []
    assert {
        path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in (tmp_path / "topic-0").iterdir()
    } == before
    with pytest.raises(PermissionError):
        ReadOnlyDisk().open(str(tmp_path / "new"), create=True)
    assert find_partitions(tmp_path, "other") == []
    with pytest.raises(FatalError, match="no directory of a partition"):
        PartitionDirectory(tmp_path)


# -- verification


def test_a_sound_directory_has_no_problems() -> None:
    log = filled()
    report = verify_partition(DIRECTORY, records=True, disk=log.disk)
    assert report.problems == []
    assert (report.start_offset, report.end_offset) == (0, log.log_end_offset)
    assert report.segments == len(log.segments)
    assert report.bytes == log.size
    log.close()
    report = verify_partition(DIRECTORY, records=True, disk=log.disk)
    assert (report.problems, report.notes) == ([], [])


def test_a_compacted_directory_is_sound() -> None:
    log = open_log(config=COMPACT)
    for number in range(60):
        put(log, [(b"k%d" % (number % 7), b"v%d" % number + b"x" * 50)])
    log.roll(NOW)
    clean(log)
    log.close()
    report = verify_partition(DIRECTORY, records=True, disk=log.disk)
    assert (report.problems, report.notes) == ([], [])


@pytest.mark.parametrize("is_active", [True, False])
def test_a_torn_transaction_index(is_active: bool) -> None:
    """Of the segment that is written it is what a crash may leave; the others were made durable when they ended."""
    disk = FakeDisk()
    log = open_log(disk, LogConfig())
    for sequence in range(2):
        put(log, [(b"k", b"aborted")], producer_id=1, sequence=sequence, transactional=True)
        end_txn(log, 1, commit=False)
    path = log.active_segment.txn_index.path
    if not is_active:
        log.roll(NOW)
        put(log, [(b"k", b"later")])
    log.close()
    whole = disk.read_bytes(path)
    disk.open(path).truncate(len(whole) - 5)

    report = verify_partition(DIRECTORY, records=True, disk=disk)
    if not is_active:
        assert report.problems == [f"{path}: its last entry is torn"]
        return
    text = f"{path}: its last entry is torn (of the segment that is written; a start builds it again)"
    assert (report.problems, report.notes) == ([], [text])
    assert len(disk.read_bytes(path)) == len(whole) - 5, "nothing is changed"
    open_log(disk, LogConfig()).close()
    assert disk.read_bytes(path) == whole
    report = verify_partition(DIRECTORY, records=True, disk=disk)
    assert (report.problems, report.notes) == ([], [])


def test_each_kind_of_damage_is_told_with_its_file() -> None:
    def damaged(change: str) -> tuple[list[str], list[str]]:
        disk = FakeDisk()
        log = filled(disk)
        log.close()
        first = log.segments[0].path[:-4]
        active = log.active_segment.path[:-4]
        if change == "log":
            disk.flip_bit(first + ".log", 8 * 90)
        elif change == "tail":
            file = disk.open(active + ".log")
            file.truncate(file.size() - 1)
        elif change == "index":
            disk.open(first + ".index").write_at(4, [(10**6).to_bytes(4, "big")])
        elif change == "offset in index":
            disk.open(first + ".index").write_at(0, [(0).to_bytes(4, "big")])
        elif change == "timeindex":
            disk.open(first + ".timeindex").write_at(0, [(5).to_bytes(8, "big")])
        elif change == "txnindex":
            (path,) = (
                f"{DIRECTORY}/{name}"
                for name in disk.list_dir(DIRECTORY)
                if name.endswith(".txnindex") and disk.size(f"{DIRECTORY}/{name}")
            )
            disk.open(path).write_at(2, [(77).to_bytes(8, "big")])
        elif change == "epochs":
            disk.write_bytes(f"{DIRECTORY}/leader-epoch-checkpoint", b"0\n1\n5 0\n")
        elif change == "epochs file":
            disk.write_bytes(f"{DIRECTORY}/leader-epoch-checkpoint", b"what?\n")
        elif change == "metadata":
            disk.write_bytes(f"{DIRECTORY}/partition.metadata", b"version: 9\n")
        elif change == "snapshot":
            *_, name = (name for name in disk.list_dir(DIRECTORY) if name.endswith(".snapshot"))
            disk.flip_bit(f"{DIRECTORY}/{name}", 80)
        elif change == "missing index":
            disk.remove(first + ".index")
        elif change == "missing segment end":
            disk.open(first + ".log").truncate(100)
        elif change == "swap":
            disk.write_bytes(first + ".log.swap", b"")
        report = verify_partition(DIRECTORY, records=True, disk=disk)
        return report.problems, report.notes

    for change, part in [
        ("log", "00000000000000000000.log: at byte"),
        ("index", "00000000000000000000.index: "),
        ("offset in index", "00000000000000000000.index: the batch at"),
        ("timeindex", "00000000000000000000.timeindex: timestamp 5"),
        ("txnindex", ".txnindex: no ABORT marker of producer 77"),
        ("epochs", "leader-epoch-checkpoint: offset 0 is of epoch 5"),
        ("epochs file", "leader-epoch-checkpoint"),
        ("metadata", "partition.metadata: version '9'"),
        ("missing segment end", "00000000000000000000.log: at byte"),
    ]:
        problems, _ = damaged(change)
        assert problems, change
        assert part in problems[0], (change, problems)
    for change, part in [
        ("tail", "is cut off after"),
        ("snapshot", "the checksum is"),
        ("missing index", ".index: missing"),
        ("swap", "compaction was interrupted"),
    ]:
        problems, notes = damaged(change)
        assert not problems, (change, problems)
        assert any(part in note for note in notes), (change, notes)
