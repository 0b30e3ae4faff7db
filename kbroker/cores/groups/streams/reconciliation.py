"""Reconciliation of KIP-1071: the way of a member from its present tasks to its target assignment.

An active task moves only after its owner has said that it gave it up. A process holds a task in one role only: its
threads share the task's state on disk. A change of role within one member (standby to active, and so on) needs no
revocation: the member keeps what it has until the new role is free.
Rules: Kafka's ``CurrentAssignmentBuilder`` (4.4).
"""

from __future__ import annotations

from collections.abc import Callable

from kbroker.cores.groups.streams.group import MemberState, StreamsGroup, StreamsGroupMember
from kbroker.cores.groups.streams.tasks import NOTHING_HELD, HeldTasks, TaskId, Tasks
from kbroker.errors import ApiError, ErrorCode
from kbroker.value_types import dataclass, field, replace


@dataclass(slots=True)
class _Difference:
    """The tasks of one role: kept, to be given up, and to be had now."""

    kept: set[TaskId] = field(default_factory=set)
    revoked: set[TaskId] = field(default_factory=set)
    granted: set[TaskId] = field(default_factory=set)
    waits: bool = False
    """Whether a task of the target is somebody else's still."""

    @classmethod
    def of(cls, has: set[TaskId], target: set[TaskId], is_unreleased: Callable[[TaskId], bool]) -> _Difference:
        kept = has & target
        wanted = target - kept
        granted = {task for task in wanted if not is_unreleased(task)}
        return cls(kept, has - kept, granted, len(granted) < len(wanted))

    def keep_instead_of_granting(self, task: TaskId) -> bool:
        """Let the member have a granted task at once; whether there was one."""
        if task not in self.granted:
            return False
        self.granted.discard(task)
        self.kept.add(task)
        return True


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """One member's step towards a target. ``owned`` are the tasks that its heartbeat names; None if it names none."""

    group: StreamsGroup
    member: StreamsGroupMember
    target_epoch: int
    target: Tasks
    owned: Tasks | None

    def next(self) -> StreamsGroupMember:
        """The member after the step; the same object where it cannot move. `ApiError` FENCED_MEMBER_EPOCH."""
        member = self.member
        match member.state:
            case MemberState.STABLE:
                return member if member.member_epoch == self.target_epoch else self._advance(member.member_epoch)
            case MemberState.UNREVOKED_TASKS:
                if self._still_has(member.pending_revocation):
                    return member
                return self._advance(member.member_epoch + 1)
            case MemberState.UNRELEASED_TASKS:
                return self._advance(member.member_epoch)
            case MemberState.UNKNOWN:
                # Only a member without tasks can start over from a state that nobody here knows.
                if self.owned is None or not self.owned.is_empty:
                    raise ApiError(
                        ErrorCode.FENCED_MEMBER_EPOCH,
                        "The streams group member is in a unknown state. The member must abandon all its tasks and "
                        "rejoin.",
                    )
                return self._advance(self.target_epoch)

    def _still_has(self, tasks: HeldTasks) -> bool:
        """Whether the member has any of them, as far as is known: it says so, or says nothing."""
        return self.owned is None or tasks.shares_any_with(self.owned)

    def _advance(self, member_epoch: int) -> StreamsGroupMember:
        has, target = self.member.assigned, self.target
        active = _Difference.of(set(has.active), set(target.active), self._is_unreleased_active)
        standby = _Difference.of(set(has.standby), set(target.standby), self._is_unreleased_standby)
        warmup = _Difference.of(set(has.warmup), set(target.warmup), self._is_unreleased_warmup)
        for task in has.active:
            standby.keep_instead_of_granting(task)
        for task in has.standby:
            if warmup.keep_instead_of_granting(task):
                standby.revoked.discard(task)
        for task in has.warmup:
            if standby.keep_instead_of_granting(task):
                warmup.revoked.discard(task)
        # What becomes active here is not given up first.
        standby.revoked -= target.active
        warmup.revoked -= target.active
        revoked = HeldTasks(
            {task: has.active[task] for task in active.revoked}, frozenset(standby.revoked), frozenset(warmup.revoked)
        )
        must_revoke = not revoked.is_empty and self._still_has(revoked)
        promoted = set() if must_revoke else active.granted
        standby.kept |= (has.standby & target.active) - promoted
        warmup.kept |= (has.warmup & target.active) - promoted
        epochs = {task: has.active[task] for task in active.kept}
        if must_revoke:
            kept = HeldTasks(epochs, frozenset(standby.kept), frozenset(warmup.kept))
            return self._moved(MemberState.UNREVOKED_TASKS, member_epoch, kept, revoked)
        epochs.update(dict.fromkeys(active.granted, self.target_epoch))
        waits = active.waits or standby.waits or warmup.waits
        return self._moved(
            MemberState.UNRELEASED_TASKS if waits else MemberState.STABLE,
            self.target_epoch,
            HeldTasks(epochs, frozenset(standby.kept | standby.granted), frozenset(warmup.kept | warmup.granted)),
            NOTHING_HELD,
        )

    # -- who else has a task -------------------------------------------------------------------

    def _is_unreleased_active(self, task: TaskId) -> bool:
        return self.group.has_active(task) or self._follows_beside_member(task, standby=True, warmup=True)

    def _is_unreleased_standby(self, task: TaskId) -> bool:
        process_id = self.member.process_id
        runs_beside = process_id in self.group.active_processes(task) and task not in self.member.assigned.active
        return (
            runs_beside
            or process_id in self.group.standby_processes(task)
            or self._follows_beside_member(task, warmup=True)
        )

    def _is_unreleased_warmup(self, task: TaskId) -> bool:
        process_id = self.member.process_id
        return (
            process_id in self.group.active_processes(task)
            or process_id in self.group.warmup_processes(task)
            or self._follows_beside_member(task, standby=True)
        )

    def _follows_beside_member(self, task: TaskId, *, standby: bool = False, warmup: bool = False) -> bool:
        """Whether another thread of the member's process has the task in one of these roles."""
        process_id, has = self.member.process_id, self.member.assigned
        return (standby and task not in has.standby and process_id in self.group.standby_processes(task)) or (
            warmup and task not in has.warmup and process_id in self.group.warmup_processes(task)
        )

    def _moved(
        self, state: MemberState, epoch: int, assigned: HeldTasks, pending_revocation: HeldTasks
    ) -> StreamsGroupMember:
        member = self.member
        moved = replace(
            member,
            state=state,
            member_epoch=epoch,
            previous_member_epoch=member.member_epoch,
            assigned=assigned,
            pending_revocation=pending_revocation,
        )
        return member if moved == member else moved
