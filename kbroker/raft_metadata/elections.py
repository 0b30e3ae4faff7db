"""Elections of the metadata quorum's leader: votes, pre-votes, and the end of an epoch (KIP-595, KIP-853, KIP-996)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode
from kbroker.raft_metadata.quorum_state import QuorumRole
from kbroker.raft_metadata.raft_messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    Reply,
    VoteRequest,
    VoteResponse,
)
from kbroker.raft_metadata.voters import ReplicaKey
from kbroker.types import OffsetAndEpoch

if TYPE_CHECKING:
    from kbroker.raft_metadata.raft import RaftCore


class Elections:
    """The part of a :class:`RaftCore` that votes and is voted for."""

    def __init__(self, core: RaftCore) -> None:
        self._core = core

    def _check_voter_request(self, sender_id: int, epoch: int) -> ErrorCode:
        """Vote, BeginQuorumEpoch and EndQuorumEpoch: not from the past, and from a voter.

        With dynamic voters this replica may not have heard yet that the sender is one, so it asks no further.
        """
        core = self._core
        if epoch < core.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if sender_id < 0 or sender_id == core.local.id:
            return ErrorCode.INVALID_REQUEST
        if core.log.kraft_version == 0 and sender_id not in core.voters.voters:
            return ErrorCode.INCONSISTENT_VOTER_SET
        return ErrorCode.NONE

    def _is_for_me(self, voter: ReplicaKey | None) -> bool:
        core = self._core
        return voter is None or voter.matches(core.local)

    def on_vote(self, token: int, request: VoteRequest, now_ms: int) -> None:
        core = self._core
        error, granted = self._judge_vote(request, now_ms)
        core.respond(token, VoteResponse(error, *core.header(), granted=granted))

    def _judge_vote(self, request: VoteRequest, now_ms: int) -> tuple[ErrorCode, bool]:
        core = self._core
        last = request.last
        # A candidate's log cannot have records of the epoch it stands in; for a pre-vote the epoch is the old one.
        if last.offset < 0 or last.epoch < 0 or last.epoch >= request.epoch + request.pre_vote:
            return ErrorCode.INVALID_REQUEST, False
        error = self._check_voter_request(request.candidate.id, request.epoch)
        if error:
            return error, False
        if request.epoch > core.epoch:
            core.become_unattached(request.epoch, now_ms)
        if not self._is_for_me(request.voter):
            return ErrorCode.INVALID_VOTER_KEY, False
        up_to_date = (last.epoch, last.offset) >= (core.log.last_epoch, core.log.end_offset)
        granted = core.quorum.can_grant_vote(
            request.candidate, is_log_up_to_date=up_to_date, pre_vote=request.pre_vote, now_ms=now_ms
        )
        if granted and not request.pre_vote:
            core.quorum.add_vote(request.candidate, now_ms)
        return ErrorCode.NONE, granted

    def on_begin_quorum_epoch(self, token: int, request: BeginQuorumEpochRequest, now_ms: int) -> None:
        core = self._core
        error = self._check_voter_request(request.leader_id, request.epoch)
        if not error:
            endpoints = request.leader_endpoints or core.voters.endpoints(request.leader_id)
            if not core.maybe_transition(request.leader_id, request.epoch, endpoints, now_ms):
                error = ErrorCode.INVALID_REQUEST
            elif not self._is_for_me(request.voter):
                error = ErrorCode.INVALID_VOTER_KEY
        core.respond(token, BeginQuorumEpochResponse(error, *core.header()))

    def on_end_quorum_epoch(self, token: int, request: EndQuorumEpochRequest, now_ms: int) -> None:
        core = self._core
        error = self._check_voter_request(request.leader_id, request.epoch)
        if not error:
            endpoints = request.leader_endpoints or core.voters.endpoints(request.leader_id)
            if not core.maybe_transition(request.leader_id, request.epoch, endpoints, now_ms):
                error = ErrorCode.INVALID_REQUEST
            elif core.role is QuorumRole.FOLLOWER and core.leader_id == request.leader_id:
                core.quorum.on_leader_gone(now_ms + self._succession_delay_ms(request.successors))
        core.respond(token, EndQuorumEpochResponse(error, *core.header()))

    def _succession_delay_ms(self, successors: tuple[ReplicaKey, ...]) -> int:
        """The best successor stands at once, the others ever later."""
        core = self._core
        position = next((at for at, key in enumerate(successors) if key.matches(core.local)), len(successors))
        longest = core.config.election_backoff_max_ms
        if position == 0:
            return 0
        if position >= len(successors):
            return longest
        return min(longest, (longest >> (len(successors) - 1)) << (position - 1))

    def on_vote_response(self, response: VoteResponse, reply: Reply, now_ms: int) -> bool:
        core = self._core
        handled = core.handle_common(response, now_ms)
        if handled is not None:
            return handled
        if response.error:
            return core.complain(response, reply)
        votes = core.quorum.votes
        if votes is not None:
            votes.record(reply.source.id, response.granted)
            self.on_votes_counted(now_ms)
        return True

    def on_votes_counted(self, now_ms: int) -> None:
        core = self._core
        votes = core.quorum.votes
        if votes is None:
            return
        if votes.is_won:
            if core.role is QuorumRole.PROSPECTIVE:
                core.become_candidate(now_ms)
            else:
                core.become_leader(now_ms)
        elif votes.is_lost and core.role is QuorumRole.PROSPECTIVE:
            self._give_up_election(now_ms)
        elif votes.is_hopeless and core.role is QuorumRole.CANDIDATE:
            core.quorum.on_election_lost(core.config.refused_election_timeout_ms // 2, now_ms)

    def on_unreachable(self, voter_id: int, now_ms: int) -> None:
        """Nobody listens at a voter's address."""
        votes = self._core.quorum.votes
        if votes is not None and voter_id not in votes.unreachable:
            votes.unreachable.add(voter_id)
            self.on_votes_counted(now_ms)

    def _give_up_election(self, now_ms: int) -> None:
        core = self._core
        quorum = core.quorum
        if quorum.has_leader and quorum.leader_endpoints and quorum.leader_id != core.local.id:
            core.become_follower(core.epoch, quorum.leader_id, quorum.leader_endpoints, now_ms)
        else:
            core.become_unattached(core.epoch, now_ms, quorum.leader_id)

    def on_acknowledged(
        self, response: BeginQuorumEpochResponse | EndQuorumEpochResponse, reply: Reply, now_ms: int
    ) -> bool:
        core = self._core
        handled = core.handle_common(response, now_ms)
        if handled is not None:
            return handled
        if response.error:
            return core.complain(response, reply)
        core.quorum.resignation_unacknowledged.discard(reply.source.id)
        return True

    def poll_nominee(self, now_ms: int) -> float:
        core = self._core
        quorum = core.quorum
        votes = quorum.votes
        assert votes is not None
        if now_ms >= quorum.deadline_ms and not core.stopping:
            if core.role is QuorumRole.CANDIDATE:
                core.become_prospective(now_ms)
            else:
                self._give_up_election(now_ms)
            return now_ms
        deadline = quorum.deadline_ms if not core.stopping else math.inf
        if votes.is_lost:
            return deadline
        pre_vote = core.role is QuorumRole.PROSPECTIVE
        last = OffsetAndEpoch(core.log.end_offset, core.log.last_epoch)
        return min(
            deadline,
            core.send_to_voters(
                votes.unanswered,
                lambda voter: VoteRequest(core.epoch, core.local, last, pre_vote, voter.key),
                now_ms,
            ),
        )

    def poll_resigned(self, now_ms: int) -> float:
        core = self._core
        quorum = core.quorum
        if now_ms >= quorum.deadline_ms and not core.stopping:
            # A new epoch, so that nobody takes this node for the leader of the old one any more.
            core.become_unattached(core.epoch + 1, now_ms)
            return now_ms
        sent = core.send_to_voters(
            sorted(quorum.resignation_unacknowledged),
            lambda voter: EndQuorumEpochRequest(core.epoch, core.local.id, quorum.leader_endpoints, quorum.successors),
            now_ms,
        )
        return min(sent, quorum.deadline_ms if not core.stopping else math.inf)
