"""The log lines about clients that a listener does not let in: soon, whatever others do, and few under an attack.

Each address has a line per ten seconds for each kind of refusal, and the next one says how many there were meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from kbroker.security.shown import shown

INTERVAL_SECONDS = 10.0
"""The least time between two lines of one address and kind."""

MAX_ADDRESSES = 200
"""Addresses and kinds that are told apart. Beyond, all others count as one."""

MAX_TEXT = 500
"""Characters of a line that are shown."""

_OTHERS = "other addresses"


class _LastLine:
    """The last line of an address and kind, and what has not been told since."""

    __slots__ = ("address", "at", "last", "level", "untold")

    def __init__(self, address: str, at: float, level: int) -> None:
        self.address = address
        self.at = at
        self.level = level
        self.untold = 0
        self.last = ""


class RefusalLog:
    """The lines of one listener."""

    def __init__(self, listener: str, log: Callable[[int, str], None]) -> None:
        """``log`` writes a line of a level."""
        self.interval = INTERVAL_SECONDS
        self._listener = listener
        self._log = log
        self._told: dict[tuple[str, str], _LastLine] = {}

    @property
    def has_untold(self) -> bool:
        """Whether there are refusals that no line has counted yet."""
        return any(told.untold for told in self._told.values())

    def add(self, now: float, address: str, kind: str, text: str, level: int = logging.WARNING) -> None:
        """A client of this address is refused at ``now`` (seconds); ``text`` says why."""
        if self._told:
            self.flush(now)
        key = (address, kind)
        if key not in self._told and len(self._told) >= MAX_ADDRESSES:
            key = (_OTHERS, "")
        told = self._told.get(key)
        if told is None:
            self._told[key] = _LastLine(key[0], now, level)
            self._log(level, f"{self._listener}: {shown(text, MAX_TEXT)}")
        else:
            told.untold += 1
            told.last = text
            told.level = max(told.level, level)

    def flush(self, now: float) -> None:
        """Tell what has been counted for long enough, and forget who has come no more."""
        for key, told in list(self._told.items()):
            if now - told.at < self.interval:
                break  # they stand in the order of their times
            del self._told[key]
            if told.untold:
                self._log(
                    told.level,
                    f"{self._listener}: and {told.untold:,} more from {told.address},"
                    f" the last: {shown(told.last, MAX_TEXT)}",
                )
                self._told[key] = _LastLine(told.address, now, told.level)

    def clear(self) -> None:
        """Begin anew."""
        self._told.clear()
