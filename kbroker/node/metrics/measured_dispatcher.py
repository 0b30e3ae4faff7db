"""A dispatcher that counts each request, and measures some: how long they wait, are worked on, and are sent.

To take the time of a request costs about as much as a tenth of serving a small one. So one in ``SAMPLE`` is measured,
and whatever else is told of requests is counted where that costs next to nothing.
"""

from __future__ import annotations

from struct import Struct
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

from kbroker.metrics.requests import ALWAYS, FETCH, FIRST, READERS, SAMPLE, VERSION_BITS, place_of
from kbroker.node.dispatcher import Dispatcher
from kbroker.node.timed_steps import timed_steps
from kbroker.wire.registry import API_KEYS

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbroker.handlers.context import RequestContext
    from kbroker.handlers.registration import Registration
    from kbroker.later import Later
    from kbroker.metrics.requests import RequestMetrics
    from kbroker.node.metrics.measured_replies import MeasuredReplyQueue
    from kbroker.round import Round

_PREFIX = Struct(">hh")

_serve_now: Final = Dispatcher.serve_now


class _Measured:
    """One request's times, from its begin until its response is in the socket."""

    __slots__ = ("_began", "_completed", "_queue", "_replies", "_requests", "_work_began", "local", "names", "size")

    def __init__(self, requests: RequestMetrics, replies: MeasuredReplyQueue, turn_began: int, size: int) -> None:
        self._requests = requests
        self._replies = replies
        self._began = self._work_began = self._completed = perf_counter_ns()
        self._queue = max(0, self._began - turn_began)
        self.size = size
        self.local = 0
        self.names: tuple[str, ...] = ()

    def start(self) -> None:
        """Work begins, or goes on."""
        self._work_began = perf_counter_ns()

    def stop(self) -> None:
        """Others work from now on."""
        self.local += perf_counter_ns() - self._work_began

    def complete(self) -> None:
        """The response is there: hear of its end, which may be now."""
        self._completed = perf_counter_ns()
        replies = self._replies
        if replies.slots or replies.parts:
            replies.when_written(self._written)
        else:
            self._written(self._completed, self._completed)

    def complete_later(self, delayed: Later[Any]) -> None:
        """The response that is told later is there now; next it takes its place among the replies."""
        self._completed = perf_counter_ns()
        self._replies.when_written(self._written, delayed)

    def _written(self, began: int, ended: int) -> None:
        completed = self._completed
        began = max(began, completed)
        remote = max(0, completed - self._began - self.local)
        for name in self.names:
            times = self._requests.times[name]
            times.size.observe(self.size)
            times.observe(self._queue, self.local, remote, began - completed, max(0, ended - began))


class MeasuredDispatcher(Dispatcher):
    """Serves requests as `Dispatcher` does, and counts them in ``requests``."""

    __slots__ = ("_by_place", "_measured_replies", "_metrics", "_reader", "_to_measure", "_turn_began")

    def __init__(self, *args: Any, requests: RequestMetrics, turn_began: Callable[[], int]) -> None:
        """``turn_began`` gives the time at which the present turn of the event loop has begun."""
        super().__init__(*args)
        self._metrics = requests
        self._by_place = requests.by_place
        self._turn_began = turn_began
        self._measured_replies: MeasuredReplyQueue = args[-1]
        self._to_measure = FIRST
        """So many of the next requests are measured."""
        self._reader = ""
        """Of the Fetch that was decoded last."""

    def serve_now(self, frame: memoryview, round: Round | None = None) -> bool:
        """As `Dispatcher.serve_now`."""
        if self._to_measure:
            return self._serve_measured(frame, round)
        place = frame[1] << VERSION_BITS | frame[3]  # of what is served, the other two bytes are 0
        if not _serve_now(self, frame, round):
            return False
        counts = self._by_place
        counts[place] = count = counts[place] + 1
        if not count % SAMPLE:
            self._to_measure = 1
        return True

    def _serve_measured(self, frame: memoryview, round: Round | None) -> bool:
        api_key, version = _PREFIX.unpack_from(frame)
        registration = self._table.get(api_key)
        if registration is None or registration.is_async:
            return False
        replies = self._measured_replies
        outer = replies.on_complete  # of `serve`, which asks this once more
        measured = _Measured(self._metrics, replies, self._turn_began(), len(frame))
        replies.on_complete = measured.complete_later
        try:
            if not _serve_now(self, frame, round):
                return False
            measured.stop()
            self._to_measure -= 1
            self._count(api_key, version, measured)
            if replies.on_complete is not None:
                measured.complete()
        finally:
            replies.on_complete = outer
        return True

    async def serve(self, frame: memoryview) -> None:
        """As `Dispatcher.serve`."""
        if self.serve_now(frame):
            return
        api_key, version = _PREFIX.unpack_from(frame)
        if not self._is_measured(api_key, version):
            await super().serve(frame)
            self._count(api_key, version, None)
            return
        replies = self._measured_replies
        measured = _Measured(self._metrics, replies, self._turn_began(), len(frame))
        replies.on_complete = measured.complete_later
        try:
            await timed_steps(super().serve(frame), measured.start, measured.stop)
            self._count(api_key, version, measured)
            if replies.on_complete is not None:
                measured.complete()
        finally:
            replies.on_complete = None

    def _is_measured(self, api_key: int, version: int) -> bool:
        if api_key not in API_KEYS or version >> VERSION_BITS:
            return False
        count = self._by_place[place_of(api_key, version)]
        return count < ALWAYS or not count % SAMPLE

    def _decode(self, frame: memoryview, registration: Registration, round: Round | None) -> tuple[Any, RequestContext]:
        request, context = super()._decode(frame, registration, round)
        if registration.api_key == FETCH:
            is_follower = max(request.replica_id, request.replica_state.replica_id) >= 0
            self._reader = READERS[is_follower]
        return request, context

    def _count(self, api_key: int, version: int, measured: _Measured | None) -> None:
        """Count a request that is served, and name one that is measured."""
        api = API_KEYS.get(api_key)
        if api is None or version >> VERSION_BITS:
            return
        self._by_place[place_of(api_key, version)] += 1
        if api_key == FETCH:
            self._metrics.fetches[self._reader, version] += 1
        if measured is not None:
            measured.names = (api.name, api.name + self._reader) if api_key == FETCH else (api.name,)
