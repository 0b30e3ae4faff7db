"""A dispatcher that counts each request, and measures some: how long they wait, are worked on, and are sent.

To take the time of a request costs about a tenth of serving a small one. So some of them are measured, and whatever
else is told of requests is counted where that costs next to nothing: where they are decoded, and at their shortcuts.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

from kbroker.metrics.requests import ALWAYS, FETCH, FIRST, READERS, SAMPLE, VERSION_BITS, place_of
from kbroker.node.dispatcher import Dispatcher
from kbroker.node.metrics.measured import Measured
from kbroker.node.metrics.measured_shortcuts import MeasuredShortcuts
from kbroker.node.timed_steps import timed_steps
from kbroker.wire.registry import API_KEYS

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbroker.handlers.context import RequestContext
    from kbroker.handlers.registration import Registration
    from kbroker.metrics.requests import RequestMetrics
    from kbroker.node.metrics.measured_replies import MeasuredReplyQueue
    from kbroker.round import Round

_PREFIX = Struct(">hh")


class MeasuredDispatcher(Dispatcher):
    """Serves requests as `Dispatcher` does, and counts them in ``requests``."""

    __slots__ = ("_decoded", "_flushed", "_measured_replies", "_measured_shortcuts", "_metrics", "_turn_began")

    def __init__(self, *args: Any, requests: RequestMetrics, turn_began: Callable[[], int]) -> None:
        """``turn_began`` gives the time at which the present turn of the event loop has begun."""
        super().__init__(*args)
        self._metrics = requests
        self._turn_began = turn_began
        self._measured_replies: MeasuredReplyQueue = args[-1]
        self._shortcuts = self._measured_shortcuts = MeasuredShortcuts(
            self._services.authorizer, requests, args[-1], turn_began, self.flush
        )
        self._decoded = 0
        """Requests of this connection that were decoded, or answered without: all but those of shortcuts."""
        self._flushed = 0
        """Requests of shortcuts that are counted."""
        requests.connections[self] = None

    def flush(self) -> None:
        """Count the requests that shortcuts have served since the last call."""
        served = self.requests - self._decoded
        place = self._measured_shortcuts.sole_place
        if served > self._flushed:  # one that is about to be decoded may have been taken for a shortcut's
            if place >= 0:
                self._metrics.by_place[place] += served - self._flushed
            self._flushed = served

    def measure_next(self) -> None:
        """Measure the next request that a shortcut serves."""
        self._measured_shortcuts.measure_next()

    def forget_requests(self) -> None:
        """As `Dispatcher.forget_requests`."""
        self.flush()
        super().forget_requests()
        if self._connection.closed:
            self._metrics.connections.pop(self, None)

    async def serve(self, frame: memoryview) -> None:
        """As `Dispatcher.serve`."""
        if self.serve_now(frame):
            return
        replies, decoded = self._measured_replies, self._decoded
        api_key, version = _PREFIX.unpack_from(frame)
        if self._is_measured(api_key, version):
            replies.measured = measured = Measured(self._metrics, self._turn_began(), len(frame))
            try:
                await timed_steps(super().serve(frame), measured.start, measured.stop)
            finally:
                replies.measured = None
        else:
            await super().serve(frame)
        if self._decoded == decoded:
            self._decoded += 1  # a version of ApiVersions that is not served: it is answered all the same

    def _is_measured(self, api_key: int, version: int) -> bool:
        """Whether to measure a request whose handler may wait."""
        if api_key not in API_KEYS or not 0 <= version >> VERSION_BITS < 1:
            return False
        count = self._metrics.by_place[place_of(api_key, version)]
        return count < ALWAYS or not count % SAMPLE

    def _decode(self, frame: memoryview, registration: Registration, round: Round | None) -> tuple[Any, RequestContext]:
        """As `Dispatcher._decode`: the request is known now, and is counted."""
        replies, metrics = self._measured_replies, self._metrics
        measured = replies.measured
        self._decoded += 1
        if measured is None and not registration.is_async and (self._decoded <= FIRST or not self._decoded % SAMPLE):
            replies.measured = measured = Measured(metrics, self._turn_began(), len(frame))
        request, context = super()._decode(frame, registration, round)
        api_key, version = registration.api_key, context.api_version
        metrics.by_place[place_of(api_key, version)] += 1
        names: tuple[str, ...] = (API_KEYS[api_key].name,)
        if api_key == FETCH:
            reader = READERS[max(request.replica_id, request.replica_state.replica_id) >= 0]
            metrics.fetches[reader, version] += 1
            names = (*names, names[0] + reader)
        if measured is not None:
            measured.name(names)
        return request, context
