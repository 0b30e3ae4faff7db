"""The log lines about a rule that does not do what it should: one a minute for each kind."""

from __future__ import annotations

import logging
import time
from typing import Final

logger = logging.getLogger("kbroker.rules")

INTERVAL_SECONDS: Final = 60.0


class Complaints:
    """Those about one rule, by its name in the node's file. May be called in any thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._told: dict[str, tuple[float, int]] = {}

    def failed(self, problem: str, consequence: str) -> None:
        """It has raised an error."""
        self._tell("failed", "%s fails, and %s: %s%s", consequence, problem)

    def late(self, seconds: float, consequence: str) -> None:
        """It has taken longer than it may."""
        self._tell("late", "%s has not answered within %s, and %s%s", f"{seconds:g} s", consequence)

    def busy(self, consequence: str) -> None:
        """It was not asked, since earlier calls have not ended."""
        self._tell("busy", "%s is not asked for now, as calls of it have not ended, and %s%s", consequence)

    def nonsense(self, answer: str, consequence: str) -> None:
        """It has given an answer that means nothing."""
        self._tell("nonsense", "%s has answered with %s, which means nothing here, and %s%s", answer, consequence)

    def slow(self, seconds: float) -> None:
        """It has kept the whole node from working."""
        self._tell("slow", "%s has kept the node waiting for %s: an async def must not block%s", f"{seconds:.2f} s")

    def _tell(self, kind: str, text: str, *parts: str) -> None:
        now = time.monotonic()
        at, untold = self._told.get(kind, (float("-inf"), 0))
        if now - at < INTERVAL_SECONDS:
            self._told[kind] = at, untold + 1
            return
        self._told[kind] = now, 0
        more = f" ({untold} more since the last such line)" if untold else ""
        logger.error(text, self._name, *parts, more)
