"""The power fails at every operation while transactions are written: what is known of them fits what is in the log."""

from __future__ import annotations

import contextlib
import random

import pytest

from kbroker.log.fake_disk import FakeDisk, PowerCut
from kbroker.log.file_names import ABORTED_SUFFIX
from kbroker.log.log_config import LogConfig
from kbroker.log.manager import LogManager
from kbroker.log.partition_log import PartitionLog
from kbroker.wire.batch_header import walk_headers
from kbroker.wire.control_batch import parse_end_txn_marker
from kbroker.wire.record_batch import iter_records
from tests.log.log_helpers import DIRECTORY, NOW, TP, at_every_point, open_log, remove_expired
from tests.log.test_compaction import end_txn, put

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100, file_delete_delay_ms=0, retention_ms=-1)


def start(disk: FakeDisk) -> LogManager:
    return LogManager.open(["/data"], disk, now_ms=NOW, log_config=lambda tp: CONFIG, rng=random.Random(1))


def story(disk: FakeDisk, promised: dict[str, int]) -> None:
    """Three producers, their transactions interleaved, over two lives of a node."""
    rng = random.Random(3)
    sequences = [0, 0, 0]
    for round_ in range(2):
        manager = start(disk)
        log = manager.create_log(TP, None, CONFIG)
        log.on_high_watermark_updated(log.log_end_offset)
        for number in range(30):
            producer = rng.randrange(3)
            if log.producers.has_ongoing_transaction(producer, 0) and rng.random() < 0.5:
                end_txn(log, producer, commit=rng.random() < 0.5)
            else:
                pairs: list[tuple[bytes | None, bytes | None]] = [(b"k", b"v" * rng.randrange(80))] * 2
                put(log, pairs, producer_id=producer, sequence=sequences[producer], transactional=True)
                sequences[producer] += 2
            if number % 7 == 6:
                log.flush()
                manager.checkpoint({TP: log.log_end_offset})
                promised["durable"] = log.recovery_point
        if round_ == 0:
            manager.close()
            promised["durable"] = log.log_end_offset


def content(log: PartitionLog) -> tuple[list[tuple[int, int, int]], dict[int, int], dict[int, int]]:
    """From the batches alone: aborted transactions, open ones, and each producer's last sequence number."""
    aborted: list[tuple[int, int, int]] = []
    open_since: dict[int, int] = {}
    last_sequences: dict[int, int] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read_bytes(offset, 500)
        for position, header in walk_headers(data):
            marker = parse_end_txn_marker(data, position) if header.is_control else None
            if marker is not None:
                first = open_since.pop(header.producer_id, None)
                if first is not None and not marker.commit:
                    aborted.append((header.producer_id, first, header.base_offset))
            elif header.producer_id >= 0:  # the one that stands for a lost end has none
                assert list(iter_records(data, position))
                open_since.setdefault(header.producer_id, header.base_offset)
                last_sequences[header.producer_id] = header.last_sequence
            offset = header.next_offset
    return aborted, open_since, last_sequences


def verify(promised: int, disk: FakeDisk, case: object) -> None:
    manager = start(disk)
    log = manager.get_log(TP)
    if log is None:
        assert promised == 0, case
        return
    log.on_high_watermark_updated(log.log_end_offset)
    assert log.log_end_offset >= promised, case
    aborted, open_since, last_sequences = content(log)
    assert log.first_unstable_offset == min(open_since.values(), default=None), case
    known = [txn for segment in log.segments for txn in segment.txn_index]
    assert [(txn.producer_id, txn.first_offset, txn.last_offset) for txn in known] == aborted, case
    producers = log.producers.active_producers
    known_sequences = {key: entry.last_sequence for key, entry in producers.items() if entry.batches}
    assert known_sequences == last_sequences, case
    assert {
        key: entry.current_txn_first_offset
        for key, entry in producers.items()
        if entry.current_txn_first_offset is not None
    } == open_since, case
    if log.log_end_offset:
        info = log.read(log.log_start_offset, 1 << 20)
        told = log.aborted_transactions(log.log_start_offset, info)
        segment_end = log.segments[1].base_offset if len(log.segments) > 1 else log.log_end_offset
        assert {txn.first_offset for txn in told} == {first for _, first, last in aborted if first < segment_end}, case
    manager.close()


@pytest.mark.slow
def test_every_point() -> None:
    disk, promised = FakeDisk(), {"durable": 0}

    def fail(stopped: FakeDisk, point: int) -> None:
        for end in ("kill", "crash", "lose all"):
            again = stopped.snapshot()
            if end == "kill":
                again.kill()
            else:
                again.crash(lose_all=end == "lose all")
            verify(promised["durable"], again, (point, end))

    at_every_point(disk, lambda: story(disk, promised), fail)


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
        known = [txn for segment in again.segments for txn in segment.txn_index]
        assert set(content(again)[0]) <= {(txn.producer_id, txn.first_offset, txn.last_offset) for txn in known}, point
        left.add(len(again.segments))

    at_every_point(disk, delete, check)
    assert left == set(range(1, 9))
