"""The clocks of a broker in a test, which the test moves ahead: :meth:`kbroker.testing.RunningBroker.advance`."""

from __future__ import annotations

import time

import trio

from kbroker.runtime.budgets import DEFAULTS
from kbroker.runtime.env import RealEnv

_QUIET_SECONDS = 0.01
_RULE_PATIENCE = 60.0
_LONGEST_SECONDS = 5.0
_LONGEST_THREAD_SECONDS = 60.0


class MovedClock(trio.abc.Clock):
    """A monotonic clock for Trio, some seconds ahead of the machine's."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def start_clock(self) -> None:
        """Nothing has to be started."""

    def current_time(self) -> float:
        """Seconds, as the broker counts them."""
        return time.perf_counter() + self.ahead

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Real seconds until a deadline, unless the clock is moved meanwhile."""
        return deadline - self.current_time()


class MovedEnv(RealEnv):
    """This machine, with its wall clock as far ahead as the monotonic one."""

    def __init__(self, clock: MovedClock) -> None:
        # The threads of rules may get no turn for long, beside those of a test.
        super().__init__(budgets=DEFAULTS._replace(rule_patience=_RULE_PATIENCE))
        self._clock = clock

    def wall_clock_ms(self) -> int:
        return super().wall_clock_ms() + int(self._clock.ahead * 1000)


async def advance(clock: MovedClock, seconds: float) -> None:
    """Move the clock of this event loop ahead, and let everything that is due be done.

    Deadlines are looked at once, after the jump: what happens every minute happens once, however far it goes.
    """
    from trio.testing import wait_all_tasks_blocked

    clock.ahead += seconds
    threads = trio.to_thread.current_default_thread_limiter()
    deadline = trio.current_time() + _LONGEST_THREAD_SECONDS
    while True:
        with trio.move_on_after(_LONGEST_SECONDS):  # of a loop that clients keep busy
            await wait_all_tasks_blocked(_QUIET_SECONDS)
        # A task that waits for the disk is not done, though the loop is quiet.
        if not threads.borrowed_tokens or trio.current_time() > deadline:
            return
