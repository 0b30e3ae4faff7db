"""Rates by counts: how much was added in a second since the last scrape."""

from __future__ import annotations

from collections.abc import Callable, Hashable


class Rates:
    """The counts of the last scrape, by what they count. A scrape asks once for each."""

    def __init__(self, now: Callable[[], float]) -> None:
        """``now`` gives seconds."""
        self._now = now
        self._last: dict[Hashable, tuple[float, int]] = {}

    def of(self, counted: Hashable, count: int) -> float:
        """The growth of ``count`` in a second since it was last asked for; 0 the first time."""
        now = self._now()
        then, before = self._last.get(counted, (now, count))
        self._last[counted] = now, count
        return max(0, count - before) / (now - then) if now > then else 0.0
