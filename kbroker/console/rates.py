"""Rates of numbers that grow, from one look at them to the next. Pure: the time is given."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

LEAST_SECONDS: Final = 0.5
"""Two looks that are closer tell nothing."""

LONGEST_SECONDS: Final = 60.0
"""Two looks that are further apart tell of a time that is long over."""


class Meter(Generic[K]):
    """Rates for one second, by key. ``rates`` lacks what was not seen twice within a minute."""

    def __init__(self) -> None:
        self.rates: Mapping[K, float] = {}
        self._seen: dict[K, tuple[float, int]] = {}

    def take(self, at: float, values: Mapping[K, int]) -> None:
        """Take a look at ``at``, in seconds. What is not in it is forgotten; what has shrunk keeps its rate.

        A log shrinks by retention and compaction, which say nothing of what is written.
        """
        rates: dict[K, float] = {}
        seen: dict[K, tuple[float, int]] = {}
        for key, value in values.items():
            before = self._seen.get(key)
            seen[key] = (at, value)
            if before is None or at - before[0] > LONGEST_SECONDS:
                continue
            if at - before[0] < LEAST_SECONDS:
                seen[key] = before
            if at - before[0] < LEAST_SECONDS or value < before[1]:
                if key in self.rates:
                    rates[key] = self.rates[key]
                continue
            rates[key] = (value - before[1]) / (at - before[0])
        self.rates, self._seen = rates, seen
