"""A round: streams that were readable together are served together, and only then written to.

The poller owns it (`kbroker.runtime.env.EpollPoller`, and the simulation's). Nothing else of the node runs within a
round, so whatever is put off to its end has happened before anybody else can look.
"""

from __future__ import annotations

from collections.abc import Callable


class Round:
    """The present round of a poller: every readable stream's callback, then the callbacks of ``at_end``."""

    __slots__ = ("_callbacks", "at_end", "is_crowded")

    def __init__(self) -> None:
        self.is_crowded = False
        """Whether many streams were readable together, so that it pays to gather their batches and replies."""
        self._callbacks: list[Callable[[], None]] = []
        self.at_end: Callable[[Callable[[], None]], None] = self._callbacks.append
        """``at_end(callback)``: have it called when all streams have been served, in the order of these calls."""

    def end(self) -> None:
        """Call what was put off, and what these callbacks put off in turn. Called by the poller alone."""
        for callback in self._callbacks:
            callback()
        self._callbacks.clear()
