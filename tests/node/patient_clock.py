"""A clock for nodes in a test's own event loop, whose time-outs do not begin to run out because the machine is slow.

Nodes of tests have time-outs of a second or less, and on a machine that gives the test a turn now and then these pass
while nobody has done anything wrong: leaders are voted out, brokers fenced. Here only the time counts that the event
loop has spent waiting, and of a wait no more than what it was to last at the most; of its work, a part of the
processor's time. Of a wait in which a thread is at work for it, a part counts as well: that one may wait for a busy
disk, or for a turn of its own. The wall clock goes on as ever: what ends by it needs ``run(test, patient=False)``.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import trio

STEP_SECONDS = 0.1
"""The longest wait of the event loop at once. Trio's ``wait_all_tasks_blocked`` must not ask for more."""

WORK = 0.25
"""The part of the processor's time that counts, so that no loop of work stands still for ever."""

THREADS = 0.1
"""The part of a wait that counts while a thread is at work, so that time goes on for others when one hangs."""


def threads_at_work() -> int:
    """The number of threads in which something is done now for the event loop that asks."""
    return trio.to_thread.current_default_thread_limiter().borrowed_tokens


class PatientClock(trio.abc.Clock, trio.abc.Instrument):
    """Seconds of waiting; of work, a part. Pass it to ``trio.run`` as the clock and as an instrument."""

    def __init__(
        self,
        real: Callable[[], float] = time.perf_counter,
        processor: Callable[[], float] = time.thread_time,
        threads: Callable[[], int] = threads_at_work,
    ) -> None:
        self._real = real
        self._processor = processor
        self._threads = threads
        self._now = real()
        self._worked = processor()
        self._wait_began = 0.0
        self._wait = 0.0

    def start_clock(self) -> None:
        """The clock runs from here on, in this thread."""
        self._worked = self._processor()

    def current_time(self) -> float:
        """Seconds so far."""
        worked = self._processor()
        self._now += (worked - self._worked) * WORK
        self._worked = worked
        return self._now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """The time to wait for a deadline, or for a step of the way to it."""
        return min(deadline - self._now, STEP_SECONDS)

    def before_io_wait(self, timeout: float) -> None:
        """The event loop is about to wait."""
        self.current_time()
        self._wait_began = self._real()
        self._wait = max(timeout, 0.0)

    def after_io_wait(self, timeout: float) -> None:
        """It has waited, and perhaps has had no turn for a while after that."""
        waited = min(self._real() - self._wait_began, self._wait)
        self._now += waited * THREADS if self._threads() else waited
        self._worked = self._processor()


def run_patiently(test: Callable[[], Awaitable[None]]) -> None:
    """Run a coroutine on Trio with a patient clock."""
    clock = PatientClock()
    trio.run(test, clock=clock, instruments=[clock])
