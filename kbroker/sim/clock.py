"""Time and scheduling of a simulation that runs on Trio: one clock, one order of tasks for one seed, nodes that stand.

All that reaches into Trio's private parts is here: its scheduler shuffles what is ready, and only two switches that
its own tests of determinism use make that repeatable; its clock jumps when everybody waits, and must not jump over
what the network is about to deliver; and a node is paused by keeping its tasks out of the run queue.
"""

from __future__ import annotations

import gc
import heapq
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from hashlib import blake2b
from math import inf
from typing import Any, TextIO, TypeVar

import trio
from trio._core import _run as trio_run
from trio.testing import MockClock

T = TypeVar("T")

current_node: ContextVar[int] = ContextVar("current_node", default=0)
"""Whose task is running: a node's id, 0 for the simulation itself and its clients."""


class SimClock:
    """Time that passes only when every task waits; then straight to the next deadline or event.

    It is Trio's ``MockClock`` (its run loop asks for that very class), told to jump as is done here.
    """

    def __init__(self) -> None:
        self.mock = MockClock(autojump_threshold=0)
        self.mock._autojump = self._autojump  # type: ignore[method-assign]
        mock = self.mock
        mock.current_time = lambda: mock._virtual_base  # type: ignore[method-assign]  # no real time is mixed in
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._made = 0
        self.events_run = 0

    def call_at(self, when: float, event: Callable[[], None]) -> None:
        """Have ``event()`` called at a time, in the order of times, then of calls to this. It must not wait."""
        self._made += 1
        heapq.heappush(self._events, (when, self._made, event))

    async def wait(self, seconds: float) -> None:
        """Sleep, and do not let it be cut short by a cancellation: as one waits for a thread."""
        task = trio.lowlevel.current_task()
        self.call_at(self.mock._virtual_base + seconds, lambda: trio.lowlevel.reschedule(task))
        await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)

    def _autojump(self) -> None:
        # Called by Trio when nothing can run. What ``event`` or a deadline wakes runs next.
        events = self._events
        deadlines = trio_run.GLOBAL_RUN_CONTEXT.runner.deadlines
        deadline = deadlines.next_deadline()
        mock = self.mock
        now = mock._virtual_base
        if events and events[0][0] <= deadline:
            when = events[0][0]
            if when > now:
                mock._virtual_base = now = when
            while events and events[0][0] <= now:
                _, _, event = heapq.heappop(events)
                self.events_run += 1
                event()
        elif now < deadline < inf:
            mock._virtual_base = deadline
            deadlines.expire(deadline)


_clock: ContextVar[SimClock] = ContextVar("_clock")


def sim_clock() -> SimClock:
    """That of the simulation which is running."""
    return _clock.get()


class Trace:
    """What happened, as a hash: two runs of a seed must agree in it. With ``out`` it is written down as well."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._hash = blake2b(digest_size=16)
        self._out = out

    def note(self, text: str) -> None:
        """Add a line, with the time."""
        line = f"{trio.current_time():10.4f} {text}\n"
        self._hash.update(line.encode())
        if self._out is not None:
            self._out.write(line)

    def show(self, text: str) -> None:
        """Only write it down: it is not part of what must be the same."""
        if self._out is not None:
            self._out.write(f"{trio.current_time():10.4f} {text}\n")

    @property
    def is_shown(self) -> bool:
        """Whether somebody reads it."""
        return self._out is not None

    @property
    def digest(self) -> str:
        """The hash so far."""
        return self._hash.hexdigest()


class _NoIO:
    """Trio's view of the operating system, which has nothing to tell a simulation but Ctrl-C: it is asked seldom."""

    ASK_EVERY = 1000

    def __init__(self, real: Any) -> None:
        self._real = real
        self._turns = 0

    def get_events(self, timeout: float) -> Any:
        """What has happened: nothing, but for Ctrl-C."""
        self._turns += 1
        if timeout == 0 and self._turns % self.ASK_EVERY:
            return ()
        return self._real.get_events(timeout)

    def process_events(self, events: Any) -> None:
        """Pass on what there is."""
        if events:
            self._real.process_events(events)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _Pauses(trio.abc.Instrument):
    """Keeps the tasks of paused nodes out of the run queue."""

    def __init__(self) -> None:
        self.held: dict[int, list[Any]] = {}

    def task_scheduled(self, task: Any) -> None:
        held = self.held.get(task.context.get(current_node, 0))
        if held is not None:
            queue = trio_run.GLOBAL_RUN_CONTEXT.runner.runq
            last = queue.pop()
            assert last is task
            held.append(task)


class Pauser:
    """Stops all tasks of a node as SIGSTOP does: time passes, sockets fill, deadlines are found past on waking."""

    def __init__(self) -> None:
        self._pauses = _Pauses()

    def pause(self, node_id: int) -> None:
        """The node's tasks stand still until ``resume``."""
        if node_id in self._pauses.held:
            return
        if not self._pauses.held:
            trio.lowlevel.add_instrument(self._pauses)
        queue = trio_run.GLOBAL_RUN_CONTEXT.runner.runq
        held = self._pauses.held[node_id] = []
        for task in list(queue):
            if task.context.get(current_node, 0) == node_id:
                queue.remove(task)
                held.append(task)

    def resume(self, node_id: int) -> None:
        """The node goes on with all that became due."""
        held = self._pauses.held.pop(node_id, None)
        if held is None:
            return
        trio_run.GLOBAL_RUN_CONTEXT.runner.runq.extend(held)
        if not self._pauses.held:
            trio.lowlevel.remove_instrument(self._pauses)

    def is_paused(self, node_id: int) -> bool:
        """Whether it stands."""
        return node_id in self._pauses.held


def run_deterministically(seed: int, main: Callable[..., Awaitable[T]], *args: Any) -> T:
    """``trio.run`` on a :class:`SimClock`, with the same order of tasks for the same seed.

    The garbage collector, which comes when it likes, waits until the end.
    """
    saved, state = trio_run._ALLOW_DETERMINISTIC_SCHEDULING, trio_run._r.getstate()
    trio_run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]
    trio_run._r.seed(seed)
    clock = SimClock()
    token = _clock.set(clock)
    collects = gc.isenabled()
    gc.disable()

    async def without_io() -> T:
        runner: Any = trio_run.GLOBAL_RUN_CONTEXT.runner
        runner.io_manager = _NoIO(runner.io_manager)
        return await main(*args)

    try:
        return trio.run(without_io, clock=clock.mock)
    finally:
        _clock.reset(token)
        if collects:
            gc.enable()
        trio_run._ALLOW_DETERMINISTIC_SCHEDULING = saved  # type: ignore[misc]
        trio_run._r.setstate(state)
