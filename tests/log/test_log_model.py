"""Any sequence of appends, rolls, truncations, deletions, stops and crashes, against a plain list.

What must hold after a power cut: the log is a prefix of what it was (or of what it was before a truncation
that was not yet durable), at least as long as what was flushed. After the end of the process alone nothing is
missing. Nothing that is read ever has another value than was written at its offset.
"""

from __future__ import annotations

import os
import random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kbroker.errors import ApiError, ErrorCode
from kbroker.log.fake_disk import FakeDisk
from kbroker.log.log_config import LogConfig
from kbroker.log.manager import LogManager
from kbroker.log.partition_log import PartitionLog
from tests.log.log_helpers import NOW, TP, batch, delete_expired, read_all

History = list[tuple[int, bytes]]


class LogMachine(RuleBasedStateMachine):
    @initialize(
        seed=st.integers(0, 2**32),
        segment_bytes=st.sampled_from([1100, 3000, 100_000]),
        interval=st.sampled_from([0, 150, 4096]),
    )
    def start(self, seed: int, segment_bytes: int, interval: int) -> None:
        self.disk = FakeDisk(seed=seed)
        self.config = LogConfig(
            segment_bytes=segment_bytes, index_interval_bytes=interval, file_delete_delay_ms=0, retention_ms=-1
        )
        self.now = NOW
        self.epoch = 0
        self.counter = 0
        self.history: History = []
        """Every record that the log should have, from offset 0 on, deleted ones too."""
        self.others: list[History] = []
        """Earlier states, before truncations that are not durable yet."""
        self.durable = 0
        self.log_start = 0
        self.end = 0
        self.open()

    def open(self) -> None:
        self.manager = LogManager.open(
            ["/data"],
            self.disk,
            now_ms=self.now,
            log_config=lambda tp: self.config,
            rng=random.Random(1),
            leaves_holes=False,  # the model knows logs without holes alone
        )
        self.log: PartitionLog = self.manager.create_log(TP, None, self.config)

    @rule(count=st.integers(1, 3), size=st.integers(0, 300), producer=st.booleans())
    def append(self, count: int, size: int, producer: bool) -> None:
        values = []
        for _ in range(count):
            self.counter += 1
            values.append(b"%d:" % self.counter + b"x" * size)
        options = {}
        if producer:
            entry = self.log.producers.active_producers.get(7)
            options = {"producer_id": 7, "sequence": 0 if entry is None else entry.last_sequence + 1}
        info = self.log.append_as_leader(batch(values, timestamp=self.now, **options), self.epoch, now_ms=self.now)
        self.now += 1
        assert info.first_offset == self.end
        self.history += [(info.first_offset + index, value) for index, value in enumerate(values)]
        self.end += count

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now)

    @rule()
    def new_epoch(self) -> None:
        self.epoch += 1

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        offset = self.log.log_start_offset + int((self.end - self.log.log_start_offset) * share)
        before = list(self.history)
        if self.log.truncate_to(offset, now_ms=self.now):
            self.end = self.log.log_end_offset
            assert self.end <= offset
            self.history = [entry for entry in self.history if entry[0] < self.end]
            self.others.append(before)
            self.durable = min(self.durable, self.end)
            self.log_start = self.log.log_start_offset
            assert self.log_start <= self.end
            self.epoch += 1  # as in replication: who truncates does it for a newer leader

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.durable = self.log.recovery_point
        assert self.durable == self.end or not self.log.is_on_disk
        if self.log.log_end_offset:
            self.others.clear()

    @rule()
    def flush_sealed(self) -> None:
        for task in self.manager.flush_tasks(self.now):
            task.run()
            task.end()
        self.durable = max(self.durable, self.log.recovery_point)

    @rule()
    def checkpoint(self) -> None:
        self.manager.checkpoint({TP: self.end})

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        self.log.maybe_increment_log_start_offset(self.log_start + int((self.end - self.log_start) * share))
        self.log_start = self.log.log_start_offset

    @rule(retention=st.integers(0, 3000), delay=st.integers(0, 1))
    def delete_by_size(self, retention: int, delay: int) -> None:
        import dataclasses

        self.log.update_config(dataclasses.replace(self.config, retention_bytes=retention))
        self.manager.delete_old_segments(self.now)
        self.log.update_config(self.config)
        if delay:
            delete_expired(self.manager, self.now)
        assert self.log.log_start_offset >= self.log_start
        self.log_start = self.log.log_start_offset

    @rule()
    def stop_and_start(self) -> None:
        epochs = self.log.leader_epochs.entries
        self.manager.close()
        self.open()
        assert self.log.log_start_offset == self.log_start
        assert self.log.recovery_point == self.log.log_end_offset == self.end
        assert not self.log.cuts
        assert self.log.leader_epochs.entries == [entry for entry in epochs if entry[1] < self.end]
        self.durable = self.end
        self.others.clear()

    @rule()
    def kill_and_start(self) -> None:
        self.disk.kill()
        self.open()
        assert self.log.log_start_offset <= self.log_start
        assert self.log.log_end_offset == self.end
        assert not self.log.cuts
        self.log_start = self.log.log_start_offset
        self.durable = min(self.durable, self.end)

    @rule(lose_all=st.booleans())
    def power_cut(self, lose_all: bool) -> None:
        self.disk.crash(lose_all=lose_all)
        self.open()
        end = self.log.log_end_offset
        assert end >= self.durable, (end, self.durable)
        assert self.log.log_start_offset <= self.log_start
        found = read_all(self.log)
        branches = [self.history, *self.others]
        matching = [branch for branch in branches if all(branch_has(branch, entry) for entry in found)]
        assert matching, (found, branches)
        self.history = [entry for entry in matching[0] if entry[0] < end]
        self.end = end
        self.log_start = self.log.log_start_offset
        self.others.clear()
        # What recovery kept is on the disk: nothing was written since.
        self.epoch = max(self.epoch, self.log.leader_epochs.latest) + 1
        self.durable = min(self.durable, end)

    @precondition(lambda self: self.end > self.log_start)
    @rule(share=st.floats(0, 1), max_bytes=st.integers(1, 2000))
    def read(self, share: float, max_bytes: int) -> None:
        offset = self.log_start + int((self.end - 1 - self.log_start) * share)
        assert read_all(self.log, start=offset, max_bytes=max_bytes) == self.history_from(offset)

    @rule()
    def read_outside(self) -> None:
        for offset in (self.log_start - 1, self.end + 1):
            try:
                self.log.read(offset, 1000)
            except ApiError as error:
                assert error.code == ErrorCode.OFFSET_OUT_OF_RANGE
            else:
                raise AssertionError(offset)

    def history_from(self, offset: int) -> History:
        return [entry for entry in self.history if entry[0] >= offset]

    @invariant()
    def all_is_there(self) -> None:
        if hasattr(self, "log"):
            assert self.log.log_end_offset == self.end
            assert read_all(self.log) == self.history_from(self.log_start)
            assert self.log.recovery_point <= self.end


def branch_has(branch: History, entry: tuple[int, bytes]) -> bool:
    return entry[0] < len(branch) and branch[entry[0]] == entry


LogMachine.TestCase.settings = settings(
    max_examples=int(os.environ.get("KBROKER_LOG_EXAMPLES", "60")),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestLogModel = LogMachine.TestCase


def started() -> LogMachine:
    machine = LogMachine()
    machine.start(seed=0, segment_bytes=1100, interval=0)
    machine.append(count=1, producer=False, size=0)
    return machine


def test_two_power_cuts_leave_no_segment_but_the_note_of_what_is_missing() -> None:
    machine = started()
    machine.checkpoint()
    machine.power_cut(lose_all=False)
    machine.disk.crash(lose_all=True)
    assert machine.disk.list_dir("/data/topic-0") == ["damage.json"]
    machine.power_cut(lose_all=True)
    machine.all_is_there()
    assert [(each.start_offset, each.end_offset) for each in machine.log.damage] == [(0, 1)]


def test_a_log_whose_records_were_all_deleted_has_the_same_epochs_after_each_stop() -> None:
    machine = started()
    machine.delete_records(share=1.0)
    for _ in range(3):
        machine.stop_and_start()
        machine.all_is_there()
