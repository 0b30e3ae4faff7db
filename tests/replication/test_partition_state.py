"""High watermark and ISR, as the leader moves them."""

from __future__ import annotations

from kbroker.replication.partition_state import PartitionState


def leader(isr: list[int], log_end_offset: int = 0) -> PartitionState:
    state = PartitionState(local_id=1)
    state.become_leader(
        leader_epoch=3,
        partition_epoch=5,
        replicas=[1, 2, 3],
        isr=isr,
        log_end_offset=log_end_offset,
        now_ms=1000,
    )
    return state


def fetch(state: PartitionState, replica: int, offset: int, end: int, now_ms: int) -> None:
    state.update_follower(
        replica, fetch_offset=offset, log_start_offset=0, leader_log_end_offset=end, now_ms=now_ms
    )


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
    assert state.maybe_expand_isr(2) == {1, 2}
    assert state.maybe_expand_isr(1) is None


def test_the_isr_shrinks_by_who_has_not_caught_up_in_time() -> None:
    state = leader([1, 2, 3])
    fetch(state, 2, 10, 10, 5000)
    fetch(state, 3, 4, 10, 5000)
    assert state.maybe_shrink_isr(log_end_offset=12, now_ms=10_000, max_lag_ms=30_000) is None
    assert state.maybe_shrink_isr(log_end_offset=12, now_ms=32_000, max_lag_ms=30_000) == {1, 2}
    assert state.maybe_shrink_isr(log_end_offset=4, now_ms=99_000, max_lag_ms=30_000) == {1, 3}


def test_min_isr_is_capped_by_the_number_of_replicas() -> None:
    state = PartitionState(1)
    state.become_leader(
        leader_epoch=0, partition_epoch=0, replicas=[1], isr=[1], log_end_offset=0, now_ms=0
    )
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
