"""High watermark and ISR, as the leader moves them."""

from __future__ import annotations

from kbroker.cores.replication.partition_state import PartitionState


def leader(isr: list[int], log_end_offset: int = 0) -> PartitionState:
    state = PartitionState(local_id=1)
    state.become_leader(
        leader_epoch=3, partition_epoch=5, replicas=[1, 2, 3], isr=isr, log_end_offset=log_end_offset, now_ms=1000
    )
    return state


def fetch(state: PartitionState, replica: int, offset: int, end: int, now_ms: int) -> None:
    state.update_follower(replica, fetch_offset=offset, log_start_offset=0, leader_log_end_offset=end, now_ms=now_ms)


def test_alone_in_the_isr_all_that_is_appended_is_committed() -> None:
    state = leader([1])
    assert state.maybe_advance_high_watermark(7)
    assert state.high_watermark == 7
    assert not state.maybe_advance_high_watermark(7)


def test_the_high_watermark_is_the_least_of_the_isr_and_never_goes_back() -> None:
    state = leader([1, 2])
    assert not state.maybe_advance_high_watermark(10)
    fetch(state, 2, 6, 10, 1001)
    assert state.maybe_advance_high_watermark(10)
    assert state.high_watermark == 6
    fetch(state, 2, 4, 10, 1002)
    assert not state.maybe_advance_high_watermark(10)
    assert state.high_watermark == 6


def test_a_proposed_member_counts_before_it_is_in_the_isr() -> None:
    state = leader([1])
    state.propose_isr(frozenset({1, 2}))
    assert not state.maybe_advance_high_watermark(10)


def test_the_isr_grows_by_who_has_reached_the_high_watermark_of_this_epoch() -> None:
    state = leader([1], log_end_offset=5)
    state.maybe_advance_high_watermark(8)
    fetch(state, 2, 7, 8, 1001)
    assert state.maybe_expand_isr(2) is None
    fetch(state, 2, 8, 8, 1002)
    assert state.maybe_expand_isr(2) == frozenset({1, 2})
    assert state.maybe_expand_isr(1) is None


def test_the_isr_shrinks_by_who_has_not_caught_up_in_time() -> None:
    state = leader([1, 2, 3])
    fetch(state, 2, 10, 10, 5000)
    fetch(state, 3, 4, 10, 5000)
    assert state.maybe_shrink_isr(log_end_offset=12, now_ms=10_000, max_lag_ms=30_000) is None
    assert state.maybe_shrink_isr(log_end_offset=12, now_ms=32_000, max_lag_ms=30_000) == frozenset({1, 2})
    assert state.maybe_shrink_isr(log_end_offset=4, now_ms=99_000, max_lag_ms=30_000) == frozenset({1, 3})


def test_who_has_lost_what_it_had_does_not_count_as_caught_up() -> None:
    state = leader([1, 2])
    fetch(state, 2, 10, 10, 1001)
    fetch(state, 2, 4, 10, 1002)
    assert not state.progress[2].is_caught_up(10, 1003, 500)
    assert state.maybe_shrink_isr(log_end_offset=10, now_ms=1003, max_lag_ms=500) == frozenset({1})


def test_min_isr_is_capped_by_the_number_of_replicas() -> None:
    state = PartitionState(1)
    state.become_leader(leader_epoch=0, partition_epoch=0, replicas=[1], isr=[1], log_end_offset=0, now_ms=0)
    assert state.has_min_isr(2)
    assert not leader([1]).has_min_isr(2)
    assert leader([1, 2]).has_min_isr(2)


def test_a_new_epoch_begins_at_the_log_end() -> None:
    state = leader([1], log_end_offset=42)
    assert state.leader_epoch_start_offset == 42
    assert not state.become_leader(
        leader_epoch=3, partition_epoch=6, replicas=[1, 2], isr=[1], log_end_offset=50, now_ms=0
    )
    assert state.leader_epoch_start_offset == 42
    assert state.become_follower(leader=2, leader_epoch=4, partition_epoch=7, replicas=[1, 2], isr=[2])
    assert not state.is_leader


def test_who_had_all_lags_from_the_next_append_on() -> None:
    """It may not have fetched for long, where there was nothing to fetch."""
    state = leader([1, 2, 3], log_end_offset=4)
    fetch(state, 2, 4, 4, 1_000)
    fetch(state, 3, 3, 4, 1_000)
    state.leader_appended(5, 100_000)
    assert state.maybe_shrink_isr(log_end_offset=5, now_ms=100_001, max_lag_ms=30_000) == frozenset({1, 2})
    state.leader_appended(6, 120_000)
    assert state.maybe_shrink_isr(log_end_offset=6, now_ms=130_001, max_lag_ms=30_000) == frozenset({1})


def test_nothing_is_committed_below_the_least_isr() -> None:
    """KIP-966: an ISR that is too small may be the last to know."""
    state = leader([1, 2])
    state.set_min_insync_replicas(2)
    fetch(state, 2, 5, 5, 1_000)
    assert state.maybe_advance_high_watermark(5)
    assert state.commit_isr([1], 6)
    assert not state.maybe_advance_high_watermark(9)
    assert state.commit_isr([1, 2], 7)
    fetch(state, 2, 8, 9, 1_001)
    assert state.maybe_advance_high_watermark(9) and state.high_watermark == 8


def test_one_who_is_about_to_join_is_waited_for() -> None:
    state = leader([1])
    fetch(state, 2, 3, 5, 1_000)
    state.set_joining(2, True)
    assert state.maybe_advance_high_watermark(5) and state.high_watermark == 3
    state.set_joining(2, False)
    assert state.maybe_advance_high_watermark(5) and state.high_watermark == 5


def test_one_proposal_at_a_time() -> None:
    state = leader([1])
    state.propose_isr(frozenset({1, 2}))
    fetch(state, 3, 5, 5, 1_000)
    assert state.maybe_expand_isr(3) is None
    assert state.maybe_shrink_isr(log_end_offset=9, now_ms=99_999, max_lag_ms=1) is None
    state.withdraw_proposal()
    assert state.maybe_expand_isr(3) == frozenset({1, 3})


def test_metadata_of_the_past_are_passed_over() -> None:
    state = leader([1, 2])
    assert state.commit_isr([1, 2, 3], 6)
    state.become_leader(leader_epoch=3, partition_epoch=5, replicas=[1, 2, 3], isr=[1, 2], log_end_offset=0, now_ms=0)
    assert state.isr == {1, 2, 3} and state.partition_epoch == 6
    assert not state.commit_isr([1], 6)
