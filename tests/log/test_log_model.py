"""Any sequence of what a node does with a log, on a disk that is full, fails or loses its power, against a dictionary.

A seed gives the configuration and the steps. All that is chance in a step comes from the step's own number: others can
be left out, and what fails is told with few.

What must hold at any time: what is read at an offset was written there; what was written is there, unless it lies below
the log start, compaction may have taken it, or the power failed before it was durable; what was cut off does not come
back once the cut is durable; who wants what is committed sees that and nothing else; the log knows leader epochs,
timestamps, and the batches that producers may send again; and nothing goes that retention does not allow to go.
"""

from __future__ import annotations

import errno
import logging
import os
import random
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from kbroker.log.dirs.log_move import MoveInterrupted, SourceFailed
from kbroker.log.fake_disk import FakeDisk, PowerCut
from kbroker.log.flushing import FlushTask
from kbroker.log.full_disk import is_no_room
from kbroker.log.log_config import LogConfig
from kbroker.log.manager import LogManager
from kbroker.log.partition_log import PartitionLog
from kbroker.log.validation import AppendOrigin
from kbroker.types import Uuid
from kbroker.wire.batch_header import BatchHeader, check_crc, parse_header, patch_in_place, walk_headers
from kbroker.wire.compression import CompressionType
from kbroker.wire.control_batch import build_end_txn_marker, parse_end_txn_marker
from kbroker.wire.record_batch import Record, build_batch, iter_records
from tests.log.log_helpers import NOW, TP, delete_expired, looked_up, missing
from tests.log.test_compaction_crash import clean
from tests.log.test_log_move import carry_out
from tests.log.test_old_formats import message

SEEDS = int(os.environ.get("KBROKER_LOG_EXAMPLES", "150"))
STEPS = """append*14 end_transaction*7 send_again*1 lead*1 roll*2 flush*2 begin*4 finish*4 compact*4 retain*2 delete*1
    remove*2 truncate*2 begin_anew*0.3 move*0.5 stop*2.5"""
"""The methods of `Story` that are taken, and how often each."""
Step = tuple[str, int, str]
"""A method, the number that decides how it is called, and the trouble that the disk makes meanwhile."""
ID = Uuid(bytes(15) + b"\x07")
IDEMPOTENT, TRANSACTIONAL = (1, 2), (3, 4, 5)
DELETE_RETENTION = 1500
EVER = 2**63 - 1


class Written(NamedTuple):
    """A record, and what its batch says. ``commit`` is what a marker says."""

    first: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    leader_epoch: int
    producer: int
    producer_epoch: int
    sequence: int
    in_transaction: bool
    commit: bool | None


History = dict[int, Written]


class State(NamedTuple):
    """All that was written to a log, deleted records too, and its bounds."""

    written: History
    start: int
    end: int


def written_in(data: bytes | bytearray, position: int, header: BatchHeader) -> History:
    first, _, leader_epoch, _, _, _, _, _, _, producer, epoch, sequence, _ = header
    marker = parse_end_txn_marker(data, position) if header.is_control else None
    commit = None if marker is None else marker.commit
    batch = leader_epoch, producer, epoch, sequence, header.is_transactional, commit
    return {at: Written(first, key, value, time, *batch) for at, time, key, value, _ in iter_records(data, position)}


def cut(written: History, end: int) -> History:
    return {at: each for at, each in written.items() if at < end}


def transactions(written: History, below: int = EVER) -> tuple[dict[int, bool], dict[int, list[int]]]:
    """Returns of what was ended below an offset whether it was committed; and by producer what was not ended."""
    decided: dict[int, bool] = {}
    others: dict[int, list[int]] = {}
    for at, each in written.items():
        if each.commit is None and each.in_transaction:
            others.setdefault(each.producer, []).append(at)
        elif each.commit is not None and at < below:
            decided.update(dict.fromkeys(others.pop(each.producer, ()), each.commit))
    return decided, others


