"""The cluster, asked from an event loop: the client blocks, so each question runs in a worker thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar

import trio

from kbroker.client import Client

T = TypeVar("T")

THREADS: Final = 8
"""Questions that are under way at once, of all sessions."""

_IDLE_CLIENTS: Final = 4


class Cluster:
    """Clients of one user, each used by one thread at a time, and kept for the next question."""

    def __init__(self, make_client: Callable[[], Client], limiter: trio.CapacityLimiter) -> None:
        self.make_client = make_client
        self._limiter = limiter
        self._idle: deque[Client] = deque()
        self._closed = False

    async def ask(self, question: Callable[[Client], T], limiter: trio.CapacityLimiter | None = None) -> T:
        """The value of ``question``; it may block for as long as the client's timeout lets it.

        ``limiter``: of the threads that it may take, in place of those of all questions.
        """
        return await trio.to_thread.run_sync(self._in_thread, question, limiter=limiter or self._limiter)

    def _in_thread(self, question: Callable[[Client], T]) -> T:
        try:
            client = self._idle.pop()
        except IndexError:
            client = self.make_client()
        try:
            return question(client)
        finally:
            if self._closed or len(self._idle) >= _IDLE_CLIENTS:
                client.close()
            else:
                self._idle.append(client)

    def close(self) -> None:
        """Close the clients that nobody uses, and the others when they come back."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()
