"""The course of groups' lags, as far as the console has looked, in bounded memory. Pure: the time is given, in ms."""

from __future__ import annotations

import math
import threading
from array import array
from typing import Final, NamedTuple

MOST_GROUPS: Final = 300
"""Groups that are remembered, the ones that were looked at last."""

MOST_POINTS: Final = 240
"""Points of a group. When there are more, each two become one: the course gets coarser, and does not end."""

FIRST_STEP_MS: Final = 4_000
"""Looks that are closer are one point."""


class Point(NamedTuple):
    """The largest lag around a time, in records and in seconds; None where it is not known in seconds."""

    at: int
    lag: int
    seconds: float | None


class _LagHistory:
    __slots__ = ("_at", "_lags", "_last", "_seconds", "_step")

    def __init__(self) -> None:
        self._last = Point(0, 0, None)
        self._step = FIRST_STEP_MS
        self._at = array("q")
        self._lags = array("q")
        self._seconds = array("d")

    def look(self, at: int, lag: int, seconds: float | None) -> None:
        self._last = Point(at, lag, seconds)
        known = math.nan if seconds is None else seconds
        if self._at and at - self._at[-1] < self._step // 2:
            self._lags[-1] = max(self._lags[-1], lag)
            self._seconds[-1] = _larger(self._seconds[-1], known)
            return
        self._at.append(at)
        self._lags.append(lag)
        self._seconds.append(known)
        if len(self._at) >= MOST_POINTS:
            self._thin()

    def _thin(self) -> None:
        """Make one point of each two; the newest stays as it is, if it has no other."""
        self._step *= 2
        count = len(self._at)
        pairs = [(index, min(index + 1, count - 1)) for index in range(0, count, 2)]
        self._lags = array("q", [max(self._lags[a], self._lags[b]) for a, b in pairs])
        self._seconds = array("d", [_larger(self._seconds[a], self._seconds[b]) for a, b in pairs])
        self._at = array("q", [self._at[b] for _, b in pairs])

    def points(self) -> list[Point]:
        """The points, and the last look as it was."""
        points = [
            Point(at, lag, None if math.isnan(seconds) else seconds)
            for at, lag, seconds in zip(self._at, self._lags, self._seconds, strict=True)
        ]
        return [*points, self._last] if points and self._last.at > points[-1].at else points


def _larger(one: float, other: float) -> float:
    """The larger of two numbers; one that is not known is no number."""
    if math.isnan(one):
        return other
    return one if math.isnan(other) else max(one, other)


class LagHistories:
    """The courses of groups. Threads may share it."""

    def __init__(self) -> None:
        self._courses: dict[str, _LagHistory] = {}
        self._lock = threading.Lock()

    def look(self, group_id: str, at: int, lag: int, seconds: float | None = None) -> None:
        """Take a look at a group."""
        with self._lock:
            course = self._courses.pop(group_id, None) or _LagHistory()
            self._courses[group_id] = course
            course.look(at, lag, seconds)
            while len(self._courses) > MOST_GROUPS:
                del self._courses[next(iter(self._courses))]

    def of(self, group_id: str, newest: int = MOST_POINTS) -> list[Point]:
        """The newest points of a group, the oldest of them first."""
        with self._lock:
            course = self._courses.get(group_id)
            return [] if course is None else course.points()[-newest:]
