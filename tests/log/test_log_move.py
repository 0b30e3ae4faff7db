"""A log moves from one log dir to another while it is written: all is there, whenever the power fails."""

from __future__ import annotations

import random

import pytest

from kbroker.errors import ApiError, ErrorCode
from kbroker.log.compaction.cleanable import log_to_clean, make_job
from kbroker.log.compaction.compactor import compact
from kbroker.log.dirs.log_move import LogMove, MoveInterrupted
from kbroker.log.fake_disk import FakeDisk
from kbroker.log.log_config import LogConfig
from kbroker.log.manager import LogManager
from kbroker.log.partition_log import PartitionLog
from kbroker.types import Uuid
from tests.log.log_helpers import NOW, TP, at_every_point, batch, delete_expired, finish, missing, read_all
from tests.log.test_compaction import end_txn
from tests.log.test_compaction import put as write

ID = Uuid(bytes(15) + b"\x07")
CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100, file_delete_delay_ms=0, retention_ms=-1)


def start(disk: FakeDisk) -> LogManager:
    return LogManager.open(["/one", "/two"], disk, now_ms=NOW, log_config=lambda tp: CONFIG, rng=random.Random(1))


def put(log: PartitionLog, count: int, *, epoch: int = 0) -> None:
    for _ in range(count):
        end = log.log_end_offset
        log.append_as_leader(batch([b"v%d" % end + b"x" * 50], producer_id=4, sequence=end), epoch, now_ms=NOW)


def expected(log: PartitionLog) -> list[tuple[int, bytes]]:
    there = sorted(set(range(log.log_start_offset, log.log_end_offset)) - missing(log))
    return [(offset, b"v%d" % offset + b"x" * 50) for offset in there]


def begin(manager: LogManager, *, written: int = 30) -> tuple[PartitionLog, LogMove]:
    log = manager.create_log(TP, ID, CONFIG)
    put(log, written)
    assert manager.log_dir_of(TP) is manager.log_dirs[0]
    move = manager.moves.begin(log, manager.log_dirs[1], now_ms=NOW)
    assert move is not None
    return log, move


