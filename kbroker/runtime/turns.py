"""Steps that are made one at a time, between two of which everything else has its turn of the event loop.

For steps that take as long as many requests: letting a client in, deciding on very many parts at the controller. Work
gives way in three other places, where it is the caller that counts: `kbroker.handlers.common.fair_share` (the parts of
one request), `kbroker.node.serving.work_queue` (what must keep the order of its connection's requests), and
`kbroker.runtime.round` (the requests of a connection that never waits).
"""

from __future__ import annotations

import trio


class StepTurns:
    """The turns of all who make steps of one kind on a node. However many they are, others wait for one step alone."""

    __slots__ = ("_gap_seconds", "_lock")

    def __init__(self, gap_seconds: float = 0.0) -> None:
        """``gap_seconds`` pass before each step; without them the event loop comes round once."""
        self._lock = trio.Lock()
        self._gap_seconds = gap_seconds

    async def take(self) -> None:
        """Wait until the caller may make a step: all until the caller waits for anything else."""
        # The lock is let go before the step is made. Whoever is next gets it at once, but goes on in the loop's next
        # turn at the earliest, and so does whoever finds it free.
        async with self._lock:
            if self._gap_seconds:
                await trio.sleep(self._gap_seconds)
