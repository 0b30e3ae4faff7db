"""A rebalance of a classic group: the phase in which all join, the phase in which all get their assignment.

Rules: Kafka's ``GroupMetadataManager`` (its classic half, 4.3), KIP-62, KIP-134 (initial delay).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from kbroker.cores.coordinator.deadlines import DeadlineQueue
from kbroker.cores.coordinator.result import (
    Continuation,
    CoordinatorRecord,
    CoordinatorResult,
    Token,
    append_error_for_client,
)
from kbroker.cores.groups.classic_group import UNKNOWN_MEMBER_ID, ClassicGroup, ClassicGroupState, ClassicMember, Timer
from kbroker.cores.groups.records import group_metadata_record
from kbroker.cores.groups.settings import GroupSettings
from kbroker.errors import ErrorCode
from kbroker.value_types import dataclass, field
from kbroker.wire.messages.classic_groups import JoinGroupResponse, JoinGroupResponseMember, SyncGroupResponse

R = TypeVar("R")
_S = ClassicGroupState


@dataclass(slots=True)
class _InitialDelay:
    """The running initial rebalance delay of an empty group (KIP-134)."""

    delay_ms: int
    remaining_ms: int


@dataclass(slots=True)
class Effects:
    """The effects of one step so far: records, replies, and the rest of the step when the records are stored."""

    records: list[CoordinatorRecord] = field(default_factory=list)
    completed: list[tuple[Token, object]] = field(default_factory=list)
    on_stored: Continuation | None = None

    def result(self) -> CoordinatorResult[None]:
        """The result of a step that answers nobody by itself."""
        return self.give(None)

    def give(self, response: R) -> CoordinatorResult[R]:
        """The result, with this response. A live group is not made from its record, so nothing is replayed."""
        return CoordinatorResult(response, self.records, self.completed, self.on_stored, replay=False)


class ClassicRebalance:
    """Takes groups from phase to phase, and keeps their deadlines. A step adds to its ``effects``."""

    def __init__(self, settings: Callable[[], GroupSettings], rebalances: Counter[str]) -> None:
        """``rebalances`` counts those that are completed, as ``classic``."""
        self._settings = settings
        self._rebalances = rebalances
        self.timers: DeadlineQueue[Timer] = DeadlineQueue()
        self._initial_delays: dict[str, _InitialDelay] = {}

    # -- deadlines -----------------------------------------------------------------------------

    def renew_session(self, group: ClassicGroup, member: ClassicMember, now_ms: int) -> None:
        """The member was heard of: its session runs from now."""
        timer = member.session_timer
        if timer is None:
            timer = member.session_timer = Timer("session", group.group_id, member.member_id)
        self.timers.schedule(timer, now_ms + member.session_timeout_ms)

    def forget(self, group: ClassicGroup) -> None:
        """Cancel everything that waits for the group; it is being deleted or unloaded."""
        for member_id in (*group.members, *group.pending_join_members):
            self.timers.cancel(Timer("session", group.group_id, member_id))
        self.timers.cancel(Timer("join", group.group_id))
        self.timers.cancel(Timer("sync", group.group_id))
        self._initial_delays.pop(group.group_id, None)

    # -- the join phase ------------------------------------------------------------------------

    def rebalance_or_complete_join(self, group: ClassicGroup, effects: Effects, now_ms: int) -> None:
        """Begin a join phase; if one runs, see whether it can end."""
        if group.can_rebalance:
            self.prepare_rebalance(group, effects, now_ms)
        else:
            self.maybe_complete_join(group, effects, now_ms)

    def prepare_rebalance(self, group: ClassicGroup, effects: Effects, now_ms: int) -> None:
        """Begin a join phase: members that wait for an assignment get an error, and all have to join again."""
        if group.state is _S.COMPLETING_REBALANCE:
            self._reset_assignment(group, ErrorCode.REBALANCE_IN_PROGRESS, effects, now_ms)
        group.pending_sync_members.clear()
        self.timers.cancel(Timer("sync", group.group_id))
        was_empty = group.state is _S.EMPTY
        group.transition_to(_S.PREPARING_REBALANCE, now_ms)
        if was_empty:
            delay = self._settings().group_initial_rebalance_delay_ms
            self._initial_delays[group.group_id] = _InitialDelay(delay, max(group.rebalance_timeout_ms - delay, 0))
            self.timers.schedule(Timer("join", group.group_id), now_ms + delay)
        elif group.has_all_members_joined:
            self.finish_join(group, effects, now_ms)
        else:
            self.timers.schedule(Timer("join", group.group_id), now_ms + group.rebalance_timeout_ms)

    def maybe_complete_join(self, group: ClassicGroup, effects: Effects, now_ms: int) -> bool:
        """End the join phase if everybody is there; the initial delay always runs its time."""
        if (
            group.state is not _S.PREPARING_REBALANCE
            or group.previous_state is _S.EMPTY
            or not group.has_all_members_joined
        ):
            return False
        self.finish_join(group, effects, now_ms)
        return True

    def on_join_deadline(self, group: ClassicGroup, effects: Effects, now_ms: int) -> None:
        """The time to join is over, or a step of the initial delay (KIP-134), which new members prolong."""
        if group.state is not _S.PREPARING_REBALANCE:
            return
        delay = self._initial_delays.get(group.group_id)
        if delay is not None and group.new_member_added and delay.remaining_ms:
            group.new_member_added = False
            step = min(self._settings().group_initial_rebalance_delay_ms, delay.remaining_ms)
            self._initial_delays[group.group_id] = _InitialDelay(step, max(delay.remaining_ms - delay.delay_ms, 0))
            self.timers.schedule(Timer("join", group.group_id), now_ms + step)
        else:
            self.finish_join(group, effects, now_ms)

    def finish_join(self, group: ClassicGroup, effects: Effects, now_ms: int) -> None:
        """End the join phase: members that did not join are removed, the others form the next generation."""
        self.timers.cancel(Timer("join", group.group_id))
        self._initial_delays.pop(group.group_id, None)
        group.new_member_added = False
        for member in list(group.members.values()):
            if member.awaiting_join is None and not member.is_static:
                group.remove(member.member_id)
                self.timers.cancel(Timer("session", group.group_id, member.member_id))
        if not group.maybe_elect_joined_leader() and group.members:
            # Only static members are left and none came back yet; their sessions decide.
            self.timers.schedule(Timer("join", group.group_id), now_ms + group.rebalance_timeout_ms)
            return
        group.init_next_generation(now_ms)
        if group.state is _S.EMPTY:
            effects.records.append(group_metadata_record(group, {}, now_ms))
            return
        for member in group.members.values():
            complete_join(member, join_reply(group, member.member_id), effects)
            self.renew_session(group, member, now_ms)
            member.is_new = False
            group.pending_sync_members.add(member.member_id)
        self.timers.schedule(Timer("sync", group.group_id), now_ms + group.rebalance_timeout_ms)

    # -- the sync phase ------------------------------------------------------------------------

    def received_sync(self, group: ClassicGroup, member: ClassicMember) -> None:
        """The member has asked for its assignment."""
        group.pending_sync_members.discard(member.member_id)
        if not group.pending_sync_members:
            self.timers.cancel(Timer("sync", group.group_id))

    def when_assignment_stored(
        self, group: ClassicGroup, generation_id: int, assignment: dict[str, bytes]
    ) -> Continuation:
        """The rest of a step that stores the leader's assignment: send it to the members, or the error."""

        def stored(error: ErrorCode | None, now_ms: int) -> CoordinatorResult[None]:
            effects = Effects()
            if group.state is not _S.COMPLETING_REBALANCE or group.generation_id != generation_id:
                return effects.result()  # Another rebalance began meanwhile and answered every member.
            if error is not None:
                self._reset_assignment(group, append_error_for_client(error), effects, now_ms)
                self.prepare_rebalance(group, effects, now_ms)
                return effects.result()
            for member in group.members.values():
                member.assignment = assignment.get(member.member_id, b"")
                self._answer_sync(group, member, ErrorCode.NONE, effects, now_ms)
            group.transition_to(_S.STABLE, now_ms)
            self._rebalances["classic"] += 1
            return effects.result()

        return stored

    def _reset_assignment(self, group: ClassicGroup, error: ErrorCode, effects: Effects, now_ms: int) -> None:
        for member in group.members.values():
            member.assignment = b""
            self._answer_sync(group, member, error, effects, now_ms)

    def _answer_sync(
        self, group: ClassicGroup, member: ClassicMember, error: ErrorCode, effects: Effects, now_ms: int
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
        complete_sync(member, reply, effects)
        self.renew_session(group, member, now_ms)

    def expire_pending_sync(self, group: ClassicGroup, effects: Effects, now_ms: int) -> None:
        """Members that joined but never asked for their assignment within the rebalance timeout are out."""
        if not group.is_in(_S.COMPLETING_REBALANCE, _S.STABLE) or not group.pending_sync_members:
            return
        for member_id in sorted(group.pending_sync_members):
            group.remove(member_id)
            self.timers.cancel(Timer("session", group.group_id, member_id))
        self.prepare_rebalance(group, effects, now_ms)

    # -- members -------------------------------------------------------------------------------

    def remove(self, group: ClassicGroup, member_id: str, effects: Effects) -> None:
        """Remove a member; its requests that wait get UNKNOWN_MEMBER_ID."""
        self.timers.cancel(Timer("session", group.group_id, member_id))
        member = group.members.get(member_id)
        if member is not None:
            error = ErrorCode.UNKNOWN_MEMBER_ID
            complete_join(member, join_error(UNKNOWN_MEMBER_ID, error), effects)
            complete_sync(member, SyncGroupResponse(error_code=error), effects)
        group.remove(member_id)


def complete_join(member: ClassicMember, reply: JoinGroupResponse, effects: Effects) -> None:
    """Answer the member's JoinGroup, if it waits for one."""
    if member.awaiting_join is not None:
        effects.completed.append((member.awaiting_join, reply))
        member.awaiting_join = None


def complete_sync(member: ClassicMember, reply: SyncGroupResponse, effects: Effects) -> None:
    """Answer the member's SyncGroup, if it waits for one."""
    if member.awaiting_sync is not None:
        effects.completed.append((member.awaiting_sync, reply))
        member.awaiting_sync = None


def join_error(member_id: str, error: ErrorCode) -> JoinGroupResponse:
    """A JoinGroup response that says no more than the error."""
    return JoinGroupResponse(error_code=error, member_id=member_id, protocol_name=None)


def join_reply(group: ClassicGroup, member_id: str) -> JoinGroupResponse:
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
