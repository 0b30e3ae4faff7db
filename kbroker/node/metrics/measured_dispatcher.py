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

    __slots__ = ("_decoded", "_measured_replies", "_metrics", "_turn_began")

    def __init__(self, *args: Any, requests: RequestMetrics, turn_began: Callable[[], int]) -> None:
        """``turn_began`` gives the time at which the present turn of the event loop has begun."""
        super().__init__(*args)
        self._metrics = requests
        self._turn_began = turn_began
        self._measured_replies: MeasuredReplyQueue = args[-1]
        self._shortcuts = MeasuredShortcuts(self._services.authorizer, requests, args[-1], turn_began)
        self._decoded = 0
        """Requests of this connection that were decoded."""

    async def serve(self, frame: memoryview) -> None:
        """As `Dispatcher.serve`."""
        if self.serve_now(frame):
            return
        replies = self._measured_replies
        api_key, version = _PREFIX.unpack_from(frame)
        if not self._is_measured(api_key, version):
            await super().serve(frame)
            return
        replies.measured = measured = Measured(self._metrics, self._turn_began(), len(frame))
        try:
            await timed_steps(super().serve(frame), measured.start, measured.stop)
        finally:
            replies.measured = None

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
