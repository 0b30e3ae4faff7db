"""The time that somebody who has failed to sign in has to wait. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kbroker.base.exponential_backoff import exponential_backoff

FREE: Final = 3
"""Failures after which there is nothing to wait for: people mistype."""

FIRST_SECONDS: Final = 5.0
LONGEST_SECONDS: Final = 300.0
MAX_REMEMBERED: Final = 10_000


@dataclass(slots=True)
class _Failures:
    count: int
    until: float


class BackOff:
    """Failed sign-ins by address and user: from the fourth on, each doubles the wait, up to five minutes.

    By both, so that nobody can keep a user out from another address.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: dict[tuple[str, str], _Failures] = {}

    def wait(self, address: str, user: str) -> float:
        """Seconds until the next try is judged; 0 if it may be now."""
        known = self._failures.get((address, user))
        return 0.0 if known is None else max(known.until - self._clock(), 0.0)

    def failed(self, address: str, user: str) -> None:
        """Count a failure; the oldest is forgotten when there are too many."""
        known = self._failures.pop((address, user), None)
        count = 1 if known is None else known.count + 1
        seconds = 0.0 if count <= FREE else exponential_backoff(FIRST_SECONDS, count - FREE - 1, LONGEST_SECONDS)
        while len(self._failures) >= MAX_REMEMBERED:
            del self._failures[next(iter(self._failures))]
        self._failures[address, user] = _Failures(count, self._clock() + seconds)

    def succeeded(self, address: str, user: str) -> None:
        """Forget the failures."""
        self._failures.pop((address, user), None)
