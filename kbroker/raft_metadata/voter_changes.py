"""Changes of the voter set, one voter at a time (KIP-853): AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter.

A change is a VotersRecord in the log, and counts from the moment it is there. Two changes never overlap, and none
begins before the leader has committed a record of its own epoch, so that any majority of the old set and any of the
new one have a voter in common.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode
from kbroker.raft_metadata.leader_state import LeaderState, PendingVoterChange
from kbroker.raft_metadata.raft_messages import (
    AddVoterRequest,
    AddVoterResponse,
    KRaftVersionsRequest,
    KRaftVersionsResponse,
    RaftRequest,
    RemoveVoterRequest,
    RemoveVoterResponse,
    Reply,
    UpdateVoterRequest,
    UpdateVoterResponse,
)
from kbroker.raft_metadata.voters import ReplicaKey, VoterNode

if TYPE_CHECKING:
    from kbroker.raft_metadata.raft import RaftCore

_PENDING_MESSAGE = "Request timed out waiting for leader to handle previous voter change request"
_NO_HIGH_WATERMARK = "Request timed out waiting for leader to establish HWM and fence previous voter changes"


class VoterChanges:
    """The part of a :class:`RaftCore` that changes who votes; pending changes are in its ``LeaderState``."""

    def __init__(self, core: RaftCore) -> None:
        self._core = core
        self._joining: tuple[ReplicaKey, VoterNode] | None = None
        """The replica that is being asked what it can do, and as what it would vote."""

    # Requests to the leader

    def on_add(self, token: int, request: AddVoterRequest, now_ms: int) -> None:
        """An observer is to vote: it is asked for its levels of ``kraft.version`` first."""
        core, leader = self._core, self._core.leader
        error, message = self._check(leader, now_ms, "adding")
        if error == ErrorCode.NONE and not request.voter.has_directory:
            error, message = ErrorCode.INVALID_REQUEST, "Add voter request didn't include a valid voter"
        elif error == ErrorCode.NONE and core.listener_name not in request.endpoints:
            error = ErrorCode.INVALID_REQUEST
            message = f"Add voter request didn't include the endpoint for the default listener {core.listener_name}"
        elif error == ErrorCode.NONE and request.voter.id in core.voters.voters:
            error = ErrorCode.DUPLICATE_VOTER
            message = f"The voter id {request.voter.id} is already part of the set of voters {core.voters.ids}."
        node = core.node_of(request.voter.id, request.endpoints)
        if error or leader is None or node is None:
            core.respond(token, AddVoterResponse(error, message))
            return
        correlation_id = core.send_if_ready(node, KRaftVersionsRequest(), now_ms)
        if correlation_id is None:
            message = f"New voter {request.voter.id} is not ready to receive requests"
            core.respond(token, AddVoterResponse(ErrorCode.REQUEST_TIMED_OUT, message))
            return
        self._joining = (request.voter, VoterNode(request.voter, dict(request.endpoints)))
        leader.voter_change = PendingVoterChange(
            token,
            True,
            now_ms + core.config.request_timeout_ms,
            correlation_id=correlation_id,
            ack_when_committed=request.ack_when_committed,
        )

    def on_kraft_versions(self, response: KRaftVersionsResponse, reply: Reply, now_ms: int) -> bool:
        """The observer has said what it can do: if that is enough and it is caught up, it is written down."""
        core, leader = self._core, self._core.leader
        change = None if leader is None else leader.voter_change
        if leader is None or change is None or change.correlation_id != reply.correlation_id or self._joining is None:
            return True
        key, voter = self._joining
        if response.error:
            self._end(leader, ErrorCode.REQUEST_TIMED_OUT, "Aborted add voter operation: API_VERSIONS failed")
            return False
        level = core.log.kraft_version
        if not response.min_version <= level <= response.max_version:
            self._end(
                leader,
                ErrorCode.INVALID_REQUEST,
                f"Aborted add voter operation for {key.id} since the kraft.version range (min: "
                f"{response.min_version}, max: {response.max_version}) doesn't support the finalized version {level}",
            )
        elif not leader.is_caught_up(key, now_ms):
            self._end(
                leader,
                ErrorCode.REQUEST_TIMED_OUT,
                f"Aborted add voter operation for {key.id} since it is lagging behind",
            )
        else:
            node = VoterNode(key, voter.endpoints, response.min_version, response.max_version)
            change.offset = core.append_voters(core.voters.with_voter(node))
            if not change.ack_when_committed:
                change.answered = True
                core.respond(change.token, AddVoterResponse(ErrorCode.NONE))
        return True

    def on_remove(self, token: int, request: RemoveVoterRequest, now_ms: int) -> None:
        """A voter is not to vote any more; a leader that removes itself resigns once that is committed."""
        core, leader = self._core, self._core.leader
        error, message = self._check(leader, now_ms, "removing")
        if error == ErrorCode.NONE and not request.voter.has_directory:
            error, message = ErrorCode.INVALID_REQUEST, "Remove voter request didn't include a valid voter"
        elif error == ErrorCode.NONE and (not core.voters.is_voter(request.voter) or len(core.voters) == 1):
            error = ErrorCode.VOTER_NOT_FOUND
            message = f"Cannot remove voter {request.voter.id} from the set of voters {core.voters.ids}"
        if error or leader is None:
            core.respond(token, RemoveVoterResponse(error, message))
            return
        offset = core.append_voters(core.voters.without(request.voter.id))
        leader.voter_change = PendingVoterChange(token, False, now_ms + core.config.request_timeout_ms, offset=offset)

    def on_update(self, token: int, request: UpdateVoterRequest, now_ms: int) -> None:
        """A voter is elsewhere now, or can do other levels of ``kraft.version``."""
        self._core.respond(token, UpdateVoterResponse(self._update(request, now_ms), *self._core.header()))

    def _update(self, request: UpdateVoterRequest, now_ms: int) -> ErrorCode:
        core, leader = self._core, self._core.leader
        if request.epoch != core.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH if request.epoch < core.epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        if leader is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        low, high = request.min_kraft_version, request.max_kraft_version
        if not request.voter.has_directory or core.listener_name not in request.endpoints or not 0 <= low <= high:
            return ErrorCode.INVALID_REQUEST
        if self.is_pending(leader, now_ms) or leader.high_watermark < 0:
            return ErrorCode.REQUEST_TIMED_OUT
        level = core.log.kraft_version
        if not low <= level <= high:
            return ErrorCode.INVALID_REQUEST
        node = VoterNode(request.voter, dict(request.endpoints), low, high)
        if level == 0:
            if request.voter.id not in leader.volatile_voters.voters:
                return ErrorCode.VOTER_NOT_FOUND
            leader.volatile_voters = leader.volatile_voters.with_voter(node)
            return ErrorCode.NONE
        if self._uncommitted(leader):
            return ErrorCode.REQUEST_TIMED_OUT
        if not core.voters.is_voter(request.voter):
            return ErrorCode.VOTER_NOT_FOUND
        core.append_voters(core.voters.with_voter(node))
        return ErrorCode.NONE

    def _check(self, leader: LeaderState | None, now_ms: int, what: str) -> tuple[ErrorCode, str | None]:
        if leader is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, None
        if self.is_pending(leader, now_ms):
            return ErrorCode.REQUEST_TIMED_OUT, _PENDING_MESSAGE
        if leader.high_watermark < 0:
            return ErrorCode.REQUEST_TIMED_OUT, _NO_HIGH_WATERMARK
        level = self._core.log.kraft_version
        if level < 1:
            message = f"Cluster doesn't support {what} voter because the kraft.version feature is {level}"
            return ErrorCode.UNSUPPORTED_VERSION, message
        if self._uncommitted(leader):
            message = "Request timed out waiting for voters to commit the latest voter change"
            return ErrorCode.REQUEST_TIMED_OUT, message
        return ErrorCode.NONE, None

    def _uncommitted(self, leader: LeaderState) -> bool:
        offset = self._core.log.voters.last_offset
        return offset is None or offset >= leader.high_watermark

    # What becomes of a change

    def is_pending(self, leader: LeaderState, now_ms: int) -> bool:
        """Whether a change is under way."""
        self.expire(leader, now_ms)
        return leader.voter_change is not None

    def expire(self, leader: LeaderState, now_ms: int) -> float:
        """Give up on a change that takes too long; when the present one does. Its record stays where it is."""
        change = leader.voter_change
        if change is None:
            return math.inf
        if now_ms < change.deadline_ms:
            return change.deadline_ms
        self._end(leader, ErrorCode.REQUEST_TIMED_OUT, None)
        return math.inf

    def on_high_watermark(self, leader: LeaderState) -> None:
        """More is committed: perhaps the change that is waited for."""
        change = leader.voter_change
        if change is not None and 0 <= change.offset < leader.high_watermark:
            self._end(leader, ErrorCode.NONE, None)
        voters = self._core.log.voters
        if not voters.last.is_voter(self._core.local) and not self._uncommitted(leader):
            leader.resign_requested = True

    def abandon(self, leader: LeaderState) -> None:
        """This node does not lead any more."""
        self._end(leader, ErrorCode.NOT_LEADER_OR_FOLLOWER, None)

    def _end(self, leader: LeaderState, error: ErrorCode, message: str | None) -> None:
        change, leader.voter_change = leader.voter_change, None
        self._joining = None
        if change is None or change.answered:
            return
        response = AddVoterResponse(error, message) if change.is_addition else RemoveVoterResponse(error, message)
        self._core.respond(change.token, response)

    # What this replica asks of the leader

    def own_request(self) -> RaftRequest | None:
        """What a follower should tell its leader of itself; None if the voter set has it right."""
        core = self._core
        local = core.local_voter()
        if not core.local_endpoints or not core.local.has_directory:
            return None
        known = core.voters.voters.get(core.local.id)
        if core.quorum.is_voter:
            if core.log.kraft_version >= 1:
                wrong = known != local
            else:
                wrong = not core.quorum.has_updated_leader
            if not wrong:
                return None
            return UpdateVoterRequest(
                core.epoch, core.local, local.endpoints, local.min_kraft_version, local.max_kraft_version
            )
        if core.log.kraft_version < 1 or not core.can_become_voter or not core.config.auto_join:
            return None
        if known is not None:
            # This node with another disk: the old one has to go first.
            return RemoveVoterRequest(known.key)
        return AddVoterRequest(core.local, local.endpoints, core.config.request_timeout_ms, ack_when_committed=False)

    def on_update_response(self, response: UpdateVoterResponse, reply: Reply, now_ms: int) -> bool:
        core = self._core
        handled = core.handle_common(response, now_ms)
        if handled is not None:
            return handled
        if response.error not in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION):
            return core.complain(response, reply)
        core.quorum.has_updated_leader = True
        core.quorum.on_leader_contact(now_ms)
        return True

    def on_membership_response(
        self, response: AddVoterResponse | RemoveVoterResponse, reply: Reply, now_ms: int
    ) -> bool:
        """To this observer's own request to join; what came of it shows in the log."""
        expected = (
            ErrorCode.NONE,
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.DUPLICATE_VOTER,
            ErrorCode.VOTER_NOT_FOUND,
        )
        if response.error not in expected:
            return self._core.complain(response, reply)
        return True
