"""The clocks of a broker in a test, which the test moves ahead: :meth:`kbroker.testing.RunningBroker.advance`."""

from __future__ import annotations

import threading
import time
from math import inf

import trio

from kbroker.runtime.budgets import DEFAULTS
from kbroker.runtime.env import RealEnv
from kbroker.testing.seen import ClockSeen

_QUIET_SECONDS = 0.01
_RULE_PATIENCE = 60.0
_LONGEST_SECONDS = 5.0
_LONGEST_THREAD_SECONDS = 60.0


class MovedClock(trio.abc.Clock):
    """A monotonic clock for Trio, some seconds ahead of the machine's."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self._stands_at: float | None = None
        self.stands = False
        """Whether it stands still, until it is moved or goes on."""

    @property
    def state(self) -> tuple[float, float | None]:
        """The seconds that it is ahead, and where it stands if it does: the same in all processes of a machine."""
        return self.ahead, self._stands_at

    @state.setter
    def state(self, state: tuple[float, float | None]) -> None:
        self.ahead, self._stands_at = state
        self.stands = self._stands_at is not None

    def stop(self) -> None:
        """Have it stand still."""
        if self._stands_at is None:
            self._stands_at = self.current_time()
            self.stands = True

    def go_on(self) -> None:
        """Have it go on from where it stands."""
        if self._stands_at is not None:
            self.ahead = self._stands_at - time.perf_counter()
            self._stands_at = None
            self.stands = False

    def move(self, seconds: float) -> None:
        """Move it ahead."""
        if self._stands_at is not None:
            self._stands_at += seconds
        else:
            self.ahead += seconds

    def moved(self) -> float:
        """Seconds that it is ahead of the machine's."""
        return self.ahead if self._stands_at is None else self._stands_at - time.perf_counter()

    def seen(self) -> ClockSeen:
        """It, and the wall clock of a node that goes by it."""
        return ClockSeen(self.stands, self.moved(), MovedEnv(self).wall_clock_ms())

    def start_clock(self) -> None:
        """Nothing has to be started."""

    def current_time(self) -> float:
        """Seconds, as the broker counts them."""
        return time.perf_counter() + self.ahead if self._stands_at is None else self._stands_at

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Real seconds until a deadline, unless the clock is moved meanwhile."""
        left = deadline - self.current_time()
        return left if self._stands_at is None or left <= 0 else inf


class MovedEnv(RealEnv):
    """This machine, with its wall clock as far ahead as the monotonic one."""

    def __init__(self, clock: MovedClock) -> None:
        # The threads of rules may get no turn for long, beside those of a test.
        super().__init__(budgets=DEFAULTS._replace(rule_patience=_RULE_PATIENCE))
        self._clock = clock

    def wall_clock_ms(self) -> int:
        clock = self._clock  # a node that is not moved is asked this as often as any other: no further call for it
        return time.time_ns() // 1_000_000 + int((clock.moved() if clock.stands else clock.ahead) * 1000)


async def settle() -> None:
    """Let everything be done that is due by the clock of this event loop, which has been moved.

    Deadlines are looked at once, after the jump: what happens every minute happens once, however far it goes.
    """
    threads = trio.to_thread.current_default_thread_limiter()
    deadline = time.perf_counter() + _LONGEST_THREAD_SECONDS
    while True:
        await _quiet()
        # A task that waits for the disk is not done, though the loop is quiet.
        if not threads.borrowed_tokens or time.perf_counter() > deadline:
            return


async def _quiet() -> None:
    """Wait until the loop is quiet, or for so long if clients keep it busy; by the machine's clock."""
    from trio.testing import wait_all_tasks_blocked

    with trio.CancelScope() as scope:
        token = trio.lowlevel.current_trio_token()
        timer = threading.Timer(_LONGEST_SECONDS, token.run_sync_soon, [scope.cancel])
        timer.daemon = True
        timer.start()
        try:
            await wait_all_tasks_blocked(_QUIET_SECONDS)
        finally:
            timer.cancel()
