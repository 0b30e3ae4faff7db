"""Time and scheduling of a simulation that runs on Trio: one clock, one order of tasks for one seed, nodes that stand.

All that reaches into Trio's private parts is here: the tasks, cancel scopes and deadlines are Trio's own, but what
takes them from its queue is not its loop. That shuffles what is ready in an order of its own, asks the operating system
and its instruments at each turn, and knows of nothing that happens in a network.
"""

from __future__ import annotations

import gc
import heapq
import random
from collections.abc import Awaitable, Callable, Generator
from contextvars import ContextVar
from math import inf
from operator import attrgetter
from typing import Any, TypeVar

import trio
from outcome import Error, Outcome, Value
from trio._core import _run as trio_run
from trio._core._traps import CancelShieldedCheckpoint, WaitTaskRescheduled

from kbroker.sim.world import EventQueue

T = TypeVar("T")

current_node: ContextVar[int] = ContextVar("current_node", default=0)
"""The node whose task is running, by its id; 0 for the simulation itself and its clients."""


class SimClock(EventQueue[float], trio.abc.Clock):
    """Seconds that pass only when every task waits; then straight to the next deadline or event."""

    ASK_EVERY = 1000
    """After so many turns the operating system is asked, which has nothing to tell a simulation but Ctrl-C."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(0.0)
        self.held: dict[int, list[Any]] = {}
        """Nodes that stand still, and which of their tasks could run."""
        self._rng = random.Random(seed)

    def start_clock(self) -> None:
        pass

    def current_time(self) -> float:
        return self.time

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return 0.0 if deadline <= self.time else inf

    async def wait(self, seconds: float) -> None:
        """Sleep, and do not let it be cut short by a cancellation: as one waits for a thread."""
        self.call_at(self.time + seconds, trio.lowlevel.reschedule, trio.lowlevel.current_task())
        await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)

    async def sleep(self, seconds: float) -> None:
        """``trio.sleep`` for those who sleep all the time: without a scope, and nothing is raised to end it."""
        task = trio.lowlevel.current_task()
        asleep = True

        def wake() -> None:
            if asleep:
                trio.lowlevel.reschedule(task)

        def abort(_: Any) -> trio.lowlevel.Abort:
            nonlocal asleep
            asleep = False
            return trio.lowlevel.Abort.SUCCEEDED

        self.call_at(self.time + seconds, wake)
        await trio.lowlevel.wait_task_rescheduled(abort)

    def _jump(self, deadlines: Any) -> None:
        # Nothing can run, and all that was due is done. What an event or a deadline wakes runs next.
        events = self._events
        deadline = deadlines.next_deadline()
        if events and events[0][0] <= deadline:
            now = self.time = max(self.time, events[0][0])
            while events and events[0][0] <= now:
                _, _, event, args = heapq.heappop(events)
                event(*args)
        elif deadline < inf:
            self.time = deadline
            deadlines.expire(deadline)

    def _hold(self, queue: Any) -> None:
        # Tasks of nodes that stand still wait elsewhere.
        for task in list(queue):
            held = self.held.get(task.context.get(current_node, 0))
            if held is not None:
                queue.remove(task)
                held.append(task)

    @trio.lowlevel.enable_ki_protection
    def run_tasks(
        self, runner: Any, main: Callable[..., Awaitable[Any]], args: tuple[Any, ...]
    ) -> Generator[float, Any, None]:
        """Run tasks until the last one has ended: the replacement of Trio's ``unrolled_run``."""
        context = trio_run.GLOBAL_RUN_CONTEXT
        runner.instruments = {}
        queue, deadlines = runner.runq, runner.deadlines
        counter = attrgetter("_counter")
        turns = 0
        try:
            runner.entry_queue.wakeup.wakeup_on_signals()
            runner.init_task = runner.spawn_impl(runner.init, (main, args), None, "<init>", system_task=True)
            while runner.tasks:
                turns += 1
                if turns % self.ASK_EVERY == 0:
                    runner.io_manager.process_events((yield 0))
                if not deadlines.expire(self.time) and not queue:
                    self._jump(deadlines)
                if self.held:
                    self._hold(queue)
                if len(queue) == 1:  # most often
                    context.task = task = queue.popleft()
                    _step(runner, task)
                    del context.task
                    continue
                batch = list(queue)
                queue.clear()
                if batch:
                    batch.sort(key=counter)
                    self._rng.shuffle(batch)
                    for task in reversed(batch):
                        context.task = task
                        _step(runner, task)
                    del context.task
        except Exception as error:
            raise trio.TrioInternalError("an error in the loop of the simulation") from error
        finally:
            runner.close()
            context.__dict__.clear()
            if runner.ki_pending:
                interrupt = KeyboardInterrupt()
                if isinstance(runner.main_task_outcome, Error):
                    interrupt.__context__ = runner.main_task_outcome.error
                runner.main_task_outcome = Error(interrupt)


def _step(runner: Any, task: Any) -> None:
    """Have a task run until it waits or ends."""
    proceed, value = task._next_send_fn, task._next_send
    task._next_send_fn = task._next_send = None
    final: Outcome[object]
    try:
        message = task.context.run(proceed, value)
    except StopIteration as ended:
        final = Value(ended.value)
    except BaseException as error:
        assert error.__traceback__ is not None
        final = Error(error.with_traceback(error.__traceback__.tb_next))
    else:
        task._schedule_points += 1
        if message is CancelShieldedCheckpoint:
            runner.reschedule(task)
        else:
            assert type(message) is WaitTaskRescheduled, f"a task has yielded {message!r}"
            task._cancel_points += 1
            task._abort_func = message.abort_func
            if runner.ki_pending and task is runner.main_task:
                task._attempt_delivery_of_pending_ki()
            if task._cancel_status.effectively_cancelled:
                task._attempt_delivery_of_any_pending_cancel()
        return
    runner.task_exited(task, final)


_clock: ContextVar[SimClock] = ContextVar("_clock")


def sim_clock() -> SimClock:
    """That of the simulation which is running."""
    return _clock.get()


class Pauser:
    """Stops all tasks of a node as SIGSTOP does: time passes, sockets fill, deadlines are found past on waking."""

    def __init__(self) -> None:
        self._held = sim_clock().held

    def pause(self, node_id: int) -> None:
        """The node's tasks stand still until ``resume``."""
        self._held.setdefault(node_id, [])

    def resume(self, node_id: int) -> None:
        """The node goes on with all that became due."""
        trio_run.GLOBAL_RUN_CONTEXT.runner.runq.extend(self._held.pop(node_id, ()))

    def is_paused(self, node_id: int) -> bool:
        """Whether it stands."""
        return node_id in self._held


def run_deterministically(seed: int, main: Callable[..., Awaitable[T]], *args: Any) -> T:
    """``trio.run`` on a :class:`SimClock`, with the same order of tasks for the same seed.

    The garbage collector, which comes when it likes, waits until the end.
    """
    clock = SimClock(seed)
    token = _clock.set(clock)
    collects = gc.isenabled()
    gc.disable()
    trios = trio_run.unrolled_run
    trio_run.unrolled_run = clock.run_tasks  # type: ignore[assignment]
    try:
        return trio.run(main, *args, clock=clock)
    finally:
        trio_run.unrolled_run = trios
        _clock.reset(token)
        if collects:
            gc.enable()
