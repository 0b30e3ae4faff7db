"""Where a follower cuts its log back, so that it comes to be the leader's."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.cores.replication.follower_state import (
    Append,
    AskForBounds,
    FollowerLog,
    OffsetOutOfRange,
    Retry,
    StartAt,
    TruncateTo,
    begin,
    find_divergence,
    follower_high_watermark,
    on_bounds,
    on_fetched,
    truncation_offset,
)
from kbroker.errors import ErrorCode
from kbroker.log.leader_epochs import LeaderEpochs
from kbroker.wire.messages.fetch import EpochEndOffset, PartitionData
from tests.with_each import examples


def follower(epochs: list[tuple[int, int]], end: int, *, high_watermark: int = 0, start: int = 0) -> FollowerLog:
    return FollowerLog(start, end, high_watermark, LeaderEpochs(epochs))


def test_records_are_appended_with_the_leaders_marks() -> None:
    data = PartitionData(high_watermark=7, log_start_offset=2, records=b"...")
    assert on_fetched(follower([(0, 0)], 5), data) == Append(7, 2)


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH]
)
def test_a_fenced_fetch_is_tried_again(code: ErrorCode) -> None:
    """KIP-320: nothing is cut on the word of one who does not lead in this epoch."""
    assert on_fetched(follower([(0, 0)], 5), PartitionData(error_code=code)) == Retry(code)


def test_an_error_from_the_future_is_tried_again_too() -> None:
    assert on_fetched(follower([], 0), PartitionData(error_code=9999)) == Retry(ErrorCode.UNKNOWN_SERVER_ERROR)


def test_kip_101_scenario_1_what_is_committed_is_not_cut_at_an_old_high_watermark() -> None:
    """The follower has 2 records and knows of 1 that it is committed. The leader has both: nothing is cut."""
    log = follower([(0, 0)], 2, high_watermark=1)
    assert begin(log) is None
    assert find_divergence(LeaderEpochs([(0, 0)]), 0, 2, fetch_offset=2, last_fetched_epoch=0) is None


def test_kip_101_scenario_2_logs_of_equal_length_that_differ() -> None:
    """Both were started anew: the follower has a record of epoch 0 where the leader wrote one of epoch 1."""
    leader = LeaderEpochs([(0, 0), (1, 1)])
    found = find_divergence(leader, 0, 2, fetch_offset=2, last_fetched_epoch=0)
    assert found is not None and (found.epoch, found.offset) == (0, 1)
    data = PartitionData(diverging_epoch=EpochEndOffset(epoch=found.epoch, end_offset=found.offset))
    assert on_fetched(follower([(0, 0)], 2), data) == TruncateTo(1)


def test_kip_279_an_epoch_that_only_the_follower_knows() -> None:
    leader = LeaderEpochs([(1, 0), (3, 20)])
    found = find_divergence(leader, 0, 30, fetch_offset=25, last_fetched_epoch=2)
    assert found is not None and (found.epoch, found.offset) == (1, 20)
    assert truncation_offset(follower([(1, 0), (2, 10)], 25), 1, 20) == 10


def test_kip_279_an_epoch_that_only_the_leader_knows_is_come_to_step_by_step() -> None:
    """Follower: epochs 1, 2, 5; leader: 1, 3, 6. Its answer to 5 is 3, which the follower does not have."""
    leader = LeaderEpochs([(1, 0), (3, 10), (6, 40)])
    epochs = LeaderEpochs([(1, 0), (2, 15), (5, 30)])
    found = find_divergence(leader, 0, 50, fetch_offset=45, last_fetched_epoch=5)
    assert found is not None and (found.epoch, found.offset) == (3, 40)
    cut = truncation_offset(FollowerLog(0, 45, 0, epochs), found.epoch, found.offset)
    assert cut == 30
    epochs.truncate_from_end(cut)
    found = find_divergence(leader, 0, 50, fetch_offset=cut, last_fetched_epoch=epochs.latest)
    assert found is not None and (found.epoch, found.offset) == (1, 10)
    assert truncation_offset(FollowerLog(0, cut, 0, epochs), found.epoch, found.offset) == 10


def test_an_epoch_newer_than_the_leader_knows_cannot_be_placed() -> None:
    with pytest.raises(OffsetOutOfRange):
        find_divergence(LeaderEpochs([(1, 0)]), 0, 5, fetch_offset=3, last_fetched_epoch=2)


def test_what_the_leader_has_deleted_cannot_be_fetched() -> None:
    with pytest.raises(OffsetOutOfRange):
        find_divergence(LeaderEpochs([(1, 10)]), 10, 20, fetch_offset=5, last_fetched_epoch=1)


def test_without_epochs_only_what_is_committed_counts() -> None:
    assert begin(follower([], 9, high_watermark=6)) == TruncateTo(6)
    assert begin(follower([], 9, high_watermark=9)) is None
    assert begin(follower([], 0)) is None


def test_out_of_range() -> None:
    assert on_fetched(follower([], 5), PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)) == AskForBounds()
    assert on_bounds(follower([], 5), 10, 20) == StartAt(10)
    assert on_bounds(follower([], 50), 10, 20) == TruncateTo(20)
    assert on_bounds(follower([], 15), 10, 20) is None


def test_the_high_watermark_of_a_follower() -> None:
    assert follower_high_watermark(3, 10, 7) == 7
    assert follower_high_watermark(3, 5, 7) == 5
    # A new leader's may lie behind.
    assert follower_high_watermark(5, 3, 7) == 5


class Replica:
    """A log of records, each of which is the epoch that wrote it and a number of its own."""

    def __init__(self) -> None:
        self.records: list[tuple[int, int]] = []
        self.epochs = LeaderEpochs()

    def lead(self, epoch: int) -> None:
        self.epochs.assign(epoch, len(self.records))

    def append(self, record: tuple[int, int]) -> None:
        self.epochs.maybe_assign(record[0], len(self.records))
        self.records.append(record)

    def fetch_from(self, leader: Replica, limit: int) -> bool:
        """Fetch once, and return whether the log is that of the leader now."""
        end = len(self.records)
        log = FollowerLog(0, end, 0, self.epochs)
        data = PartitionData()
        if self.epochs.latest >= 0:
            try:
                found = find_divergence(
                    leader.epochs, 0, len(leader.records), fetch_offset=end, last_fetched_epoch=self.epochs.latest
                )
            except OffsetOutOfRange:
                data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            else:
                if found is not None:
                    data.diverging_epoch = EpochEndOffset(epoch=found.epoch, end_offset=found.offset)
        action = begin(log) or on_fetched(log, data)
        if isinstance(action, TruncateTo):
            assert action.offset <= end
            self.cut(action.offset)
        elif isinstance(action, AskForBounds):
            # Only after an unclean election, and only if the leader is behind.
            bounds = on_bounds(log, 0, len(leader.records))
            assert bounds is None or isinstance(bounds, TruncateTo)
            if isinstance(bounds, TruncateTo):
                self.cut(bounds.offset)
        else:
            for record in leader.records[end : end + limit]:
                self.append(record)
        return self.records == leader.records

    def cut(self, offset: int) -> None:
        del self.records[offset:]
        self.epochs.truncate_from_end(offset)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("lead"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("append"), st.integers(1, 4), st.just(0)),
        st.tuples(st.just("fetch"), st.integers(0, 2), st.integers(1, 4)),
    ),
    max_size=60,
)


@settings(max_examples=examples(300), deadline=None)
@given(steps)
def test_whoever_led_before_the_logs_become_the_leaders(history: list[tuple[str, int, int]]) -> None:
    """Elections of anybody, appends, and fetches that get some of the way. The leader's records alone count in the end,
    and no follower ever has, below its last fetch, what the leader has not."""
    replicas = [Replica(), Replica(), Replica()]
    leader, epoch, number = replicas[0], 0, 0
    leader.lead(0)
    for what, which, limit in history:
        if what == "lead":
            epoch += 1
            leader = replicas[which]
            leader.lead(epoch)
        elif what == "append":
            for _ in range(which):
                number += 1
                leader.append((epoch, number))
        elif replicas[which] is not leader:
            replicas[which].fetch_from(leader, limit)
    epoch += 1
    leader.lead(epoch)
    leader.append((epoch, number + 1))
    for replica in replicas:
        if replica is not leader:
            for _ in range(len(history) * 5 + 10):
                if replica.fetch_from(leader, 100):
                    break
            assert replica.records == leader.records
            assert replica.epochs.entries == [
                entry for entry in leader.epochs.entries if entry[0] in {each for each, _ in leader.records}
            ]
