"""Steps that may take long are made one at a time, and everything else has its turns between two of them."""

from __future__ import annotations

from typing import Final

import trio

GAP: Final = 0.025
"""Seconds that the node has between two steps. It takes a few turns of the event loop to serve a heartbeat."""


class LongSteps:
    """The turns of long steps, for all connections of a node together.

    A step takes up to a second; a dozen at once would outlast a session.
    """

    def __init__(self) -> None:
        self._lock = trio.Lock()
        self.large_answers = trio.Lock()
        """Held by the request whose large answer is made (`kbroker.node.serving.long_request`)."""

    async def turn(self) -> None:
        """Wait until the caller may make such a step, up to the next time that it waits for anything."""
        async with self._lock:
            # Whoever is next gets the lock now, and begins to wait when the step is over: nothing runs during it.
            await trio.sleep(GAP)