def valid_in(written: History) -> History:
    """Returns what readers of what is committed may see once it is stable."""
    decided, _ = transactions(written)
    return {at: each for at, each in written.items() if decided.get(at, not each.in_transaction)}


class Story:
    """A log of a node, and what is known of it."""

    manager: LogManager
    log: PartitionLog

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.config = LogConfig(
            segment_bytes=rng.choice((700, 1500, 6000)),
            index_interval_bytes=rng.choice((1, 150, 4096)),
            segment_index_bytes=rng.choice((60, 1 << 20)),
            file_delete_delay_ms=rng.choice((0, 2000)),
            retention_ms=-1,
            delete_retention_ms=DELETE_RETENTION,
            min_cleanable_dirty_ratio=0.0,
            cleanup_policy=frozenset({rng.choice(("compact", "compact", "delete"))}),
        )
        self.first_config = rng.choice((self.config, LogConfig()))  # until the metadata say more
        self.codec = rng.choice((CompressionType.NONE, CompressionType.NONE, CompressionType.LZ4))
        self.leaves_holes = rng.random() < 0.8
        self.disk = FakeDisk(capacity=1 << 20)
        self.now, self.trace = NOW, list[str]()
        self.durable = self.durable_start = self.top_start = self.high_watermark = self.compacted = 0
        self.epoch = self.generation = self.counter = 0
        self.power_failed = self.is_cut_deep = self.began_anew = False
        self.state = State({}, 0, 0)
        self.attempts: list[State] = []
        """The log if the step that is under way succeeds."""
        self.others: list[State] = []
        """The log before it was cut, while that is not durable."""
        self.tasks: list[tuple[Any, int, int]] = []
        """Flushes and checkpoints, each with generation and log start of when it was begun."""
        self.gone: set[tuple[int, Written]] = set()
        """All that compaction may have taken."""
        self.tombstones: dict[tuple[int, Written], int] = {}
        """The times at which compaction may have met them first."""
        self.last_sent: set[tuple[int, int]] = set()
        """Each producer and the first offset of its last batch when the log was compacted last."""
        self.sent: dict[int, tuple[int, list[tuple[int, int, int]]]] = {}
        """By producer its epoch, and the batches that are recognised when they are sent again: first offset, last
        offset, sequence."""
        self.next: dict[int, tuple[int, int]] = {}
        """By producer its epoch and next sequence."""
        self.decided: dict[int, bool] = {}
        """By producer what a marker said that is lost: it is written again."""
        if rng.random() < 0.2:
            self.begin_with_old_messages(rng.randint(1, 9))
        self.open()

    def begin_with_old_messages(self, count: int) -> None:
        """Have the log be one that a Kafka before 0.11 has begun."""
        self.disk.make_dirs(f"/one/{TP}")
        data = b"".join(message(at, b"%d" % at, key=b"key%d" % at, timestamp=NOW) for at in range(count))
        self.disk.write_bytes(f"/one/{TP}/{0:020}.log", data, sync=True)
        for directory in ("/", "/one", f"/one/{TP}"):
            self.disk.sync_dir(directory)
        batch = NOW, -1, -1, -1, -1, False, None
        self.state = State({at: Written(0, b"key%d" % at, b"%d" % at, *batch) for at in range(count)}, 0, count)
        self.durable = count

    def take(self, name: str, number: int, trouble: str) -> None:
        """Take a step, and look at the log."""
        self.rng = rng = random.Random(number)
        self.disk.rng.seed(number)
        self.now += rng.choice((1, 1, 400, 3000))
        self.disk.now_ms = self.now
        for log_dir in self.manager.log_dirs:
            if log_dir.room.is_full and rng.random() < 0.3:
                log_dir.room.fill_reserve()
        self.trace.append(f"{name} {trouble}")
        if trouble == "power cut":
            self.disk.crash_after = self.disk.operations + rng.randrange(20)
        elif trouble:
            self.disk.on_operation = failing(trouble == "full", rng.randrange(8), rng.choice((1, 3, 99)))
        try:
            getattr(self, name)()
            is_over = any(log_dir.offline is not None for log_dir in self.manager.log_dirs)
        except (OSError, PowerCut, SourceFailed, MoveInterrupted) as error:
            self.trace[-1] += f" {error!r}"
            is_over = not is_no_room(error)
            if not is_over:
                self.attempts = []
                self.log.flush_again(self.now)
        self.disk.on_operation = self.disk.crash_after = None
        if is_over:
            self.restart(rng.random() < 0.6)
        self.durable = max(self.durable, self.log.recovery_point)
        if not self.log.durability.cut:
            self.others, self.began_anew = [], False
        _, start, end = self.state
        self.trace[-1] += f": {start} to {end}, {self.high_watermark} committed, {self.durable} durable"
        self.check()

    # -- what is written

    def append(self) -> None:
        for _ in range(self.rng.choice((1, 1, 1, 4))):
            producer = self.rng.choice((-1, -1, *IDEMPOTENT, *TRANSACTIONAL))
            epoch, sequence = self.next_of(producer)
            if producer in IDEMPOTENT and self.rng.random() < 0.1:
                epoch, sequence = epoch + 1, 0
            if producer not in self.decided:
                self.write(self.batch(self.rng.randint(1, 3), producer, epoch, sequence))

    def batch(self, count: int, producer: int, epoch: int, sequence: int) -> bytearray:
        rng, records = self.rng, []
        for _ in range(count):
            self.counter += 1
            value = b"%d" % self.counter + b"x" * rng.randrange(80)
            is_tombstone = self.config.compact and rng.random() < 0.2
            key, time = b"key%d" % rng.randrange(6), self.now + rng.choice((0, 0, -4000, 900))
            records.append(Record(0, time, key, None if is_tombstone else value))
        return bytearray(
            build_batch(
                records,
                compression=self.codec,
                producer_id=producer,
                producer_epoch=epoch,
                base_sequence=sequence,
                is_transactional=producer in TRANSACTIONAL,
            )
        )

    def next_of(self, producer: int) -> tuple[int, int]:
        entry = self.log.producers.active_producers.get(producer)
        if entry is not None:  # else the log may have forgotten it, while the producer goes on
            self.next[producer] = entry.producer_epoch, entry.last_sequence + 1
        return self.next.get(producer, (0, 0)) if producer >= 0 else (-1, -1)

    def end_transaction(self) -> None:
        producer = self.rng.choice(sorted(self.decided) or TRANSACTIONAL)
        data = build_end_txn_marker(
            commit=self.decided.get(producer, self.rng.random() < 0.5),
            producer_id=producer,
            producer_epoch=self.next_of(producer)[0] + self.rng.choice((0, 0, 1)),
            coordinator_epoch=0,
            timestamp_ms=self.now,
        )
        self.write(bytearray(data), origin=AppendOrigin.COORDINATOR, transaction_version=0)
        self.decided.pop(producer, None)

    def write(self, data: bytearray, **options: Any) -> None:
        """Append a batch, as a leader or as a follower."""
        (written, start, base), is_follower = self.state, self.rng.random() < 0.3
        if is_follower and self.config.compact:
            base += self.rng.choice((0, 0, 5))  # the leader's log was compacted there
        header = parse_header(data)
        records = written_in(data, 0, header).items()
        new = {base + at: each._replace(first=base, leader_epoch=self.epoch) for at, each in records}
        self.attempts = [State(written | new, start, base + len(new))]
        if is_follower:
            patch_in_place(data, 0, base, self.epoch)
            info = self.log.append_as_follower(data, now_ms=self.now)
        else:
            info = self.log.append_as_leader(data, self.epoch, now_ms=self.now, **options)
        assert info is not None and (info.first_offset, info.duplicate) == (base, False)
        self.state = self.attempts.pop()
        self.note_sent(new)
        self.next_of(header.producer_id)
        if self.rng.random() < 0.6:
            ends = {each.first for each in self.state.written.values()} | {self.high_watermark, self.state.end}
            self.high_watermark = self.rng.choice(sorted(end for end in ends if end >= self.high_watermark))
            self.log.on_high_watermark_updated(self.high_watermark)

    def note_sent(self, written: History) -> None:
        for at, (first, *_, producer, epoch, sequence, _, commit) in written.items():
            known = [each for each in self.sent.get(producer, (0, []))[1] if each[0] != first]
            if epoch != self.sent.get(producer, (epoch,))[0]:
                known = []
            self.sent[producer] = epoch, known if commit is not None else [*known[-4:], (first, at, sequence)]
        self.sent.pop(-1, None)

    def send_again(self) -> None:
        for producer, (epoch, batches) in self.sent.items():
            known = [each.first_sequence for each in self.log.producers.active_producers[producer].batches]
            for first, last, sequence in batches:
                if known.count(sequence) > 1:
                    continue  # what was forgotten, as it was deleted, has come back
                again = self.batch(last - first + 1, producer, epoch, sequence)
                info = self.log.append_as_leader(again, self.epoch, now_ms=self.now)
                assert (info.first_offset, info.last_offset, info.duplicate) == (first, last, True)

    def lead(self) -> None:
        self.epoch += 1
        self.log.leader_epochs.assign(self.epoch, self.state.end)

    # -- what becomes of it

    def roll(self) -> None:
        self.log.roll(self.now)

    def remove(self) -> None:
        delete_expired(self.manager, self.now)

    def flush(self) -> None:
        self.log.flush()
        self.durable = self.state.end if self.log.is_on_disk else 0

    def begin(self) -> None:
        """Begin a checkpoint or flushes, which `finish` ends, one at a time and in any order."""
        tasks: list[Any] = []
        if self.rng.random() < 0.3:
            tasks = [self.log.begin_flush(sealed_only=self.rng.random() < 0.5)]
        elif self.rng.random() < 0.4:
            tasks = self.manager.flush_tasks(self.now)
        else:
            tasks = [self.manager.checkpoint_task({TP: self.high_watermark})]
            self.tasks = [(task, generation, 0) for task, generation, _ in self.tasks]  # which may come too late
        self.tasks += [(task, self.generation, self.state.start) for task in tasks if task is not None]

    def finish(self) -> None:
        if not self.tasks:
            return
        task, generation, start = self.tasks.pop(self.rng.randrange(len(self.tasks)))
        if isinstance(task, FlushTask):
            task.run()
            task.end()
            if generation == self.generation:
                self.durable = max(self.durable, task.offset)
        elif failed := task():
            for log_dir, error in failed:
                self.manager.mark_offline(log_dir, error)
        elif generation == self.generation and not self.others:
            self.durable_start = max(self.durable_start, start)

    def compact(self) -> None:
        log, stable = self.log, self.last_stable_offset
        if self.config.compact:
            for state in (self.state, *self.others):
                self.gone |= self.replaced(state.written, min(stable, log.active_segment.base_offset))
            self.compacted = max(self.compacted, self.state.end)
            self.last_sent = {(producer, batches[-1][0]) for producer, (_, batches) in self.sent.items() if batches}
            sizes = {"map_bytes": self.rng.choice((1, 500, 1 << 30)), "read_bytes": self.rng.choice((100, 1 << 20))}
            end = clean(self.manager, log, self.now, last_stable_offset=stable, **sizes)
            left = cut(self.read(self.top_start), end).values()
            assert len({each.key for each in left if each.commit is None}) == sum(each.commit is None for each in left)

    def replaced(self, written: History, bound: int) -> set[tuple[int, Written]]:
        """Returns what compaction may take now below ``bound``."""
        kept = {each.key: (at, each) for at, each in cut(valid_in(written), bound).items()}
        for key, last in list(kept.items()):
            if last[1].value is None and self.tombstones.setdefault(last, self.now) + DELETE_RETENTION <= self.now:
                del kept[key]
        return set(cut(written, bound).items()) - set(kept.values())

    def retain(self) -> None:
        """Delete by size or by age."""
        (written, start, end), log, limit = self.state, self.log, self.rng.randrange(5000)
        of_size = self.rng.random() < 0.5
        self.attempts = [State(written, self.high_watermark, end)]
        limits: dict[str, Any] = {"retention_bytes": limit} if of_size else {"retention_ms": limit}
        log.update_config(replace(self.config, cleanup_policy=self.config.cleanup_policy | {"delete"}, **limits))
        self.manager.delete_old_segments(self.now, {TP: self.high_watermark}.get)
        log.update_config(self.config)
        self.attempts, self.state = [], State(written, log.log_start_offset, end)
        assert start <= log.log_start_offset <= self.high_watermark
        there = dict(written.items() - self.gone)
        times = [each.timestamp for at, each in there.items() if start <= at < log.log_start_offset]
        assert not times or (log.size >= limit if of_size else self.now - max(times) > limit), (times, log.size, limit)

    def delete(self) -> None:
        start = self.rng.randint(self.state.start, self.high_watermark)
        self.log.maybe_increment_log_start_offset(start)
        self.state = self.state._replace(start=start)
        self.manager.delete_old_segments(self.now, {TP: self.high_watermark}.get)

    def truncate(self) -> None:
        least = self.high_watermark if self.rng.random() < 0.9 else self.state.start  # one leads that lacks some
        self.truncate_to(self.rng.randint(least, self.state.end))

    def truncate_to(self, offset: int) -> None:
        written, start, end = self.state
        if offset < end:
            first = written[offset].first if offset in written else offset
            left = max((at for at, each in written.items() if at < first and (at, each) not in self.gone), default=-1)
            # It ends where the batch begins, or behind the last one that is left.
            results = [State(cut(written, at), start, at) for at in range(max(left + 1, start), offset + 1)]
            if left < start:
                results.append(State({}, offset, offset))
            self.cut(results, lambda: self.log.truncate_to(offset, now_ms=self.now))

    def begin_anew(self) -> None:
        _, start, end = self.state
        offset = self.rng.choice((end + 5, start, max(0, start - 3), self.rng.randint(start, end)))
        results = [State({}, offset, offset)]
        self.cut(results, lambda: self.log.truncate_fully_and_start_at(offset, now_ms=self.now))

    def cut(self, results: list[State], cut: Callable[[], object]) -> None:
        """Cut the log, and once more if a full disk has refused it, as a node does; it is one of the results then."""
        old, self.attempts, self.generation = self.state, results, self.generation + 1
        least = min(end if written else min(end, old.start) for written, _, end in results)
        self.durable, self.durable_start = min(self.durable, least), min(self.durable_start, least)
        self.is_cut_deep = self.is_cut_deep or least < self.compacted  # into what others gave way to
        self.began_anew = self.began_anew or any(not written for written, _, _ in results)
        try:
            cut()
        except OSError as error:
            if not is_no_room(error):
                raise
            self.disk.on_operation = None
            cut()
        bounds = self.log.log_start_offset, self.log.log_end_offset
        self.state = next(each for each in results if each[1:] == bounds)
        self.others.append(old)
        self.attempts = []
        self.epoch += 1  # who cuts does it for a newer leader
        self.is_another(old, self.high_watermark)

    def move(self) -> None:
        """Move the log to the other log dir, or there and back."""
        for _ in range(self.rng.choice((1, 2))):
            if self.log.is_on_disk and not self.log.is_damaged:  # whose lost end nobody could copy
                self.move_once()

    def move_once(self) -> None:
        target = next(each for each in self.manager.log_dirs if each is not self.manager.log_dir_of(TP))
        move, sent = self.manager.moves.begin(self.log, target, now_ms=self.now), self.sent
        assert move is not None
        self.durable_start, self.generation = 0, self.generation + 1
        try:
            carry_out(self.manager, move, self.log, appends=False)
        except (OSError, SourceFailed, MoveInterrupted):
            move.abandon()
            raise
        self.log = self.manager.create_log(TP, ID, self.config, now_ms=self.now)
        self.manager.checkpoint({TP: self.high_watermark})
        self.is_another(self.state, self.high_watermark)
        self.sent = {producer: sent.get(producer, last) for producer, last in self.sent.items()}

    # -- stops

    def stop(self) -> None:
        epochs, way = self.log.leader_epochs.entries, self.rng.choice(("close", "kill", "cut", "cut"))
        if way == "close":
            self.manager.close(high_watermarks={TP: self.high_watermark})
        self.restart(way == "cut" or (way == "close" and self.rng.random() < 0.5))
        if self.was_clean and not self.log.damage and self.state.start < self.state.end:
            assert self.log.leader_epochs.entries == [each for each in epochs if each[1] < self.state.end]

    def restart(self, is_power_cut: bool) -> None:
        """Stop, and open the log, which may be interrupted."""
        self.trace[-1] += ", power cut" if is_power_cut else ", kill"
        self.disk.on_operation = None
        if is_power_cut:
            self.power_failed = True
            self.disk.crash(lose_all=self.rng.random() < 0.3)
        else:
            self.disk.kill()
        if self.rng.random() < 0.2:
            self.disk.crash_after = self.disk.operations + self.rng.randrange(30)
        try:
            self.open()
        except PowerCut:
            self.restart(self.rng.random() < 0.7)
        self.disk.crash_after = None

    @property
    def was_clean(self) -> bool:
        return all(log_dir.was_clean for log_dir in self.manager.log_dirs)

    def open(self) -> None:
        """Open the log, and find out what it is of all that it may be."""
        self.manager = LogManager.open(
            ["/one", "/two"],
            self.disk,
            now_ms=self.now,
            log_config=lambda tp: self.first_config,
            cluster_id="c",
            node_id=1,
            rng=random.Random(1),
            leaves_holes=self.leaves_holes,
        )
        self.manager.set_stray_aside(lambda tp, topic_id: topic_id in (None, ID))
        self.log = log = self.manager.create_log(TP, ID, self.config, now_ms=self.now)
        old, start, end = self.state, log.log_start_offset, log.log_end_offset
        if self.was_clean:
            self.durable, self.durable_start, self.power_failed, self.others = old.end, old.start, False, []
        possible = [old, *self.attempts, *(self.others if self.power_failed else ())]
        assert self.durable_start <= start <= max(each.start for each in possible), (self.durable_start, start)
        least = self.durable if self.power_failed else end if self.attempts else old.end
        ends = [each.end for each in possible] + [each.end_offset for each in log.damage]  # it goes on behind damage
        assert least <= end <= max(ends), (least, end)
        found = self.read(start)
        for at, each in found.items():
            assert any(each == state.written.get(at) for state in possible), f"{each} is at {at}"
        epochs = [each.leader_epoch for each in found.values()]
        assert epochs == sorted(epochs)
        if not self.began_anew:  # else what was before may stand before it
            assert any(found.items() <= state.written.items() for state in possible), "what was cut off has come back"
        lost = {at for at in missing(log) if at >= self.durable} if self.power_failed else set[int]()
        there = {at: each for at, each in cut(old.written, end).items() if at not in lost}
        there = dict(item for item in there.items() if all(item in state.written.items() for state in possible))
        fitting = [state.written for state in reversed(possible) if found.items() <= state.written.items()]
        before = {at: it for written in fitting for at, it in written.items()}
        before = {at: it for at, it in before.items() if at < start or ((at, it) in self.gone and at not in lost)}
        self.state = State(dict(sorted(cut(before | there | found, end).items())), start, end)
        if self.power_failed:
            self.others = []
        elif self.attempts:
            self.others.append(old)
        self.epoch += self.power_failed or bool(self.attempts) or self.rng.randrange(2)
        self.durable, self.durable_start = min(self.durable, end), min(self.durable_start, start)
        self.attempts, self.tasks, self.generation, self.power_failed = [], [], self.generation + 1, False
        self.is_another(old, self.manager.high_watermarks.get(TP, 0))
        if log.damage and self.rng.random() < 0.5:  # as a follower, which gets from others what is missing
            self.check()
            self.truncate_to(max(log.damage[0].start_offset, start))
            log.healed()

    def is_another(self, old: State, high_watermark: int) -> None:
        """Take in that the log is not what it was."""
        written, start, end = self.state
        self.log.producers.transaction_verification = False
        self.high_watermark = max(min(high_watermark, end), start)
        self.log.on_high_watermark_updated(self.high_watermark)
        for at, each in old.written.items():
            if each.commit is not None and written.get(at) != each:
                self.decided.setdefault(each.producer, each.commit)
        _, undecided = transactions(written)
        self.decided = {producer: commit for producer, commit in self.decided.items() if producer in undecided}
        self.sent = {}
        self.note_sent(written)
        for producer, (epoch, batches) in list(self.sent.items()):
            del self.sent[producer]
            for first, last, sequence in batches[-1:]:
                if last >= start and ((producer, first) in self.last_sent or (last, written[last]) not in self.gone):
                    self.sent[producer] = epoch, [(first, last, sequence)]

    # -- what is seen

    @property
    def last_stable_offset(self) -> int:
        unstable = self.log.first_unstable_offset
        return self.high_watermark if unstable is None else min(self.high_watermark, unstable)

    def read(self, start: int, end: int = EVER, *, committed: bool = False) -> History:
        """Returns what a consumer gets; with ``committed`` one that wants no more than that."""
        log, found, size = self.log, History(), self.rng.choice((1, 300, 1 << 20))
        while start < min(end, log.log_end_offset):
            info, before, hidden = log.read(start, size, max_offset=end), start, set[int]()
            assert isinstance(info.records, bytes)
            aborted = log.aborted_transactions(start, info) if committed else []
            aborted = sorted(aborted, key=lambda each: -each.first_offset)
            for position, header in walk_headers(info.records):
                check_crc(info.records, position, header)
                while aborted and aborted[-1].first_offset <= header.last_offset:
                    hidden.add(aborted.pop().producer_id)
                records = written_in(info.records, position, header)
                if committed and header.is_control:
                    hidden -= {each.producer for each in records.values() if not each.commit}
                elif not header.is_transactional or header.producer_id not in hidden:
                    found.update((at, each) for at, each in records.items() if at >= start)
                assert header.next_offset > start
                start = header.next_offset
            if start == before:
                break
        return found

    def check(self) -> None:
        (written, start, end), log = self.state, self.log
        assert (log.log_start_offset, log.log_end_offset) == (start, end)
        self.top_start = max(self.top_start, start)
        found = self.read(start)
        for at, each in found.items():
            assert written.get(at) == each, (at, each, written.get(at))
            epoch = log.leader_epochs.epoch_for(at)
            assert (-1 if epoch is None else epoch) == each.leader_epoch, (at, each, log.leader_epochs.entries)
        for at, each in written.items():
            assert at < start or at in found or (at, each) in self.gone, f"{at} is gone: {each}"
        self.check_transactions(found)
        entries = log.producers.active_producers
        known = {id: [(b.first_offset, b.last_offset, b.first_sequence) for b in entries[id].batches] for id in entries}
        taken = {at for at, _ in self.gone}
        for producer, batches in known.items():
            for first, last, _ in batches:
                there = {written[at].producer for at in range(first, last + 1) if at in written}
                assert last < start or there == {producer} or (last in taken and not there), (producer, batches)
        for producer, (epoch, batches) in self.sent.items():
            if batches:
                assert (entries[producer].producer_epoch, known[producer][-len(batches) :]) == (epoch, batches)
        time = self.rng.choice([each.timestamp for each in found.values()] or [0])
        late = looked_up(log.offset_for_timestamp(time))
        expected = min((at for at, each in found.items() if each.timestamp >= time), default=None)
        assert (None if late is None else late.offset) == expected, (time, late, expected)

    def check_transactions(self, found: History) -> None:
        (written, start, _), stable, committed = self.state, self.last_stable_offset, self.high_watermark
        # What was ended above the high watermark counts as open, unless the node was started since.
        least = min([committed, *(offsets[0] for offsets in transactions(written, committed)[1].values())])
        open_offsets = {at for offsets in transactions(written)[1].values() for at in offsets}
        assert max(least, start) <= stable <= min([committed, *(open_offsets & found.keys())]), (least, stable)
        valid = valid_in(written)
        newest = {each.key: at for at, each in valid.items() if at < stable}
        for at, each in found.items():
            by = newest.get(each.key, at)
            assert at not in valid or by <= at or by in found, f"{at} is there, but not {by} in its place"
        for key, at in {each.key: at for at, each in valid.items()}.items():
            is_gone = at >= start and at not in found and valid[at].value is not None
            assert self.is_cut_deep or not is_gone, f"the last value of {key!r}, at {at}, is gone"
        stable = max(start, written[stable].first if stable in written else stable)  # a batch is read as a whole
        begin = self.rng.randint(start, stable)
        seen = self.read(begin, stable, committed=True)
        assert seen.keys() == {at for at in found if at in valid and begin <= at < stable}, (begin, stable)


