"""Turns of connections that never have to wait: each serves some requests in a row, and then others have theirs.

A client that answers at once would else be served again and again, while those of the others wait in their sockets,
where nobody sees them. So a connection goes by the turns that others have had since its last.
"""

from __future__ import annotations

FAIR_REQUESTS = 64
"""The requests of a turn, where nobody else has any."""


class Turns:
    """The turns of all connections of a node."""

    __slots__ = ("taken",)

    def __init__(self) -> None:
        self.taken = 0
        """Turns so far."""


class Turn:
    """The turns of one connection."""

    __slots__ = ("_last", "_size", "_turns")

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._last = turns.taken
        self._size = 1

    def take(self) -> int:
        """Begin a turn; the requests that it is for: a quarter where there are two connections, one from eight on.

        Twice as many as the last at most: others that wait may not be seen before the event loop has come round.
        """
        turns = self._turns
        turns.taken += 1
        since, self._last = turns.taken - self._last, turns.taken
        self._size = min(FAIR_REQUESTS // since**2, 2 * self._size) or 1
        return self._size
