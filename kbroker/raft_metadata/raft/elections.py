"""Elections of the metadata quorum's leader: votes, pre-votes, and the end of an epoch (KIP-595, KIP-853, KIP-996)."""

from __future__ import annotations

import math

from kbroker.errors import ErrorCode
from kbroker.raft_metadata.raft.leader_state import LeaderState
from kbroker.raft_metadata.raft.messages import (
    BeginQuorumEpoch,
    BeginQuorumEpochResult,
    EndQuorumEpoch,
    EndQuorumEpochResult,
    Reply,
    Vote,
    VoteResult,
)
from kbroker.raft_metadata.raft.quorum_state import QuorumRole
from kbroker.raft_metadata.raft.state import RaftState
from kbroker.raft_metadata.raft.voters import ReplicaKey
from kbroker.types import OffsetAndEpoch


class Elections:
    """The part of the core that votes, stands for election, and hands leadership over."""

    def __init__(self, state: RaftState) -> None:
        self._state = state

    def _check_voter_request(self, sender_id: int, epoch: int) -> ErrorCode:
        """Refuse a Vote, BeginQuorumEpoch or EndQuorumEpoch of an older epoch, or from a replica that is no voter.

        Only static voters are all known: the record that makes a sender a dynamic voter may not have come here yet.
        """
        state = self._state
        if epoch < state.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if sender_id < 0 or sender_id == state.local.id:
            return ErrorCode.INVALID_REQUEST
        if state.log.kraft_version == 0 and sender_id not in state.voters.voters:
            return ErrorCode.INCONSISTENT_VOTER_SET
        return ErrorCode.NONE

    def _is_for_me(self, voter: ReplicaKey | None) -> bool:
        state = self._state
        return voter is None or voter.matches(state.local)

    # Requests of the others

    def on_vote(self, token: int, request: Vote, now_ms: int) -> None:
        """A candidate asks for this replica's vote, or whether it would get it."""
        state = self._state
        error, granted = self._judge_vote(request, now_ms)
        state.respond(token, VoteResult(error, *state.header(), granted=granted))

    def _judge_vote(self, request: Vote, now_ms: int) -> tuple[ErrorCode, bool]:
        state = self._state
        last = request.last
        # A candidate's log cannot have records of the epoch it stands in; for a pre-vote the epoch is the old one.
        if last.offset < 0 or last.epoch < 0 or last.epoch >= request.epoch + request.pre_vote:
            return ErrorCode.INVALID_REQUEST, False
        error = self._check_voter_request(request.candidate.id, request.epoch)
        if error:
            return error, False
        if request.epoch > state.epoch:
            state.become_unattached(request.epoch, now_ms)
        if not self._is_for_me(request.voter):
            return ErrorCode.INVALID_VOTER_KEY, False
        up_to_date = (last.epoch, last.offset) >= (state.log.last_epoch, state.log.end_offset)
        granted = state.may_vote and state.quorum.can_grant_vote(
            request.candidate, is_log_up_to_date=up_to_date, pre_vote=request.pre_vote, now_ms=now_ms
        )
        if granted and not request.pre_vote:
            state.quorum.add_vote(request.candidate, now_ms)
        return ErrorCode.NONE, granted

    def on_begin_quorum_epoch(self, token: int, request: BeginQuorumEpoch, now_ms: int) -> None:
        """A leader makes itself known."""
        state = self._state
        error = self._hear_of_leader(request, now_ms)
        if not error and not self._is_for_me(request.voter):
            error = ErrorCode.INVALID_VOTER_KEY
        state.respond(token, BeginQuorumEpochResult(error, *state.header()))

    def on_end_quorum_epoch(self, token: int, request: EndQuorumEpoch, now_ms: int) -> None:
        """A leader resigns: stand soon, the sooner the better a successor this replica is."""
        state = self._state
        error = self._hear_of_leader(request, now_ms)
        if not error and state.role is QuorumRole.FOLLOWER and state.leader_id == request.leader_id:
            state.quorum.on_leader_gone(now_ms + self._succession_delay_ms(request.successors))
        state.respond(token, EndQuorumEpochResult(error, *state.header()))

    def _hear_of_leader(self, request: BeginQuorumEpoch | EndQuorumEpoch, now_ms: int) -> ErrorCode:
        """Go to the epoch of a leader that names itself, if that is later; the error of one that cannot be right."""
        state = self._state
        error = self._check_voter_request(request.leader_id, request.epoch)
        if error:
            return error
        endpoints = request.leader_endpoints or state.voters.endpoints(request.leader_id)
        if not state.maybe_transition(request.leader_id, request.epoch, endpoints, now_ms):
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    def _succession_delay_ms(self, successors: tuple[ReplicaKey, ...]) -> int:
        """No delay for the best successor, and ever longer ones for the others."""
        state = self._state
        position = next((at for at, key in enumerate(successors) if key.matches(state.local)), len(successors))
        longest = state.config.election_backoff_max_ms
        if position == 0:
            return 0
        if position >= len(successors):
            return longest
        return min(longest, (longest >> (len(successors) - 1)) << (position - 1))

    # Responses

    def on_vote_response(self, response: VoteResult, reply: Reply, now_ms: int) -> bool:
        """Count a voter's answer; ``poll_nominee`` acts on the result."""
        state = self._state
        handled = state.handle_header(response, now_ms)
        if handled is not None:
            return handled
        if response.error:
            return state.log_unexpected(response, reply)
        votes = state.quorum.votes
        if votes is not None:
            votes.record(reply.source.id, response.granted)
            self._retry_if_hopeless(now_ms)
        return True

    def _retry_if_hopeless(self, now_ms: int) -> None:
        """A candidate that no majority can vote for any more, as long as no node comes back, stands again soon."""
        state, votes = self._state, self._state.quorum.votes
        if votes is not None and votes.is_hopeless and state.role is QuorumRole.CANDIDATE:
            state.quorum.on_election_lost(state.config.refused_election_timeout_ms // 2, now_ms)

    def on_unreachable(self, voter_id: int, now_ms: int) -> None:
        """A voter's address refuses connections."""
        votes = self._state.quorum.votes
        if votes is not None and voter_id not in votes.unreachable:
            votes.unreachable.add(voter_id)
            self._retry_if_hopeless(now_ms)

    def on_acknowledged(
        self, response: BeginQuorumEpochResult | EndQuorumEpochResult, reply: Reply, now_ms: int
    ) -> bool:
        """A voter has heard that this replica leads, or has resigned."""
        state = self._state
        handled = state.handle_header(response, now_ms)
        if handled is not None:
            return handled
        if response.error:
            return state.log_unexpected(response, reply)
        state.quorum.resignation_unacknowledged.discard(reply.source.id)
        return True

    # What is due in a role

    def poll_nominee(self, now_ms: int) -> float:
        """Of a PROSPECTIVE or CANDIDATE: go on if the votes or the time say so, else ask the voters that are ready.

        The only voter has won as soon as it stands.
        """
        state = self._state
        quorum = state.quorum
        votes = quorum.votes
        assert votes is not None
        pre_vote = state.role is QuorumRole.PROSPECTIVE
        if votes.is_won:
            (state.become_candidate if pre_vote else state.become_leader)(now_ms)
            return now_ms
        timed_out = now_ms >= quorum.deadline_ms and not state.stopping
        if pre_vote and (votes.is_lost or timed_out):
            self._give_up_election(now_ms)
            return now_ms
        if timed_out:
            state.become_prospective(now_ms)
            return now_ms
        deadline = quorum.deadline_ms if not state.stopping else math.inf
        if votes.is_lost:
            return deadline
        last = OffsetAndEpoch(state.log.end_offset, state.log.last_epoch)
        return min(
            deadline,
            state.send_to_voters(
                votes.unanswered, lambda voter: Vote(state.epoch, state.local, last, pre_vote, voter.key), now_ms
            ),
        )

    def _give_up_election(self, now_ms: int) -> None:
        """Follow the leader of the epoch again, or wait for one."""
        state = self._state
        quorum = state.quorum
        if quorum.has_leader and quorum.leader_endpoints and quorum.leader_id != state.local.id:
            state.become_follower(state.epoch, quorum.leader_id, quorum.leader_endpoints, now_ms)
        else:
            state.become_unattached(state.epoch, now_ms, quorum.leader_id)

    def announce(self, leader: LeaderState, now_ms: int) -> float:
        """Of a LEADER: tell the voters that do not fetch that it leads; the time of the next announcement."""
        state = self._state
        if now_ms >= leader.begin_at_ms:
            state.send_to_voters(
                leader.silent_voters(now_ms),
                lambda voter: BeginQuorumEpoch(state.epoch, state.local.id, state.quorum.leader_endpoints, voter.key),
                now_ms,
            )
            leader.begin_at_ms = now_ms + leader.begin_interval_ms
        return leader.begin_at_ms

    def poll_resigned(self, now_ms: int) -> float:
        """Of a RESIGNED: tell the voters to elect, and after the election timeout leave the epoch."""
        state = self._state
        quorum = state.quorum
        if now_ms >= quorum.deadline_ms and not state.stopping:
            # In a new epoch no replica takes this one for the leader of the old one any more.
            state.become_unattached(state.epoch + 1, now_ms)
            return now_ms
        sent = state.send_to_voters(
            sorted(quorum.resignation_unacknowledged),
            lambda voter: EndQuorumEpoch(state.epoch, state.local.id, quorum.leader_endpoints, quorum.successors),
            now_ms,
        )
        return min(sent, quorum.deadline_ms if not state.stopping else math.inf)
