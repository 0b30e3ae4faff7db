"""Quantiles of durations and sizes, from counts by class: a fixed amount of memory, a few additions for each."""

from __future__ import annotations

from collections.abc import Sequence

_STEPS = 8
"""Classes in each power of two: a quantile is at most an eighth too high."""

_SHIFT = 3

_CLASSES = 44 * _STEPS
"""Up to 2**45 ns, which is ten hours."""


class Histogram:
    """Durations in nanoseconds (or sizes in bytes), counted in classes of growing width."""

    __slots__ = ("_classes", "_taken", "count", "total")

    def __init__(self) -> None:
        self._classes = [0] * _CLASSES
        self.count = 0
        """Observations, ever."""
        self.total = 0
        """The sum of them, ever."""
        self._taken = (0, 0)

    def observe(self, nanoseconds: int, weight: int = 1) -> None:
        """Count a duration, which stands for ``weight`` of them."""
        self.count += weight
        self.total += nanoseconds * weight
        self._classes[_class_of(nanoseconds)] += weight

    def observe_seconds(self, seconds: float) -> None:
        """Count a duration of so many seconds."""
        self.observe(int(seconds * 1e9))

    def quantiles(self, wanted: Sequence[float]) -> list[float]:
        """The durations that these shares of the observations are not above; 0 without any.

        ``wanted`` ascends. Half of what was observed so far is forgotten with each call, so that quantiles follow.
        """
        classes = self._classes
        observed = sum(classes)
        found: list[float] = []
        below = index = 0
        for share in wanted:
            while below < share * observed and index < _CLASSES:
                below += classes[index]
                index += 1
            found.append(float(_upper_bound(index - 1)) if index else 0.0)
        self._classes = [count >> 1 for count in classes]
        return found

    def take(self) -> tuple[float, float]:
        """Mean and maximum of what was observed since the last call, 0 without; the latter at most an eighth too high.

        Whoever calls this does not ask for quantiles.
        """
        count, total = self.count - self._taken[0], self.total - self._taken[1]
        self._taken = self.count, self.total
        highest = max((index for index, found in enumerate(self._classes) if found), default=-1)
        self._classes = [0] * _CLASSES
        return (total / count, float(_upper_bound(highest))) if count else (0.0, 0.0)


def _class_of(nanoseconds: int) -> int:
    if nanoseconds < _STEPS:
        return max(nanoseconds, 0)
    power = nanoseconds.bit_length() - _SHIFT - 1
    return min((power << _SHIFT) + (nanoseconds >> power), _CLASSES - 1)


def _upper_bound(index: int) -> int:
    """The largest duration of a class."""
    if index < 2 * _STEPS:
        return index
    power = (index >> _SHIFT) - 1
    return (((index & (_STEPS - 1)) + _STEPS + 1) << power) - 1
