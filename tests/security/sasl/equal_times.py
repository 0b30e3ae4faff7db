"""Whether two kinds of attempts take the same time.

They are made in turns, so that whatever else the machine does befalls both, and their medians are compared. A run that
was disturbed is made again.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable

from kbroker.security.sasl.mechanism import SaslError

ATTEMPTS = 400
RUNS = 8
MOST_DIFFERENCE = 0.15
"""Of the longer median; a missing HMAC of a SCRAM message makes a third or more."""

Attempt = Callable[[], Callable[[], object]]
"""Prepares an attempt, and returns the step whose time counts."""


def take_the_same_time(one: Attempt, other: Attempt) -> bool:
    """Whether some run finds no difference between the two."""
    for _ in range(RUNS):
        times: tuple[list[int], list[int]] = ([], [])
        for _ in range(ATTEMPTS):
            for attempt, taken in zip((one, other), times, strict=True):
                step = attempt()
                began = time.perf_counter_ns()
                with contextlib.suppress(SaslError):
                    step()
                taken.append(time.perf_counter_ns() - began)
        medians = [statistics.median(each) for each in times]
        if max(medians) - min(medians) <= MOST_DIFFERENCE * max(medians):
            return True
    return False
