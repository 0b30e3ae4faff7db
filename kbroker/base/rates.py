"""Rates of numbers that grow, from one look at them to the next. Pure: the time is given, in seconds."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Final, Generic, TypeVar

from kbroker.value_types import NamedTuple

K = TypeVar("K", bound=Hashable)

LEAST_SECONDS: Final = 0.5
"""Two looks of a `Meter` that are closer tell nothing."""

LONGEST_SECONDS: Final = 60.0
"""Two looks of a `Meter` that are further apart tell of a time that is long over."""


class Sample(NamedTuple):
    """A number at a time."""

    at: float
    value: float


def rates_after(
    samples: Mapping[K, Sample],
    rates: Mapping[K, float],
    told: Mapping[K, float],
    at: float,
    *,
    least: float = 0.0,
    longest: float = math.inf,
) -> tuple[dict[K, Sample], dict[K, float]]:
    """Samples, and rates for one second, after a look that told some of the numbers; what it did not tell stays.

    A look that is closer than ``least`` seconds to the sample before is not taken; one further from it than ``longest``
    leaves no rate. A number that has become smaller leaves its rate as it was: a log shrinks by retention and
    compaction, which say nothing of what is written.
    """
    following, found = dict(samples), dict(rates)
    for key, value in told.items():
        before = following.get(key)
        if before is not None:
            seconds = at - before.at
            if seconds < least:
                continue
            if seconds > longest:
                found.pop(key, None)
            elif seconds > 0 and value >= before.value:
                found[key] = (value - before.value) / seconds
        following[key] = Sample(at, value)
    return following, found


def rates_of_counters(before: Mapping[K, float], now: Mapping[K, float], seconds: float) -> dict[K, float]:
    """Rates of counters; one that begins anew, with its node, has counted from 0."""
    found: dict[K, float] = {}
    for key, value in now.items():
        past = before.get(key, 0.0)
        found[key] = (value - past if value >= past else value) / seconds
    return found


class Meter(Generic[K]):
    """Rates for one second, by key. ``rates`` lacks what was not seen twice within a minute."""

    def __init__(self) -> None:
        self.rates: Mapping[K, float] = {}
        self._samples: Mapping[K, Sample] = {}

    def take(self, at: float, values: Mapping[K, float]) -> None:
        """Take a look. What is not in it is forgotten."""
        samples = {key: sample for key, sample in self._samples.items() if key in values}
        rates = {key: rate for key, rate in self.rates.items() if key in values}
        self._samples, self.rates = rates_after(
            samples, rates, values, at, least=LEAST_SECONDS, longest=LONGEST_SECONDS
        )