def carry_out(manager: LogManager, move: LogMove, log: PartitionLog, *, appends: bool = True) -> PartitionLog:
    """Move a log in the steps of ``node/replicas/log_mover.py`` beside a producer; return the new log."""
    rounds = 0
    while move.copy(200, NOW):
        rounds += 1
        if appends and rounds % 3 == 0 and rounds < 40:
            put(log, 1, epoch=rounds // 10)
    task = move.begin_close()
    if task is not None:
        task.run()
    if appends:
        put(log, 2, epoch=9)
    move.take_name(NOW)
    manager.disk.sync_dir(move.target.path)
    if appends:
        put(log, 2, epoch=9)
    manager.checkpoint()
    new = move.finish(NOW)
    manager.checkpoint()
    return new


def test_the_new_log_is_the_old_one() -> None:
    disk = FakeDisk()
    manager = start(disk)
    log, move = begin(manager)
    log.maybe_increment_log_start_offset(7)
    assert move.lag == 30
    new = carry_out(manager, move, log)
    assert manager.get_log(TP) is new
    assert manager.log_dir_of(TP) is manager.log_dirs[1]
    assert new.directory == "/two/topic-0"
    assert (new.log_start_offset, new.log_end_offset) == (7, log.log_end_offset)
    assert read_all(new) == expected(new)
    assert new.leader_epochs.entries == [(max(epoch, 0), max(start, 7)) for epoch, start in log.leader_epochs.entries]
    assert new.producers.active_producers[4].last_sequence == log.log_end_offset - 1
    assert not new.segments_held
    put(new, 5, epoch=9)
    delete_expired(manager, NOW + 1)
    delete_expired(manager, NOW + 2)
    assert [name for name in disk.list_dir("/one") if name.startswith("topic")] == []
    manager.close()
    again = start(disk)
    back = again.get_log(TP)
    assert back is not None
    assert read_all(back) == expected(back)
    assert back.log_end_offset == new.log_end_offset


def test_a_flush_that_outlives_two_moves_leaves_the_leader_epochs_of_the_new_log_alone() -> None:
    """Its directory is there again, with another log: old epochs there would contradict the batches."""
    disk = FakeDisk()
    manager = start(disk)
    log, move = begin(manager, written=3)
    late = log.begin_flush()
    assert late is not None
    log = carry_out(manager, move, log, appends=False)
    put(log, 3, epoch=1)
    back = manager.moves.begin(log, manager.log_dirs[0], now_ms=NOW)
    assert back is not None
    log = carry_out(manager, back, log, appends=False)
    put(log, 1, epoch=1)
    log.flush()
    finish(late)
    manager.close()
    again = start(disk).get_log(TP)
    assert again is not None
    assert again.leader_epochs.entries == [(0, 0), (1, 3)]
    assert not again.damage
    assert read_all(again) == expected(log)


def test_a_move_ends_though_all_that_it_lacks_is_deleted_meanwhile() -> None:
    disk = FakeDisk()
    manager = start(disk)
    log, move = begin(manager)
    move.copy(200, NOW)
    log.maybe_increment_log_start_offset(30)
    assert not move.copy(200, NOW) and move.lag == 0
    new = carry_out(manager, move, log, appends=False)
    assert (new.log_start_offset, new.log_end_offset) == (30, 30)
    put(new, 2)
    assert read_all(new) == expected(new) and new.log_end_offset == 32
    disk.kill()
    again = start(disk).get_log(TP)
    assert again is not None and (again.log_start_offset, again.log_end_offset) == (30, 32)


def test_retention_and_compaction_wait() -> None:
    manager = start(FakeDisk())
    log, move = begin(manager)
    log.log_start_offset = 20
    assert log.delete_old_segments(NOW) == 0
    move.abandon()
    assert log.delete_old_segments(NOW) > 0


def test_a_compacted_log_keeps_its_holes_and_its_checkpoint() -> None:
    disk = FakeDisk()
    manager = start(disk)
    config = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=600, min_cleanable_dirty_ratio=0)
    from tests.log.test_compaction import pairs
    from tests.log.test_compaction import put as put_pairs

    log = manager.create_log(TP, ID, config)
    for number in range(40):
        put_pairs(log, [(b"k%d" % (number % 3), b"v%d" % number + b"x" * 60)])
    log.roll(NOW)
    put_pairs(log, [(b"k0", b"last")])
    log.flush()
    found = log_to_clean(log, None, last_stable_offset=log.log_end_offset, now_ms=NOW)
    assert found is not None
    result = compact(make_job(found, now_ms=NOW, map_bytes=1 << 20, read_bytes=1 << 16), disk)
    finish(manager.cleaner_offsets.before_round(log, 0))
    for segment in result.segments:
        assert log.replace_segments(segment, NOW)
    manager.cleaner_offsets.after_round(log, result.end_offset)()
    before = pairs(log)
    assert len(before) == 4
    move = manager.moves.begin(log, manager.log_dirs[1], now_ms=NOW)
    assert move is not None
    carry_out(manager, move, log, appends=False)
    assert manager.cleaner_offsets.of(TP) == result.end_offset
    assert manager.log_dirs[0].cleaner_offsets == {}
    disk.crash(lose_all=True)
    again = start(disk).get_log(TP)
    assert again is not None
    assert pairs(again) == before


def test_what_ends_a_move() -> None:
    manager = start(FakeDisk())
    log, move = begin(manager)
    move.copy(200, NOW)
    log.truncate_to(10)
    with pytest.raises(MoveInterrupted):
        move.copy(200, NOW)
    move.abandon()
    assert manager.moves.of(TP) is None
    second = manager.moves.begin(log, manager.log_dirs[1], now_ms=NOW)
    assert second is not None
    assert manager.moves.begin(log, manager.log_dirs[1], now_ms=NOW) is None, "it is on its way there"
    assert manager.moves.begin(log, manager.log_dirs[0], now_ms=NOW) is None, "called off: it is there"
    assert second.over
    assert not log.segments_held
    third = manager.moves.begin(log, manager.log_dirs[1], now_ms=NOW)
    assert third is not None
    third.copy(200, NOW)
    manager.delete_log(TP)
    assert third.over
    delete_expired(manager, NOW)
    delete_expired(manager, NOW)
    for path in ("/one", "/two"):
        assert not [name for name in manager.disk.list_dir(path) if name.startswith("topic")]


