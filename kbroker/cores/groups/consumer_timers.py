"""Deadlines of a consumer group's members. None of them is stored: a load begins every session anew."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from kbroker.cores.coordinator.deadlines import DeadlineQueue
from kbroker.cores.coordinator.result import CoordinatorResult
from kbroker.cores.groups.modern_group import FENCING_BACKOFF_MS
from kbroker.errors import ErrorCode
from kbroker.value_types import NamedTuple

TimerKind = Literal["session", "rebalance", "join", "sync"]
_KINDS: tuple[TimerKind, ...] = ("session", "rebalance", "join", "sync")


class ConsumerTimer(NamedTuple):
    """A member's deadline.

    session: to be heard of again. rebalance: to give up partitions. join, sync: a classic member's, to answer a
    rebalance with JoinGroup, and a join with SyncGroup.
    """

    kind: TimerKind
    group_id: str
    member_id: str


class ConsumerTimers:
    """The timers of members, one of each kind for a member at most; ms of the caller's clock."""

    def __init__(self) -> None:
        self._queue: DeadlineQueue[ConsumerTimer] = DeadlineQueue()
        self._rebalance_epochs: dict[tuple[str, str], int] = {}

    def schedule(self, kind: TimerKind, group_id: str, member_id: str, deadline_ms: int) -> None:
        """Set the deadline, replacing an earlier one."""
        self._queue.schedule(ConsumerTimer(kind, group_id, member_id), deadline_ms)

    def schedule_if_absent(self, kind: TimerKind, group_id: str, member_id: str, deadline_ms: int) -> None:
        """Set the deadline unless there is one."""
        timer = ConsumerTimer(kind, group_id, member_id)
        if timer not in self._queue:
            self._queue.schedule(timer, deadline_ms)

    def schedule_rebalance(self, group_id: str, member_id: str, member_epoch: int, deadline_ms: int) -> None:
        """The member must have left the epoch by then."""
        self._rebalance_epochs[group_id, member_id] = member_epoch
        self.schedule("rebalance", group_id, member_id, deadline_ms)

    def again_unless_stored(
        self, timer: ConsumerTimer, epoch: int | None, result: CoordinatorResult[None]
    ) -> CoordinatorResult[None]:
        """Set a deadline that `pop_due` gave again if what follows from it is not stored, unless there is a newer one.

        The result with that as the first of its rest.
        """
        then = result.on_stored

        def stored(error: ErrorCode | None, later_ms: int) -> CoordinatorResult[None]:
            if error is not None and timer not in self._queue:
                if epoch is not None:
                    self._rebalance_epochs[timer.group_id, timer.member_id] = epoch
                self._queue.schedule(timer, later_ms + FENCING_BACKOFF_MS)
            return CoordinatorResult(None) if then is None else then(error, later_ms)

        result.on_stored = stored
        return result

    def cancel(self, kind: TimerKind, group_id: str, member_id: str) -> None:
        """Forget the deadline, if there is one."""
        self._queue.cancel(ConsumerTimer(kind, group_id, member_id))
        if kind == "rebalance":
            self._rebalance_epochs.pop((group_id, member_id), None)

    def cancel_members(self, group_id: str, member_ids: Iterable[str]) -> None:
        """Forget all deadlines of the members."""
        for member_id in member_ids:
            for kind in _KINDS:
                self.cancel(kind, group_id, member_id)

    def next_deadline(self) -> int | None:
        """The earliest deadline, in ms; None if there is none."""
        return self._queue.next_deadline()

    def pop_due(self, now_ms: int) -> tuple[ConsumerTimer, int | None] | None:
        """Remove and give one deadline that has come, with the epoch if it is a rebalance's."""
        timer = next(self._queue.pop_due(now_ms), None)
        if timer is None:
            return None
        epoch = None
        if timer.kind == "rebalance":
            epoch = self._rebalance_epochs.pop((timer.group_id, timer.member_id), None)
        return timer, epoch
