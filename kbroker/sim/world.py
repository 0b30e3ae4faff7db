"""The common parts of both simulated worlds: a queue of events, the trace of a run, and the failure that ends it."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Generic, TextIO, TypeVar

Moment = TypeVar("Moment", int, float)
"""A time: milliseconds in the world of the quorum alone, seconds in that of whole clusters."""


class Violation(AssertionError):
    """Something that must hold does not, or what must happen has not happened in its time."""


class EventQueue(Generic[Moment]):
    """Events in the order of their times; those of one moment in the order in which they were planned."""

    def __init__(self, start: Moment) -> None:
        self.time: Moment = start
        self._events: list[tuple[Moment, int, Callable[..., None], tuple[Any, ...]]] = []
        self._planned = 0

    def call_at(self, when: Moment, event: Callable[..., None], *args: Any) -> None:
        """Have ``event(*args)`` called at a time. It must not wait."""
        self._planned += 1
        heapq.heappush(self._events, (when, self._planned, event, args))

    def run_next(self, until: Moment) -> bool:
        """Let the next event happen if it is due by ``until``; otherwise that is the time now."""
        if not self._events or self._events[0][0] > until:
            self.time = max(self.time, until)
            return False
        when, _, event, args = heapq.heappop(self._events)
        self.time = max(self.time, when)
        event(*args)
        return True


class Trace:
    """The events of a run, as a hash: two runs of a seed must agree in it. With ``out`` it is written down as well."""

    AT_ONCE = 500
    """Lines that are hashed together."""

    def __init__(self, clock: EventQueue[Any], out: TextIO | None = None, *, time_format: str = "10.4f") -> None:
        self._hash = blake2b(digest_size=16)
        self._lines: list[str] = []
        self._out = out
        self._clock = clock
        self._time_format = time_format

    def note(self, text: str) -> None:
        """Add a line, with the time."""
        line = f"{self._clock.time:{self._time_format}} {text}\n"
        self._lines.append(line)
        if len(self._lines) == self.AT_ONCE:
            self._take_lines()
        if self._out is not None:
            self._out.write(line)

    def _take_lines(self) -> None:
        self._hash.update("".join(self._lines).encode())
        self._lines.clear()

    def show(self, text: str) -> None:
        """Write a line down without making it part of the hash."""
        if self._out is not None:
            self._out.write(f"{self._clock.time:{self._time_format}} {text}\n")

    @property
    def is_shown(self) -> bool:
        """Whether the lines are written down."""
        return self._out is not None

    @property
    def digest(self) -> str:
        """The hash so far."""
        self._take_lines()
        return self._hash.hexdigest()


def replay_line(name: str, seed: int) -> str:
    """The command that runs a scenario once more."""
    return f"python -m kbroker.sim --scenario {name} --seed {seed}"
