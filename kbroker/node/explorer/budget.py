"""The processor time that a node spends on being watched: so much of a second, and what was saved in quiet ones."""

from __future__ import annotations

from time import thread_time
from typing import Final

SHARE: Final = 0.02
"""Of one processor, for long."""

SAVED: Final = 0.1
"""Seconds of it that are saved at most: after a rest so much is spent at once."""

ENOUGH: Final = 0.5 * SAVED
"""Seconds that are saved before requests are shown again after some were not: sequences without a gap in them."""

RESERVE: Final = 0.25 * SAVED
"""Those that are kept for rare requests."""

EXCHANGE: Final = 25e-6
"""Seconds that an exchange counts for beside those that are measured: caches, memory, those who are to be woken."""


class Budget:
    """Seconds of a processor. What was spent and what time it is, it is told."""

    def __init__(self, saved: float = SAVED, share: float = SHARE) -> None:
        """``saved``: seconds at the begin, and at most."""
        self.is_open = self.is_open_for_rare = True
        """Whether a request may be seen, and whether a rare one may."""
        self._saved = self._most = saved
        self._share = share
        self._refilled: float | None = None
        self._look()

    def spend(self, seconds: float) -> None:
        """Take what was spent."""
        self._saved -= seconds
        self._look()

    def refill(self, now: float) -> None:
        """Add what has been earned until now."""
        if self._refilled is not None:
            self._saved = min(self._most, self._saved + (now - self._refilled) * self._share)
            self._look()
        self._refilled = now

    def _look(self) -> None:
        self.is_open_for_rare = self._saved > 0
        self.is_open = self._saved > (RESERVE if self.is_open else ENOUGH)


class ProcessorTime:
    """Spends from a budget the processor time of the node's thread between ``start`` and ``stop``, over and over."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._began = 0.0

    def start(self) -> None:
        """Work begins."""
        self._began = thread_time()

    def stop(self) -> None:
        """It is done."""
        self._budget.spend(thread_time() - self._began)
