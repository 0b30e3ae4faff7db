"""Changes of the voter set, one voter at a time (KIP-853): AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter.

A change is a VotersRecord in the log, and counts from the moment it is there. Two changes never overlap, and none
begins before the leader has committed a record of its own epoch, so that any majority of the old set and any of the
new one have a voter in common.

A quorum of fixed voters (``kraft.version`` 0) becomes one whose voters can change by a batch of two control records:
the level, and the voters as they have described themselves to the leader, with their disks.
"""

from __future__ import annotations

import math

from kbroker.errors import ErrorCode
from kbroker.raft_metadata.raft.leader_state import LeaderState, PendingVoterChange
from kbroker.raft_metadata.raft.messages import (
    AddVoter,
    AddVoterResult,
    KRaftVersions,
    KRaftVersionsResult,
    RaftRequest,
    RemoveVoter,
    RemoveVoterResult,
    Reply,
    UpdateVoter,
    UpdateVoterResult,
    UpgradeKRaftVersion,
    UpgradeKRaftVersionResult,
)
from kbroker.raft_metadata.raft.state import RaftState
from kbroker.raft_metadata.raft.voters import ReplicaKey, VoterNode
from kbroker.wire.records import control

_PENDING_MESSAGE = "Request timed out waiting for leader to handle previous voter change request"
_NO_HIGH_WATERMARK = "Request timed out waiting for leader to establish HWM and fence previous voter changes"


def _is_valid(voter: ReplicaKey) -> bool:
    """Whether a request names a replica that can be a voter: by its id and its directory."""
    return voter.id >= 0 and voter.has_directory


