"""The classic rebalance protocol: what JoinGroup, SyncGroup, Heartbeat, LeaveGroup and time do to a group.

Rules: Kafka's ``GroupMetadataManager`` (its classic half, 4.3), KIP-62, KIP-134 (initial delay),
KIP-345 (static members), KIP-394 (member id required), KIP-814 (static leader rejoins).
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from kbroker.coordinator.core import append_error_for_client
from kbroker.coordinator.deadlines import DeadlineQueue
from kbroker.coordinator.result import Continuation, CoordinatorRecord, CoordinatorResult, Token
from kbroker.errors import ApiError, ErrorCode
from kbroker.groups.classic_group import ClassicGroup, ClassicGroupState, ClassicMember, Timer
from kbroker.groups.records import group_metadata_record
from kbroker.groups.settings import GroupSettings
from kbroker.wire.messages.heartbeat import HeartbeatRequest
from kbroker.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from kbroker.wire.messages.leave_group import MemberIdentity, MemberResponse
from kbroker.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

UNKNOWN_MEMBER_ID = ""
"""What a client sends as its member id before it has one."""

R = TypeVar("R")
_S = ClassicGroupState


class ClientContext(NamedTuple):
    """Who sends a request, as far as a group remembers it."""

    client_id: str
    client_host: str
    api_version: int


@dataclass(slots=True)
class _InitialDelay:
    """The running initial rebalance delay of an empty group (KIP-134)."""

    delay_ms: int
    remaining_ms: int


@dataclass(slots=True)
class _Effects:
    """What one step has caused so far."""

    records: list[CoordinatorRecord] = field(default_factory=list)
    completed: list[tuple[Token, object]] = field(default_factory=list)
    on_stored: Continuation | None = None

    def result(self) -> CoordinatorResult[None]:
        return self.give(None)

    def give(self, response: R) -> CoordinatorResult[R]:
        """The result, with this response. A live group is not made from its record, so nothing is replayed."""
        return CoordinatorResult(response, self.records, self.completed, self.on_stored, replay=False)


class ClassicProtocol:
    """Moves classic groups. Each method takes the time and returns what to append and to answer.

    ``groups`` is shared with the shard that owns it; a group is found in it or created there by a join.
    """

    def __init__(
        self, groups: dict[str, ClassicGroup], settings: Callable[[], GroupSettings], rng: random.Random
    ) -> None:
        self._groups = groups
        self._settings = settings
        self._rng = rng
        self._timers: DeadlineQueue[Timer] = DeadlineQueue()
        self._initial_delays: dict[str, _InitialDelay] = {}

    # -- requests ------------------------------------------------------------------------------

    def join(
        self, request: JoinGroupRequest, client: ClientContext, now_ms: int
    ) -> CoordinatorResult[JoinGroupResponse] | CoordinatorResult[Token]:
        """JoinGroup: the reply comes when the join phase ends, or at once where it is an error."""
        group = self._groups.get(request.group_id)
        is_unknown = request.member_id == UNKNOWN_MEMBER_ID
        if group is None:
            if not is_unknown:
                return CoordinatorResult(_join_error(request.member_id, ErrorCode.UNKNOWN_MEMBER_ID))
            group = self._groups[request.group_id] = ClassicGroup(request.group_id)
            created = True
        else:
            created = False
        token = Token()
        effects = _Effects()
        if not self._accepts(group, request.member_id):
            group.remove(request.member_id)
            error = _join_error(UNKNOWN_MEMBER_ID, ErrorCode.GROUP_MAX_SIZE_REACHED)
            effects.completed.append((token, error))
        elif is_unknown:
            self._join_new(group, request, client, token, effects, now_ms)
        else:
            self._join_existing(group, request, client, token, effects, now_ms)
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
        self._received_sync(group, member)
        if group.state is _S.STABLE:
            return CoordinatorResult(
                SyncGroupResponse(
                    protocol_type=group.protocol_type,
                    protocol_name=group.protocol_name,
                    assignment=member.assignment,
                )
            )
        effects = _Effects()
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
            effects.on_stored = self._when_assignment_stored(group, request.generation_id, assignment)
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
        effects = _Effects()
        responses = []
        for identity in members:
            error = self._leave_one(group, identity, effects)
            responses.append(
                MemberResponse(
                    member_id=identity.member_id,
                    group_instance_id=identity.group_instance_id,
                    error_code=error,
                )
            )
        if any(response.error_code == ErrorCode.NONE for response in responses):
            if group.is_in(_S.STABLE, _S.COMPLETING_REBALANCE):
                self._prepare_rebalance(group, effects, now_ms)
            elif group.state is _S.PREPARING_REBALANCE:
                self._maybe_complete_join(group, effects, now_ms)
        return effects.give(responses)

    def renew_session(self, group: ClassicGroup, member: ClassicMember, now_ms: int) -> None:
        """The member was heard of: its session runs from now."""
        timer = member.session_timer
        if timer is None:
            timer = member.session_timer = Timer("session", group.group_id, member.member_id)
        self._timers.schedule(timer, now_ms + member.session_timeout_ms)

    def forget(self, group: ClassicGroup) -> None:
        """Cancel everything that waits for the group; it is being deleted or unloaded."""
        for member_id in (*group.members, *group.pending_join_members):
            self._timers.cancel(Timer("session", group.group_id, member_id))
        self._timers.cancel(Timer("join", group.group_id))
        self._timers.cancel(Timer("sync", group.group_id))
        self._initial_delays.pop(group.group_id, None)

    def on_loaded(self, group: ClassicGroup, now_ms: int) -> None:
        """Replay has rebuilt the group: its members get a full session to be heard of again."""
        for member in group.members.values():
            self.renew_session(group, member, now_ms)

    def start_rebalance(self, group: ClassicGroup, now_ms: int) -> CoordinatorResult[None]:
        """Ask every member of a stable group to join again."""
        effects = _Effects()
        self._prepare_rebalance(group, effects, now_ms)
        return effects.result()

    def fail_all(self, group: ClassicGroup, error: ErrorCode) -> list[tuple[Token, object]]:
        """Answer everybody who waits with the error: this node is no longer the group's coordinator."""
        effects = _Effects()
        for member in group.members.values():
            self._complete_join(member, _join_error(member.member_id, error), effects)
            self._complete_sync(member, SyncGroupResponse(error_code=error), effects)
        return effects.completed

    # -- time ----------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """When `on_deadline` is next due, in ms; None if never."""
        return self._timers.next_deadline()

    def on_deadline(self, now_ms: int) -> CoordinatorResult[None] | None:
        """Handle one deadline that has come; None when there is none (left)."""
        timer = next(self._timers.pop_due(now_ms), None)
        if timer is None:
            return None
        effects = _Effects()
        group = self._groups.get(timer.group_id)
        if group is None or group.state is _S.DEAD:
            return effects.result()
        if timer.kind == "session":
            self._expire_session(group, timer.member_id, effects, now_ms)
        elif timer.kind == "join":
            self._on_join_deadline(group, effects, now_ms)
        else:
            self._expire_pending_sync(group, effects, now_ms)
        return effects.result()

    # -- joining -------------------------------------------------------------------------------

    def _accepts(self, group: ClassicGroup, member_id: str) -> bool:
        """Whether ``group.max.size`` has room for the one who joins."""
        limit = self._settings().group_max_size
        if group.is_in(_S.EMPTY, _S.DEAD):
            return True
        member = group.members.get(member_id)
        if group.state is _S.PREPARING_REBALANCE:
            # Those who have not come back yet do not count: the first to arrive keep their places.
            return (member is not None and member.awaiting_join is not None) or (
                group.awaiting_join_count < limit
            )
        return member is not None or len(group.members) < limit

    def _join_new(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        client: ClientContext,
        token: Token,
        effects: _Effects,
        now_ms: int,
    ) -> None:
        if group.state is _S.DEAD:
            error = _join_error(UNKNOWN_MEMBER_ID, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            effects.completed.append((token, error))
            return
        if not group.supports_protocols(request.protocol_type, _protocol_names(request)):
            error = _join_error(UNKNOWN_MEMBER_ID, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            effects.completed.append((token, error))
            return
        instance_id = request.group_instance_id
        prefix = client.client_id if instance_id is None else instance_id
        member_id = f"{prefix}-{uuid.UUID(int=self._rng.getrandbits(128), version=4)}"
        if instance_id is not None:
            old_member_id = group.static_members.get(instance_id)
            if old_member_id is not None:
                self._replace_static(group, request, client, old_member_id, member_id, token, effects, now_ms)
            else:
                self._add_and_rebalance(group, request, client, member_id, token, effects, now_ms)
        elif client.api_version >= 4:
            # KIP-394: a member must come back with the id, so that lost replies leave no ghosts.
            group.pending_join_members.add(member_id)
            self._timers.schedule(
                Timer("session", group.group_id, member_id), now_ms + request.session_timeout_ms
            )
            effects.completed.append((token, _join_error(member_id, ErrorCode.MEMBER_ID_REQUIRED)))
        else:
            self._add_and_rebalance(group, request, client, member_id, token, effects, now_ms)

    def _join_existing(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        client: ClientContext,
        token: Token,
        effects: _Effects,
        now_ms: int,
    ) -> None:
        member_id = request.member_id
        try:
            if group.state is _S.DEAD:
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            if not group.supports_protocols(request.protocol_type, _protocol_names(request)):
                raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            if member_id in group.pending_join_members:
                if request.group_instance_id is not None:
                    # A pending id is never given to a static member.
                    raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
                self._add_and_rebalance(group, request, client, member_id, token, effects, now_ms)
                return
            member = group.validate_member(member_id, request.group_instance_id)
            if group.state is _S.EMPTY:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        except ApiError as error:
            effects.completed.append((token, _join_error(member_id, error.code)))
            return
        same_metadata = member.protocols == _protocols(request)
        if group.state is _S.COMPLETING_REBALANCE and same_metadata:
            # It did not get the reply of this generation's join.
            effects.completed.append((token, _join_reply(group, member_id)))
        elif group.state is _S.STABLE and same_metadata and group.leader_id != member_id:
            effects.completed.append((token, _join_reply(group, member_id)))
        else:
            # The leader joins again to have the assignment made anew; others, when their metadata changed.
            self._update_member(member, request, token, effects)
            self._rebalance_or_complete_join(group, effects, now_ms)

    def _add_and_rebalance(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        client: ClientContext,
        member_id: str,
        token: Token,
        effects: _Effects,
        now_ms: int,
    ) -> None:
        member = ClassicMember(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=client.client_id,
            client_host=client.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=_protocols(request),
            awaiting_join=token,
            is_new=True,
        )
        if group.state is _S.PREPARING_REBALANCE and group.previous_state is _S.EMPTY:
            group.new_member_added = True
        group.add(member)
        self._timers.schedule(
            Timer("session", group.group_id, member_id),
            now_ms + self._settings().new_member_join_timeout_ms,
        )
        self._rebalance_or_complete_join(group, effects, now_ms)

    def _update_member(
        self, member: ClassicMember, request: JoinGroupRequest, token: Token, effects: _Effects
    ) -> None:
        if member.awaiting_join is not None:
            # A second join of the same member: nobody reads the first one's reply any more.
            error = _join_error(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS)
            effects.completed.append((member.awaiting_join, error))
        member.protocols = _protocols(request)
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.awaiting_join = token

    def _replace_static(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        client: ClientContext,
        old_member_id: str,
        new_member_id: str,
        token: Token,
        effects: _Effects,
        now_ms: int,
    ) -> None:
        """A static member came back without its id (restarted): it takes its old place (KIP-345)."""
        old_leader_id = group.leader_id
        old = group.members[old_member_id]
        fenced = ErrorCode.FENCED_INSTANCE_ID
        self._complete_join(old, _join_error(old_member_id, fenced), effects)
        self._complete_sync(old, SyncGroupResponse(error_code=fenced), effects)
        member = self._rename_static(group, old_member_id, new_member_id)
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        self._update_member(member, request, token, effects)
        self.renew_session(group, member, now_ms)
        if group.state is _S.STABLE:
            if group.protocol_name != group.select_protocol():
                self._rebalance_or_complete_join(group, effects, now_ms)
                return
            # Same assignor: nobody else has to notice. The record makes the new id survive a restart.
            assignment = {each.member_id: each.assignment for each in group.members.values()}
            effects.records.append(group_metadata_record(group, assignment, now_ms))

            def stored(error: ErrorCode | None, later_ms: int) -> CoordinatorResult[None]:
                after = _Effects()
                reply = _join_reply(group, new_member_id)
                if error is not None:
                    member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms = before
                    self.renew_session(
                        group, self._rename_static(group, new_member_id, old_member_id), later_ms
                    )
                    reply = _join_error(UNKNOWN_MEMBER_ID, append_error_for_client(error))
                elif client.api_version >= 9:
                    reply.skip_assignment = group.leader_id == new_member_id
                else:
                    # Before KIP-814 a leader that is told so would assign anew; it is shown the old leader's id.
                    reply.leader = old_leader_id or ""
                    reply.members = []
                self._complete_join(member, reply, after)
                return after.result()

            effects.on_stored = stored
        elif group.state is _S.COMPLETING_REBALANCE:
            self._prepare_rebalance(group, effects, now_ms)
        else:
            self._maybe_complete_join(group, effects, now_ms)

    def _rename_static(self, group: ClassicGroup, old_member_id: str, new_member_id: str) -> ClassicMember:
        member = group.members.pop(old_member_id)
        member.member_id = new_member_id
        group.members[new_member_id] = member
        assert member.group_instance_id is not None
        group.static_members[member.group_instance_id] = new_member_id
        if group.leader_id == old_member_id:
            group.leader_id = new_member_id
        group.pending_sync_members.discard(old_member_id)
        self._timers.cancel(Timer("session", group.group_id, old_member_id))
        member.session_timer = None
        return member

    # -- the join phase ------------------------------------------------------------------------

    def _rebalance_or_complete_join(self, group: ClassicGroup, effects: _Effects, now_ms: int) -> None:
        if group.can_rebalance:
            self._prepare_rebalance(group, effects, now_ms)
        else:
            self._maybe_complete_join(group, effects, now_ms)

    def _prepare_rebalance(self, group: ClassicGroup, effects: _Effects, now_ms: int) -> None:
        """Begin a join phase: whoever waits for an assignment is told, and all are awaited."""
        if group.state is _S.COMPLETING_REBALANCE:
            self._reset_assignment(group, ErrorCode.REBALANCE_IN_PROGRESS, effects, now_ms)
        group.pending_sync_members.clear()
        self._timers.cancel(Timer("sync", group.group_id))
        was_empty = group.state is _S.EMPTY
        group.transition_to(_S.PREPARING_REBALANCE, now_ms)
        if was_empty:
            delay = self._settings().group_initial_rebalance_delay_ms
            self._initial_delays[group.group_id] = _InitialDelay(
                delay, max(group.rebalance_timeout_ms - delay, 0)
            )
            self._timers.schedule(Timer("join", group.group_id), now_ms + delay)
        elif group.has_all_members_joined:
            self._finish_join(group, effects, now_ms)
        else:
            self._timers.schedule(Timer("join", group.group_id), now_ms + group.rebalance_timeout_ms)

    def _maybe_complete_join(self, group: ClassicGroup, effects: _Effects, now_ms: int) -> bool:
        """End the join phase if everybody is there; the initial delay always runs its time."""
        if (
            group.state is not _S.PREPARING_REBALANCE
            or group.previous_state is _S.EMPTY
            or not group.has_all_members_joined
        ):
            return False
        self._finish_join(group, effects, now_ms)
        return True

    def _on_join_deadline(self, group: ClassicGroup, effects: _Effects, now_ms: int) -> None:
        if group.state is not _S.PREPARING_REBALANCE:
            return
        delay = self._initial_delays.get(group.group_id)
        if delay is not None and group.new_member_added and delay.remaining_ms:
            group.new_member_added = False
            step = min(self._settings().group_initial_rebalance_delay_ms, delay.remaining_ms)
            self._initial_delays[group.group_id] = _InitialDelay(
                step, max(delay.remaining_ms - delay.delay_ms, 0)
            )
            self._timers.schedule(Timer("join", group.group_id), now_ms + step)
        else:
            self._finish_join(group, effects, now_ms)

    def _finish_join(self, group: ClassicGroup, effects: _Effects, now_ms: int) -> None:
        """End the join phase: who did not come is out, the others form the next generation."""
        self._timers.cancel(Timer("join", group.group_id))
        self._initial_delays.pop(group.group_id, None)
        group.new_member_added = False
        for member in list(group.members.values()):
            if member.awaiting_join is None and not member.is_static:
                group.remove(member.member_id)
                self._timers.cancel(Timer("session", group.group_id, member.member_id))
        if not group.maybe_elect_joined_leader() and group.members:
            # Only static members are left and none came back yet; their sessions decide.
            self._timers.schedule(Timer("join", group.group_id), now_ms + group.rebalance_timeout_ms)
            return
        group.init_next_generation(now_ms)
        if group.state is _S.EMPTY:
            effects.records.append(group_metadata_record(group, {}, now_ms))
            return
        for member in group.members.values():
            self._complete_join(member, _join_reply(group, member.member_id), effects)
            self.renew_session(group, member, now_ms)
            member.is_new = False
            group.pending_sync_members.add(member.member_id)
        self._timers.schedule(Timer("sync", group.group_id), now_ms + group.rebalance_timeout_ms)

    # -- the sync phase ------------------------------------------------------------------------

    def _validate_sync(self, request: SyncGroupRequest) -> tuple[ClassicGroup, ClassicMember]:
        group = self._groups.get(request.group_id)
        if group is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        if group.state is _S.DEAD:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        member = group.validate_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation_id:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        for given, held in (
            (request.protocol_type, group.protocol_type),
            (request.protocol_name, group.protocol_name),
        ):
            if given is not None and held is not None and given != held:
                raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is _S.EMPTY:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group, member

    def _received_sync(self, group: ClassicGroup, member: ClassicMember) -> None:
        group.pending_sync_members.discard(member.member_id)
        if not group.pending_sync_members:
            self._timers.cancel(Timer("sync", group.group_id))

    def _when_assignment_stored(
        self, group: ClassicGroup, generation_id: int, assignment: dict[str, bytes]
    ) -> Continuation:
        def stored(error: ErrorCode | None, now_ms: int) -> CoordinatorResult[None]:
            effects = _Effects()
            if group.state is not _S.COMPLETING_REBALANCE or group.generation_id != generation_id:
                return effects.result()  # Another rebalance began meanwhile and told everybody.
            if error is not None:
                self._reset_assignment(group, append_error_for_client(error), effects, now_ms)
                self._prepare_rebalance(group, effects, now_ms)
                return effects.result()
            for member in group.members.values():
                member.assignment = assignment.get(member.member_id, b"")
                self._answer_sync(group, member, ErrorCode.NONE, effects, now_ms)
            group.transition_to(_S.STABLE, now_ms)
            return effects.result()

        return stored

    def _reset_assignment(
        self, group: ClassicGroup, error: ErrorCode, effects: _Effects, now_ms: int
    ) -> None:
        for member in group.members.values():
            member.assignment = b""
            self._answer_sync(group, member, error, effects, now_ms)

    def _answer_sync(
        self, group: ClassicGroup, member: ClassicMember, error: ErrorCode, effects: _Effects, now_ms: int
    ) -> None:
        if member.awaiting_sync is None:
            return
        good = error is ErrorCode.NONE
        reply = SyncGroupResponse(
            error_code=error,
            protocol_type=group.protocol_type if good else None,
            protocol_name=group.protocol_name if good else None,
            assignment=member.assignment,
        )
        self._complete_sync(member, reply, effects)
        self.renew_session(group, member, now_ms)

    def _expire_pending_sync(self, group: ClassicGroup, effects: _Effects, now_ms: int) -> None:
        """Members that joined but never asked for their assignment within the rebalance timeout are out."""
        if not group.is_in(_S.COMPLETING_REBALANCE, _S.STABLE) or not group.pending_sync_members:
            return
        for member_id in sorted(group.pending_sync_members):
            group.remove(member_id)
            self._timers.cancel(Timer("session", group.group_id, member_id))
        self._prepare_rebalance(group, effects, now_ms)

    # -- leaving -------------------------------------------------------------------------------

    def _leave_one(self, group: ClassicGroup, identity: MemberIdentity, effects: _Effects) -> ErrorCode:
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
        self._remove(group, member_id, effects)
        return ErrorCode.NONE

    def _remove(self, group: ClassicGroup, member_id: str, effects: _Effects) -> None:
        self._timers.cancel(Timer("session", group.group_id, member_id))
        member = group.members.get(member_id)
        if member is not None:
            error = ErrorCode.UNKNOWN_MEMBER_ID
            self._complete_join(member, _join_error(UNKNOWN_MEMBER_ID, error), effects)
            self._complete_sync(member, SyncGroupResponse(error_code=error), effects)
        group.remove(member_id)

    def _expire_session(self, group: ClassicGroup, member_id: str, effects: _Effects, now_ms: int) -> None:
        member = group.members.get(member_id)
        if member is None:
            if member_id not in group.pending_join_members:
                return
        elif not member.is_new and (member.awaiting_join is not None or member.awaiting_sync is not None):
            return  # It waits for our reply, so it is not expected to send heartbeats.
        self._remove(group, member_id, effects)
        if member is not None and group.is_in(_S.STABLE, _S.COMPLETING_REBALANCE):
            self._prepare_rebalance(group, effects, now_ms)
        elif group.state is _S.PREPARING_REBALANCE and group.has_all_members_joined:
            self._finish_join(group, effects, now_ms)

    # -- replies -------------------------------------------------------------------------------

    @staticmethod
    def _complete_join(member: ClassicMember, reply: JoinGroupResponse, effects: _Effects) -> None:
        if member.awaiting_join is not None:
            effects.completed.append((member.awaiting_join, reply))
            member.awaiting_join = None

    @staticmethod
    def _complete_sync(member: ClassicMember, reply: SyncGroupResponse, effects: _Effects) -> None:
        if member.awaiting_sync is not None:
            effects.completed.append((member.awaiting_sync, reply))
            member.awaiting_sync = None


def _protocols(request: JoinGroupRequest) -> list[tuple[str, bytes]]:
    return [(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols]


def _protocol_names(request: JoinGroupRequest) -> set[str]:
    return {protocol.name for protocol in request.protocols}


def _join_error(member_id: str, error: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error, member_id=member_id, protocol_name=None)


def _join_reply(group: ClassicGroup, member_id: str) -> JoinGroupResponse:
    """A member's view of the current generation; the leader also gets everybody's metadata."""
    members = []
    if group.leader_id == member_id:
        members = [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata(group.protocol_name or ""),
            )
            for member in group.members.values()
        ]
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member_id,
        members=members,
    )
