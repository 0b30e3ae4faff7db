"""Batches that are written together leave what they leave when each is written by itself."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.errors import ApiError, ErrorCode
from kbroker.log.fake_disk import FakeDisk
from kbroker.log.gathered_batches import GatheredBatches
from kbroker.log.log_config import LogConfig
from kbroker.log.partition_log import PartitionLog
from tests.log.log_helpers import DIRECTORY, NOW, append, batch, open_log, read_all

CONFIGS = [
    LogConfig(),
    LogConfig(segment_bytes=1000, index_interval_bytes=200),
    LogConfig(segment_bytes=4000, index_interval_bytes=1, segment_index_bytes=100),
    LogConfig(segment_ms=1000),
    LogConfig(message_timestamp_type="LogAppendTime"),
]


@dataclass(frozen=True)
class Sent:
    """A produced batch."""

    size: int
    count: int
    timestamp: int
    producer_id: int
    sequence: int
    damaged: bool

    def records(self) -> bytearray:
        """Its bytes, as a client sends them."""
        values = [b"%d" % self.timestamp * self.size] * self.count
        data = batch(values, timestamp=self.timestamp, producer_id=self.producer_id, sequence=self.sequence)
        if self.damaged:
            data[-1] ^= 1
        return data


sent = st.builds(
    Sent,
    size=st.sampled_from([1, 5, 30]),
    count=st.integers(1, 3),
    timestamp=st.sampled_from([-1, NOW - 2000, NOW, NOW + 1, NOW + 1500]),
    producer_id=st.sampled_from([-1, -1, -1, 1, 2]),
    sequence=st.integers(0, 4),
    damaged=st.sampled_from([False] * 9 + [True]),
)


def one_by_one(log: PartitionLog, batches: list[Sent]) -> list[int | ErrorCode]:
    """The first offset of each, or why it is refused."""
    told: list[int | ErrorCode] = []
    for each in batches:
        try:
            told.append(log.append_as_leader(each.records(), 0, now_ms=NOW).first_offset)
        except ApiError as error:
            told.append(error.code)
    return told


def together(log: PartitionLog, batches: list[Sent]) -> list[int | ErrorCode]:
    """The same, as a partition does it that gathers them."""
    told: list[int | ErrorCode] = []
    gathered = GatheredBatches(log, 0)
    for each in batches:
        try:
            placed = gathered.add(each.records(), NOW)
            if placed is not None:
                told.append(placed.first_offset)
                continue
        except ApiError as error:
            told.append(error.code)
            continue
        gathered.write(NOW)
        told += one_by_one(log, [each])
        gathered = GatheredBatches(log, 0)
    gathered.write(NOW)
    return told


@given(st.sampled_from(CONFIGS), st.lists(st.lists(sent, max_size=12), max_size=4))
def test_the_same_files_and_answers(config: LogConfig, turns: list[list[Sent]]) -> None:
    disks = FakeDisk(), FakeDisk()
    logs = [open_log(disk, config) for disk in disks]
    for batches in turns:
        assert one_by_one(logs[0], batches) == together(logs[1], batches)
        assert logs[0].log_end_offset == logs[1].log_end_offset
    assert read_all(logs[0]) == read_all(logs[1])
    for log in logs:
        log.roll(NOW)
        log.flush()
    names = [sorted(disk.list_dir(DIRECTORY)) for disk in disks]
    assert names[0] == names[1]
    for name in names[0]:
        assert disks[0].read_bytes(f"{DIRECTORY}/{name}") == disks[1].read_bytes(f"{DIRECTORY}/{name}"), name


def test_they_are_one_write() -> None:
    disk = FakeDisk()
    log = open_log(disk)
    append(log, [b"before"])
    writes: list[str] = []

    def note(operation: str, path: str) -> None:
        if operation == "write":
            writes.append(path)

    disk.on_operation = note
    gathered = GatheredBatches(log, 0)
    for value in (b"a", b"b", b"c"):
        assert gathered.add(batch([value]), NOW) is not None
    assert log.log_end_offset == 1
    gathered.write(NOW)
    assert writes == [f"{DIRECTORY}/{0:020d}.log"]
    assert read_all(log) == list(enumerate([b"before", b"a", b"b", b"c"]))


def test_a_full_disk_leaves_the_log_as_it_was() -> None:
    disk = FakeDisk()
    log = open_log(disk)
    append(log, [b"a"])
    gathered = GatheredBatches(log, 0)
    for value in (b"b" * 50, b"c" * 50):
        assert gathered.add(batch([value]), NOW) is not None
    disk.capacity = disk.used() + 150
    with pytest.raises(OSError, match="No space"):
        gathered.write(NOW)
    assert log.log_end_offset == 1
    disk.capacity = None
    assert append(log, [b"d"]) == 1
    assert read_all(log) == [(0, b"a"), (1, b"d")]
