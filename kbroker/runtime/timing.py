"""A shared timer: thousands of time-outs without one cancel scope (and exception) each.

Times are those of ``trio.current_time``, in seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from math import inf

import trio


class Alarm:
    """The alarm of one task: it sleeps until a time or until a ring. A ring is lost while the task does not sleep."""

    __slots__ = ("_sleeper",)

    def __init__(self) -> None:
        self._sleeper: trio.lowlevel.Task | None = None

    def ring(self) -> None:
        """Wake the sleeper now."""
        task, self._sleeper = self._sleeper, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    async def sleep_until(self, deadline: float) -> None:
        """Return at ``deadline`` or once it is rung; cancelled as any other wait. Always gives way to others.

        In contrast to ``trio.move_on_at`` nothing is raised to get here.
        """
        if deadline <= trio.current_time():
            await trio.lowlevel.checkpoint()
            return
        self._sleeper = task = trio.lowlevel.current_task()

        def abort(_: object) -> trio.lowlevel.Abort:
            self._sleeper = None
            if trio.current_time() < deadline:
                return trio.lowlevel.Abort.SUCCEEDED  # cancelled from outside
            trio.lowlevel.reschedule(task)
            return trio.lowlevel.Abort.FAILED

        if deadline == inf:
            await trio.lowlevel.wait_task_rescheduled(abort)
        else:
            with trio.CancelScope(deadline=deadline):
                await trio.lowlevel.wait_task_rescheduled(abort)


class Deadline:
    """One entry of :class:`Deadlines`."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback
        """None once it has been called or is not to be."""


class Deadlines:
    """Callbacks by their time. Most deadlines are cancelled, so cancelling costs next to nothing."""

    LEAST_STALE = 256
    """The number of those called off that may be kept, however few are not."""

    __slots__ = ("_heap", "_made", "_stale")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Deadline]] = []
        self._made = 0
        self._stale = 0

    def __len__(self) -> int:
        return len(self._heap) - self._stale

    def add(self, when: float, callback: Callable[[], None]) -> Deadline:
        """Have ``callback()`` called by ``expire`` at a time; those of one time in the order in which they came."""
        self._made += 1
        deadline = Deadline(callback)
        heappush(self._heap, (when, self._made, deadline))
        return deadline

    def discard(self, deadline: Deadline) -> None:
        """Call it off; nothing happens if it has been called."""
        if deadline.callback is None:
            return
        deadline.callback = None
        self._stale += 1
        if self._stale > self.LEAST_STALE and self._stale > len(self._heap) // 2:
            self._heap = [entry for entry in self._heap if entry[2].callback is not None]
            heapify(self._heap)
            self._stale = 0

    def next(self) -> float:
        """When the next one is due; infinity if there is none."""
        heap = self._heap
        while heap:
            if heap[0][2].callback is not None:
                return heap[0][0]
            heappop(heap)
            self._stale -= 1
        return inf

    def expire(self, now: float) -> None:
        """Call those that are due."""
        while self.next() <= now:
            deadline = heappop(self._heap)[2]
            callback, deadline.callback = deadline.callback, None
            assert callback is not None
            callback()
