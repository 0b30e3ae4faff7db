"""A limit of records a second. Pure: the present is an argument."""

from __future__ import annotations


class Pace:
    """Tells how long to wait. Time that was not used is not made up for beyond a tenth of a second."""

    def __init__(self, per_second: float, now: float) -> None:
        self._per_second = per_second
        self._next = now

    def wait_for(self, count: int, now: float) -> float:
        """Seconds to wait before the next ``count`` records."""
        self._next = max(self._next, now - 0.1)
        wait = max(0.0, self._next - now)
        self._next += count / self._per_second
        return wait
