"""The memory bound for incomplete requests of all connections of a node."""

from __future__ import annotations

from collections import deque
from typing import Protocol

import trio


class Reader(Protocol):
    """A connection that reads requests."""

    @property
    def in_frame(self) -> bool:
        """Whether a request has begun, and is not complete."""


class MemoryBudget:
    """Accounts for the bytes of incomplete requests; all connections share it.

    Beyond ``limit`` bytes one connection at a time may continue a request that has begun, until it is complete. So the
    node always makes progress, and exceeds the limit by at most one request. A slow client loses its connection.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._waiting: deque[trio.Event] = deque()
        self._turn: object = None

    @property
    def exhausted(self) -> bool:
        """Whether more than ``limit`` bytes are held."""
        return self.used > self.limit

    def take(self, size: int) -> None:
        """Account for ``size`` more bytes (negative: fewer)."""
        self.used += size
        if self._waiting and self.used <= self.limit:
            while self._waiting:
                self._waiting.popleft().set()

    def leave(self, who: object) -> None:
        """Give back the turn of ``who``, which has completed its request or is closed."""
        if self._turn is who:
            self._turn = None
            if self._waiting:
                self._waiting.popleft().set()

    async def wait(self, who: Reader) -> None:
        """Wait until there is room or ``who`` has the turn; no wait for a connection without a request under way."""
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
                    self._waiting.popleft().set()  # this waiter was woken for the turn, and is cancelled
                raise