class VoterChanges:
    """The part of the core that changes the voter set. The pending change is in ``LeaderState.voter_change``."""

    def __init__(self, state: RaftState, *, auto_join: bool) -> None:
        """``auto_join``: ask to become a voter (KIP-853, ``controller.quorum.auto.join.enable``)."""
        self._state = state
        self._auto_join = auto_join

    # Requests to the leader

    def on_add(self, token: int, request: AddVoter, now_ms: int) -> None:
        """Add a voter: ask it for its levels of ``kraft.version`` first."""
        state, leader = self._state, self._state.leader
        invalid = None
        if not _is_valid(request.voter):
            invalid = "Add voter request didn't include a valid voter"
        elif state.listener_name not in request.endpoints:
            invalid = f"Add voter request didn't include the endpoint for the default listener {state.listener_name}"
        error, message = self._check(leader, now_ms, "adding", invalid)
        if error == ErrorCode.NONE and request.voter.id in state.voters.voters:
            error = ErrorCode.DUPLICATE_VOTER
            message = f"The voter id {request.voter.id} is already part of the set of voters {state.voters.ids}."
        node = state.node_of(request.voter.id, request.endpoints)
        if error or leader is None or node is None:
            state.respond(token, AddVoterResult(error, message))
            return
        correlation_id = state.send_if_ready(node, KRaftVersions(), now_ms)
        if correlation_id is None:
            message = f"New voter {request.voter.id} is not ready to receive requests"
            state.respond(token, AddVoterResult(ErrorCode.REQUEST_TIMED_OUT, message))
            return
        leader.voter_change = PendingVoterChange(
            token,
            now_ms + state.config.request_timeout_ms,
            joining=VoterNode(request.voter, dict(request.endpoints)),
            correlation_id=correlation_id,
            ack_when_committed=request.ack_when_committed,
        )

    def on_kraft_versions(self, response: KRaftVersionsResult, reply: Reply, now_ms: int) -> bool:
        """The voter to be has named its levels: add it if they include the present one and its log is caught up."""
        state, leader = self._state, self._state.leader
        change = None if leader is None else leader.voter_change
        if leader is None or change is None or change.correlation_id != reply.correlation_id or change.joining is None:
            return True
        key = change.joining.key
        if response.error:
            state.end_voter_change(
                leader, ErrorCode.REQUEST_TIMED_OUT, "Aborted add voter operation: API_VERSIONS failed"
            )
            return False
        level = state.log.kraft_version
        if not response.min_version <= level <= response.max_version:
            state.end_voter_change(
                leader,
                ErrorCode.INVALID_REQUEST,
                f"Aborted add voter operation for {key.id} since the kraft.version range (min: "
                f"{response.min_version}, max: {response.max_version}) doesn't support the finalized version {level}",
            )
        elif not leader.is_caught_up(key, now_ms):
            state.end_voter_change(
                leader,
                ErrorCode.REQUEST_TIMED_OUT,
                f"Aborted add voter operation for {key.id} since it is lagging behind",
            )
        else:
            node = VoterNode(key, change.joining.endpoints, response.min_version, response.max_version)
            change.offset = state.append_voters(state.voters.with_voter(node))
            if not change.ack_when_committed:
                change.answered = True
                state.respond(change.token, AddVoterResult(ErrorCode.NONE))
        return True

    def on_remove(self, token: int, request: RemoveVoter, now_ms: int) -> None:
        """Remove a voter; a leader that removes itself resigns once that is committed."""
        state, leader = self._state, self._state.leader
        invalid = None if _is_valid(request.voter) else "Remove voter request didn't include a valid voter"
        error, message = self._check(leader, now_ms, "removing", invalid)
        if error == ErrorCode.NONE and (not state.voters.is_voter(request.voter) or len(state.voters) == 1):
            error = ErrorCode.VOTER_NOT_FOUND
            message = f"Cannot remove voter {request.voter.id} from the set of voters {state.voters.ids}"
        if error or leader is None:
            state.respond(token, RemoveVoterResult(error, message))
            return
        offset = state.append_voters(state.voters.without(request.voter.id))
        leader.voter_change = PendingVoterChange(token, now_ms + state.config.request_timeout_ms, offset=offset)

    def on_update(self, token: int, request: UpdateVoter, now_ms: int) -> None:
        """Replace a voter's endpoints and its levels of ``kraft.version``."""
        self._state.respond(token, UpdateVoterResult(self._update(request, now_ms), *self._state.header()))

    def _update(self, request: UpdateVoter, now_ms: int) -> ErrorCode:
        state, leader = self._state, self._state.leader
        if request.epoch != state.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH if request.epoch < state.epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        if leader is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        low, high = request.min_kraft_version, request.max_kraft_version
        if not _is_valid(request.voter) or state.listener_name not in request.endpoints or not 0 <= low <= high:
            return ErrorCode.INVALID_REQUEST
        if self._is_pending(leader, now_ms) or leader.high_watermark < 0:
            return ErrorCode.REQUEST_TIMED_OUT
        level = state.log.kraft_version
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
        if not state.voters.is_voter(request.voter):
            return ErrorCode.VOTER_NOT_FOUND
        state.append_voters(state.voters.with_voter(node))
        return ErrorCode.NONE

    def on_upgrade(self, token: int, request: UpgradeKRaftVersion, now_ms: int) -> None:
        """Raise ``kraft.version``, as Kafka's ``LeaderState.maybeAppendUpgradedKRaftVersion``."""
        self._state.respond(token, UpgradeKRaftVersionResult(*self._upgrade(request)))

    def _upgrade(self, request: UpgradeKRaftVersion) -> tuple[ErrorCode, str | None]:
        state, leader, level = self._state, self._state.leader, request.level
        if leader is None or request.epoch != state.epoch:
            return ErrorCode.NOT_CONTROLLER, "This is not the active controller."
        present = state.log.kraft_version
        if level == present:
            return ErrorCode.NONE, None
        refused = ErrorCode.INVALID_UPDATE_VERSION
        if level < present:
            return refused, f"Invalid upgrade of kraft.version from {present} to {level}: it cannot be lowered."
        voters = leader.volatile_voters
        lacking = [voter.id for voter in voters if not voter.min_kraft_version <= level <= voter.max_kraft_version]
        if lacking:
            return refused, (
                f"Invalid upgrade of kraft.version to {level} because not all of the voters support it: "
                f"{lacking} do not, or have not told this leader yet."
            )
        unknown = [voter.id for voter in voters if not voter.key.has_directory]
        if unknown:
            return refused, f"Invalid upgrade of kraft.version to {level}: the directories of {unknown} are not known."
        if not request.validate_only:
            state.ready.append += [control.KRaftVersionRecord(version=0, kraft_version=level), voters.to_record()]
        return ErrorCode.NONE, None

    def _check(
        self, leader: LeaderState | None, now_ms: int, what: str, invalid: str | None
    ) -> tuple[ErrorCode, str | None]:
        """The error, in Kafka's order, of a change that cannot begin; ``invalid``: what is wrong with the request."""
        if leader is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, None
        if invalid is not None:
            return ErrorCode.INVALID_REQUEST, invalid
        if self._is_pending(leader, now_ms):
            return ErrorCode.REQUEST_TIMED_OUT, _PENDING_MESSAGE
        if leader.high_watermark < 0:
            return ErrorCode.REQUEST_TIMED_OUT, _NO_HIGH_WATERMARK
        level = self._state.log.kraft_version
        if level < 1:
            message = f"Cluster doesn't support {what} voter because the kraft.version feature is {level}"
            return ErrorCode.UNSUPPORTED_VERSION, message
        if self._uncommitted(leader):
            message = "Request timed out waiting for voters to commit the latest voter change"
            return ErrorCode.REQUEST_TIMED_OUT, message
        return ErrorCode.NONE, None

    def _uncommitted(self, leader: LeaderState) -> bool:
        offset = self._state.log.voters.last_offset
        return offset is None or offset >= leader.high_watermark

    # The pending change

    def _is_pending(self, leader: LeaderState, now_ms: int) -> bool:
        self.expire(leader, now_ms)
        return leader.voter_change is not None

    def expire(self, leader: LeaderState, now_ms: int) -> float:
        """End a change that takes too long; the deadline of the present one. Its record stays in the log."""
        change = leader.voter_change
        if change is None:
            return math.inf
        if now_ms < change.deadline_ms:
            return change.deadline_ms
        self._state.end_voter_change(leader, ErrorCode.REQUEST_TIMED_OUT)
        return math.inf

    def on_high_watermark(self, leader: LeaderState) -> None:
        """The leader has committed more: perhaps the pending change, perhaps its own removal."""
        state = self._state
        change = leader.voter_change
        if change is not None and 0 <= change.offset < leader.high_watermark:
            state.end_voter_change(leader, ErrorCode.NONE)
        if not state.voters.is_voter(state.local) and not self._uncommitted(leader):
            leader.resign_requested = True

    # Requests of this replica to its leader

    def own_request(self) -> RaftRequest | None:
        """The request by which a follower corrects the voter set; None if that has it right."""
        state = self._state
        local = state.local_voter
        if not state.local_endpoints or not state.local.has_directory:
            return None
        known = state.voters.voters.get(state.local.id)
        if state.voters.is_voter(state.local):
            if state.log.kraft_version >= 1:
                wrong = known != local
            else:
                wrong = not state.quorum.has_updated_leader
            if not wrong:
                return None
            return UpdateVoter(
                state.epoch, state.local, local.endpoints, local.min_kraft_version, local.max_kraft_version
            )
        if state.log.kraft_version < 1 or not self._auto_join:
            return None
        if known is not None:
            # The set has this node with another disk, which has to go first.
            return RemoveVoter(known.key)
        return AddVoter(state.local, local.endpoints, state.config.request_timeout_ms, ack_when_committed=False)

    def on_update_response(self, response: UpdateVoterResult, reply: Reply, now_ms: int) -> bool:
        """The leader has this voter's endpoints and levels now, or is too old to know the request."""
        state = self._state
        handled = state.handle_header(response, now_ms)
        if handled is not None:
            return handled
        if response.error not in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION):
            return state.log_unexpected(response, reply)
        state.quorum.has_updated_leader = True
        state.quorum.on_leader_contact(now_ms)
        return True

    def on_membership_response(self, response: AddVoterResult | RemoveVoterResult, reply: Reply, now_ms: int) -> bool:
        """The response to this observer's own request to join; its effect shows in the log."""
        expected = (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.DUPLICATE_VOTER, ErrorCode.VOTER_NOT_FOUND)
        if response.error not in expected:
            return self._state.log_unexpected(response, reply)
        return True
