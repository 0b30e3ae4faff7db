"""What requests that are still coming in may hold of a node's memory, all connections together."""

from __future__ import annotations

from collections import deque
from typing import Any

import trio


class MemoryBudget:
    """How much all connections together may buffer of requests that are not complete.

    Beyond ``limit`` bytes only one connection may go on with a request that has begun, until that is complete: the
    node always makes progress, and holds at most one request more. One that is slow about it loses its connection.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._waiting: deque[trio.Event] = deque()
        self._turn: Any = None

    @property
    def exhausted(self) -> bool:
        """Whether more is held than should be."""
        return self.used > self.limit

    def take(self, size: int) -> None:
        """Account for ``size`` more bytes (negative: fewer)."""
        self.used += size
        if self._waiting and self.used <= self.limit:
            while self._waiting:
                self._waiting.popleft().set()

    def leave(self, who: Any) -> None:
        """``who`` has completed its request, or is gone."""
        if self._turn is who:
            self._turn = None
            if self._waiting:
                self._waiting.popleft().set()

    async def wait(self, who: Any) -> None:
        """Wait, with a request that has begun, until there is room or it is the turn of ``who``."""
        if not who.in_frame:
            self.leave(who)
            return
        while self.used > self.limit and self._turn is not who:
            if self._turn is None:
                self._turn = who
                return
            event = trio.Event()
            self._waiting.append(event)
            try:
                await event.wait()
            except BaseException:
                if event in self._waiting:
                    self._waiting.remove(event)
                elif self._turn is None and self._waiting:
                    self._waiting.popleft().set()  # the turn was given to one that is no more
                raise
