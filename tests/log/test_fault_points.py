"""Each single call to the disk fails once: with EIO, or for want of room. What then?

As a node does, everything stops at the first ``OSError`` that a log dir shows (it is offline), and the process is
started again: all that was acknowledged is there. After a power cut instead, all that was durable is.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from kbroker.errors import ApiError, ErrorCode, FatalError
from kbroker.log.compaction.cleanable import log_to_clean, make_job
from kbroker.log.compaction.compactor import compact
from kbroker.log.fake_disk import FakeDisk
from kbroker.log.full_disk import is_no_room
from kbroker.log.log_config import LogConfig
from kbroker.log.manager import LogManager
from kbroker.log.partition_log import PartitionLog
from kbroker.log.segments.indexed_file import CorruptSegment
from kbroker.types import TopicPartition
from kbroker.wire.record_batch import Record, build_batch
from tests.log.log_helpers import NOW, append, batch, delete_expired, finish, missing, open_log, read_all

PLAIN, COMPACTED = TopicPartition("plain", 0), TopicPartition("compacted", 0)
CONFIGS = {
    PLAIN: LogConfig(segment_bytes=700, index_interval_bytes=100, file_delete_delay_ms=0, retention_ms=-1),
    COMPACTED: LogConfig(
        segment_bytes=700,
        index_interval_bytes=100,
        file_delete_delay_ms=0,
        cleanup_policy=frozenset({"compact"}),
        min_cleanable_dirty_ratio=0.0,
    ),
}


class Offline(Exception):
    """The log dir failed, and the node uses it no more."""


def start(disk: FakeDisk) -> LogManager:
    return LogManager.open(["/data"], disk, now_ms=NOW, rng=random.Random(1))


class Life:
    """A fixed story. What was promised so far stands in the attributes."""

    def __init__(self, disk: FakeDisk) -> None:
        self.disk = disk
        self.acknowledged: dict[TopicPartition, list[tuple[bytes, bytes]]] = {PLAIN: [], COMPACTED: []}
        self.attempted: dict[TopicPartition, tuple[bytes, bytes] | None] = {PLAIN: None, COMPACTED: None}
        self.durable = {PLAIN: 0, COMPACTED: 0}
        self.log_start = 0

    def run(self) -> None:
        for round_ in range(2):
            self.manager = start(self.disk)
            self.check()
            logs = {tp: self.manager.create_log(tp, None, CONFIGS[tp]) for tp in (PLAIN, COMPACTED)}
            for number in range(14):
                for tp, log in logs.items():
                    self.append(tp, log, number)
                if number % 5 == 4:
                    self.flush()
            self.log_start = logs[PLAIN].log_start_offset + 6
            logs[PLAIN].maybe_increment_log_start_offset(self.log_start)
            self.manager.delete_old_segments(NOW)
            self.check()
            self.clean(logs[COMPACTED])
            self.manager.checkpoint()
            self.check()
            delete_expired(self.manager, NOW)
            delete_expired(self.manager, NOW + 1)
            self.check()
            if round_ == 0:
                self.manager.close()
                self.check()
                self.durable = {tp: len(values) for tp, values in self.acknowledged.items()}

    def check(self) -> None:
        for log_dir in self.manager.log_dirs:
            if log_dir.offline is not None:
                raise Offline(log_dir.offline)

    def append(self, tp: TopicPartition, log: PartitionLog, number: int) -> None:
        entry = b"k%d" % (number % 4), b"%s-%d" % (tp.topic.encode(), log.log_end_offset) + b"v" * 60
        self.attempted[tp] = entry
        log.append_as_leader(bytearray(build_batch([Record(0, NOW, *entry)])), 0, now_ms=NOW)
        self.acknowledged[tp].append(entry)
        self.attempted[tp] = None

    def flush(self) -> None:
        for tp in (PLAIN, COMPACTED):
            log = self.manager.get_log(tp)
            assert log is not None
            log.flush()
            self.durable[tp] = log.recovery_point
        self.manager.checkpoint()
        self.check()

    def clean(self, log: PartitionLog) -> None:
        found = log_to_clean(
            log, self.manager.cleaner_offsets.of(COMPACTED), last_stable_offset=log.log_end_offset, now_ms=NOW
        )
        if found is None:
            return
        finish(self.manager.cleaner_offsets.before_round(log, found.first_dirty_offset))
        result = compact(make_job(found, now_ms=NOW, map_bytes=1 << 20, read_bytes=300), self.disk)
        for segment in result.segments:
            assert log.replace_segments(segment, NOW)
        self.disk.sync_dir(log.directory)
        self.manager.cleaner_offsets.after_round(log, result.end_offset)()


def operations() -> list[str]:
    """The kinds of all calls of an undisturbed life."""
    disk = FakeDisk()
    seen: list[str] = []
    disk.on_operation = lambda operation, path: seen.append(operation)
    Life(disk).run()
    return seen


def fail_at(disk: FakeDisk, point: int, number: int) -> None:
    count = -1

    def fail(operation: str, path: str) -> None:
        nonlocal count
        count += 1
        if count == point:
            raise OSError(number, "made to fail", path)

    disk.on_operation = fail


def verify(life: Life, disk: FakeDisk, killed: bool, point: object) -> None:
    manager = start(disk)
    for tp, acknowledged in life.acknowledged.items():
        log = manager.get_log(tp)
        promised = len(acknowledged) if killed else life.durable[tp]
        if log is None:
            assert promised == 0, point
            continue
        end = log.log_end_offset
        attempted = life.attempted[tp]
        written = [*acknowledged, attempted] if attempted is not None else acknowledged
        assert promised <= end <= len(written), (point, tp)
        found = read_all(log)
        for offset, value in found:
            assert written[offset][1] == value, (point, tp)
        offsets = {offset for offset, _ in found}
        lost = missing(log)  # of what was not durable
        assert promised <= min(lost, default=end), (point, tp)
        if tp == PLAIN:
            assert log.log_start_offset <= life.log_start, point
            assert offsets == set(range(log.log_start_offset, end)) - lost, point
        else:
            last = {key: offset for offset, (key, _) in enumerate(written[:end])}
            assert set(last.values()) <= offsets | lost, point
    manager.close()


def verify_ends(life: Life, point: int, kind: str) -> None:
    """Look at what is there once the process has been killed, and after a power cut."""
    for killed in (True, False):
        disk = life.disk.snapshot()
        if killed:
            disk.kill()
        else:
            disk.crash(lose_all=point % 3 == 0)
        verify(life, disk, killed, (point, kind, killed))


@pytest.mark.slow
def test_every_call_fails_once() -> None:
    kinds = operations()
    assert {"read", "write", "sync", "truncate", "create", "mkdir", "rename", "remove", "sync_dir"} <= set(kinds)
    for point, kind in enumerate(kinds):
        life = Life(FakeDisk(seed=point))
        fail_at(life.disk, point, errno.ENOSPC if point % 2 else errno.EIO)
        try:
            life.run()
        except (ApiError, OSError, Offline, CorruptSegment, FatalError) as error:
            assert not isinstance(error, ApiError) or error.code is ErrorCode.KAFKA_STORAGE_ERROR
        verify_ends(life, point, kind)


class PatientLife(Life):
    """The same story, told by a process that does once more what the full disk has refused."""

    def append(self, tp: TopicPartition, log: PartitionLog, number: int) -> None:
        self.insist(lambda: super(PatientLife, self).append(tp, log, number))

    def flush(self) -> None:
        self.insist(super().flush)

    def clean(self, log: PartitionLog) -> None:
        self.insist(lambda: super(PatientLife, self).clean(log))

    def insist(self, step: Callable[[], None]) -> None:
        try:
            step()
        except OSError as error:
            if not is_no_room(error):
                raise
            self.check()
            step()


@pytest.mark.slow
def test_what_a_full_disk_has_refused_is_done_once_more() -> None:
    """The same process goes on, with nothing lost, torn or twice; whatever ends it later."""
    whole = 0
    for point, kind in enumerate(operations()):
        if kind not in ("write", "create", "mkdir"):
            continue
        life = PatientLife(FakeDisk(seed=point))
        fail_at(life.disk, point, errno.ENOSPC)
        try:
            life.run()
            whole += 1
            assert [len(values) for values in life.acknowledged.values()] == [28, 28], point
        except (ApiError, OSError, Offline, FatalError):
            pass  # at a start, or where more than room is wanting
        verify_ends(life, point, kind)
    assert whole > 20


@pytest.mark.parametrize("seed", range(20))
def test_a_disk_that_is_full_has_room_again(seed: int) -> None:
    """Row by row until nothing fits; then there is room, and the node is started again."""
    whole = FakeDisk()
    Life(whole).run()
    disk = FakeDisk(seed=seed, capacity=random.Random(seed).randrange(200, whole.used()))
    life = Life(disk)
    with pytest.raises((OSError, Offline, FatalError)):
        life.run()
        raise Offline("all fitted, as files were removed meanwhile")
    disk.capacity = None
    disk.kill()
    verify(life, disk, True, seed)
    again = start(disk)
    log = again.create_log(PLAIN, None, CONFIGS[PLAIN])
    log.append_as_leader(bytearray(build_batch([Record(0, NOW, b"k", b"room")])), 0, now_ms=NOW)
    assert read_all(log)[-1][1] == b"room"


SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=100)


def refuse_to_create(disk: FakeDisk, number: int) -> None:
    """Have the disk be full when a file of a new segment, the first, second or third, is created."""
    left = number

    def refuse(operation: str, path: str) -> None:
        nonlocal left
        if operation == "create" and path.endswith((".log", ".index", ".timeindex")):
            if not left:
                raise OSError(errno.ENOSPC, "made to fail", path)
            left -= 1

    disk.on_operation = refuse


@pytest.mark.parametrize("number", range(3))
def test_a_segment_that_a_full_disk_has_refused_is_not_in_the_way_of_smaller_batches(number: int) -> None:
    disk = FakeDisk()
    log = open_log(disk, SMALL)
    values = [b"%d" % each + b"x" * 100 for each in range(4)]
    for value in values:
        append(log, [value])
    refuse_to_create(disk, number)
    with pytest.raises(OSError, match="made to fail"):
        append(log, [b"x" * 700])
    disk.on_operation = None
    for each in range(4, 20):
        values.append(b"%d" % each + b"x" * 50)
        append(log, [values[-1]])  # some go into the segment that was to be followed
    disk.kill()
    again = open_log(disk, SMALL, leaves_holes=True)
    assert [value for _, value in read_all(again)] == values


@pytest.mark.parametrize("number", range(3))
def test_an_empty_log_that_a_full_disk_did_not_let_go_on_further_up_does_so_later(number: int) -> None:
    """A follower of a log whose first records were compacted begins with a gap that no index can express."""
    disk = FakeDisk()
    log = open_log(disk, SMALL)
    log.truncate_fully_and_start_at(5)
    sent = bytearray(batch([b"x"]))
    sent[:8] = (2**31 + 50).to_bytes(8, "big")
    refuse_to_create(disk, number)
    with pytest.raises(OSError, match="made to fail"):
        log.append_as_follower(sent, now_ms=NOW)
    assert (log.log_start_offset, read_all(log)) == (5, [])
    disk.on_operation = None
    log.append_as_follower(sent, now_ms=NOW)
    log.close()
    again = open_log(disk, SMALL, clean=True, recovery_point=log.recovery_point)
    assert read_all(again) == [(2**31 + 50, b"x")] == read_all(log)


@pytest.mark.parametrize("start", [40, 100])
@pytest.mark.parametrize("number", range(3))
def test_a_log_that_a_full_disk_did_not_let_begin_anew_begins_anew_later(number: int, start: int) -> None:
    disk = FakeDisk()
    log = open_log(disk, SMALL)
    log.truncate_fully_and_start_at(50)
    for _ in range(20):
        append(log, [b"old" + b"x" * 100])
    refuse_to_create(disk, number)
    with pytest.raises(OSError, match="made to fail"):
        log.truncate_fully_and_start_at(start)
    disk.on_operation = None
    log.truncate_fully_and_start_at(start)
    for _ in range(12):
        append(log, [b"new" + b"x" * 100], leader_epoch=1)
    log.close()
    again = open_log(disk, SMALL, clean=True, recovery_point=log.recovery_point)
    assert [(offset, value[:3]) for offset, value in read_all(again)] == [(start + n, b"new") for n in range(12)]
