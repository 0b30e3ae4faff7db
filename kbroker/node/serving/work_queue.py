"""Requests that cannot be served in one go: Produce requests, and look-ups by timestamp.

Apache Kafka serves one request of a connection at a time. Here a connection reads on, so a request that has to wait
holds back the next ones of its kind in this queue: a producer's batches are appended in the order of its requests.

- A request that takes long is served in slices. One task does them for all connections: a slice of the oldest
  connection's first request, then of the next one's, and between two slices everybody else has a turn. What needs no
  lock (a codec's work on megabytes) is done in a thread.
- A Produce whose transaction must be looked at elsewhere waits for the answer. It goes on at once when that comes.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

import trio

from kbroker.handlers.common.context import CloseConnection
from kbroker.runtime.later import Later
from kbroker.value_types import dataclass

if TYPE_CHECKING:
    from kbroker.handlers.services.connection import Connection
    from kbroker.handlers.services.turns import Step, Work
    from kbroker.runtime.env import Env

logger = logging.getLogger(__name__)

REQUEST_BYTES = 4096
"""Bytes that a request holds besides those that are said of it."""


class _State(Enum):
    """The outcome of a slice of a request."""

    OVER = 1
    GIVES_WAY = 2
    """The task goes on with it."""
    WAITS = 3
    """For a `Later`."""


@dataclass(slots=True)
class _Request:
    connection: Connection
    work: Work
    step: Step
    """The last yield of the work; None if it has not begun."""
    size: int
    needs_answer: bool
    begun: bool = False
    """Whether it is one of the few that are under way."""


class WorkQueue:
    """The requests of one kind that wait, and the task that serves them (``run``)."""

    def __init__(
        self,
        env: Env,
        *,
        room_bytes: int = 128 << 20,
        most_bytes: int = 512 << 20,
        most_begun: int = 4,
        slice_seconds: float = 0.005,
    ) -> None:
        """A request under way may hold the window of a decompressor, 128 MiB for zstd: ``most_begun`` at a time."""
        self._env = env
        self.room_bytes = room_bytes
        """While all waiting requests together hold more, connections that have one of them are not read from."""
        self.most_bytes = most_bytes
        """The most that they may hold, since others go on: more is taken only where nothing else waits."""
        self.slice_seconds = slice_seconds
        """After so long the work of a request gives way; a step of it that takes longer is not interrupted."""
        self._most_begun = most_begun
        self.waiting: dict[str, deque[_Request]] = {}
        """By the client's address, which is its connection's: later requests come after these."""
        self._ready: dict[str, None] = {}
        """Clients whose first request the task is to go on with, in the order of their turns."""
        self._bytes = 0
        self._begun = 0
        self._wanted = trio.Event()
        self._one_over = trio.Event()

    def add(self, connection: Connection, work: Work, step: Step, size: int, *, needs_answer: bool = True) -> bool:
        """Go on with ``work``, which has yielded ``step`` (or None, or has not begun).

        One that ``needs_answer`` is given up when the connection ends: nobody waits for it any more.
        False if too much waits already; nothing is done then.
        """
        size += REQUEST_BYTES
        if self.waiting and self._bytes + size > self.most_bytes:
            return False
        self._bytes += size
        requests = self.waiting.setdefault(connection.peer, deque())
        requests.append(_Request(connection, work, step, size, needs_answer))
        if len(requests) == 1:
            self._schedule(requests[0])
        return True

    async def wait_for_room(self, peer: str) -> None:
        """Wait, before more is read from a client, as long as too much waits and something of it is the client's."""
        while self._bytes > self.room_bytes and peer in self.waiting:
            if self._one_over.is_set():
                self._one_over = trio.Event()
            await self._one_over.wait()

    async def run(self) -> None:
        """The work in slices, until cancelled."""
        while True:
            if not self._ready:
                self._wanted = trio.Event()
                await self._wanted.wait()
            peer = next(peer for peer in self._ready if self.waiting[peer][0].begun or self._begun < self._most_begun)
            del self._ready[peer]
            request = self.waiting[peer][0]
            if not request.begun:
                request.begun = True
                self._begun += 1
            state = await self._run_slice(request)
            if state is not _State.GIVES_WAY:
                request.begun = False
                self._begun -= 1
            following: _Request | None = request
            if state is _State.OVER:
                following = self._take_off(request)
            if following is not None:
                self._schedule(following)
            await trio.lowlevel.checkpoint()

    def _schedule(self, request: _Request) -> None:
        """Have the first request of a client go on as soon as it can."""
        if isinstance(request.step, Later) and not request.step.done:
            request.step.on_done(lambda: self._on_value(request))
        else:
            self._ready[request.connection.peer] = None
            self._wanted.set()

    def _on_value(self, request: _Request) -> None:
        """Go on with a request whose value is there, and with the ones behind it, unless that is long.

        Called by whoever has set the value. Never raises.
        """
        until = self._env.now() + self.slice_seconds
        following: _Request | None = request
        while following is not None:
            if self._advance(following, until) is not _State.OVER:
                break
            following = self._take_off(following)
            if self._env.now() >= until:
                break
        if following is not None:
            self._schedule(following)

    def _take_off(self, request: _Request) -> _Request | None:
        """Forget a request that is over; the next one of its client."""
        peer = request.connection.peer
        requests = self.waiting[peer]
        requests.popleft()
        self._bytes -= request.size
        self._one_over.set()
        if requests:
            return requests[0]
        del self.waiting[peer]
        return None

    async def _run_slice(self, request: _Request) -> _State:
        """Go on with a request, in a thread where that is what it asks for."""
        until = self._env.now() + self.slice_seconds
        while True:
            result = None
            if callable(request.step) and not self._is_given_up(request):
                step, request.step = request.step, None
                result = await self._env.run_blocking(_outcome, step)
            state = self._advance(request, until, result)
            if state is not _State.GIVES_WAY or not callable(request.step) or self._env.now() >= until:
                return state

    def _advance(self, request: _Request, until: float, result: object = None) -> _State:
        """Go on, for some milliseconds, until there is something to be done elsewhere or to be waited for.

        ``result`` is that of a step that was done in a thread. Never raises.
        """
        connection = request.connection
        if self._is_given_up(request):
            return _State.OVER
        try:
            while True:
                if isinstance(request.step, Later):
                    if not request.step.done:
                        return _State.WAITS
                    result = request.step.value
                elif callable(request.step):
                    return _State.GIVES_WAY
                try:
                    request.step = _go_on(request.work, result)
                except StopIteration:
                    return _State.OVER
                result = None
                if request.step is None and self._env.now() >= until:
                    return _State.GIVES_WAY
        except CloseConnection as error:
            logger.info("closing connection from %s: %s", connection.peer, error)
            connection.end()
        except Exception:
            logger.exception("a request of %s failed", connection.peer)
            connection.end()
        return _State.OVER

    @staticmethod
    def _is_given_up(request: _Request) -> bool:
        """Whether nobody is left to hear of a request."""
        return bool(request.connection.closed and request.needs_answer)


def _go_on(work: Work, result: object) -> Step:
    return work.throw(result) if isinstance(result, Exception) else work.send(result)


def _outcome(step: Callable[[], object]) -> Any:
    """Its result, or its exception if it fails."""
    try:
        return step()
    except Exception as error:
        return error
