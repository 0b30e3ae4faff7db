"""The power fails, or the process ends, at every operation of a round of compaction."""

from __future__ import annotations

import random

import pytest

from kbroker.log.compaction.cleanable import log_to_clean, make_job
from kbroker.log.compaction.compactor import compact
from kbroker.log.fake_disk import FakeDisk, PowerCut
from kbroker.log.log_config import LogConfig
from kbroker.log.manager import LogManager
from kbroker.log.partition_log import PartitionLog
from kbroker.wire.batch_header import check_crc, walk_headers
from kbroker.wire.record_batch import Record, build_batch, iter_records
from tests.log.log_helpers import NOW, TP, at_every_point, delete_expired, finish, missing, read_all, spoil_checkpoints
from tests.log.test_compaction import end_txn, put

CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=900,
    index_interval_bytes=150,
    file_delete_delay_ms=0,
    retention_ms=-1,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=5,
)
HIDDEN = LogConfig(segment_bytes=900, index_interval_bytes=150, file_delete_delay_ms=0)
"""The config of a topic before the metadata is read: the manager knows nothing of it."""


def start(disk: FakeDisk) -> LogManager:
    return LogManager.open(["/data"], disk, now_ms=NOW, log_config=lambda tp: HIDDEN, rng=random.Random(1))


def clean(
    manager: LogManager,
    log: PartitionLog,
    now_ms: int,
    map_bytes: int,
    read_bytes: int = 256,
    last_stable_offset: int | None = None,
) -> int:
    """Compact a log in the steps of ``node/logs/log_cleaner.py``; the offset up to which it is clean, or 0."""
    stable = log.log_end_offset if last_stable_offset is None else last_stable_offset
    found = log_to_clean(log, manager.cleaner_offsets.of(TP), last_stable_offset=stable, now_ms=now_ms)
    if found is None:
        return 0
    finish(manager.cleaner_offsets.before_round(log, found.first_dirty_offset))
    job = make_job(found, now_ms=now_ms, map_bytes=map_bytes, read_bytes=read_bytes)
    result = compact(job, manager.disk)
    for segment in result.segments:
        assert log.replace_segments(segment, now_ms)
    log.disk.sync_dir(log.directory)
    manager.cleaner_offsets.after_round(log, result.end_offset)()
    return result.end_offset


class Life:
    """A fixed story of one compacted log."""

    def __init__(self, disk: FakeDisk, seed: int = 0) -> None:
        self.disk = disk
        self.rng = random.Random(seed)
        self.written: list[tuple[bytes, bytes | None]] = []
        """Key and value by offset."""
        self.durable = 0
        self.sequence = 0

    def append(self, log: PartitionLog) -> None:
        pairs = [
            (b"k%d" % self.rng.randrange(12), None if self.rng.random() < 0.15 else b"v" * self.rng.randrange(60))
            for _ in range(self.rng.randrange(1, 5))
        ]
        self.written += pairs
        data = build_batch(
            [Record(0, NOW, key, value) for key, value in pairs],
            producer_id=9,
            producer_epoch=0,
            base_sequence=self.sequence,
        )
        self.sequence += len(pairs)
        log.append_as_leader(bytearray(data), 0, now_ms=NOW)

    def run(self) -> None:
        for round_ in range(3):
            manager = start(self.disk)
            log = manager.create_log(TP, None, CONFIG)
            for _ in range(14):
                self.append(log)
            log.flush()
            self.durable = log.recovery_point
            manager.checkpoint({TP: log.log_end_offset})
            self.append(log)
            while clean(manager, log, NOW + 3 * round_, 1 << 20 if round_ else 700):
                delete_expired(manager, NOW + 3 * round_)
            if round_ == 1:
                manager.close()
                self.durable = len(self.written)
            else:
                manager.release()
                self.disk.kill()


