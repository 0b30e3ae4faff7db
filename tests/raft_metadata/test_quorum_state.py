"""Roles and their changes, votes, timeouts."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.raft_metadata.raft.election_state import ElectionState
from kbroker.raft_metadata.raft.quorum_state import TRANSITIONS, QuorumRole, QuorumState, Votes
from kbroker.raft_metadata.raft.voters import ReplicaKey, VoterEndpoint, VoterNode, VoterSet
from kbroker.types import Uuid

DIRECTORY = Uuid(b"d" * 16)
ENDPOINTS = {"CONTROLLER": VoterEndpoint("node", 9093)}


def voter_set(*ids: int) -> VoterSet:
    return VoterSet.of(VoterNode(ReplicaKey(node_id), ENDPOINTS) for node_id in ids)


def state(
    stored: ElectionState | None = None, *, log_epoch: int = 0, ids: tuple[int, ...] = (1, 2, 3), seed: int = 1
) -> QuorumState:
    quorum = QuorumState(
        ReplicaKey(1, DIRECTORY), ENDPOINTS, random.Random(seed), election_timeout_ms=1000, fetch_timeout_ms=2000
    )
    quorum.initialize(stored, log_epoch, voter_set(*ids), 0)
    return quorum


@pytest.mark.parametrize(
    ("stored", "log_epoch", "role", "epoch"),
    [
        (None, 0, QuorumRole.UNATTACHED, 0),
        (ElectionState(5, -1), 3, QuorumRole.UNATTACHED, 5),
        (ElectionState(5, 2), 5, QuorumRole.FOLLOWER, 5),
        (ElectionState(5, 9), 5, QuorumRole.UNATTACHED, 5),  # whose address nobody knows
        (ElectionState(5, 1), 5, QuorumRole.RESIGNED, 5),  # not leader: unflushed records of the epoch may be lost
        (ElectionState(5, -1, ReplicaKey(1, DIRECTORY)), 4, QuorumRole.CANDIDATE, 5),
        (ElectionState(5, -1, ReplicaKey(2)), 4, QuorumRole.UNATTACHED, 5),
        (ElectionState(5, 2), 6, QuorumRole.UNATTACHED, 6),  # the log proves that the epoch was reached
    ],
)
def test_a_node_goes_on_where_it_stopped(
    stored: ElectionState | None, log_epoch: int, role: QuorumRole, epoch: int
) -> None:
    quorum = state(stored, log_epoch=log_epoch)
    assert (quorum.role, quorum.epoch) == (role, epoch)
    if stored is not None and epoch == stored.epoch:
        assert quorum.voted == stored.voted


def test_what_is_not_in_the_table_is_refused() -> None:
    quorum = state()
    with pytest.raises(ValueError, match="Unattached in epoch 0 cannot become Candidate in epoch 1"):
        quorum.become_candidate(voter_set(1, 2, 3), 0)
    with pytest.raises(ValueError, match="cannot become Resigned"):
        quorum.become_resigned(voter_set(1, 2, 3), (), 0)
    quorum.become_follower(4, 2, ENDPOINTS, 0)
    with pytest.raises(ValueError, match="has leader 2, not 3"):
        quorum.become_follower(4, 3, ENDPOINTS, 0)
    with pytest.raises(ValueError, match="cannot become Unattached in epoch 4"):
        quorum.become_unattached(4, 0)
    with pytest.raises(ValueError, match="cannot become Follower in epoch 3"):
        quorum.become_follower(3, 2, ENDPOINTS, 0)
    with pytest.raises(ValueError, match="cannot follow itself"):
        quorum.become_follower(9, 1, ENDPOINTS, 0)


def test_every_role_is_reached_and_left() -> None:
    assert {before for before, _ in TRANSITIONS} == set(QuorumRole)
    assert {after for _, after in TRANSITIONS} == set(QuorumRole)


def test_an_election_from_waiting_to_leading() -> None:
    voters = voter_set(1, 2, 3)
    quorum = state()
    quorum.become_prospective(voters, 0)
    assert quorum.epoch == 0 and quorum.election == ElectionState(0, -1, None)
    quorum.become_candidate(voters, 0)
    assert quorum.election == ElectionState(1, -1, ReplicaKey(1, DIRECTORY))
    with pytest.raises(ValueError, match="without a majority"):
        quorum.become_leader()
    assert quorum.votes is not None
    quorum.votes.record(2, True)
    assert quorum.become_leader() == {1, 2}
    assert quorum.election == ElectionState(1, 1, None) and quorum.deadline_ms == math.inf
    quorum.become_resigned(voters, (ReplicaKey(2),), 100)
    assert quorum.resignation_unacknowledged == {2, 3} and quorum.deadline_ms >= 1100


def test_an_observer_never_stands() -> None:
    quorum = state(ids=(2, 3))
    assert quorum.deadline_ms == math.inf and not quorum.is_voter
    with pytest.raises(ValueError, match="not a voter"):
        quorum.become_prospective(voter_set(2, 3), 0)
    quorum.become_follower(1, 2, ENDPOINTS, 0)
    assert quorum.deadline_ms == math.inf
    quorum.on_voters_changed(True, 500)
    assert quorum.deadline_ms == 2500


def test_one_vote_in_an_epoch() -> None:
    quorum = state()
    candidate, other = ReplicaKey(2, Uuid(b"2" * 16)), ReplicaKey(3)
    assert quorum.can_grant_vote(candidate, is_log_up_to_date=True, pre_vote=False, now_ms=0)
    quorum.add_vote(candidate, 0)
    assert not quorum.can_grant_vote(other, is_log_up_to_date=True, pre_vote=False, now_ms=0)
    assert quorum.can_grant_vote(candidate, is_log_up_to_date=True, pre_vote=False, now_ms=0)
    # The same node with another disk is another candidate.
    assert not quorum.can_grant_vote(ReplicaKey(2, Uuid(b"3" * 16)), is_log_up_to_date=True, pre_vote=False, now_ms=0)
    # A pre-vote promises nothing.
    assert quorum.can_grant_vote(other, is_log_up_to_date=True, pre_vote=True, now_ms=0)
    quorum.become_unattached(1, 0)
    assert quorum.voted is None


def test_a_follower_gives_no_pre_vote_while_its_leader_answers() -> None:
    quorum = state()
    quorum.become_follower(1, 2, ENDPOINTS, 0)
    ask = {"is_log_up_to_date": True, "pre_vote": True}
    assert quorum.can_grant_vote(ReplicaKey(3), now_ms=0, **ask)
    quorum.on_leader_contact(1000)
    assert not quorum.can_grant_vote(ReplicaKey(3), now_ms=2999, **ask)
    assert quorum.can_grant_vote(ReplicaKey(3), now_ms=3000, **ask)
    quorum.on_leader_contact(3000)
    quorum.on_leader_gone(3050)
    assert quorum.can_grant_vote(ReplicaKey(3), now_ms=3001, **ask) and quorum.deadline_ms == 3050


def test_a_stream_of_candidates_does_not_put_off_the_own_election() -> None:
    quorum = state()
    deadline = quorum.deadline_ms
    for epoch in range(1, 6):
        quorum.become_unattached(epoch, 100 * epoch)
    assert quorum.deadline_ms == deadline


def test_lost_elections_are_tried_again_after_ever_longer_times() -> None:
    longest = []
    for losses in (1, 2, 3, 9):
        waits = []
        for seed in range(200):
            quorum = state(ElectionState(5, -1, ReplicaKey(1, DIRECTORY)), seed=seed)
            quorum.lost_elections = losses - 1
            quorum.deadline_ms = math.inf
            quorum.on_election_lost(50, 0)
            waits.append(quorum.deadline_ms)
        longest.append(max(waits))
    assert longest[0] <= 101 and longest == sorted(longest) and longest[-1] <= 1001


@given(st.sets(st.integers(1, 7), min_size=1), st.lists(st.tuples(st.integers(1, 9), st.booleans())))
def test_votes_are_counted_once_and_by_majority(ids: set[int], answers: list[tuple[int, bool]]) -> None:
    votes = Votes(voter_set(*ids), 1)
    first: dict[int, bool] = {1: True} if 1 in ids else {}
    for voter, granted in answers:
        votes.record(voter, granted)
        if voter in ids:
            first.setdefault(voter, granted)
    granted_by = {voter for voter, granted in first.items() if granted}
    assert votes.granted == granted_by and votes.rejected == set(first) - granted_by
    assert votes.is_won == (2 * len(granted_by) > len(ids))
    assert votes.is_lost == (2 * (len(ids) - len(votes.rejected)) <= len(ids))
    assert not (votes.is_won and votes.is_lost)
    assert votes.unanswered == sorted(ids - set(first))
