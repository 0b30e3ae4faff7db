"""The clocks of a broker in a test, which the test moves ahead: :meth:`kbroker.testing.RunningBroker.advance`."""

from __future__ import annotations

import threading
import time
from math import inf
from time import perf_counter

import trio

from kbroker.runtime.budgets import DEFAULTS
from kbroker.runtime.env import RealEnv
from kbroker.testing.seen import ClockSeen

_QUIET_SECONDS = 0.01
_RULE_PATIENCE = 60.0
_LONGEST_SECONDS = 5.0
_LONGEST_THREAD_SECONDS = 60.0


class MovedClock(trio.abc.Clock):
    """A monotonic clock for Trio, some seconds ahead of the machine's.

    A node that no test moves pays what Trio's own clock costs: a clock that stands has other functions in its instance,
    and no call asks whether it does.
    """

    def __init__(self) -> None:
        self.ahead = 0.0
        self._stands_at: float | None = None
        self._env: MovedEnv | None = None

    def env(self) -> MovedEnv:
        """The world of the node that goes by this clock."""
        self._env = MovedEnv()
        self._changed()
        return self._env

    @property
    def state(self) -> tuple[float, float | None]:
        """The seconds that it is ahead, and where it stands if it does: the same in all processes of a machine."""
        return self.ahead, self._stands_at

    @state.setter
    def state(self, state: tuple[float, float | None]) -> None:
        self.ahead, self._stands_at = state
        self._changed()

    @property
    def stands(self) -> bool:
        """Whether it stands still, until it is moved or goes on."""
        return self._stands_at is not None

    def stop(self) -> None:
        """Have it stand still."""
        if not self.stands:
            self.state = self.ahead, self.current_time()

    def go_on(self) -> None:
        """Have it go on from where it stands."""
        self.state = self.moved(), None

    def move(self, seconds: float) -> None:
        """Move it ahead."""
        at = self._stands_at
        self.state = (self.ahead, at + seconds) if at is not None else (self.ahead + seconds, None)

    def moved(self) -> float:
        """Seconds that it is ahead of the machine's."""
        return self.ahead if self._stands_at is None else self._stands_at - perf_counter()

    def seen(self) -> ClockSeen:
        """It, and the wall clock of a node that goes by it."""
        return ClockSeen(self.stands, self.moved(), time.time_ns() // 1_000_000 + int(self.moved() * 1000))

    def _changed(self) -> None:
        own, stands_at = self.__dict__, self._stands_at
        own.pop("current_time", None)
        own.pop("deadline_to_sleep_time", None)
        if stands_at is not None:
            own["current_time"] = lambda: stands_at
            own["deadline_to_sleep_time"] = lambda deadline: inf if deadline > stands_at else 0.0
        if self._env is not None:
            self._env.go_by(int(self.moved() * 1e9), stands=stands_at is not None)

    def start_clock(self) -> None:
        """Nothing has to be started."""

    def current_time(self) -> float:
        """Seconds, as the broker counts them."""
        return self.ahead + perf_counter()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Real seconds until a deadline, unless the clock is moved meanwhile."""
        return deadline - self.current_time()


class MovedEnv(RealEnv):
    """This machine, with its wall clock as far ahead as the monotonic one."""

    def __init__(self) -> None:
        # The threads of rules may get no turn for long, beside those of a test.
        super().__init__(budgets=DEFAULTS._replace(rule_patience=_RULE_PATIENCE))
        self._ahead_ns = 0
        self._stands_at_ms: int | None = None

    def go_by(self, ahead_ns: int, *, stands: bool) -> None:
        """Be so far ahead, and perhaps stand there."""
        self._ahead_ns = ahead_ns
        self._stands_at_ms = (time.time_ns() + ahead_ns) // 1_000_000 if stands else None

    def wall_clock_ms(self) -> int:
        at = self._stands_at_ms
        return (time.time_ns() + self._ahead_ns) // 1_000_000 if at is None else at


async def settle() -> None:
    """Let everything be done that is due by the clock of this event loop, which has been moved.

    Deadlines are looked at once, after the jump: what happens every minute happens once, however far it goes.
    """
    threads = trio.to_thread.current_default_thread_limiter()
    deadline = perf_counter() + _LONGEST_THREAD_SECONDS
    while True:
        await _quiet()
        # A task that waits for the disk is not done, though the loop is quiet.
        if not threads.borrowed_tokens or perf_counter() > deadline:
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
