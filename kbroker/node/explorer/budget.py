"""The processor time that a node spends on being watched: so much of a second, and what was saved in quiet ones."""

from __future__ import annotations

from math import inf
from time import thread_time
from typing import Final

SHARE: Final = 0.02
"""Of one processor, for long."""

SAVED: Final = 0.1
"""Seconds of it that are saved at most: after a rest so much is spent at once."""

RESERVE: Final = 0.25 * SAVED
"""Those that are kept for rare requests."""

EXCHANGE: Final = 25e-6
"""Seconds that an exchange counts for beside those that are measured: caches, memory, those who are to be woken."""

TURN: Final = 0.1
"""Seconds after which it is judged anew how much can be afforded."""


class Budget:
    """Seconds of a processor. What was spent and what time it is, it is told."""

    def __init__(self) -> None:
        self.is_open = self.is_open_for_rare = True
        """Whether a request may be seen, and whether a rare one may."""
        self._saved = SAVED
        self._refilled = self._judged = -inf
        self._spent = 0.0
        """Since it was last judged."""
        self._was_short = False
        """Whether a request could have been refused since then."""

    def spend(self, seconds: float) -> None:
        """Take what was spent."""
        self._saved -= seconds
        self._spent += seconds
        self._look()

    def spend_on_exchange(self, seconds: float) -> None:
        """Take what was spent on an exchange, and what cannot be measured of it."""
        self.spend(seconds + EXCHANGE)

    def refill(self, now: float) -> bool:
        """Add what has been earned until now. Whether it is time to ask what is `affordable`."""
        if self._refilled == -inf:
            self._refilled = self._judged = now
        self._saved = min(SAVED, self._saved + (now - self._refilled) * SHARE)
        self._refilled = now
        self._look()
        return now - self._judged >= TURN

    def _look(self) -> None:
        self.is_open_for_rare = self._saved > 0
        self.is_open = self._saved > RESERVE
        self._was_short = self._was_short or not self.is_open

    def affordable(self) -> float:
        """The part of what was seen in the last turn that can be afforded in the next: below 1 less, above 1 more.

        Infinity for everything: nothing is spent, or nearly nothing.
        """
        earned, spent, was_short = (self._refilled - self._judged) * SHARE, self._spent, self._was_short
        self._judged, self._spent, self._was_short = self._refilled, 0.0, not self.is_open
        if self._saved >= SAVED:
            return inf
        if was_short:
            return min(0.5, earned / spent) if spent else 0.5
        return 2.0 if self._saved > 0.75 * SAVED else 1.0


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
