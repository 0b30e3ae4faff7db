"""The classic rebalance protocol: changes of a group by JoinGroup, SyncGroup, Heartbeat, LeaveGroup and by time.

Rules: Kafka's ``GroupMetadataManager`` (its classic half, 4.3). JoinGroup goes on in ``classic_join.py``, rebalances in
``classic_rebalance.py``.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable

from kbroker.cores.coordinator.result import CoordinatorResult, Token
from kbroker.cores.groups.classic_group import UNKNOWN_MEMBER_ID, ClassicGroup, ClassicGroupState, ClassicMember
from kbroker.cores.groups.classic_join import ClassicJoin, Joining
from kbroker.cores.groups.classic_rebalance import ClassicRebalance, Effects, complete_join, complete_sync, join_error
from kbroker.cores.groups.client import ClientContext
from kbroker.cores.groups.records import group_metadata_record
from kbroker.cores.groups.settings import GroupSettings
from kbroker.errors import ApiError, ErrorCode
from kbroker.wire.messages.classic_groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

_S = ClassicGroupState


class ClassicRebalanceProtocol:
    """Serves classic groups. Each method takes the time, and returns records to append and the response.

    ``groups`` belongs to the shard; a join creates groups in it. ``rebalances`` counts those that are completed.
    """

    def __init__(
        self,
        groups: dict[str, ClassicGroup],
        settings: Callable[[], GroupSettings],
        rng: random.Random,
        rebalances: Counter[str],
    ) -> None:
        self._groups = groups
        self._settings = settings
        self._rebalance = ClassicRebalance(settings, rebalances)
        self._join = ClassicJoin(self._rebalance, settings, rng)
        self.forget = self._rebalance.forget
        self.renew_session = self._rebalance.renew_session

    # -- requests ------------------------------------------------------------------------------

    def join(
        self, request: JoinGroupRequest, client: ClientContext, now_ms: int
    ) -> CoordinatorResult[JoinGroupResponse] | CoordinatorResult[Token]:
        """JoinGroup: the reply comes when the join phase ends, or at once where it is an error."""
        group = self._groups.get(request.group_id)
        is_unknown = request.member_id == UNKNOWN_MEMBER_ID
        if group is None:
            if not is_unknown:
                return CoordinatorResult(join_error(request.member_id, ErrorCode.UNKNOWN_MEMBER_ID))
            group = self._groups[request.group_id] = ClassicGroup(request.group_id)
            created = True
        else:
            created = False
        token = Token()
        effects = Effects()
        if not self._join.accepts(group, request.member_id):
            group.remove(request.member_id)
            error = join_error(UNKNOWN_MEMBER_ID, ErrorCode.GROUP_MAX_SIZE_REACHED)
            effects.completed.append((token, error))
        elif is_unknown:
            self._join.join_new(Joining(group, request, client, token, effects, now_ms))
        else:
            self._join.join_existing(Joining(group, request, client, token, effects, now_ms))
        if created and not effects.records:
            # A group exists for others (and after a restart) from its first record on.
            effects.records.append(group_metadata_record(group, {}, now_ms))
        return effects.give(token)

    def sync(
        self, request: SyncGroupRequest, now_ms: int
    ) -> CoordinatorResult[SyncGroupResponse] | CoordinatorResult[Token]:
        """SyncGroup: the leader's brings the assignment; everybody is answered when it is stored."""
        try:
            group, member = self._validate_sync(request)
        except ApiError as error:
            return CoordinatorResult(SyncGroupResponse(error_code=error.code))
        if group.state is _S.PREPARING_REBALANCE:
            return CoordinatorResult(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        self._rebalance.received_sync(group, member)
        if group.state is _S.STABLE:
            return CoordinatorResult(
                SyncGroupResponse(
                    protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
                )
            )
        effects = Effects()
        if member.awaiting_sync is not None:
            # The member asked again (its connection died): the older request has no reader any more.
            effects.completed.append(
                (member.awaiting_sync, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
            )
        token = member.awaiting_sync = Token()
        if group.leader_id == member.member_id:
            assignment = {each.member_id: bytes(each.assignment) for each in request.assignments}
            for member_id in group.members:
                assignment.setdefault(member_id, b"")
            effects.records.append(group_metadata_record(group, assignment, now_ms))
            effects.on_stored = self._rebalance.when_assignment_stored(group, request.generation_id, assignment)
        return effects.give(token)

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> ErrorCode:
        """Heartbeat: keeps the member's session; REBALANCE_IN_PROGRESS asks it to join again."""
        group = self._groups.get(request.group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if group.state is _S.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        try:
            member = group.validate_member(request.member_id, request.group_instance_id)
        except ApiError as error:
            return error.code
        if request.generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        if group.state is _S.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self.renew_session(group, member, now_ms)
        if group.state is _S.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(
        self, group_id: str, members: Iterable[MemberIdentity], now_ms: int
    ) -> CoordinatorResult[list[MemberResponse]]:
        """LeaveGroup of one or several members; each gets its own error. `ApiError` for the whole."""
        group = self._groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        if group.state is _S.DEAD:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        effects = Effects()
        responses = []
        for identity in members:
            error = self._leave_one(group, identity, effects)
            responses.append(
                MemberResponse(
                    member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error
                )
            )
        if any(response.error_code == ErrorCode.NONE for response in responses):
            if group.is_in(_S.STABLE, _S.COMPLETING_REBALANCE):
                self._rebalance.prepare_rebalance(group, effects, now_ms)
            elif group.state is _S.PREPARING_REBALANCE:
                self._rebalance.maybe_complete_join(group, effects, now_ms)
        return effects.give(responses)

    def on_loaded(self, group: ClassicGroup, now_ms: int) -> None:
        """Replay has rebuilt the group: its members get a full session to be heard of again.

        One that has become too large (``group.max.size`` was lowered) rebalances, so that members that have to leave
        can commit before; members that join too late are refused.
        """
        for member in group.members.values():
            self.renew_session(group, member, now_ms)
        if group.must_rebalance or len(group.members) > self._settings().group_max_size:
            self.start_rebalance(group, now_ms)  # nobody waits for anything yet, so a deadline is all that follows

    def start_rebalance(self, group: ClassicGroup, now_ms: int) -> CoordinatorResult[None]:
        """Ask every member of a stable group to join again."""
        effects = Effects()
        self._rebalance.prepare_rebalance(group, effects, now_ms)
        return effects.result()

    def fail_all(self, group: ClassicGroup, error: ErrorCode) -> list[tuple[Token, object]]:
        """Answer every request that waits with the error: this node is no longer the group's coordinator."""
        effects = Effects()
        for member in group.members.values():
            complete_join(member, join_error(member.member_id, error), effects)
            complete_sync(member, SyncGroupResponse(error_code=error), effects)
        return effects.completed

    # -- time ----------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """When `on_deadline` is next due, in ms; None if never."""
        return self._rebalance.timers.next_deadline()

    def on_deadline(self, now_ms: int) -> CoordinatorResult[None] | None:
        """Handle one deadline that has come; None when there is none (left)."""
        timer = next(self._rebalance.timers.pop_due(now_ms), None)
        if timer is None:
            return None
        effects = Effects()
        group = self._groups.get(timer.group_id)
        if group is None or group.state is _S.DEAD:
            return effects.result()
        if timer.kind == "session":
            self._expire_session(group, timer.member_id, effects, now_ms)
        elif timer.kind == "join":
            self._rebalance.on_join_deadline(group, effects, now_ms)
        else:
            self._rebalance.expire_pending_sync(group, effects, now_ms)
        return effects.result()

    # -- syncing -------------------------------------------------------------------------------

    def _validate_sync(self, request: SyncGroupRequest) -> tuple[ClassicGroup, ClassicMember]:
        group = self._groups.get(request.group_id)
        if group is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        if group.state is _S.DEAD:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        member = group.validate_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation_id:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        for given, held in ((request.protocol_type, group.protocol_type), (request.protocol_name, group.protocol_name)):
            if given is not None and held is not None and given != held:
                raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is _S.EMPTY:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group, member

    # -- leaving -------------------------------------------------------------------------------

    def _leave_one(self, group: ClassicGroup, identity: MemberIdentity, effects: Effects) -> ErrorCode:
        member_id = identity.member_id
        if member_id == UNKNOWN_MEMBER_ID:
            # An administrator removes a static member by its instance id (KIP-345).
            found = group.static_members.get(identity.group_instance_id or "")
            if found is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = found
        elif member_id not in group.pending_join_members:
            try:
                group.validate_member(member_id, identity.group_instance_id)
            except ApiError as error:
                return error.code
        self._rebalance.remove(group, member_id, effects)
        return ErrorCode.NONE

    def _expire_session(self, group: ClassicGroup, member_id: str, effects: Effects, now_ms: int) -> None:
        member = group.members.get(member_id)
        if member is None:
            if member_id not in group.pending_join_members:
                return
        elif not member.is_new and (member.awaiting_join is not None or member.awaiting_sync is not None):
            return  # It waits for our reply, so it is not expected to send heartbeats.
        self._rebalance.remove(group, member_id, effects)
        if member is not None and group.is_in(_S.STABLE, _S.COMPLETING_REBALANCE):
            self._rebalance.prepare_rebalance(group, effects, now_ms)
        elif group.state is _S.PREPARING_REBALANCE and group.has_all_members_joined:
            self._rebalance.finish_join(group, effects, now_ms)
