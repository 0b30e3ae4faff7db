"""Batches that damage took come back from another replica into an open log: it is the log that it was."""

from __future__ import annotations

import pytest

from kbroker.log.damage import Damage, without
from kbroker.log.fake_disk import FakeDisk
from kbroker.log.log_config import LogConfig
from kbroker.log.partition_log import PartitionLog
from kbroker.log.segments.batch_walk import Whole
from kbroker.wire.batch_header import walk_headers
from kbroker.wire.control_batch import build_end_txn_marker
from kbroker.wire.record_batch import Record, build_batch
from tests.log.log_helpers import DIRECTORY, NOW, append, open_log, read_all, remove_expired

CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=150, file_delete_delay_ms=0, retention_ms=-1)


def write_transaction(log: PartitionLog, producer_id: int, *, commit: bool) -> None:
    record = Record(0, NOW, None, b"t" * 100)
    records = build_batch(
        [record],
        base_offset=log.log_end_offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
        partition_leader_epoch=0,
    )
    marker = build_end_txn_marker(
        commit=commit,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp_ms=NOW,
        base_offset=log.log_end_offset + 1,
        partition_leader_epoch=0,
    )
    for data in (records, marker):
        log.append_as_follower(data, now_ms=NOW)


def written() -> tuple[FakeDisk, list[tuple[int, bytes]]]:
    """A disk with a log of some segments, and its content. Transactions 1, 3, 5 and 7 are aborted."""
    disk = FakeDisk()
    log = open_log(disk, CONFIG)
    for number in range(8):
        append(log, [b"%d" % number + b"v" * 100])
        write_transaction(log, number, commit=number % 2 == 0)
    log.flush()
    assert len(log.segments) > 3
    return disk, read_all(log)


def batches_of(disk: FakeDisk, start: int, end: int) -> list[Whole]:
    """Returns the batches of these offsets, as another replica has them."""
    found = []
    for name in sorted(disk.list_dir(DIRECTORY)):
        if name.endswith(".log"):
            data = disk.read_bytes(f"{DIRECTORY}/{name}")
            found += [
                Whole(at, header, memoryview(data), at)
                for at, header in walk_headers(data)
                if start <= header.base_offset < end
            ]
    return found


def aborted(log: PartitionLog) -> set[tuple[int, int]]:
    return {(each.producer_id, each.first_offset) for segment in log.segments for each in segment.txn_index}


@pytest.mark.parametrize("way", ["flipped", "emptied", "cut"])
def test_the_log_is_what_it_was_wherever_the_damage_is(way: str) -> None:
    """Each segment in turn, the last one too: records, transactions and indexes, also after a kill."""
    whole, content = written()
    names = sorted(name for name in whole.list_dir(DIRECTORY) if name.endswith(".log"))
    for name in names:
        disk, path = whole.snapshot(), f"{DIRECTORY}/{name}"
        data = disk.read_bytes(path)
        if way == "flipped":
            disk.flip_bit(path, len(data) // 2 * 8)
        else:
            disk.open(path).truncate(0 if way == "emptied" else len(data) // 2)
        log = open_log(disk, CONFIG, high_watermark=len(content), recovery_point=0, leaves_holes=True)
        damage = log.damage
        assert damage
        for each in damage:
            task = log.begin_filling(batches_of(whole, each.start_offset, each.end_offset), NOW)
            assert task is not None and log.segments_held
            task.run()
            task.end()
        assert not log.damage and not log.segments_held
        for _ in range(2):
            assert read_all(log) == content
            assert aborted(log) == {(number, 3 * number + 1) for number in (1, 3, 5, 7)}
            log.on_high_watermark_updated(log.log_end_offset)
            assert log.first_unstable_offset is None
            remove_expired(log, NOW)
            log = open_log(disk, CONFIG, recovery_point=log.recovery_point, leaves_holes=True)
            assert not log.damage


def test_a_hole_is_closed_as_far_as_there_are_batches_for_it() -> None:
    damage = Damage(10, 20, "", 0, 0, "lost", 0)

    def left(*ranges: tuple[int, int]) -> list[tuple[int, int]]:
        return [(each.start_offset, each.end_offset) for each in without(damage, ranges)]

    assert left() == [(10, 20)]
    assert left((10, 19)) == []
    assert left((5, 12), (18, 25)) == [(13, 18)]
    assert left((12, 14), (0, 9), (20, 30)) == [(10, 12), (15, 20)]
