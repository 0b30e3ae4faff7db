"""The share coordinator's shard: fencing, snapshots and updates, restarts, and what may be deleted."""

from __future__ import annotations

import random
from typing import TypeVar

import pytest

from kbroker.cores.coordinator.result import CoordinatorRecord, CoordinatorResult
from kbroker.cores.share_coordinator.coordinator import ShareCoordinator
from kbroker.cores.share_coordinator.records import Snapshot, Update, read_record
from kbroker.cores.share_coordinator.settings import ShareCoordinatorSettings
from kbroker.cores.share_state import SharePartitionKey, SharePartitionState, StateBatch, StateSummary
from kbroker.errors import ApiError, ErrorCode
from kbroker.types import Uuid

TOPIC = Uuid(b"topic-of-the-set")
KEY = SharePartitionKey("group", TOPIC, 0)
OTHER = SharePartitionKey("group", TOPIC, 1)
SETTINGS = ShareCoordinatorSettings(updates_per_snapshot=3, cold_snapshot_interval_ms=1000)


R = TypeVar("R")


class Log:
    """A shard with its log: what it returns is appended and replayed."""

    def __init__(self) -> None:
        self.topics = {TOPIC: 2}
        self.records: list[CoordinatorRecord] = []
        self.begin_offset = 0
        self.now_ms = 100
        self.core = self.restarted()

    def restarted(self) -> ShareCoordinator:
        """A shard that has read the log from its beginning."""
        core = ShareCoordinator(lambda: SETTINGS, self.topics.get)
        for offset in range(self.begin_offset, len(self.records)):
            core.replay(self.records[offset], self.now_ms, offset=offset, producer_id=-1)
        core.on_loaded(self.now_ms)
        return core

    def store(self, result: CoordinatorResult[R]) -> R:
        for record in result.records:
            self.core.replay(record, self.now_ms, offset=len(self.records), producer_id=-1)
            self.records.append(record)
        return result.response

    def initialize(self, key: SharePartitionKey = KEY, state_epoch: int = 1, start_offset: int = 0) -> None:
        self.store(self.core.initialize(key, state_epoch, start_offset, self.now_ms))

    def write(self, state: SharePartitionState, key: SharePartitionKey = KEY) -> None:
        self.store(self.core.write(key, state, self.now_ms))

    def read(self, leader_epoch: int, key: SharePartitionKey = KEY) -> SharePartitionState:
        response = self.store(self.core.read(key, leader_epoch, self.now_ms))
        assert isinstance(response, SharePartitionState)
        return response

    def kinds(self) -> list[str]:
        read = [read_record(record) for record in self.records]
        return [type(each[1]).__name__ for each in read if each is not None]


@pytest.fixture
def log() -> Log:
    return Log()


def state(
    start_offset: int, *batches: StateBatch, epoch: int = 1, leader: int = 0, done: int = 0
) -> SharePartitionState:
    return SharePartitionState(epoch, leader, start_offset, done, batches)


def refused(code: ErrorCode, call: object, *args: object) -> str | None:
    assert callable(call)
    with pytest.raises(ApiError) as caught:
        call(*args)
    assert caught.value.code is code
    return caught.value.message


def test_a_leader_reads_what_another_has_written(log: Log) -> None:
    log.initialize(start_offset=5)
    log.write(state(5, StateBatch(5, 9, 2, 1), StateBatch(10, 12, 0, 1), done=5))
    log.write(state(10, StateBatch(10, 11, 2, 2), done=2))
    assert log.read(leader_epoch=4) == state(10, StateBatch(10, 11, 2, 2), StateBatch(12, 12, 0, 1), leader=4, done=2)


def test_nothing_is_read_or_written_before_it_is_initialized(log: Log) -> None:
    assert "uninitialized" in str(refused(ErrorCode.INVALID_REQUEST, log.core.read, KEY, 0, 1))
    assert "uninitialized" in str(refused(ErrorCode.INVALID_REQUEST, log.core.write, KEY, state(0), 1))
    assert log.core.read_summary(KEY) == StateSummary(0, 0, -1, -1)
    assert log.core.delete(KEY).records == []


def test_a_leader_is_refused_once_a_later_one_has_read(log: Log) -> None:
    log.initialize()
    log.write(state(0, leader=2))
    log.read(leader_epoch=3)
    for core in (log.core, log.restarted()):
        refused(ErrorCode.FENCED_LEADER_EPOCH, core.write, KEY, state(0, leader=2), 1)
        refused(ErrorCode.FENCED_LEADER_EPOCH, core.read, KEY, 2, 1)
    written = len(log.records)
    log.read(leader_epoch=3)
    assert len(log.records) == written, "the epoch is known: there is nothing to keep"


def test_a_group_that_began_anew_refuses_who_knows_only_the_state_before(log: Log) -> None:
    log.initialize(state_epoch=1)
    log.write(state(0, StateBatch(0, 3, 2, 1)))
    log.initialize(state_epoch=2, start_offset=7)
    refused(ErrorCode.FENCED_STATE_EPOCH, log.core.write, KEY, state(8, epoch=1), 1)
    refused(ErrorCode.FENCED_STATE_EPOCH, log.core.initialize, KEY, 1, 0, 1)
    assert log.read(0) == state(7, epoch=2)


