"""A dispatcher that measures each request: how long it is worked on, and how long it takes in all."""

from __future__ import annotations

from struct import Struct
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

from kbroker.node.dispatcher import Dispatcher
from kbroker.node.timed_steps import timed_steps
from kbroker.wire.registry import API_KEYS

if TYPE_CHECKING:
    from kbroker.handlers.context import RequestContext
    from kbroker.handlers.registration import Registration
    from kbroker.metrics.requests import RequestTimes
    from kbroker.round import Round

FETCH: Final = 1

_PREFIX = Struct(">hh")


class _Work:
    """The time of a request's work so far, in nanoseconds."""

    __slots__ = ("_began", "spent")

    def __init__(self) -> None:
        self._began = self.spent = 0

    def start(self) -> None:
        """Work begins, or goes on."""
        self._began = perf_counter_ns()

    def stop(self) -> None:
        """Others work from now on."""
        self.spent += perf_counter_ns() - self._began


class MeasuredDispatcher(Dispatcher):
    """Serves requests as `Dispatcher` does, and counts them by API in ``times``."""

    __slots__ = ("_reader", "_times")

    def __init__(self, *args: Any, times: RequestTimes) -> None:
        super().__init__(*args)
        self._times = times
        self._reader = ""
        """Of the Fetch that is served: ``Consumer`` or ``Follower``."""

    def serve_now(self, frame: memoryview, round: Round | None = None) -> bool:
        """As `Dispatcher.serve_now`."""
        began = perf_counter_ns()
        api_key, version = _PREFIX.unpack_from(frame)
        if not super().serve_now(frame, round):
            return False
        self._count(api_key, version, began, perf_counter_ns() - began)
        return True

    async def serve(self, frame: memoryview) -> None:
        """As `Dispatcher.serve`."""
        if self.serve_now(frame):
            return
        began = perf_counter_ns()
        api_key, version = _PREFIX.unpack_from(frame)
        work = _Work()
        await timed_steps(super().serve(frame), work.start, work.stop)
        self._count(api_key, version, began, work.spent)

    def _decode(self, frame: memoryview, registration: Registration, round: Round | None) -> tuple[Any, RequestContext]:
        request, context = super()._decode(frame, registration, round)
        if registration.api_key == FETCH:
            is_follower = max(request.replica_id, request.replica_state.replica_id) >= 0
            self._reader = "Follower" if is_follower else "Consumer"
        return request, context

    def _count(self, api_key: int, version: int, began: int, local: int) -> None:
        """Count a request once its response is complete: now, or when the last delayed one is."""
        api = API_KEYS.get(api_key)
        if api is None:
            return
        names = (api.name, api.name + self._reader) if api_key == FETCH else (api.name,)
        slots = self._replies.slots
        delayed = slots[-1].delayed if slots else None

        def served() -> None:
            took = perf_counter_ns() - began
            for name in names:
                times = self._times[name]
                times.by_version[version] += 1
                times.served(local, took)

        if delayed is None:
            served()
        else:
            delayed.on_done(served)
