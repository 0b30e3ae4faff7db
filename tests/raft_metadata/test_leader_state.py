"""The high watermark that a Raft leader keeps, and the moment when it resigns."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kbroker.raft_metadata.raft.leader_state import CAUGHT_UP_MS, OBSERVER_SESSION_MS, LeaderState
from kbroker.raft_metadata.raft.messages import Fetch, FetchResult, PendingFetch
from kbroker.raft_metadata.raft.voters import ReplicaKey, VoterNode, VoterSet
from kbroker.types import Uuid

LOCAL = ReplicaKey(1, Uuid(b"1" * 16))


def key(node_id: int, disk: bytes | None = None) -> ReplicaKey:
    return ReplicaKey(node_id, Uuid((disk or str(node_id).encode()) * 16))


def voter_set(*ids: int) -> VoterSet:
    return VoterSet.of(VoterNode(key(node_id)) for node_id in ids)


def leader(*ids: int, start: int = 10) -> LeaderState:
    return LeaderState(LOCAL, 5, start, voter_set(*(ids or (1, 2, 3))), fetch_timeout_ms=1000, now_ms=0)


def test_nothing_is_committed_before_a_record_of_the_own_epoch() -> None:
    state = leader()
    assert not state.on_local_flush(10)
    assert not state.on_fetch(key(2), 10, 11, 0)
    assert state.high_watermark == -1
    state.on_local_flush(11)
    assert state.on_fetch(key(2), 11, 11, 0) and state.high_watermark == 11


def test_the_leader_counts_with_what_it_has_flushed() -> None:
    state = leader()
    state.on_fetch(key(2), 15, 20, 0)
    assert state.high_watermark == -1
    state.on_local_flush(12)
    assert state.high_watermark == 12
    state.on_fetch(key(3), 14, 20, 0)
    assert state.high_watermark == 14  # on the two others, whatever the leader's own disk does


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 40)), max_size=30))
def test_the_high_watermark_is_on_a_majority_and_never_goes_back(steps: list[tuple[int, int]]) -> None:
    state, told, best = leader(), -1, {1: -1, 2: -1, 3: -1}
    for node_id, offset in steps:
        if node_id == 1:
            state.on_local_flush(offset)
            best[1] = max(best[1], offset)
        else:
            state.on_fetch(key(node_id), offset, 50, 0)
            if node_id in best:
                best[node_id] = max(best[node_id], offset)
        assert state.high_watermark >= told
        told = state.high_watermark
        if told >= 0:
            assert told > 10 and sum(offset >= told for offset in best.values()) >= 2


def test_observers_and_strangers_with_a_voters_id_do_not_count() -> None:
    state = leader()
    state.on_local_flush(20)
    state.on_fetch(key(7), 20, 20, 0)
    state.on_fetch(key(2, b"x"), 20, 20, 0)
    assert state.high_watermark == -1
    assert [observer.key for observer in state.live_observers(0)] == [key(2, b"x"), key(7)]
    assert state.live_observers(OBSERVER_SESSION_MS) == []


def test_a_new_voter_brings_its_progress_along() -> None:
    state = leader()
    state.on_local_flush(20)
    state.on_fetch(key(2), 15, 20, 0)
    assert state.high_watermark == 15
    state.on_fetch(key(4), 20, 20, 5)
    assert state.is_caught_up(key(4), 5) and not state.is_caught_up(key(4), 5 + CAUGHT_UP_MS)
    state.update_voters(voter_set(1, 2, 3, 4), 5)
    assert state.voters[4].end_offset == 20 and not state.observers
    state.maybe_advance_high_watermark()
    assert state.high_watermark == 15  # three of four are needed now
    state.update_voters(voter_set(1, 4), 5)
    assert state.maybe_advance_high_watermark() and state.high_watermark == 20
    assert sorted(observer.key.id for observer in state.live_observers(5)) == [2, 3]


def test_a_leader_that_removed_itself_needs_the_majority_of_the_others() -> None:
    state = leader()
    state.on_local_flush(20)
    state.update_voters(voter_set(2, 3), 0)
    state.on_fetch(key(2), 20, 20, 0)
    assert state.high_watermark == -1
    state.on_fetch(key(3), 18, 20, 0)
    assert state.high_watermark == 18


def test_without_a_majority_that_fetches_the_leader_has_one_and_a_half_fetch_timeouts() -> None:
    state = leader(1, 2, 3, 4, 5)
    assert state.check_quorum_at == 1500
    state.on_contact(key(2), 1000)
    state.on_contact(key(2), 1100)
    state.on_contact(key(9), 1100)
    assert state.check_quorum_at == 1500
    state.on_contact(key(3), 1200)
    assert state.check_quorum_at == 2700
    assert leader(1).check_quorum_at == float("inf")


def test_the_most_complete_follow_the_leader() -> None:
    state = leader(1, 2, 3, 4)
    for node_id, offset in ((2, 12), (3, 15), (4, 12)):
        state.on_fetch(key(node_id), offset, 20, 0)
    assert [successor.id for successor in state.successors()] == [3, 2, 4]


def test_fetches_wait_for_records_or_for_their_time() -> None:
    state = leader()

    def waiting(token: int, offset: int, deadline: int) -> PendingFetch:
        request = Fetch(5, key(2), offset, 5, -1, 1, 1)
        return PendingFetch(token, request, deadline, FetchResult(0, 5, 1, {}))  # type: ignore[arg-type]

    state.pending_fetches = [waiting(1, 20, 100), waiting(2, 21, 100), waiting(3, 21, 50)]
    assert state.next_fetch_deadline() == 50
    assert [done.token for done in state.take_completed_fetches(21, everything=False, now_ms=10)] == [1]
    assert [done.token for done in state.take_completed_fetches(21, everything=False, now_ms=50)] == [3]
    assert [done.token for done in state.take_completed_fetches(21, everything=True, now_ms=50)] == [2]


def test_silent_voters_are_told_who_leads() -> None:
    state = leader()
    assert state.silent_voters(0) == [2, 3]
    state.on_fetch(key(2), 10, 10, 100)
    assert state.silent_voters(500) == [3] and state.silent_voters(600) == [2, 3]
