"""The courses of lags and of traffic, as far as the console has looked, in bounded memory. Pure: times are given."""

from __future__ import annotations

import math
import threading
from array import array
from typing import Final, NamedTuple

MOST_COURSES: Final = 300
"""Courses of a kind that are remembered, the ones that were looked at last."""

MOST_POINTS: Final = 240
"""Points of a course. When there are more, each two become one: the course gets coarser, and does not end."""

FIRST_STEP_MS: Final = 4_000
"""Looks that are closer are one point."""


class Point(NamedTuple):
    """The largest of each of two numbers around a time; the second is None where it is not known.

    Of a lag they are records and seconds; of traffic bytes and records for one second.
    """

    at: int
    amount: int
    other: float | None


class _Course:
    __slots__ = ("_amounts", "_at", "_last", "_others", "_step")

    def __init__(self) -> None:
        self._last = Point(0, 0, None)
        self._step = FIRST_STEP_MS
        self._at = array("q")
        self._amounts = array("q")
        self._others = array("d")

    def look(self, at: int, amount: int, other: float | None) -> None:
        self._last = Point(at, amount, other)
        known = math.nan if other is None else other
        if self._at and at - self._at[-1] < self._step // 2:
            self._amounts[-1] = max(self._amounts[-1], amount)
            self._others[-1] = _larger(self._others[-1], known)
            return
        self._at.append(at)
        self._amounts.append(amount)
        self._others.append(known)
        if len(self._at) >= MOST_POINTS:
            self._thin()

    def _thin(self) -> None:
        """Make one point of each two; the newest stays as it is, if it has no other."""
        self._step *= 2
        count = len(self._at)
        pairs = [(index, min(index + 1, count - 1)) for index in range(0, count, 2)]
        self._amounts = array("q", [max(self._amounts[a], self._amounts[b]) for a, b in pairs])
        self._others = array("d", [_larger(self._others[a], self._others[b]) for a, b in pairs])
        self._at = array("q", [self._at[b] for _, b in pairs])

    def points(self) -> list[Point]:
        """The points, and the last look as it was."""
        points = [
            Point(at, amount, None if math.isnan(other) else other)
            for at, amount, other in zip(self._at, self._amounts, self._others, strict=True)
        ]
        return [*points, self._last] if points and self._last.at > points[-1].at else points


def _larger(one: float, other: float) -> float:
    """The larger of two numbers; one that is not known is no number."""
    if math.isnan(one):
        return other
    return one if math.isnan(other) else max(one, other)


class Courses:
    """Courses of one kind, by name. Threads may share it."""

    def __init__(self) -> None:
        self._courses: dict[str, _Course] = {}
        self._lock = threading.Lock()

    def look(self, name: str, at: int, amount: int, other: float | None = None) -> None:
        """Take a look at what has this name."""
        with self._lock:
            course = self._courses.pop(name, None) or _Course()
            self._courses[name] = course
            course.look(at, amount, other)
            while len(self._courses) > MOST_COURSES:
                del self._courses[next(iter(self._courses))]

    def of(self, name: str, newest: int = MOST_POINTS) -> list[Point]:
        """The newest points of a course, the oldest of them first."""
        with self._lock:
            course = self._courses.get(name)
            return [] if course is None else course.points()[-newest:]
