"""Quantiles of durations and sizes, from counts by class: a fixed amount of memory, a few additions for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

_STEPS = 8
"""Classes in each power of two: a quantile is at most an eighth too high."""

_SHIFT = 3

_CLASSES = 44 * _STEPS
"""Up to 2**45 ns, which is ten hours."""


class Histogram:
    """Durations in nanoseconds (or sizes in bytes), counted in classes of growing width."""

    __slots__ = ("_classes", "_forgotten", "_taken", "count", "total")

    keeps: ClassVar[bool] = False
    """Whether `buckets` have what quantiles forget. A node that exports histograms sets it before it makes any."""

    def __init__(self) -> None:
        self._classes = [0] * _CLASSES
        self._forgotten: list[int] | None = None
        """By power of two."""
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
        self._remember([count >> 1 for count in classes])
        return found

    def take(self) -> tuple[float, float]:
        """Mean and maximum of what was observed since the last call, 0 without; the latter at most an eighth too high.

        Whoever calls this does not ask for quantiles.
        """
        count, total = self.count - self._taken[0], self.total - self._taken[1]
        self._taken = self.count, self.total
        highest = max((index for index, found in enumerate(self._classes) if found), default=-1)
        self._remember([0] * _CLASSES)
        return (total / count, float(_upper_bound(highest))) if count else (0.0, 0.0)

    def _remember(self, classes: list[int]) -> None:
        """Have these counts from now on; the rest is forgotten."""
        if self.keeps:
            before, after = _by_power(self._classes), _by_power(classes)
            kept = self._forgotten or [0] * len(before)
            self._forgotten = [sum_ + old - new for sum_, old, new in zip(kept, before, after, strict=True)]
        self._classes = classes

    def buckets(self, lowest: int, highest: int) -> list[int]:
        """Everything that was ever observed, by size: up to `bound` of ``lowest``, then of each one up to ``highest``,
        and above that. It is complete if `keeps` was set before."""
        counts = _by_power(self._classes)
        if self._forgotten is not None:
            counts = [now + then for now, then in zip(counts, self._forgotten, strict=True)]
        return [sum(counts[: lowest + 1]), *counts[lowest + 1 : highest + 1], sum(counts[highest + 1 :])]


def bound(power: int) -> int:
    """The largest duration that the bucket of a power of two has: 7 of the first, then 15, 31 and so on."""
    return (_STEPS << power) - 1


def _by_power(classes: list[int]) -> list[int]:
    return [sum(classes[first : first + _STEPS]) for first in range(0, _CLASSES, _STEPS)]


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
