"""Clients on their way in take turns: between two of their steps everything else has its turn of the event loop.

A step of an admission (a token that is checked, a connection that is set up) takes as long as some requests. However
many clients come at once, a client that is connected waits for one such step and not for one of each of them.
"""

from __future__ import annotations

from typing import Any

import trio

from kbroker.security.turns import Turns


class AdmissionTurns:
    """The turns of an event loop, for all listeners of a node."""

    __slots__ = ("_turns", "_usher")

    def __init__(self) -> None:
        self._turns: Turns[trio.lowlevel.Task] = Turns()
        self._usher: trio.lowlevel.Task | None = None

    async def take(self) -> None:
        """Wait until a step may be done: all until the task waits for anything else."""
        turns = self._turns
        if turns.take():
            self._begin()
            return
        task = trio.lowlevel.current_task()
        turns.wait(task)

        def leave(_: Any) -> trio.lowlevel.Abort:
            turns.leave(task)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(leave)

    def _begin(self) -> None:
        """Have the usher begin another turn in the loop's next one."""
        if self._usher is None:
            self._usher = trio.lowlevel.spawn_system_task(self._show_in)
        else:
            trio.lowlevel.reschedule(self._usher)

    async def _show_in(self) -> None:
        """Show in the first that waits, once in each turn of the loop, for as long as somebody does."""
        turns = self._turns
        while True:
            task = turns.next()
            if task is None:
                await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.SUCCEEDED)
            else:
                trio.lowlevel.reschedule(task)
                await trio.lowlevel.cancel_shielded_checkpoint()
