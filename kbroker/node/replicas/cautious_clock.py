"""The time by which records are deleted: a wall clock that jumps ahead must not take them with it.

A clock may be set wrong for a moment, by a person or a faulty server of time. What is deleted by it is gone, what is
kept too long does no harm. So this clock follows the wall clock back at once, and ahead at no more than twice the pace
of the monotonic one: a jump of an hour that is taken back within an hour deletes nothing early. On start the wall clock
is believed.
"""

from __future__ import annotations

from typing import Protocol

_PACE = 2


class Clocks(Protocol):
    """The two clocks of an ``Env``."""

    def now(self) -> float: ...

    def wall_clock_ms(self) -> int: ...


class CautiousClock:
    """Wall-clock milliseconds that never run ahead suddenly. To be asked every now and then."""

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        self._time_ms = clocks.wall_clock_ms()
        self._asked_at = clocks.now()

    def now_ms(self) -> int:
        """The time to delete by."""
        now = self._clocks.now()
        latest = self._time_ms + int((now - self._asked_at) * 1000 * _PACE)
        self._asked_at = now
        self._time_ms = min(self._clocks.wall_clock_ms(), latest)
        return self._time_ms
