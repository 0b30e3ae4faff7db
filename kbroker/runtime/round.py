"""A round: streams that were readable together are served together, and only then written to; and whose turn it is.

The poller owns it (`kbroker.runtime.epoll_poller`, and the simulation's). Nothing else of the node runs within a
round, so whatever is put off to its end has happened before anybody else can look.
"""

from __future__ import annotations

from collections.abc import Callable

FAIR_REQUESTS = 64
"""The requests of a turn, where nobody else has any."""


class Turns:
    """The turns of all connections of a node.

    A connection that never has to wait serves some requests in a row, and then others have theirs. A client that
    answers at once would else be served again and again, while requests of others wait in their sockets unseen.
    """

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
        taken = self._turns.taken = self._turns.taken + 1
        since, self._last = taken - self._last, taken
        size = self._size = min(FAIR_REQUESTS // since**2, 2 * self._size) or 1
        return size


class Round:
    """The present round of a poller: every readable stream's callback, then the callbacks of ``at_end``."""

    __slots__ = ("_callbacks", "at_end", "is_crowded", "turns")

    def __init__(self) -> None:
        self.is_crowded = False
        """Whether many streams were readable together, so that it pays to gather their batches and replies."""
        self.turns = Turns()
        """Those of the streams' node, which may have several pollers. They count each stream of a round."""
        self._callbacks: list[Callable[[], None]] = []
        self.at_end: Callable[[Callable[[], None]], None] = self._callbacks.append
        """``at_end(callback)``: have it called when all streams have been served, in the order of these calls."""

    def end(self) -> None:
        """Call what was put off, and what these callbacks put off in turn. Called by the poller alone."""
        for callback in self._callbacks:
            callback()
        self._callbacks.clear()