@pytest.mark.parametrize("failed", [0, 1])
def test_a_move_ends_with_either_of_its_dirs(failed: int) -> None:
    """The log stays where it is, and is not given up for one in a dir that is not written to any more."""
    manager = start(FakeDisk())
    log, move = begin(manager)
    move.copy(200, NOW)
    manager.mark_offline(manager.log_dirs[failed], OSError("gone"))
    with pytest.raises(MoveInterrupted):
        move.finish(NOW)
    move.abandon()
    assert manager.get_log(TP) is log
    assert log.directory == "/one/topic-0"
    assert log.is_on_disk


@pytest.mark.parametrize("stopped", [False, True])
def test_the_copy_of_a_log_that_cannot_be_read_any_more_is_kept(stopped: bool) -> None:
    """It may be all that there is of it."""

    def copies() -> list[str]:
        return [name for name in disk.list_dir("/two") if name.endswith("-future")]

    def broken(operation: str, path: str) -> None:
        if path.startswith("/one"):
            raise OSError(5, "Input/output error", path)

    disk = FakeDisk()
    manager = start(disk)
    log, move = begin(manager)
    while move.copy(200, NOW):
        pass
    if not stopped:
        manager.mark_offline(manager.log_dirs[0], OSError("gone"))
        move.abandon()
        delete_expired(manager, NOW)
        [name] = copies()
    disk.kill()
    disk.on_operation = broken
    manager = start(disk)
    assert manager.log_dirs[0].offline is not None and manager.get_log(TP) is None
    delete_expired(manager, NOW)
    [name] = copies()
    disk.kill()
    disk.on_operation = None
    again = disk.snapshot()
    manager = start(disk)
    assert manager.moves.interrupted == {TP: manager.log_dirs[1]}
    delete_expired(manager, NOW)
    assert copies() == [], "the log is there again"
    again.on_operation = broken
    again.rename(f"/two/{name}", "/two/topic-0")
    copy = start(again).get_log(TP)
    assert copy is not None and read_all(copy) == expected(log)


@pytest.mark.parametrize("failing", [("rename", "-future"), ("read", "/two/topic-0/")])
def test_nothing_is_left_of_a_log_that_could_not_be_named_or_opened(failing: tuple[str, str]) -> None:
    """Or the next start would choose between it and the one that was written on meanwhile."""
    disk = FakeDisk()
    manager = start(disk)
    log, move = begin(manager)
    while move.copy(200, NOW):
        pass

    def fail(operation: str, path: str) -> None:
        if operation == failing[0] and failing[1] in path:
            raise OSError(5, "Input/output error", path)

    disk.on_operation = fail
    with pytest.raises(OSError, match="Input/output error"):
        move.take_name(NOW)
    disk.on_operation = None
    move.abandon()
    delete_expired(manager, NOW)
    assert not [name for name in disk.list_dir("/two") if name.startswith("topic")]
    assert manager.get_log(TP) is log
    assert read_all(log) == expected(log)


def test_where_logs_can_go() -> None:
    manager = start(FakeDisk())
    with pytest.raises(ApiError) as unknown:
        manager.moves.find_log_dir("/three")
    assert unknown.value.code == ErrorCode.LOG_DIR_NOT_FOUND
    manager.moves.prefer(TP, manager.log_dirs[1])
    log = manager.create_log(TP, ID, CONFIG)
    assert manager.log_dir_of(TP) is manager.log_dirs[1]
    assert manager.moves.begin(log, manager.log_dirs[0], now_ms=NOW) is None
    assert manager.log_dir_of(TP) is manager.log_dirs[0], "without files it is there at once"
    again = manager.get_log(TP)
    assert again is not None
    put(again, 1)
    assert manager.disk.is_dir("/one/topic-0")
    manager.mark_offline(manager.log_dirs[1], OSError("gone"))
    with pytest.raises(ApiError) as offline:
        manager.moves.find_log_dir("/two")
    assert offline.value.code == ErrorCode.KAFKA_STORAGE_ERROR


