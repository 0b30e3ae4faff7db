"""The requests of one connection: each is counted, some are measured: how long they wait, are worked on, and are sent.

To take the time of a request costs about a tenth of serving a small one. So some of them are measured. Requests are
counted where they are decoded; shortcuts count those that they serve.
"""

from __future__ import annotations

from functools import partial
from struct import Struct
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from kbroker.node.serving.observed_requests import ObservedDispatcher, ObservedReplyQueue, RequestObserver, WorkTimes
from kbroker.observe.metrics.errors import error_codes
from kbroker.observe.metrics.requests import (
    ALWAYS,
    FETCH,
    FIRST,
    READERS,
    SAMPLE,
    VERSION_BITS,
    RequestMetrics,
    place_of,
)
from kbroker.runtime.later import Later
from kbroker.wire.registry import API_KEYS

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbroker.handlers.common.context import RequestContext
    from kbroker.handlers.registration import Registration
    from kbroker.handlers.services.connection import Connection
    from kbroker.runtime.round import Round

_PREFIX = Struct(">hh")


class Measured:
    """``start`` and ``stop`` it around its work, ``complete`` it when its response is there, then tell the write."""

    __slots__ = ("_began", "_completed", "_local", "_names", "_queue", "_requests", "_size", "_work_began")

    def __init__(self, requests: RequestMetrics, turn_began: int, size: int, names: tuple[str, ...] = ()) -> None:
        """``turn_began``: the event loop's; ``size``: bytes of the request; ``names``: as in `RequestMetrics.times`."""
        self._requests = requests
        self._began = self._work_began = self._completed = perf_counter_ns()
        self._queue = max(0, self._began - turn_began)
        self._size = size
        self._names = names
        self._local = 0

    def name(self, names: tuple[str, ...]) -> None:
        """Set the names, which are known once the request is decoded."""
        self._names = names

    def start(self) -> None:
        """Work begins, or goes on."""
        self._work_began = perf_counter_ns()

    def stop(self) -> None:
        """Others work from now on."""
        if self._work_began:
            self._local += perf_counter_ns() - self._work_began
            self._work_began = 0

    def complete(self) -> None:
        """Its response is there."""
        self.stop()
        self._completed = perf_counter_ns()

    def written(self, began: int, ended: int) -> None:
        """Record the write of the response, from the first attempt to the end."""
        completed = self._completed
        began = max(began, completed)
        remote = max(0, completed - self._began - self._local)
        for name in self._names:
            times = self._requests.times[name]
            times.size.observe(self._size)
            times.observe(self._queue, self._local, remote, began - completed, max(0, ended - began))


class MeasuredRequests(RequestObserver):
    """Counts the requests of a connection in ``metrics``."""

    __slots__ = ("_counted", "_decoded", "_dispatcher", "_is_next", "_measured", "_metrics", "_replies", "_turn_began")

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
        self._measured: Measured | None = None
        """The request that is served, if it is measured and its response is to come."""
        self._is_next = False
        """Whether to measure the next request, whoever serves it."""
        self._decoded = 0
        """Requests of this connection that were decoded."""
        self._counted: dict[tuple[int, int], int] = {}
        """Requests of shortcuts that are counted in ``metrics``, by API key and version."""
        metrics.connections[self] = None
        connection.when_closed.append(self._closed)

    def _closed(self) -> None:
        self.flush()
        self._measured = None
        self._metrics.connections.pop(self, None)

    # --- requests of shortcuts ----------------------------------------------------------------------------------

    def flush(self) -> None:
        """Count the requests that shortcuts have served since the last call."""
        counted = self._counted
        for (api_key, version), tally in self._dispatcher.tallies.items():
            self._metrics.by_place[place_of(api_key, version)] += tally.served - counted.get((api_key, version), 0)
            counted[api_key, version] = tally.served

    def measure_next(self) -> None:
        """Measure the next request, although a shortcut may serve it."""
        self._is_next = True
        self._dispatcher.see_each(self, True)

    def received(self, frame: memoryview) -> None:
        """Measure the request, if it is its turn."""
        if self._is_next:
            self._is_next = False
            self._dispatcher.see_each(self, False)
            api = API_KEYS.get(_PREFIX.unpack_from(frame)[0])
            names = () if api is None else (api.name,)
            self._measured = Measured(self._metrics, self._turn_began(), len(frame), names)

    def served(self, round: Round | None) -> None:
        """Complete the measured request that a shortcut has answered."""
        if self._measured is not None:
            self._complete()

    # --- requests that are decoded ------------------------------------------------------------------------------

    def waits(self, frame: memoryview) -> WorkTimes | None:
        """Measure the request, if it is its turn."""
        api_key, version = _PREFIX.unpack_from(frame)
        if self._measured is None and not self._is_measured(api_key, version):
            return None
        self._measured = Measured(self._metrics, self._turn_began(), len(frame))
        return self._measured

    def _is_measured(self, api_key: int, version: int) -> bool:
        """Whether to measure a request whose handler may wait."""
        if api_key not in API_KEYS or not 0 <= version >> VERSION_BITS < 1:
            return False
        count = self._metrics.by_place[place_of(api_key, version)]
        return count < ALWAYS or not count % SAMPLE

    def decoding(self, frame: memoryview, registration: Registration) -> None:
        """Measure the request, if its handler does not wait and it is its turn."""
        self._decoded = decoded = self._decoded + 1
        if self._measured is None and not registration.is_async and (decoded <= FIRST or not decoded % SAMPLE):
            self._measured = Measured(self._metrics, self._turn_began(), len(frame))

    def decoded(self, registration: Registration, request: Any, context: RequestContext) -> None:
        """Count the request: it is known now."""
        metrics, measured = self._metrics, self._measured
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

    def failed(self, error: BaseException) -> None:
        """Measure no more."""
        self._measured = None

    # --- responses ----------------------------------------------------------------------------------------------

    def answered(self, response: object, api_key: int, queued: int) -> None:
        """Count the errors of a response."""
        if response is not None and not isinstance(response, Later):
            self._count_errors(response, api_key)
        if self._measured is not None:  # it was not taken by `answers_later`
            self._complete()

    def _complete(self) -> None:
        """The response of the measured request is queued, or there is none."""
        measured, self._measured = self._measured, None
        if measured is not None:
            measured.complete()
            replies = self._replies
            replies.when_written(measured.written, replies.slots[-1] if replies.slots else None)
            if not replies.slots:
                replies.tell_written()

    def answers_later(self, later: Later[Any], api_key: int, version: int, correlation_id: int) -> None:
        """Measure on, and count the errors, when the response is there."""
        measured, self._measured = self._measured, None
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
