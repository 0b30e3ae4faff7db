"""The state machine of a streams group's member: its way from the tasks it has to its target assignment (KIP-1071).

`TRANSITIONS` says what each heartbeat does with the member; the states of the whole group follow from those of its
members and are in `group`. States (Kafka's ``MemberState``; they are stored with the member):

    STABLE            has the target assignment of its epoch
    UNREVOKED_TASKS   must give up tasks, and say so, before anything else
    UNRELEASED_TASKS  is in the target's epoch, and waits for tasks that others have not given up yet
    UNKNOWN           written by a newer version

Rule 1. A member moves by its own heartbeats alone. The member stays in a state until the heartbeat shows what the state
    waits for: a target of another epoch, or that the tasks to be given up are not among those the member names. A
    heartbeat that names no tasks shows nothing. (``CurrentAssignmentBuilder.build``, ``hasNotReleased``.)

Rule 2. To advance is to give up first: with tasks to give up the member is UNREVOKED_TASKS, gets nothing, and stays
    behind the target's epoch. After that the member takes what is free, in the target's epoch: UNRELEASED_TASKS if
    something is not, STABLE otherwise. (``computeNextAssignment``.)

Rule 3. A member that has given up goes on from the next epoch, and may have to give up more, for a newer target; one
    that is UNRELEASED_TASKS is judged with every heartbeat, by the newest target.

Rule 4. An active task is free when no member has it or is still to give it up, and no other thread of the same process
    follows it. A process has a task in one role, as its threads share the state on disk: a standby or warm-up task is
    free when no other thread of the process has the task. (``isUnreleasedActiveTask`` and its like; `StreamsGroup`
    knows the holders.)

Rule 5. A change of role within one member is no revocation: the member keeps the old role until the new one is free.
    (``keepPromotedTasksUntilGranted``, ``convertReplicaRole``, ``demoteActiveTasksToStandby``.)

Rule 6. A member that gives up too late, or is silent, is fenced: its tasks are free then (`streams_protocol`, the
    timers "rebalance" and "session"). A member in a state that nobody here knows must come back without tasks.

What always holds, and where it is proved (`Threads` is the machine in `tests/groups/streams/test_reconciliation.py`,
whose members follow their orders late or never, leave, die and come back):

    an active task is with one member, also while it moves     Threads.active_tasks_have_one_owner
    a process has a task in one role                           Threads.a_process_has_a_task_in_one_role
    members that follow their orders all become STABLE, and    Threads.settle
        every task is active
    tasks move only when given up; late members are fenced     tests/groups/streams/test_protocol.py
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from kbroker.cores.groups.modern_group import moved
from kbroker.cores.groups.streams.group import MemberState, StreamsGroup, StreamsGroupMember
from kbroker.cores.groups.streams.tasks import NOTHING_HELD, HeldTasks, TaskId, Tasks
from kbroker.errors import ApiError, ErrorCode
from kbroker.value_types import dataclass, field


class Heartbeat(Enum):
    """The news of a heartbeat, as far as the member's state asks for it."""

    IS_AT_TARGET = "The member is in the target's epoch."
    IS_BEHIND = "The target has another epoch."
    OWNS = "The member names tasks that must be given up, or names no tasks at all."
    GAVE_UP = "The member names no tasks that must be given up."


class Step(Enum):
    """The consequence for the member."""

    STAY = "The member stays as it is."
    ADVANCE = "The member advances in its epoch."
    ADVANCE_ONE_EPOCH = "The member advances from the next epoch."
    START_OVER = "The member advances from the target's epoch."
    FENCE = "The member must come back without tasks."


TRANSITIONS: Mapping[tuple[MemberState, Heartbeat], Step] = {
    (MemberState.STABLE, Heartbeat.IS_AT_TARGET): Step.STAY,
    (MemberState.STABLE, Heartbeat.IS_BEHIND): Step.ADVANCE,
    (MemberState.UNREVOKED_TASKS, Heartbeat.OWNS): Step.STAY,
    (MemberState.UNREVOKED_TASKS, Heartbeat.GAVE_UP): Step.ADVANCE_ONE_EPOCH,
    (MemberState.UNRELEASED_TASKS, Heartbeat.IS_AT_TARGET): Step.ADVANCE,
    (MemberState.UNRELEASED_TASKS, Heartbeat.IS_BEHIND): Step.ADVANCE,
    (MemberState.UNKNOWN, Heartbeat.OWNS): Step.FENCE,
    (MemberState.UNKNOWN, Heartbeat.GAVE_UP): Step.START_OVER,
}
"""The state and the heartbeat, and what follows. An advance ends in a state by rule 2."""


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
        epoch = self.member.member_epoch
        match TRANSITIONS[self.member.state, self._heartbeat()]:
            case Step.STAY:
                return self.member
            case Step.ADVANCE:
                return self._advance(epoch)
            case Step.ADVANCE_ONE_EPOCH:
                return self._advance(epoch + 1)
            case Step.START_OVER:
                return self._advance(self.target_epoch)
            case Step.FENCE:
                raise ApiError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin.",
                )

    def _heartbeat(self) -> Heartbeat:
        member = self.member
        match member.state:
            case MemberState.UNREVOKED_TASKS:
                owns = self._still_has(member.pending_revocation)
            case MemberState.UNKNOWN:
                owns = self.owned is None or not self.owned.is_empty
            case _:
                return Heartbeat.IS_AT_TARGET if member.member_epoch == self.target_epoch else Heartbeat.IS_BEHIND
        return Heartbeat.OWNS if owns else Heartbeat.GAVE_UP

    def _still_has(self, tasks: HeldTasks) -> bool:
        """Whether the member has any of them, as far as is known: it says so, or says nothing.

        A member that has not followed an earlier change of role names a task in the role of before. That counts as
        well, or another thread of the process would get the task (Kafka's ``ownsRevokedTasks`` looks at the new role
        alone).
        """
        owned, has = self.owned, self.member.assigned
        if owned is None or tasks.shares_any_with(owned):
            return True
        in_old_roles = (owned.active - has.active.keys()) | (owned.standby - has.standby) | (owned.warmup - has.warmup)
        return not in_old_roles.isdisjoint(tasks.active.keys() | tasks.standby | tasks.warmup)

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
            return moved(self.member, MemberState.UNREVOKED_TASKS, member_epoch, kept, revoked)
        epochs.update(dict.fromkeys(active.granted, self.target_epoch))
        waits = active.waits or standby.waits or warmup.waits
        return moved(
            self.member,
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
