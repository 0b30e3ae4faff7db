"""Requests that are held back: a connection's task waits in place, and its client is watched meanwhile.

With a poller neither the time-out nor the wake-up costs a cancel scope: the poller's task reads, and keeps the time for
all connections of the listener. Where there is none, the connection's task waits for its own stream within a scope.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

import trio

from kbroker.wire.registry import FETCH_KEY

if TYPE_CHECKING:
    from kbroker.handlers.services.connection import Awaited
    from kbroker.runtime.env import Poller, Stream
    from kbroker.wire.framing import FrameReader

WATCH_BUFFER = 64 * 1024
"""While a request waits, those behind it are read up to this size, which also shows whether the client is gone."""


class ConnectionLost(Exception):
    """The peer is gone, or must be: the text says why, empty if it is ordinary."""


class RequestWait:
    """The wait of a connection's task within its present request."""

    __slots__ = (
        "_end_time",
        "_failure",
        "_gives_way",
        "_on_received",
        "_poller",
        "_reader",
        "_stream",
        "_task",
        "_watched",
    )

    def __init__(
        self, stream: Stream, reader: FrameReader, poller: Poller | None, on_received: Callable[[int], None]
    ) -> None:
        """``on_received`` hears how many bytes have been read meanwhile."""
        self._stream = stream
        self._reader = reader
        self._poller = poller
        self._on_received = on_received
        self._gives_way = False
        self._end_time: Callable[[], None] | None = None
        self._task: trio.lowlevel.Task | None = None
        self._watched = False
        self._failure: BaseException | None = None

    @property
    def has_pipelined_request(self) -> bool:
        """Whether a request of another API waits behind the Fetch that is being served."""
        return self._reader.waiting_api_key not in (None, FETCH_KEY)

    async def until_done(self, operation: Awaited, timeout: float, *, gives_way: bool) -> None:
        """Wait until ``operation.done`` or for ``timeout`` seconds. ``ConnectionLost`` when the client goes away.

        With ``gives_way``, stop waiting as soon as another request arrives on this connection.
        """
        self._gives_way = gives_way
        if operation.done or (gives_way and self.has_pipelined_request):
            return
        if self._poller is not None:
            await self._watched_by(self._poller, operation, timeout)
        else:
            await self._watch(operation, timeout)

    def end_time(self) -> None:
        """Let the time of the present wait be out, if it has a limit."""
        if self._end_time is not None:
            self._end_time()

    @property
    def _has_room(self) -> bool:
        """Whether more may be read before the request is answered."""
        reader = self._reader
        return reader.buffered_bytes < WATCH_BUFFER or not reader.partial

    # --- with a poller ----------------------------------------------------------------------------------------

    async def _watched_by(self, poller: Poller, operation: Awaited, timeout: float) -> None:
        if self._has_room:
            try:
                poller.register(self._stream, self._on_readable)
            except trio.ClosedResourceError as error:
                # The node stops, and what closes comes before this task hears of it.
                raise ConnectionLost("") from error
            self._watched = True
        deadline = poller.call_at(trio.current_time() + timeout, self._wake) if timeout < inf else None
        operation.wake = self._wake
        self._end_time = self._wake if timeout < inf else None
        self._task = trio.lowlevel.current_task()

        def abort(_: object) -> trio.lowlevel.Abort:
            self._task = None
            return trio.lowlevel.Abort.SUCCEEDED

        try:
            await trio.lowlevel.wait_task_rescheduled(abort)
        finally:
            operation.wake = self._end_time = None
            if deadline is not None:
                poller.call_off(deadline)
            self._unwatch()
        failure, self._failure = self._failure, None
        if failure is not None:
            try:
                raise failure
            finally:
                del failure

    def _wake(self) -> None:
        """Let the waiting task go on, for whatever reason. Called by anybody, as often as they like."""
        task, self._task = self._task, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    def _unwatch(self) -> None:
        if self._watched:
            self._watched = False
            assert self._poller is not None
            self._poller.unregister(self._stream)

    def _on_readable(self) -> None:
        """Called by the poller's task. Never raises."""
        if self._task is None:
            return  # it has been woken, and will read itself
        try:
            self._read()
        except (BlockingIOError, InterruptedError):
            return
        except BaseException as error:  # the connection's task tells it, as its own
            self._failure = error
            self._unwatch()
            self._wake()
            return
        if self._gives_way and self.has_pipelined_request:
            self._wake()
        elif not self._has_room:
            self._unwatch()

    # --- without ----------------------------------------------------------------------------------------------

    async def _watch(self, operation: Awaited, timeout: float) -> None:
        with trio.CancelScope(deadline=trio.current_time() + timeout) as scope:
            operation.wake = scope.cancel
            self._end_time = scope.cancel if timeout < inf else None
            while not operation.done and not (self._gives_way and self.has_pipelined_request):
                if not self._has_room:
                    await trio.sleep_forever()
                try:
                    await self._stream.wait_readable()
                except (OSError, trio.ClosedResourceError) as error:
                    raise ConnectionLost("") from error
                try:
                    self._read()
                except (BlockingIOError, InterruptedError):
                    continue

    # --- either way -------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Take what there is; ``ConnectionLost`` if that is the end."""
        reader = self._reader
        try:
            received = self._stream.recv_into(reader.get_buffer())
        except (BlockingIOError, InterruptedError):
            raise
        except OSError as error:
            raise ConnectionLost("") from error
        if received == 0:
            raise ConnectionLost("")
        self._on_received(received)
        reader.buffer_updated(received)