def failing(is_full: bool, begin: int, count: int) -> Callable[[str, str], None]:
    """Returns an operation's end on a disk that will have no room for a while, or that will fail once."""
    seen = 0

    def fail(operation: str, path: str) -> None:
        nonlocal seen
        if not is_full or operation in ("write", "create", "mkdir"):
            seen += 1
            if begin < seen <= begin + (count if is_full else 1):
                raise OSError(errno.ENOSPC if is_full else errno.EIO, "made to fail", path)

    return fail


def steps_of(seed: int) -> list[Step]:
    rng, steps = random.Random(seed), [each.split("*") for each in STEPS.split()]
    names = rng.choices([name for name, _ in steps], [float(each) for _, each in steps], k=rng.choice((40, 120)))
    troubles = rng.choices(("", "full", "broken", "power cut"), (30, 2, 0.5, 1), k=len(names))
    return [(name, rng.getrandbits(30), trouble) for name, trouble in zip(names, troubles, strict=True)]


def failure(seed: int, steps: list[Step]) -> str:
    """Returns what happens, and what is wrong in the end; nothing if nothing is."""
    story = Story(seed)
    try:
        for step in steps:
            story.take(*step)
    except Exception:
        return "\n".join((*story.trace, traceback.format_exc(limit=-3)))
    return ""


def shrunk(seed: int, steps: list[Step]) -> list[Step]:
    """Leaves out steps, many together at first, as long as something fails."""
    size = len(steps)
    while size := size // 2:
        for at in range(len(steps), -1, -size):
            fewer = steps[:at] + steps[at + size :]
            if len(fewer) < len(steps) and failure(seed, fewer):
                steps = fewer
    return steps


def test_any_steps() -> None:
    logging.disable()
    try:
        for seed in range(SEEDS):
            if failure(seed, steps := steps_of(seed)):
                steps = shrunk(seed, steps)
                pytest.fail(f"failure({seed}, {steps}):\n{failure(seed, steps)}", pytrace=False)
    finally:
        logging.disable(logging.NOTSET)