def test_a_partition_that_is_not_there_is_unknown(log: Log) -> None:
    log.initialize()
    log.topics.clear()
    for call in (
        lambda: log.core.write(KEY, state(0), 1),
        lambda: log.core.read(KEY, 0, 1),
        lambda: log.core.read_summary(KEY),
        lambda: log.core.delete(KEY),
        lambda: log.core.initialize(KEY, 1, 0, 1),
    ):
        refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, call)
    refused(ErrorCode.INVALID_REQUEST, log.core.read, KEY._replace(partition=-1), 0, 1)


def test_a_topic_that_is_deleted_takes_its_states_along(log: Log) -> None:
    log.initialize(KEY)
    log.initialize(OTHER)
    log.store(log.core.on_topics_deleted(frozenset([TOPIC])))
    assert log.core.read_summary(KEY) == log.restarted().read_summary(OTHER) == StateSummary(0, 0, -1, -1)


def test_a_topic_that_was_deleted_while_nobody_led_the_shard_takes_its_states_along_later(log: Log) -> None:
    """Or while nothing could be stored. Else they would stay for ever, and the records before them, too."""
    kept = SharePartitionKey("group", Uuid(b"another topic id"), 0)
    log.topics[kept.topic_id] = 1
    for key in (KEY, OTHER, kept):
        log.initialize(key)
    del log.topics[TOPIC]
    log.core = log.restarted()
    log.now_ms += 1000
    result = log.core.on_deadline(log.now_ms)
    assert result is not None
    log.store(result)
    assert set(log.core.held) == set(log.restarted().held) == {kept}


def test_the_start_offset_never_goes_back(log: Log) -> None:
    log.initialize(start_offset=0)
    log.write(state(10, done=3))
    log.write(state(4, StateBatch(4, 12, 2, 1), done=9))
    assert log.core.read_summary(KEY) == StateSummary(1, 0, 10, 3)
    log.write(state(10, done=1))
    assert log.core.read_summary(KEY).delivery_complete_count == 3, "nor does the count, at the same start offset"
    assert log.read(0).batches == (StateBatch(10, 12, 2, 1),)


def test_a_snapshot_follows_as_many_updates_as_one_may_have(log: Log) -> None:
    log.initialize()
    for offset in range(9):
        log.write(state(0, StateBatch(offset, offset, 2, 1)))
    assert log.kinds() == ["Snapshot", *["Update"] * 3, "Snapshot", *["Update"] * 3, "Snapshot", "Update"]
    assert log.read(0).batches == (StateBatch(0, 8, 2, 1),)


def test_a_restart_knows_what_was_known_before(log: Log) -> None:
    rng = random.Random(7)
    log.initialize(KEY)
    log.initialize(OTHER)
    start = {KEY: 0, OTHER: 0}
    for step in range(200):
        key = rng.choice((KEY, OTHER))
        start[key] += rng.choice((0, 0, 0, 2))
        first = start[key] + rng.randrange(20)
        log.write(state(start[key], StateBatch(first, first + rng.randrange(5), rng.choice((0, 2, 4)), step % 4)), key)
        needed = log.core.first_needed_offset()
        assert needed is not None
        log.begin_offset = needed  # records before that are deleted
        again = log.restarted()
        for each in (KEY, OTHER):
            assert again.read(each, 0, 1).response == log.core.read(each, 0, 1).response


def test_old_records_of_an_idle_share_partition_hold_up_nobody_for_long(log: Log) -> None:
    log.initialize(OTHER)
    log.initialize(KEY)
    for _ in range(20):
        log.write(state(0))
    assert log.core.first_needed_offset() == 0, "the only record of the idle one is the first"
    deadline = log.core.next_deadline()
    assert deadline is not None and log.core.on_deadline(deadline - 1) is None
    log.now_ms = deadline
    result = log.core.on_deadline(deadline)
    assert result is not None
    written = len(log.records)
    log.store(result)
    assert log.core.first_needed_offset() == written
    log.now_ms += 1000
    again = log.core.on_deadline(log.now_ms)
    assert again is not None and again.records == [], "nobody has changed anything since"


def test_a_forgotten_share_partition_needs_no_record(log: Log) -> None:
    log.initialize()
    log.store(log.core.delete(KEY))
    assert log.core.first_needed_offset() == len(log.records) == 2


def test_records_are_read_as_they_were_written(log: Log) -> None:
    log.initialize(start_offset=3)
    log.write(state(4, StateBatch(6, 8, 4, 5), done=1))
    first, second = (read_record(record) for record in log.records)
    assert first == (KEY, Snapshot(0, 1, 0, 3, 0, 100, 100))
    assert second == (KEY, Update(0, 0, 4, 1, (StateBatch(6, 8, 4, 5),)))
    assert read_record(CoordinatorRecord(b"\0\x09more", b"\0\0")) is None, "a kind of a newer Kafka"
    assert read_record(log.records[0]._replace(value=b"\0\x07more")) is None
