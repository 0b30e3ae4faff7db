"""Time in a simulation: events in order, each at its millisecond."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from hashlib import blake2b
from typing import TextIO


class Scheduler:
    """Runs events in the order of their times; those of one millisecond in the order in which they were made."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.events = 0
        """How many have run."""
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._made = 0

    def at(self, time_ms: int, event: Callable[[], None]) -> None:
        """Have ``event`` happen; at once if the time is past."""
        self._made += 1
        heapq.heappush(self._queue, (max(time_ms, self.now_ms), self._made, event))

    def after(self, delay_ms: int, event: Callable[[], None]) -> None:
        """Have ``event`` happen in a while."""
        self.at(self.now_ms + delay_ms, event)

    def run_next(self, until_ms: int) -> bool:
        """Let the next event happen if it is due by ``until_ms``; otherwise that is the time now."""
        if not self._queue or self._queue[0][0] > until_ms:
            self.now_ms = max(self.now_ms, until_ms)
            return False
        self.now_ms, _, event = heapq.heappop(self._queue)
        self.events += 1
        event()
        return True


class Trace:
    """What happened, as a hash: two runs of a seed must agree in it. With ``out`` it is written down as well."""

    def __init__(self, scheduler: Scheduler, out: TextIO | None = None) -> None:
        self._scheduler = scheduler
        self._hash = blake2b(digest_size=16)
        self._out = out

    def note(self, text: str) -> None:
        """Add a line."""
        line = f"{self._scheduler.now_ms:7d} {text}\n"
        self._hash.update(line.encode())
        if self._out is not None:
            self._out.write(line)

    @property
    def digest(self) -> str:
        """The hash so far."""
        return self._hash.hexdigest()
