"""An ISR that the controller has been asked for and has not answered yet."""

from __future__ import annotations

from kbroker.cores.replication.partition_state import PartitionState


def _leader() -> PartitionState:
    state = PartitionState(local_id=1)
    _image(state, 5, [1, 2])
    return state


def _image(state: PartitionState, partition_epoch: int, isr: list[int]) -> None:
    state.become_leader(
        leader_epoch=3, partition_epoch=partition_epoch, replicas=[1, 2, 3], isr=isr, log_end_offset=0, now_ms=1000
    )


def _fetched(state: PartitionState, replica: int, offset: int) -> None:
    state.update_follower(replica, fetch_offset=offset, log_start_offset=0, leader_log_end_offset=10, now_ms=1001)


def test_it_counts_until_it_is_answered_whatever_else_changes_in_the_topic() -> None:
    state = _leader()
    _fetched(state, 2, 4)
    _fetched(state, 3, 4)
    state.maybe_advance_high_watermark(10)
    state.propose_isr(frozenset({1, 2, 3}))
    _image(state, 5, [1, 2])  # another partition of the topic has changed; this one is as it was
    assert state.proposed_isr == frozenset({1, 2, 3})
    _fetched(state, 2, 10)
    # The controller may have made 3 a member already: nothing that it lacks is committed.
    assert not state.maybe_advance_high_watermark(10) and state.high_watermark == 4


def test_an_image_of_a_later_epoch_ends_it() -> None:
    state = _leader()
    state.propose_isr(frozenset({1, 2, 3}))
    _image(state, 6, [1])
    assert state.proposed_isr is None and state.maximal_isr == {1}
