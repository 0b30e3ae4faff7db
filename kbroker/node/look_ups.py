"""Reads that cannot be known to be short (look-ups by timestamp), in turns with everything else that the node does.

One task does them for all connections: a slice of the oldest request's work, then of the next one's, and between two
slices everybody else has a turn. So what a client asks for, however much of it, holds up the others for a slice.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from kbroker.env import Env
    from kbroker.handlers.context import ConnectionInfo

logger = logging.getLogger(__name__)

SLICE_SECONDS = 0.005
"""After so long the work of a request gives way; a step of it that takes longer is not interrupted."""

MOST_STEPS = 100_000
"""Steps of all waiting requests together: more wait only where nothing else does. Each keeps a few hundred bytes."""

_STEPS_OF_A_REQUEST = 16
"""What a request costs besides its steps, in steps."""


class LookUps:
    """The requests that wait, and the task that serves them (``run``)."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._waiting: deque[tuple[ConnectionInfo, Iterator[None], Callable[[], None], int]] = deque()
        self._cost = 0
        self._wanted = trio.Event()

    def add(self, connection: ConnectionInfo, steps: Iterator[None], count: int, on_done: Callable[[], None]) -> bool:
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
        """The work, until cancelled."""
        while True:
            if not self._waiting:
                self._wanted = trio.Event()
                await self._wanted.wait()
            self._run_slice()
            await trio.lowlevel.checkpoint()

    def _run_slice(self) -> None:
        """Work off the first request, or let it wait again, behind the others, when its time is over."""
        connection, steps, on_done, cost = request = self._waiting[0]
        until = self._env.now() + SLICE_SECONDS
        try:
            while not connection.closed:
                if next(steps, self) is self:
                    on_done()
                    break
                if self._env.now() >= until:
                    self._waiting.rotate(-1)
                    return
        except Exception:
            logger.exception("a look-up for %s failed", connection.peer)
        assert self._waiting[0] is request
        self._waiting.popleft()
        self._cost -= cost
