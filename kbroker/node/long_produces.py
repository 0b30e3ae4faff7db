"""Produce requests that take long to judge or to append, in turns with everything else that the node does.

One task does them for all connections: a slice of the oldest connection's first request, then of the next one's, and
between two slices everybody else has a turn. The requests of a connection keep their order. What needs no lock
(a codec's work on megabytes) is done in a thread.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import trio

from kbroker.handlers.context import CloseConnection

if TYPE_CHECKING:
    from kbroker.env import Env

logger = logging.getLogger(__name__)

SLICE_SECONDS = 0.005
"""After so long the work of a request gives way; a step of it that takes longer is not interrupted."""

ROOM_BYTES = 128 << 20
"""While all waiting requests together hold more, connections that have one of them are not read from."""

MOST_BYTES = 512 << 20
"""What they may hold at most, since others go on: more is taken only where nothing else waits."""

MOST_BEGUN = 4
"""Requests that are under way at the same time: each may hold the records of a batch decompressed."""

REQUEST_BYTES = 4096
"""What a request holds besides its records."""

Work = Generator[Callable[[], Any] | None, Any, Any]


@dataclass(slots=True)
class _Request:
    connection: Any
    work: Work
    step: Callable[[], Any] | None
    """What the work waits for the result of."""
    size: int
    on_done: Callable[[Any], None]
    needs_answer: bool
    begun: bool = False


class LongProduces:
    """The requests that wait, and the task that serves them (``run``)."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self.waiting: dict[str, deque[_Request]] = {}
        """By the client's address, which is its connection's: later requests come after these."""
        self._bytes = 0
        self._begun = 0
        self._wanted = trio.Event()
        self._one_over = trio.Event()

    def add(
        self,
        connection: Any,
        work: Work,
        step: Callable[[], Any] | None,
        size: int,
        on_done: Callable[[Any], None],
        *,
        needs_answer: bool,
    ) -> bool:
        """Go on with ``work``, which has yielded ``step`` (or None, or has not begun); ``on_done`` gets its value.

        One that ``needs_answer`` is given up when the connection ends: nobody has been told that it was appended.
        False if too much waits already; nothing is done then.
        """
        size += REQUEST_BYTES
        if self.waiting and self._bytes + size > MOST_BYTES:
            return False
        self._bytes += size
        request = _Request(connection, work, step, size, on_done, needs_answer)
        self.waiting.setdefault(connection.peer, deque()).append(request)
        self._wanted.set()
        return True

    async def wait_for_room(self, peer: str) -> None:
        """Wait, before more is read from a client, as long as too much waits and something of it is the client's."""
        while self._bytes > ROOM_BYTES and peer in self.waiting:
            if self._one_over.is_set():
                self._one_over = trio.Event()
            await self._one_over.wait()

    async def run(self) -> None:
        """The work, until cancelled."""
        while True:
            if not self.waiting:
                self._wanted = trio.Event()
                await self._wanted.wait()
            peer, requests = next(
                (peer, requests)
                for peer, requests in self.waiting.items()
                if requests[0].begun or self._begun < MOST_BEGUN
            )
            if not requests[0].begun:
                requests[0].begun = True
                self._begun += 1
            over = await self._run_slice(requests[0])
            self._begun -= over
            del self.waiting[peer]
            if over:
                self._bytes -= requests.popleft().size
                self._one_over.set()
            if requests:
                self.waiting[peer] = requests  # behind the others
            await trio.lowlevel.checkpoint()

    async def _run_slice(self, request: _Request) -> bool:
        """Go on with a request; whether it is over."""
        until = self._env.now() + SLICE_SECONDS
        connection = request.connection
        try:
            while not (connection.closed and request.needs_answer):
                step, request.step = request.step, None
                result = None if step is None else await self._env.run_blocking(_outcome, step)
                try:
                    request.step = _go_on(request.work, result)
                except StopIteration as end:
                    request.on_done(end.value)
                    break
                if self._env.now() >= until:
                    return False
        except CloseConnection as error:
            logger.info("closing connection from %s: %s", connection.peer, error)
            connection.scope.cancel()
        except Exception:
            logger.exception("Produce from %s failed", connection.peer)
            connection.scope.cancel()
        return True


def _go_on(work: Work, result: Any) -> Callable[[], Any] | None:
    return work.throw(result) if isinstance(result, Exception) else work.send(result)


def _outcome(step: Callable[[], Any]) -> Any:
    """What comes of it, its exception if it fails."""
    try:
        return step()
    except Exception as error:
        return error
