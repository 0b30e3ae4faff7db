"""Transaction indexes that are damaged, missing or interrupted: they fit what is in the log."""

from __future__ import annotations

import contextlib

import pytest

from kbroker.log.fake_disk import FakeDisk, PowerCut
from kbroker.log.file_names import ABORTED_SUFFIX
from kbroker.log.log_config import LogConfig
from kbroker.log.partition_log import PartitionLog
from kbroker.wire.batch_header import walk_headers
from tests.log.log_helpers import DIRECTORY, NOW, at_every_point, open_log, remove_expired
from tests.log.test_compaction import end_txn, put


def aborted(log: PartitionLog) -> list[tuple[int, int, int]]:
    """From the batches alone: producer, first and last offset of each aborted transaction."""
    found: list[tuple[int, int, int]] = []
    open_since: dict[int, int] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read_bytes(offset, 500)
        for _, header in walk_headers(data):
            if not header.is_control:
                open_since.setdefault(header.producer_id, header.base_offset)
            elif (first := open_since.pop(header.producer_id, None)) is not None:
                found.append((header.producer_id, first, header.base_offset))
            offset = header.next_offset
    return found


def damaged(disk: FakeDisk, left: int | None) -> list[int]:
    """A log of many segments, closed cleanly, whose first transaction index has ``left`` bytes, or is gone; entries of
    each."""
    config = LogConfig(segment_bytes=300)
    log = open_log(disk, config)
    for sequence in range(8):
        put(log, [(b"k", b"v" * 50)], producer_id=5, sequence=sequence, transactional=True)
        end_txn(log, 5, commit=False)
    log.close()
    for directory in (DIRECTORY, "/data", "/"):
        disk.sync_dir(directory)
    path = log.segments[0].txn_index.path
    expected = entries(log)
    if left is None:
        disk.remove(path)
        disk.sync_dir(DIRECTORY)
    else:
        disk.write_bytes(path, disk.read_bytes(path)[:left], sync=True)
    return expected


def entries(log: PartitionLog) -> list[int]:
    return [len(segment.txn_index) for segment in log.segments]


def indexed(log: PartitionLog) -> list[tuple[int, int, int]]:
    return [
        (txn.producer_id, txn.first_offset, txn.last_offset) for segment in log.segments for txn in segment.txn_index
    ]


def test_a_transaction_index_says_nothing_of_what_was_lost_with_the_end_of_its_segment() -> None:
    disk = FakeDisk()
    log = open_log(disk)
    sizes = []
    for sequence in range(3):
        put(log, [(b"k", b"v")], producer_id=5, sequence=sequence, transactional=True)
        end_txn(log, 5, commit=False)
        sizes.append(log.size)
    log.close()
    disk.open(log.active_segment.path).truncate(sizes[0] + 1)
    log = open_log(disk)
    assert indexed(log) == aborted(log) == [(5, 0, 1)]
    put(log, [(b"k", b"v")], producer_id=5, sequence=1, transactional=True)
    end_txn(log, 5, commit=False)
    assert indexed(log) == aborted(log) == [(5, 0, 1), (5, 2, 3)]


@pytest.mark.parametrize("left", [-1, 0, None])
@pytest.mark.parametrize("end", ["kill", "crash", "lose all"])
def test_a_transaction_index_is_made_anew_whenever_it_is_interrupted(end: str, left: int | None) -> None:
    """A partial index must not be taken for whole, nor be lost once the log has been opened."""
    disk = FakeDisk()
    expected = damaged(disk, left)
    assert len(expected) > 3 and all(expected)
    begin, log_end = disk.operations, open_log(disk, LogConfig(segment_bytes=300), clean=True).log_end_offset
    points = range(begin, disk.operations + 1)
    assert len(points) > 3
    for point in points:
        again = FakeDisk(seed=point)
        damaged(again, left)
        again.crash_after = point
        with contextlib.suppress(PowerCut):
            assert entries(open_log(again, LogConfig(segment_bytes=300), clean=True)) == expected
        if end == "kill":
            again.kill()
        else:
            again.crash(lose_all=end == "lose all")
        log = open_log(again, LogConfig(segment_bytes=300), recovery_point=log_end)
        assert (log.log_end_offset, entries(log)) == (log_end, expected), point


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
def test_a_transaction_index_of_apache_kafka_is_missed_once_the_log_was_opened(clean: bool) -> None:
    disk = FakeDisk()
    expected = damaged(disk, 10_000)
    for name in disk.list_dir(DIRECTORY):
        if name.endswith(ABORTED_SUFFIX):
            disk.remove(f"{DIRECTORY}/{name}")
    log = open_log(disk, LogConfig(segment_bytes=300), clean=True)
    assert entries(log) == expected
    log.close()
    disk.remove(log.segments[1].txn_index.path)
    end = log.log_end_offset
    log = open_log(disk, LogConfig(segment_bytes=300), clean=clean, recovery_point=end)
    assert (log.log_end_offset, entries(log)) == (end, expected)
    # None stays that is not wanted: of a segment that goes, or has no aborted transaction any more.
    log.truncate_fully_and_start_at(end, now_ms=NOW)
    remove_expired(log, NOW + 100_000)
    assert not [name for name in disk.list_dir(DIRECTORY) if name.endswith(ABORTED_SUFFIX)]


def test_segments_whose_deletion_is_interrupted_keep_what_they_know_of_transactions() -> None:
    written, config = FakeDisk(), LogConfig(segment_bytes=300)
    damaged(written, 10_000)
    open_log(written, config, clean=True)
    disk = written.snapshot()
    log = open_log(disk, config, clean=True)
    left = set()

    def delete() -> None:
        log.maybe_increment_log_start_offset(log.log_end_offset - 1)
        assert log.delete_old_segments(NOW) == 7

    def check(stopped: FakeDisk, point: int) -> None:
        stopped.kill()
        again = open_log(stopped, config, recovery_point=log.log_end_offset)
        assert set(aborted(again)) <= set(indexed(again)), point
        left.add(len(again.segments))

    at_every_point(disk, delete, check)
    assert left == set(range(1, 9))
