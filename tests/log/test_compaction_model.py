"""Any sequence of appends, rolls, compactions, deletions, truncations, stops and crashes of a compacted log, against a
plain list.

What must hold at any time: every record that is read was written with that offset, key and value; for each key the last
one written (before the log end) is there, unless it lies below the log start or is a tombstone old enough; and below
what was cleaned, no key is there twice. After a power cut the log may be what it was before a truncation that was not
yet durable.
"""

from __future__ import annotations

import dataclasses
import os
import random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kbroker.log.compaction.cleanable import log_to_clean, make_job
from kbroker.log.compaction.compactor import compact
from kbroker.log.fake_disk import FakeDisk
from kbroker.log.log_config import LogConfig
from kbroker.log.manager import LogManager
from kbroker.log.partition_log import PartitionLog
from kbroker.wire.batch_header import check_crc, walk_headers
from kbroker.wire.compression import CompressionType
from kbroker.wire.record_batch import Record, build_batch, iter_records
from tests.log.log_helpers import NOW, TP, delete_expired, finish

Written = tuple[bytes, bytes | None, bool]
"""A record's key, value, and whether the idempotent producer wrote it."""

DELETE_RETENTION = 50


class CompactionMachine(RuleBasedStateMachine):
    @initialize(
        seed=st.integers(0, 2**32),
        segment_bytes=st.sampled_from([900, 2500, 100_000]),
        codec=st.sampled_from([CompressionType.NONE, CompressionType.LZ4]),
    )
    def start(self, seed: int, segment_bytes: int, codec: CompressionType) -> None:
        self.disk = FakeDisk(seed=seed)
        self.codec = codec
        self.config = LogConfig(
            cleanup_policy=frozenset({"compact"}),
            segment_bytes=segment_bytes,
            index_interval_bytes=150,
            file_delete_delay_ms=0,
            min_cleanable_dirty_ratio=0.0,
            delete_retention_ms=DELETE_RETENTION,
        )
        self.now = NOW
        self.epoch = 0
        self.counter = 0
        self.history: list[Written] = []
        self.others: list[list[Written]] = []
        """Earlier states, before truncations that are not durable yet."""
        self.log_start = 0
        self.durable = 0
        self.clean_end = 0
        self.sequence = 0
        self.promised_start = 0
        """The highest log start. It may be lower again after a crash, as it is not durable before a checkpoint."""
        self.open()

    def open(self) -> None:
        self.manager = LogManager.open(
            ["/data"], self.disk, now_ms=self.now, log_config=lambda tp: LogConfig(), rng=random.Random(1)
        )
        self.log: PartitionLog = self.manager.create_log(TP, None, self.config)
        if not any(is_produced for _, _, is_produced in self.history[self.promised_start :]):
            # A producer without a record in the log is forgotten on a start, as Kafka does, unless the log start was.
            self.note_sequence()

    @rule(
        keys=st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=5),
        size=st.integers(0, 120),
        producer=st.booleans(),
    )
    def append(self, keys: list[tuple[int, bool]], size: int, producer: bool) -> None:
        written: list[Written] = []
        for number, is_tombstone in keys:
            self.counter += 1
            value = None if is_tombstone and number < 3 else b"%d:" % self.counter + b"x" * size
            written.append((b"key%d" % number, value, producer))
        data = build_batch(
            [Record(0, self.now, key, value) for key, value, _ in written],
            compression=self.codec,
            producer_id=3 if producer else -1,
            producer_epoch=0 if producer else -1,
            base_sequence=self.sequence if producer else -1,
        )
        if producer:
            self.sequence += len(written)
        info = self.log.append_as_leader(bytearray(data), self.epoch, now_ms=self.now)
        assert info.first_offset == len(self.history)
        self.history += written
        self.now += 1

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.durable = max(self.durable, self.log.recovery_point)
        if self.log.log_end_offset:
            self.others.clear()

    @rule(milliseconds=st.sampled_from([1, DELETE_RETENTION, 3 * DELETE_RETENTION]))
    def time_passes(self, milliseconds: int) -> None:
        self.now += milliseconds

    @rule(roll=st.booleans(), map_bytes=st.sampled_from([1, 500, 1 << 30]), read_bytes=st.sampled_from([100, 1 << 20]))
    def clean(self, roll: bool, map_bytes: int, read_bytes: int) -> None:
        if roll:
            self.log.roll(self.now)
        self.flush()
        found = log_to_clean(
            self.log, self.manager.cleaner_offsets.of(TP), last_stable_offset=self.log.log_end_offset, now_ms=self.now
        )
        if found is None:
            return
        finish(self.manager.cleaner_offsets.before_round(self.log, found.first_dirty_offset))
        self.durable = max(self.durable, self.log.recovery_point)
        job = make_job(found, now_ms=self.now, map_bytes=map_bytes, read_bytes=read_bytes)
        result = compact(job, self.disk)
        assert result.end_offset > found.first_dirty_offset
        for segment in result.segments:
            assert self.log.replace_segments(segment, self.now)
        self.disk.sync_dir(self.log.directory)
        self.manager.cleaner_offsets.after_round(self.log, result.end_offset)()
        self.clean_end = self.log.active_segment.base_offset
        # What lay below the log start, and is there again after a crash, was not looked at.
        keys = [
            written[0] for offset, written in self.found().items() if self.promised_start <= offset < result.end_offset
        ]
        assert len(keys) == len(set(keys))

    @rule()
    def remove_old_files(self) -> None:
        delete_expired(self.manager, self.now)

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        """As a follower does, whose high watermark is above all that was cleaned."""
        end = self.log.log_end_offset
        least = max(self.clean_end, self.log_start)
        before = list(self.history)
        if self.log.truncate_to(least + int((end - least) * share), now_ms=self.now):
            self.cut_history()
            self.others.append(before)
        self.log_start = self.log.log_start_offset

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        self.log.maybe_increment_log_start_offset(
            self.log_start + int((self.log.log_end_offset - self.log_start) * share)
        )
        self.log_start = self.log.log_start_offset

    @rule(retention=st.integers(0, 5000), by_policy=st.booleans())
    def delete_old_segments(self, retention: int, by_policy: bool) -> None:
        """Those below the log start; and by size, where the policy is ``compact,delete``."""
        if by_policy:
            policy = frozenset({"compact", "delete"})
            self.log.update_config(
                dataclasses.replace(self.config, cleanup_policy=policy, retention_bytes=retention, retention_ms=-1)
            )
        self.manager.delete_old_segments(self.now)
        self.log.update_config(self.config)
        assert self.log.log_start_offset >= self.log_start
        assert by_policy or self.log.log_start_offset == self.log_start
        self.log_start = self.log.log_start_offset

    def cut_history(self) -> None:
        del self.history[self.log.log_end_offset :]
        self.durable = min(self.durable, self.log.log_end_offset)
        self.epoch += 1
        self.note_sequence()

    def note_sequence(self) -> None:
        entry = self.log.producers.active_producers.get(3)
        self.sequence = entry.last_sequence + 1 if entry is not None else 0

    @rule()
    def stop_and_start(self) -> None:
        self.manager.close()
        self.open()
        assert not self.log.cuts
        assert self.log.log_end_offset == len(self.history)
        assert self.log.log_start_offset == self.log_start
        self.durable = len(self.history)
        self.others.clear()

    @rule()
    def kill_and_start(self) -> None:
        self.disk.kill()
        self.open()
        assert not self.log.cuts
        assert self.log.log_end_offset == len(self.history)
        assert self.log.log_start_offset <= self.log_start
        self.log_start = self.log.log_start_offset
        self.durable = min(self.durable, len(self.history))

    @rule(lose_all=st.booleans())
    def power_cut(self, lose_all: bool) -> None:
        self.disk.crash(lose_all=lose_all)
        self.open()
        if self.log.damage:
            # A truncation is taken back in a later segment alone. A follower cuts it off, and fetches what is missing.
            self.log.truncate_to(self.log.damage[0].start_offset)
            self.log.healed()
        assert self.log.log_end_offset >= self.durable
        assert self.log.log_start_offset <= self.log_start
        self.log_start = self.log.log_start_offset
        found = self.found()
        branches = [self.history, *self.others]
        self.history = next(
            list(branch)
            for branch in branches
            if all(offset < len(branch) and branch[offset] == written for offset, written in found.items())
            and self.log.log_end_offset <= len(branch)
        )
        self.others.clear()
        self.cut_history()

    def found(self) -> dict[int, Written]:
        found: dict[int, Written] = {}
        offset = self.log.log_start_offset
        while offset < self.log.log_end_offset:
            data = self.log.read_bytes(offset, 700)
            if not data:
                break
            before = offset
            for position, header in walk_headers(data):
                check_crc(data, position, header)
                for record in iter_records(data, position):
                    if record.offset >= before:
                        assert record.key is not None
                        found[record.offset] = record.key, record.value, header.producer_id == 3
                offset = header.next_offset
            assert offset > before
        return found

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "log"):
            return
        assert self.log.log_end_offset == len(self.history)
        assert self.log.log_start_offset == self.log_start
        self.promised_start = max(self.promised_start, self.log_start)
        found = self.found()
        for offset, written in found.items():
            assert self.history[offset] == written
        last = {key: offset for offset, (key, _, _) in enumerate(self.history)}
        for key, offset in last.items():
            if offset not in found and offset >= self.log_start:
                assert self.history[offset][1] is None, f"the last value of {key!r} is gone"
                assert all(written[0] != key for written in found.values()), f"a value of {key!r} came back"
        entry = self.log.producers.active_producers.get(3)
        assert self.sequence == (entry.last_sequence + 1 if entry is not None else 0)


CompactionMachine.TestCase.settings = settings(
    max_examples=int(os.environ.get("KBROKER_LOG_EXAMPLES", "100")),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestCompactionModel = CompactionMachine.TestCase
