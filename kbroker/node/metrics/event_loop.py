"""How busy the event loop is: the share of time that it sleeps, and how long its turns take."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns

import trio.abc

from kbroker.metrics.histogram import Histogram


class EventLoopTimes(trio.abc.Instrument):
    """Trio tells it when the loop begins to wait for sockets and timers, and when it goes on."""

    def __init__(self, every: int = 0, call: Callable[[], None] | None = None) -> None:
        """``call()`` at the end of one turn in ``every``."""
        self._every = every
        self._call = call
        self.turns = Histogram()
        """Times between two waits: whatever comes meanwhile waits for so long."""
        self.idle = 0
        """Nanoseconds of waiting, since the start."""
        self.turn_began = self._slept = perf_counter_ns()
        self._idle_then = 0
        self._at_then = self.turn_began

    def before_io_wait(self, timeout: float) -> None:
        """A turn ends."""
        self._slept = now = perf_counter_ns()
        turns = self.turns
        turns.observe(now - self.turn_began)
        if self._call is not None and not turns.count % self._every:
            self._call()

    def after_io_wait(self, timeout: float) -> None:
        """A turn begins."""
        self.turn_began = now = perf_counter_ns()
        self.idle += now - self._slept

    def idle_share(self) -> float:
        """The share of time that the loop has slept since it was last asked; between 0 and 1."""
        now = perf_counter_ns()
        share = (self.idle - self._idle_then) / max(1, now - self._at_then)
        self._idle_then, self._at_then = self.idle, now
        return min(1.0, share)
