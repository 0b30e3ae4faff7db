"""A poller of streams with TLS (`tls_stream`), in which bytes may wait that the system does not see."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio

if TYPE_CHECKING:
    from kbroker.node.security.tls_stream import TlsStream
    from kbroker.runtime.env import Poller
    from kbroker.runtime.round import Round
    from kbroker.runtime.timing import Deadline


class PendingPoller:
    """A poller of TLS streams: calls again for a stream that has bytes left which the system does not see."""

    def __init__(self, poller: Poller) -> None:
        self._poller = poller
        self.round: Round = poller.round
        self._callbacks: dict[TlsStream, Callable[[], None]] = {}
        self._pending: set[TlsStream] = set()
        self._some = trio.Event()

    def register(self, stream: Any, callback: Callable[[], None]) -> None:
        def on_readable() -> None:
            callback()
            if stream.has_pending and self._callbacks.get(stream) is on_readable:
                self._call_again(stream)

        self._poller.register(stream, on_readable)
        self._callbacks[stream] = on_readable
        if stream.has_pending:
            self._call_again(stream)

    def unregister(self, stream: Any) -> None:
        self._callbacks.pop(stream, None)
        self._pending.discard(stream)
        self._poller.unregister(stream)

    def call_at(self, when: float, callback: Callable[[], None]) -> Deadline:
        return self._poller.call_at(when, callback)

    def call_off(self, deadline: Deadline) -> None:
        self._poller.call_off(deadline)

    def _call_again(self, stream: TlsStream) -> None:
        self._pending.add(stream)
        self._some.set()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._poller.run)
            while True:
                await self._some.wait()
                self._some = trio.Event()
                await trio.lowlevel.checkpoint()  # the others' turn
                pending, self._pending = self._pending, set()
                self.round.is_crowded = False
                self.round.turns.taken += len(pending)
                for stream in pending:
                    callback = self._callbacks.get(stream)
                    if callback is not None:
                        callback()
                self.round.end()