def story(disk: FakeDisk, promised: dict[str, int]) -> None:
    manager = start(disk)
    log, move = begin(manager, written=12)
    log.flush()
    promised["durable"] = log.recovery_point
    manager.checkpoint()
    new = carry_out(manager, move, log)
    promised["durable"] = max(promised["durable"], new.recovery_point)
    put(new, 3, epoch=9)
    new.flush()
    promised["durable"] = new.recovery_point
    delete_expired(manager, NOW + 1)
    delete_expired(manager, NOW + 2)
    manager.close()
    promised["durable"] = new.log_end_offset


def test_every_point() -> None:
    disk, promised = FakeDisk(), {"durable": 0}

    def fail(stopped: FakeDisk, point: int) -> None:
        for end in ("kill", "crash", "lose all"):
            again, case = stopped.snapshot(), (point, end)
            if end == "kill":
                again.kill()
            else:
                again.crash(lose_all=end == "lose all")
            manager = start(again)
            log = manager.get_log(TP)
            if log is None:
                assert promised["durable"] == 0, case
                continue
            assert log.log_end_offset >= promised["durable"], case
            assert read_all(log) == expected(log), case
            if manager.moves.interrupted:
                assert manager.moves.interrupted == {TP: manager.log_dirs[1]}
            manager.close()

    at_every_point(disk, lambda: story(disk, promised), fail)


def test_of_two_logs_the_one_of_the_later_leader_epoch_is_kept() -> None:
    """A follower is cut back at the last step of a move, and a power cut takes back that the copy was given up."""
    disk = FakeDisk()
    for path in ("/one", "/two"):
        disk.make_dirs(path)
    disk.sync_dir("/")
    manager = start(disk)
    log, move = begin(manager)
    while move.copy(200, NOW):
        pass
    task = move.begin_close()
    assert task is not None
    task.run()
    move.take_name(NOW)
    disk.sync_dir("/two")
    log.truncate_to(20)
    with pytest.raises(MoveInterrupted):
        move.check()
    move.abandon()
    put(log, 3, epoch=7)
    log.flush()
    disk.crash(lose_all=True)
    again = start(disk)
    kept = again.get_log(TP)
    assert kept is not None and again.log_dir_of(TP) is again.log_dirs[0]
    assert (kept.log_end_offset, kept.leader_epochs.entries) == (23, [(0, 0), (7, 20)])


def test_the_new_log_knows_the_batches_that_may_be_sent_again() -> None:
    """An idempotent producer has up to five requests under way, and may have heard of none."""
    manager = start(FakeDisk())
    log, move = begin(manager)
    new = carry_out(manager, move, log, appends=False)
    for sequence in range(25, 30):
        value = b"v%d" % sequence + b"x" * 50
        again = new.append_as_leader(batch([value], producer_id=4, sequence=sequence), 0, now_ms=NOW)
        assert again.duplicate and again.first_offset == sequence


def test_batches_are_recognised_after_a_move_though_their_transaction_has_ended() -> None:
    manager = start(FakeDisk())
    log = manager.create_log(TP, ID, CONFIG)
    for sequence in range(2):
        write(log, [(b"k", b"v")], producer_id=5, sequence=sequence, transactional=True)
    end_txn(log, 5, commit=True, timestamp=NOW + 1)
    known = list(log.producers.active_producers[5].batches)
    move = manager.moves.begin(log, manager.log_dirs[1], now_ms=NOW)
    assert move is not None
    new = carry_out(manager, move, log, appends=False)
    assert new.producers.active_producers[5].batches == known
