"""The requests of one connection: each is counted, some are measured: how long they wait, are worked on, and are sent.

To take the time of a request costs about a tenth of serving a small one. So some of them are measured, and whatever
else is told of requests is counted where that costs next to nothing: where they are decoded, and at their shortcuts.
"""

from __future__ import annotations

from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any

from kbroker.node.metrics.measured import Measured
from kbroker.node.metrics.measured_shortcuts import MeasuredShortcuts
from kbroker.node.serving.observed_requests import RequestObserver
from kbroker.observe.metrics.errors import error_codes
from kbroker.observe.metrics.requests import ALWAYS, FETCH, FIRST, READERS, SAMPLE, VERSION_BITS, place_of
from kbroker.runtime.later import Later
from kbroker.wire.registry import API_KEYS

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbroker.handlers.context import RequestContext
    from kbroker.handlers.registration import Registration
    from kbroker.handlers.services.connection import Connection
    from kbroker.node.serving.observed_requests import ObservedDispatcher, ObservedReplyQueue, WorkTimes
    from kbroker.observe.metrics.requests import RequestMetrics
    from kbroker.runtime.round import Round

_PREFIX = Struct(">hh")


class MeasuredRequests(RequestObserver):
    """Counts the requests of a connection in ``metrics``."""

    __slots__ = (
        "_before",
        "_decoded",
        "_dispatcher",
        "_flushed",
        "_metrics",
        "_replies",
        "_shortcuts",
        "_turn_began",
        "measured",
    )

    def __init__(
        self,
        connection: Connection,
        dispatcher: ObservedDispatcher,
        replies: ObservedReplyQueue,
        *,
        metrics: RequestMetrics,
        turn_began: Callable[[], int],
    ) -> None:
        """``turn_began`` gives the time at which the present turn of the event loop has begun."""
        self._metrics = metrics
        self._turn_began = turn_began
        self._dispatcher = dispatcher
        self._replies = replies
        self._shortcuts = MeasuredShortcuts(dispatcher.authorizer, metrics, self, turn_began)
        dispatcher.take_shortcuts(self._shortcuts)
        self.measured: Measured | None = None
        """The request that is served, if it is measured and its response is to come."""
        self._decoded = self._before = 0
        """Requests of this connection that were decoded, or answered without: all but those of shortcuts."""
        self._flushed = 0
        """Requests of shortcuts that are counted."""
        metrics.connections[self] = None
        connection.when_closed.append(self._closed)

    def _closed(self) -> None:
        self.flush()
        self.measured = None
        self._metrics.connections.pop(self, None)

    # --- requests of shortcuts ----------------------------------------------------------------------------------

    def flush(self) -> None:
        """Count the requests that shortcuts have served since the last call."""
        served = self._dispatcher.requests - self._decoded
        place = self._shortcuts.sole_place
        if served > self._flushed:  # one that is about to be decoded may have been taken for a shortcut's
            if place >= 0:
                self._metrics.by_place[place] += served - self._flushed
            self._flushed = served

    def measure_next(self) -> None:
        """Measure the next request that a shortcut serves."""
        self._shortcuts.measure_next()

    # --- requests that are decoded ------------------------------------------------------------------------------

    def waits(self, frame: memoryview) -> WorkTimes | None:
        """Measure the request, if it is its turn."""
        self._before = self._decoded
        api_key, version = _PREFIX.unpack_from(frame)
        if not self._is_measured(api_key, version):
            return None
        self.measured = Measured(self._metrics, self._turn_began(), len(frame))
        return self.measured

    def _is_measured(self, api_key: int, version: int) -> bool:
        """Whether to measure a request whose handler may wait."""
        if api_key not in API_KEYS or not 0 <= version >> VERSION_BITS < 1:
            return False
        count = self._metrics.by_place[place_of(api_key, version)]
        return count < ALWAYS or not count % SAMPLE

    def decoding(self, frame: memoryview, registration: Registration) -> None:
        """Measure the request, if its handler does not wait and it is its turn."""
        self._decoded = decoded = self._decoded + 1
        if self.measured is None and not registration.is_async and (decoded <= FIRST or not decoded % SAMPLE):
            self.measured = Measured(self._metrics, self._turn_began(), len(frame))

    def decoded(self, registration: Registration, request: Any, context: RequestContext) -> None:
        """Count the request: it is known now."""
        metrics, measured = self._metrics, self.measured
        api_key, version = registration.api_key, context.api_version
        metrics.by_place[place_of(api_key, version)] += 1
        if api_key == FETCH:
            reader = READERS[max(request.replica_id, request.replica_state.replica_id) >= 0]
            metrics.fetches[reader, version] += 1
            if measured is not None:
                name = API_KEYS[api_key].name
                measured.name((name, name + reader))
        elif measured is not None:
            measured.name((API_KEYS[api_key].name,))

    def served(self, round: Round | None) -> None:
        """Count a version of ApiVersions that is not served: it is answered without being decoded."""
        self.measured = None
        if self._decoded == self._before:
            self._decoded += 1

    def failed(self, error: BaseException) -> None:
        """Measure no more."""
        self.measured = None

    # --- responses ----------------------------------------------------------------------------------------------

    def answered(self, response: object, api_key: int, queued: int) -> None:
        """Count the errors of a response."""
        if response is not None and not isinstance(response, Later):
            self._count_errors(response, api_key)
        if self.measured is not None:  # it was not taken by `answers_later`
            self.complete()

    def complete(self, *, is_queued: bool = True) -> None:
        """The response of the measured request is queued, or there is none.

        Not ``is_queued``: there is one, which is queued as soon as this returns.
        """
        measured, self.measured = self.measured, None
        if measured is not None:
            measured.complete()
            replies = self._replies
            replies.when_written(measured.written, replies.slots[-1] if replies.slots else None)
            if is_queued and not replies.slots:
                replies.tell_written()

    def answers_later(self, later: Later[Any], api_key: int, version: int, correlation_id: int) -> None:
        """Measure on, and count the errors, when the response is there."""
        measured, self.measured = self.measured, None
        if measured is not None:
            measured.stop()
            later.on_done(partial(self._completed_later, measured, later))
        later.on_done(partial(self._count_later_errors, later, api_key))

    def _completed_later(self, measured: Measured, later: Later[Any]) -> None:
        """A response is there, and takes its place among the parts next."""
        measured.complete()
        place = next((slot for slot in self._replies.slots if slot.delayed is later), None)
        self._replies.when_written(measured.written, place)

    def _count_errors(self, response: object, api_key: int) -> None:
        for code in error_codes(response):
            self._metrics.errors[api_key, code] += 1

    def _count_later_errors(self, later: Later[Any], api_key: int) -> None:
        if later.error is None and type(later.value) is not bytes:  # bytes are a shortcut's, which has no errors
            self._count_errors(later.value, api_key)
