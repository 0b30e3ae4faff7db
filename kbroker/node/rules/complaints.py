"""The log lines about a rule that does not do what it should: one a minute for each kind."""

from __future__ import annotations

import logging
import time
from typing import Final

logger = logging.getLogger("kbroker.rules")

INTERVAL_SECONDS: Final = 60.0


class Complaints:
    """The complaints about a rule, by its name in the node's file. May be called in any thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._told: dict[str, tuple[float, int]] = {}

    def failed(self, problem: str, consequence: str) -> None:
        """The rule has raised an error."""
        more = self._more("failed")
        if more is not None:
            logger.error("%s fails, and %s: %s%s", self._name, consequence, problem, more)

    def late(self, seconds: float, consequence: str) -> None:
        """The rule has taken longer than it may."""
        more = self._more("late")
        if more is not None:
            logger.error("%s has not answered within %g s, and %s%s", self._name, seconds, consequence, more)

    def used_up(self, seconds: float) -> None:
        """The rule has taken all the time of a request that asks for more."""
        more = self._more("used up")
        if more is not None:
            logger.error(
                "%s has taken %g s for a part of one request, and the rest of it is refused%s",
                self._name,
                seconds,
                more,
            )

    def busy(self, consequence: str) -> None:
        """The rule was not asked, since earlier calls were late or slow."""
        more = self._more("busy")
        if more is not None:
            logger.error(
                "%s is not asked for a while after late or slow answers, and %s%s", self._name, consequence, more
            )

    def nonsense(self, answer: str, consequence: str) -> None:
        """The rule has given an answer that means nothing."""
        more = self._more("nonsense")
        if more is not None:
            logger.error("%s has answered %s, which means nothing, and %s%s", self._name, answer, consequence, more)

    def bad(self, problem: str, consequence: str) -> None:
        """The rule has given an answer that cannot be taken; ``problem`` says why."""
        more = self._more("bad")
        if more is not None:
            logger.error("%s has answered what cannot be, and %s: %s%s", self._name, consequence, problem, more)

    def unlike(self, given: str, shown: str) -> None:
        """The rule has given a credential that has another form than that of users whom nobody knows."""
        more = self._more("unlike")
        if more is not None:
            logger.warning(
                "%s has given a credential with %s, and users who do not exist seem to have %s: a client can tell them"
                " apart%s",
                self._name,
                given,
                shown,
                more,
            )

    def slow(self, seconds: float) -> None:
        """The rule has kept the whole node from working."""
        more = self._more("slow")
        if more is not None:
            logger.warning(
                "%s has kept the node waiting for %.2f s: an async def must not block%s", self._name, seconds, more
            )

    def _more(self, kind: str) -> str | None:
        """The end of a line that is due: how many there would have been since the last one. None if it is not due."""
        now = time.monotonic()
        at, untold = self._told.get(kind, (float("-inf"), 0))
        if now - at < INTERVAL_SECONDS:
            self._told[kind] = at, untold + 1
            return None
        self._told[kind] = now, 0
        return f" ({untold} more since the last such line)" if untold else ""
