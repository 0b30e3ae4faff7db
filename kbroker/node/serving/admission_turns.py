"""Clients on their way in take turns: between two of their steps everything else has its turn of the event loop.

A step of an admission (a token that is checked, a connection that is set up) takes as long as some requests. However
many clients come at once, a client that is connected waits for one such step and not for one of each of them.
"""

from __future__ import annotations

from collections import deque

import trio


class AdmissionTurns:
    """The turns of an event loop, for all listeners of a node."""

    __slots__ = ("_is_taken", "_usher", "_waiting", "coming")

    def __init__(self) -> None:
        self.coming = 0
        """Clients that have been accepted, and neither let in nor refused yet."""
        self._is_taken = False
        """Whether somebody has the present turn."""
        self._waiting: deque[trio.lowlevel.Task] = deque()
        self._usher: trio.lowlevel.Task | None = None

    async def take_among_others(self) -> None:
        """Take a turn (see :meth:`take`); a client that comes alone takes nobody's turn, and pays for none."""
        if self.coming > 1:
            await self.take()

    async def take(self) -> None:
        """Wait until a step may be done: all until the task waits for anything else."""
        waiting = self._waiting
        if self._is_taken:
            task = trio.lowlevel.current_task()
            waiting.append(task)

            def leave(_: object) -> trio.lowlevel.Abort:
                waiting.remove(task)
                return trio.lowlevel.Abort.SUCCEEDED

            await trio.lowlevel.wait_task_rescheduled(leave)
        self._is_taken = True
        if waiting:
            self._show_in()
        elif self._usher is None:
            self._usher = trio.lowlevel.spawn_system_task(self._end_turns)
        else:
            trio.lowlevel.reschedule(self._usher)

    def _show_in(self) -> None:
        """Give the loop's next turn to the first that waits, if any does."""
        self._is_taken = bool(self._waiting)
        if self._waiting:
            trio.lowlevel.reschedule(self._waiting.popleft())

    async def _end_turns(self) -> None:
        """The usher: ends a turn in the loop's next one, where nobody waited for it when it began."""
        while True:
            self._show_in()
            await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.SUCCEEDED)