def verify(life: Life, disk: FakeDisk, point: object, known: int | None = None) -> None:
    """Start, and read all back; with ``known``, offsets from there on may be missing."""
    manager = start(disk)
    assert not manager.failed, point
    log = manager.get_log(TP)
    if log is None:
        assert life.durable == 0, point
        return
    end = log.log_end_offset
    lost = missing(log)  # of what was not flushed a power cut may take a part
    assert life.durable <= min(lost, default=end), point
    assert life.durable <= end <= len(life.written), point
    assert log.log_start_offset == 0, point
    found: dict[int, tuple[bytes | None, bytes | None]] = {}
    offset = 0
    while offset < end:
        data = log.read_bytes(offset, 500)
        if not data:
            break
        for position, header in walk_headers(data):
            check_crc(data, position, header)
            for record in iter_records(data, position):
                if record.offset >= offset:
                    found[record.offset] = record.key, record.value
            offset = header.next_offset
    for at, pair in found.items():
        assert life.written[at] == pair, point
    last = {key: at for at, (key, _) in enumerate(life.written[:end])}
    for key, at in last.items():
        if (known is not None and at >= known) or at in lost:
            continue
        assert at in found or life.written[at][1] is None, (point, key, at)
        if at not in found:
            assert not any(pair[0] == key for pair in found.values()), (point, key, "a deleted key came back")
    if end > len(lost) and known is None:
        assert log.producers.active_producers[9].last_sequence == max(set(range(end)) - lost), point
    manager.release()


@pytest.mark.slow
def test_every_point() -> None:
    disk = FakeDisk()
    life = Life(disk)

    def fail(stopped: FakeDisk, point: int) -> None:
        for end in ("kill", "crash", "lose all", "kill, spoil" if point % 2 else "crash, spoil"):
            again = stopped.snapshot()
            if end.startswith("kill"):
                again.kill()
            else:
                again.crash(lose_all=end == "lose all")
            spoilt = spoil_checkpoints(again) if end.endswith("spoil") else []
            # Which holes compaction has left is not known any more, so what a power cut took is not told from them.
            known = life.durable if end == "crash, spoil" else None
            verify(life, again, (point, end, spoilt), known)
            if spoilt:
                again.kill()
                verify(life, again, (point, end, spoilt, "once more"), known)

    assert at_every_point(disk, life.run, fail) > 300


def test_a_crash_while_recovering_from_a_crash() -> None:
    disk = FakeDisk()
    life = Life(disk)

    def fail(stopped: FakeDisk, point: int) -> None:
        if point < 100 or (point - 100) % 37:
            return
        stopped.crash()
        for second in range(0, 12, 2):
            again = stopped.snapshot()
            again.crash_after = second
            try:
                start(again).close()
            except PowerCut:
                pass
            again.crash()
            verify(life, again, (point, second))

    at_every_point(disk, life.run, fail)


def test_what_a_transaction_has_replaced_goes_once_its_marker_is_durable() -> None:
    disk = FakeDisk()
    disk.make_dirs("/data")
    disk.sync_dir("/")
    manager = start(disk)
    log = manager.create_log(TP, None, CONFIG)
    put(log, [(b"k", b"old")])
    put(log, [(b"k", b"new")], producer_id=9, sequence=0, transactional=True)
    log.roll(NOW)
    log.flush()
    manager.checkpoint({TP: log.log_end_offset})
    end_txn(log, 9, commit=True)
    assert clean(manager, log, NOW, 1 << 20)
    disk.crash(lose_all=True)
    again = start(disk).get_log(TP)
    assert again is not None
    again.on_high_watermark_updated(again.log_end_offset)
    assert again.first_unstable_offset is None, "the transaction is still to be decided, and what was before is gone"
    assert (1, b"new") in read_all(again)


def test_what_lay_below_the_log_start_when_a_log_was_compacted_does_not_come_back() -> None:
    """It was not looked at: a value would be there again when the tombstone behind it has gone."""
    disk = FakeDisk()
    disk.make_dirs("/data")
    disk.sync_dir("/")
    manager = start(disk)
    log = manager.create_log(TP, None, CONFIG)
    for value in (b"old", None, b"of another key"):
        put(log, [(b"k" if value != b"of another key" else b"other", value)])
    log.roll(NOW)
    log.flush()
    log.maybe_increment_log_start_offset(2)
    assert clean(manager, log, NOW, 1 << 20)
    disk.crash(lose_all=True)
    again = start(disk).get_log(TP)
    assert again is not None and again.log_start_offset == 2
