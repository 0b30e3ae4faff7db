"""A log is handed over from one node to another on the same disk: both have all of it, whenever the power fails."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable

import pytest

from kbroker.log.fake_disk import FakeDisk
from kbroker.log.hand_over import HandOver
from kbroker.log.log_config import LogConfig
from kbroker.log.manager import LogManager
from kbroker.log.partition_log import PartitionLog
from kbroker.log.validation import AppendOrigin
from kbroker.types import Uuid
from kbroker.value_types import replace
from kbroker.wire.control_batch import build_end_txn_marker
from kbroker.wire.messages.offset_for_leader_epoch import HandedOver
from kbroker.wire.record_batch import Record, build_batch
from tests.log.log_helpers import NOW, TP, append, at_every_point, batch, delete_expired, missing, read_all
from tests.log.test_compaction import put as put_pairs
from tests.log.test_compaction_crash import clean

ID = Uuid(bytes(15) + b"\x07")
CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100, file_delete_delay_ms=0, retention_ms=-1)
Values = list[tuple[int, bytes]]


def start(disk: FakeDisk, path: str) -> LogManager:
    return LogManager.open([path], disk, now_ms=NOW, log_config=lambda tp: CONFIG, rng=random.Random(len(path)))


def put(log: PartitionLog, count: int, *, epoch: int = 0, word: bytes = b"v") -> None:
    for _ in range(count):
        end = log.log_end_offset
        log.append_as_leader(batch([word + b"%d" % end + b"x" * 50], producer_id=4, sequence=end), epoch, now_ms=NOW)


def expected(log: PartitionLog) -> Values:
    there = sorted(set(range(log.log_start_offset, log.log_end_offset)) - missing(log))
    return [(offset, b"v%d" % offset + b"x" * 50) for offset in there]


def hand_over(
    log: PartitionLog, target: LogManager, between: Callable[[], object] = lambda: None, *, clean_offset: int = -1
) -> PartitionLog:
    """Hand a log over in the steps of ``node/replicas/hand_overs.py``; return the new log."""
    new = target.create_log(TP, ID, CONFIG)
    [log_dir] = target.log_dirs
    directory = target.moves.begin_hand_over(log_dir, TP)
    log.roll(NOW)
    handing = HandOver(log, log.disk, directory)
    log.flush()
    between()
    handing.link()
    between()
    handing.complete()
    between()
    assert handing.still_holds
    handed = HandedOver(
        log_start_offset=handing.log_start_offset,
        end_offset=handing.end_offset,
        size=handing.size,
        clean_offset=clean_offset,
    )
    taken = target.moves.take_over(new, directory, handed, now_ms=NOW)
    log.disk.sync_dir(log_dir.path)
    return taken


def written(disk: FakeDisk, count: int = 30) -> tuple[LogManager, PartitionLog]:
    source = start(disk, "/one")
    log = source.create_log(TP, ID, CONFIG)
    put(log, count // 2)
    put(log, count - count // 2, epoch=3)
    return source, log


def test_the_new_log_is_the_old_one() -> None:
    disk = FakeDisk()
    source, log = written(disk)
    log.maybe_increment_log_start_offset(7)
    disk.write_bytes("/one/topic-0/00000000000000000000.log.1.set-aside", b"something")
    target = start(disk, "/two")
    before = disk.used()
    taken = hand_over(log, target)
    assert target.get_log(TP) is taken and disk.used() < before + log.size // 2, "records are not copied"
    assert (taken.log_start_offset, taken.log_end_offset) == (7, 30)
    assert read_all(taken) == expected(log)
    assert taken.leader_epochs.entries == [(0, 7), (3, 15)]
    assert taken.recovery_point == 0 and taken.needs_flush(NOW), "its indexes are still to be flushed"
    assert disk.read_bytes("/two/topic-0/00000000000000000000.log.1.set-aside") == b"something"
    assert disk.read_bytes("/two/topic-0/topic-id") == disk.read_bytes("/one/topic-0/topic-id")
    put(taken, 3, epoch=4)  # its sequence goes on, so the producer's state was handed over
    source.delete_log(TP)
    for now_ms in (NOW + 1, NOW + 2):
        delete_expired(source, now_ms)
    target.close()
    again = start(disk, "/two").get_log(TP)
    assert again is not None and read_all(again) == expected(again) and again.log_end_offset == 33


def test_of_indexes_that_were_not_flushed_a_power_cut_may_leave_a_part() -> None:
    disk = FakeDisk()
    source = start(disk, "/one")
    log = source.create_log(TP, ID, CONFIG)
    for number in range(30):
        append(log, [b"x" * 50], timestamp=NOW + number)
    target = start(disk, "/two")
    latest = [segment.max_timestamp for segment in hand_over(log, target).segments]
    target.checkpoint()
    index = disk.open("/two/topic-0/00000000000000000000.timeindex")
    assert index.size() > 12
    index.truncate(12)
    disk.kill()
    again = start(disk, "/two").get_log(TP)
    assert again is not None and [segment.max_timestamp for segment in again.segments] == latest


COMPACTED = replace(CONFIG, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0)


def hand_over_compacted(disk: FakeDisk) -> tuple[LogManager, PartitionLog]:
    """Hand a log over that compaction has left holes in, to a node that has other logs."""
    source, target = start(disk, "/one"), start(disk, "/two")
    log = source.create_log(TP, ID, COMPACTED)
    for number in range(40):
        put_pairs(log, [(b"k%d" % (number % 3), b"v%d" % number + b"x" * 60)])
    log.roll(NOW)
    put_pairs(log, [(b"k0", b"last")])
    log.flush()
    assert clean(source, log, NOW, 1 << 20)
    target.checkpoint()
    clean_offset = source.cleaner_offsets.of(TP)
    assert clean_offset is not None and clean_offset > 30
    return target, hand_over(log, target, clean_offset=clean_offset)


def test_what_compaction_has_left_out_is_no_damage_in_the_new_log_whenever_the_power_fails() -> None:
    disk = FakeDisk()
    taken: list[PartitionLog] = []

    def life() -> None:
        target, log = hand_over_compacted(disk)
        taken.append(log)
        target.checkpoint({TP: log.log_end_offset})
        for task in target.flush_tasks(NOW):
            task.run()
            task.end()
        target.checkpoint({TP: log.log_end_offset})

    def fail(stopped: FakeDisk, point: int) -> None:
        for end in ("kill", "crash", "lose all") if taken else ():
            again = stopped.snapshot()
            if end == "kill":
                again.kill()
            else:
                again.crash(lose_all=end == "lose all")
            log = start(again, "/two").get_log(TP)
            assert log is not None and (log.damage, log.log_end_offset) == ((), 41), (point, end)

    at_every_point(disk, life, fail)


def test_what_compaction_has_left_out_is_no_damage_in_a_new_log_that_is_cut_before_it_is_flushed() -> None:
    disk = FakeDisk()
    target, taken = hand_over_compacted(disk)
    target.checkpoint({TP: 41})
    taken.truncate_to(40)
    disk.kill()
    again = start(disk, "/two").get_log(TP)
    assert again is not None and (again.damage, again.log_end_offset) == ((), 40)


def copy_before(log: PartitionLog, offset: int) -> None:
    """Have the file copied that a truncation cuts into, as ``FollowerWriter`` does off the event loop."""
    copy = log.begin_own_copy(offset)
    assert copy is not None
    while copy.step():
        pass
    log.end_own_copy(copy)
    assert log.begin_own_copy(offset) is None


@pytest.mark.parametrize("copies_before", [False, True])
@pytest.mark.parametrize("who_cuts", ["source", "target"])
def test_what_both_have_is_changed_by_neither(who_cuts: str, copies_before: bool) -> None:
    disk = FakeDisk()
    source, log = written(disk)
    target = start(disk, "/two")
    taken = hand_over(log, target)
    cut, other = (log, taken) if who_cuts == "source" else (taken, log)
    whole = expected(other)
    if copies_before:
        copy_before(cut, 12)
        assert read_all(cut) == whole == read_all(other)
    cut.truncate_to(11)
    put(cut, 5, epoch=5, word=b"w")
    assert read_all(cut)[11:] == [(offset, b"w%d" % offset + b"x" * 50) for offset in range(11, 16)]
    assert read_all(other) == whole
    cut.truncate_fully_and_start_at(0)
    put(cut, 1)
    for manager in (source, target):
        manager.close()
    held = start(disk, "/two" if who_cuts == "source" else "/one").get_log(TP)
    assert held is not None and read_all(held) == whole


def test_a_segment_that_both_have_is_not_written_on() -> None:
    """The new log has lost its last segment, and goes on in the one before."""
    disk = FakeDisk()
    source, log = written(disk)
    target = start(disk, "/two")
    hand_over(log, target)
    target.close()
    for suffix in ("log", "index", "timeindex"):
        disk.remove(f"/two/topic-0/{30:020d}.{suffix}")
    again = start(disk, "/two").get_log(TP)
    assert again is not None
    put(again, 1, epoch=4, word=b"w")
    assert read_all(log) == expected(log)
    source.close()
    back = start(disk, "/one").get_log(TP)
    assert back is not None and back.log_end_offset == 30


@pytest.mark.parametrize(("end_offset", "more"), [(31, 0), (30, 1)])
def test_what_is_not_whole_is_not_taken(end_offset: int, more: int) -> None:
    disk = FakeDisk()
    _, log = written(disk)
    target = start(disk, "/two")
    [log_dir] = target.log_dirs
    new = target.create_log(TP, ID, CONFIG)
    directory = target.moves.begin_hand_over(log_dir, TP)
    log.roll(NOW)
    handing = HandOver(log, disk, directory)
    handing.link()
    with pytest.raises(OSError) as failed:
        target.moves.take_over(new, directory, HandedOver(end_offset=end_offset, size=log.size + more), now_ms=NOW)
    assert failed.value.errno == errno.EIO
    assert target.get_log(TP) is new and not new.is_on_disk and not disk.is_dir("/two/topic-0")
    log.truncate_to(20)
    assert not handing.still_holds
    delete_expired(target, NOW + 1)
    assert [name for name in disk.list_dir("/two") if name.startswith("topic")] == []


def story(disk: FakeDisk, promised: dict[str, int]) -> None:
    source, log = written(disk, 12)
    log.flush()
    source.checkpoint()
    promised["durable"] = 12
    target = start(disk, "/two")

    def produce() -> None:
        put(log, 1, epoch=3)

    taken = hand_over(log, target, produce)
    taken.append_as_follower(log.read_bytes(taken.log_end_offset, 1 << 20), now_ms=NOW)
    copy_before(taken, 7)
    taken.flush()
    promised["moved"] = 1
    source.delete_log(TP)
    put(taken, 3, epoch=4)
    taken.flush()
    promised["durable"] = taken.recovery_point
    for manager, now_ms in ((source, NOW + 1), (source, NOW + 2), (target, NOW + 2)):
        delete_expired(manager, now_ms)
    source.close()
    target.close()


def test_every_point() -> None:
    disk, promised = FakeDisk(), {"durable": 0, "moved": 0}

    def fail(stopped: FakeDisk, point: int) -> None:
        for end in ("kill", "crash", "lose all"):
            again, case = stopped.snapshot(), (point, end)
            if end == "kill":
                again.kill()
            else:
                again.crash(lose_all=end == "lose all")
            ends = {}
            for path in ("/one", "/two"):
                manager = start(again, path)
                log = manager.get_log(TP)
                assert not manager.failed and not manager.moves.interrupted, case
                if log is not None:
                    assert read_all(log) == expected(log), case
                    ends[path] = min([log.log_end_offset, *missing(log)])
                manager.close()
            holder = "/two" if promised["moved"] else "/one"
            assert ends.get(holder, 0) >= promised["durable"], case

    at_every_point(disk, lambda: story(disk, promised), fail)


def test_an_end_that_is_lost_is_noted_in_a_file_of_its_own() -> None:
    """The new log has lost its last segment, and an empty batch stands for what was there."""
    disk = FakeDisk()
    _, log = written(disk)
    target = start(disk, "/two")
    put(hand_over(log, target), 3, epoch=4)
    target.close()
    for suffix in ("log", "index", "timeindex"):
        disk.remove(f"/two/topic-0/{30:020d}.{suffix}")
    name = f"{log.segments[-2].base_offset:020d}.log"
    size = disk.size(f"/one/topic-0/{name}")
    again = start(disk, "/two").get_log(TP)
    assert again is not None and again.log_end_offset == 33 and missing(again) == {30, 31, 32}
    assert disk.size(f"/one/topic-0/{name}") == size and disk.size(f"/two/topic-0/{name}") > size


def test_an_epoch_is_put_right_in_a_file_of_its_own() -> None:
    disk = FakeDisk()
    _, log = written(disk)
    target = start(disk, "/two")
    taken = hand_over(log, target)
    path = next(f"/topic-0/{each.base_offset:020d}.log" for each in reversed(log.segments) if each.base_offset <= 15)
    before = disk.read_bytes("/one" + path)
    taken.put_epochs_right(2)
    assert disk.read_bytes("/two" + path) != before == disk.read_bytes("/one" + path)


def test_a_transaction_index_that_was_lost_is_missed_by_the_new_log() -> None:
    disk = FakeDisk()
    source = start(disk, "/one")
    log = source.create_log(TP, ID, CONFIG)
    log.producers.transaction_verification = False
    data = build_batch(
        [Record(0, NOW, None, b"t")], producer_id=9, producer_epoch=1, base_sequence=0, is_transactional=True
    )
    log.append_as_leader(bytearray(data), 0, now_ms=NOW)
    end = build_end_txn_marker(commit=False, producer_id=9, producer_epoch=1, coordinator_epoch=0, timestamp_ms=NOW)
    log.append_as_leader(bytearray(end), 0, now_ms=NOW, origin=AppendOrigin.COORDINATOR, transaction_version=1)
    for _ in range(10):
        append(log, [b"x" * 100])
    wanted = log.aborted_transactions(0, log.read(0, 1 << 20))
    assert len(wanted) == 1
    disk.remove(f"/one/topic-0/{0:020d}.txnindex")
    taken = hand_over(log, start(disk, "/two"))
    assert taken.aborted_transactions(0, taken.read(0, 1 << 20)) == wanted


def test_the_new_log_knows_the_batches_that_may_be_sent_again() -> None:
    """An idempotent producer has up to five requests under way, and may have heard of none."""
    _, log = written(disk := FakeDisk())
    taken = hand_over(log, start(disk, "/two"))
    for sequence in range(25, 30):
        value = b"v%d" % sequence + b"x" * 50
        again = taken.append_as_leader(batch([value], producer_id=4, sequence=sequence), 4, now_ms=NOW)
        assert again.duplicate and again.first_offset == sequence


def test_a_copy_for_which_there_is_no_room_is_not_left_behind() -> None:
    disk = FakeDisk(capacity=1 << 20)
    _, log = written(disk)
    taken = hand_over(log, start(disk, "/two"))
    [taken_dir] = {os.path.dirname(segment.path) for segment in taken.segments}
    disk.taken = 1 << 20
    with pytest.raises(OSError) as failed:
        taken.truncate_to(20)
    assert failed.value.errno == errno.ENOSPC
    with pytest.raises(OSError):
        copy_before(taken, 20)
    assert not [name for name in disk.list_dir(taken_dir) if ".own" in name]


@pytest.mark.parametrize("meanwhile", ["cut", "emptied", "deleted", "cut elsewhere"])
def test_a_copy_of_what_has_become_another_is_given_up(meanwhile: str) -> None:
    disk = FakeDisk()
    source, log = written(disk)
    taken = hand_over(log, start(disk, "/two"))
    copy = log.begin_own_copy(20)
    assert copy is not None
    if meanwhile == "cut":
        log.truncate_to(20)
    elif meanwhile == "emptied":
        log.truncate_fully_and_start_at(0)
    elif meanwhile == "deleted":
        source.delete_log(TP)
    else:
        log.truncate_to(5)
    there, whole = [] if meanwhile == "deleted" else read_all(log), expected(taken)
    try:
        while copy.step():
            pass
        log.end_own_copy(copy)
    except OSError:
        assert meanwhile != "cut"  # its file is not there any more
    assert meanwhile == "deleted" or read_all(log) == there
    assert read_all(taken) == whole
    assert not [name for name in disk.list_dir(log.directory) if ".own" in name]
