"""Look-ups by timestamp, which may read a lot, in turns with everything else that the node does.

One task does them for all connections: a slice of the oldest request's work, then of the next one's, of a few requests
at a time. Between two slices all other work of the node has a turn, so a look-up of any length delays it by one slice.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from kbroker.handlers.services.connection import Connection
    from kbroker.runtime.env import Env

logger = logging.getLogger(__name__)

SLICE_SECONDS = 0.005
"""Length of a slice. A step of the work that takes longer is not interrupted."""

MOST_STEPS = 100_000
"""Steps of all waiting requests together; a single request may have more. Each keeps a few hundred bytes."""

MOST_BEGUN = 8
"""Requests that are under way at the same time: each may hold a batch, and the window of a decompressor, 128 MiB for
zstd."""

_STEPS_OF_A_REQUEST = 16
"""The cost of a request besides its steps, in steps."""


class TimestampLookupQueue:
    """The waiting requests, and the task that serves them (``run``)."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._waiting: deque[tuple[Connection, Iterator[None], Callable[[], None], int]] = deque()
        self._cost = 0
        self._wanted = trio.Event()

    def add(self, connection: Connection, steps: Iterator[None], count: int, on_done: Callable[[], None]) -> bool:
        """Run the ``count`` steps, then call ``on_done``, unless the connection has ended. Steps must not raise.

        False if too much waits already; nothing is done then.
        """
        cost = count + _STEPS_OF_A_REQUEST
        if self._waiting and self._cost + cost > MOST_STEPS:
            return False
        self._waiting.append((connection, steps, on_done, cost))
        self._cost += cost
        self._wanted.set()
        return True

    async def run(self) -> None:
        """Serve the requests until cancelled."""
        while True:
            if not self._waiting:
                self._wanted = trio.Event()
                await self._wanted.wait()
            self._run_slice()
            await trio.lowlevel.checkpoint()

    def _run_slice(self) -> None:
        """Work on the first request; if its slice ends before it is done, it waits again behind the others."""
        connection, steps, on_done, cost = request = self._waiting[0]
        until = self._env.now() + SLICE_SECONDS
        try:
            while not connection.closed:
                if next(steps, self) is self:
                    on_done()
                    break
                if self._env.now() >= until:
                    self._waiting.popleft()
                    self._waiting.insert(MOST_BEGUN - 1, request)
                    return
        except Exception:
            logger.exception("a look-up for %s failed", connection.peer)
        assert self._waiting[0] is request
        self._waiting.popleft()
        self._cost -= cost
