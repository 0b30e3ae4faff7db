"""The load of the event loop: the share of time that it sleeps, and the times that its turns take.

The loop may turn 20,000 times in a second, so a turn must cost next to nothing: of short ones a sample is observed.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Final

import trio.abc

from kbroker.observe.metrics.histogram import Histogram

SLOW_NS: Final = 1_000_000
"""Turns that take longer are all observed."""
SAMPLE: Final = 16
"""Of shorter turns, one in so many is measured, and counted as often."""
PAUSE_NS: Final = 5_000_000
"""The least time between two calls of ``sampled``: what it has measured costs as much as a request."""


class EventLoopTimes(trio.abc.Instrument):
    """Trio tells it when the loop begins to wait for sockets and timers, and when it goes on."""

    def __init__(self, sampled: Callable[[], None] = lambda: None) -> None:
        """``sampled()`` is called at the end of one turn in ``SAMPLE``, not within ``PAUSE_NS`` of the last time."""
        self.turns = Histogram()
        """Times between two waits: whatever comes meanwhile waits for so long."""
        self.idle = 0
        """Nanoseconds of waiting, since the start."""
        self.began = self.turn_began = self._slept = perf_counter_ns()
        self._sampled = sampled
        self._pauses_until = 0
        self._left = SAMPLE
        self._samples = 0

    @property
    def count(self) -> int:
        """Turns, since the start."""
        return self._samples * SAMPLE + SAMPLE - self._left

    def before_io_wait(self, timeout: float) -> None:
        """A turn ends."""
        self._slept = now = perf_counter_ns()
        took = now - self.turn_began
        if took >= SLOW_NS:
            self.turns.observe(took)
        self._left = left = self._left - 1
        if not left:
            self._sample(took)

    def _sample(self, took: int) -> None:
        self._left = SAMPLE
        self._samples += 1
        if took < SLOW_NS:
            self.turns.observe(took, SAMPLE)
        if self._slept >= self._pauses_until:
            self._pauses_until = self._slept + PAUSE_NS
            self._sampled()

    def after_io_wait(self, timeout: float) -> None:
        """A turn begins."""
        self.turn_began = now = perf_counter_ns()
        self.idle += now - self._slept


class IdleShare:
    """The share of time that the loop sleeps, for one who asks again and again."""

    def __init__(self, loop: EventLoopTimes) -> None:
        self._loop = loop
        self._idle = 0
        self._asked = loop.began

    def take(self) -> float:
        """The share since the last call, the first time since the start; between 0 and 1."""
        now, idle = perf_counter_ns(), self._loop.idle
        share = (idle - self._idle) / max(1, now - self._asked)
        self._idle, self._asked = idle, now
        return min(1.0, share)
