"""The way of a request as observers see it: metrics count and measure requests, the explorer shows them.

A connection of a node that has one of the two has an `ObservedDispatcher` and an `ObservedReplyQueue`. They call the
methods that observers have (`RequestObserver`). A request that a shortcut serves costs nothing more unless an observer
asks for each request (`ObservedDispatcher.see_each`). A node without observers has the plain classes, and imports
nothing of this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from time import perf_counter_ns
from types import MethodType
from typing import TYPE_CHECKING, Any, Protocol

from kbroker.node.serving.dispatcher import Dispatcher
from kbroker.node.serving.reply_queue import ReplyQueue
from kbroker.node.serving.timed_steps import timed_steps

if TYPE_CHECKING:
    from kbroker.handlers.common.context import RequestContext, Services
    from kbroker.handlers.registration import Registration
    from kbroker.handlers.services.connection import Connection
    from kbroker.node.shortcuts.cache import Tally
    from kbroker.runtime.env import Env, Stream
    from kbroker.runtime.later import Later
    from kbroker.runtime.round import Round
    from kbroker.types import Part


class WorkTimes(Protocol):
    """Takes the times of the steps of a request's work."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class RequestObserver:
    """Sees the requests of one connection; an observer has those of these methods that it needs.

    Of one request they are called in this order. A request that a shortcut serves is ``received`` and ``served`` alone,
    with ``answers_later`` in between perhaps, and not even that unless an observer asks for each request.
    """

    __slots__ = ()

    def received(self, frame: memoryview) -> None:
        """A request is there, and nothing is done for it yet. Logs may write into the frame later."""

    def waits(self, frame: memoryview) -> WorkTimes | None:
        """Its handler may wait. The times of its work are taken by what is returned."""
        return None

    def decoding(self, frame: memoryview, registration: Registration) -> None:
        """The request is going to be decoded."""

    def decoded(self, registration: Registration, request: Any, context: RequestContext) -> None:
        """The request is decoded, and handled next."""

    def answers_later(self, later: Later[Any], api_key: int, version: int, correlation_id: int) -> None:
        """The request's answer comes later. Callbacks given now are called before the reply is queued."""

    def answered(self, response: Any, api_key: int, queued: int) -> None:
        """Its handler has answered: a response, one that comes later, or None.

        The reply is the last of the queue's ``slots``, or behind the first ``queued`` of its ``parts``.
        """

    def served(self, round: Round | None) -> None:
        """The request is served; its answer may still come later.

        In a round of the poller, whose end the reply waits for: until then, another may take its place (`replaced`).
        """

    def replaced(self, reply: bytes, instead: bytes) -> None:
        """Another reply takes the place of one that waits for the end of a round."""

    def failed(self, error: BaseException) -> None:
        """The request has failed, and ends its connection."""


MakeObserver = Callable[["Connection", "ObservedDispatcher", "ObservedReplyQueue"], RequestObserver]


class ServeNow(Protocol):
    """`Dispatcher.serve_now` of one dispatcher."""

    def __call__(self, frame: memoryview, round: Round | None = None) -> bool: ...


class RequestObservers:
    """The observers of a node's requests, for each of its connections."""

    def __init__(self, makers: Iterable[MakeObserver]) -> None:
        """Each of ``makers`` makes the observer of a connection."""
        self._makers = tuple(makers)

    def parts(
        self,
        connection: Connection,
        services: Services,
        table: Mapping[int, Registration],
        stream: Stream,
        start_soon: Callable[..., object],
        on_progress: Callable[[], None],
    ) -> tuple[ReplyQueue, Dispatcher]:
        """The reply queue and the dispatcher of a connection; arguments as theirs."""
        replies = ObservedReplyQueue(stream, services.env, connection, start_soon, on_progress)
        dispatcher = ObservedDispatcher(connection, services, table, replies)
        observers = [make(connection, dispatcher, replies) for make in self._makers]
        dispatcher.observe(observers)
        replies.observe(observers)
        return replies, dispatcher


def _told(observers: Iterable[RequestObserver], event: str) -> tuple[Callable[..., Any], ...]:
    """The methods of those that have one of their own for an event: nobody else is called."""
    return tuple(getattr(observer, event) for observer in observers if event in type(observer).__dict__)


_serve_now = Dispatcher.serve_now
"""Called for each request, and looked up but once."""


class ObservedDispatcher(Dispatcher):
    """Serves requests as `Dispatcher` does, and tells observers of those that no shortcut serves, or of each."""

    __slots__ = (
        *("_is_left", "_on_decoded", "_on_decoding", "_on_failed", "_on_received", "_on_served", "_on_waits"),
        *("_wish_each", "serve_now"),
    )

    serve_now: ServeNow
    """`Dispatcher.serve_now`, or `_serve_seen` while an observer asks for each request.

    A slot, so that a request costs no further call and no question while nobody asks.
    """

    def __init__(
        self, connection: Connection, services: Services, table: Mapping[int, Registration], replies: ReplyQueue
    ) -> None:
        super().__init__(connection, services, table, replies)
        self._wish_each: set[RequestObserver] = set()
        """Those that ask for each request."""
        self._is_left = False
        """Whether observers have been told of the next request, which could not be served at once."""
        self.serve_now = super().serve_now

    @property
    def tallies(self) -> Mapping[tuple[int, int], Tally]:
        """The requests that shortcuts have served so far, by API key and version."""
        return self._shortcuts.tallies

    def see_each(self, observer: RequestObserver, wanted: bool) -> None:
        """Note whether an observer wants to see each request, those that shortcuts serve included."""
        (self._wish_each.add if wanted else self._wish_each.discard)(observer)
        self.serve_now = self._serve_seen if self._wish_each else MethodType(_serve_now, self)

    def observe(self, observers: Sequence[RequestObserver]) -> None:
        """Tell these, from the first request on."""
        self._on_received = _told(observers, "received")
        self._on_waits = _told(observers, "waits")
        self._on_decoding = _told(observers, "decoding")
        self._on_decoded = _told(observers, "decoded")
        self._on_served = _told(observers, "served")
        self._on_failed = _told(observers, "failed")

    def _serve_seen(self, frame: memoryview, round: Round | None = None) -> bool:
        """Serve a request at once, or return false; tell observers of it whether or not a shortcut serves it."""
        if not self._is_left:
            for received in self._on_received:
                received(frame)
        try:
            is_served = _serve_now(self, frame, round)
        except BaseException as error:
            self._fail(error)
            raise
        self._is_left = not is_served
        if is_served:
            for served in self._on_served:
                served(self._connection.hold_replies() if self._replies.round_open else None)
        return is_served

    def _fail(self, error: BaseException) -> None:
        for failed in self._on_failed:
            failed(error)

    async def serve(self, frame: memoryview) -> None:
        """Serve a request whose handler may wait, and tell observers of its events."""
        if self._wish_each and not self._is_left:
            for received in self._on_received:
                received(frame)
        self._is_left = False
        times: WorkTimes | None = None
        for waits in self._on_waits:
            times = waits(frame)
        try:
            if times is None:
                await super().serve(frame)
            else:
                await timed_steps(super().serve(frame), times.start, times.stop)
        except BaseException as error:
            self._fail(error)
            raise
        for served in self._on_served:
            served(None)

    def _decode(self, frame: memoryview, registration: Registration, round: Round | None) -> tuple[Any, RequestContext]:
        for decoding in self._on_decoding:
            decoding(frame, registration)
        request, context = super()._decode(frame, registration, round)
        for decoded in self._on_decoded:
            decoded(registration, request, context)
        return request, context


class ObservedReplyQueue(ReplyQueue):
    """Queues and writes replies as `ReplyQueue` does; tells observers of answers, and when a reply is out."""

    __slots__ = ("_began", "_on_answered", "_on_answers_later", "_on_replaced", "_waiting")

    def __init__(
        self,
        stream: Stream,
        env: Env,
        connection: Connection,
        start_soon: Callable[..., object],
        on_progress: Callable[[], None],
    ) -> None:
        super().__init__(stream, env, connection, start_soon, on_progress)
        self._waiting: list[tuple[Callable[[int, int], None], object]] = []
        """Callbacks, each with the last place of the queue that is to be written, if it is not among the parts yet."""
        self._began = 0
        """Of the first write that somebody waits for."""

    def observe(self, observers: Sequence[RequestObserver]) -> None:
        """Tell these, from the first answer on."""
        self._on_answered = _told(observers, "answered")
        self._on_answers_later = _told(observers, "answers_later")
        self._on_replaced = _told(observers, "replaced")

    # --- answers ------------------------------------------------------------------------------------------------

    def answer(
        self, response: object, api_key: int, version: int, correlation_id: int, parts: list[Part] | None = None
    ) -> None:
        """Queue an answer, and tell observers that it is queued."""
        queued = len(self.parts)
        super().answer(response, api_key, version, correlation_id, parts)
        for answered in self._on_answered:
            answered(response, api_key, queued)

    def delay(self, delayed: Later[Any], api_key: int, version: int, correlation_id: int) -> None:
        """Tell observers of an answer that comes later, and keep its place in the queue."""
        for answers_later in self._on_answers_later:
            answers_later(delayed, api_key, version, correlation_id)
        super().delay(delayed, api_key, version, correlation_id)

    def _put_instead(self, reply: bytes, instead: bytes) -> None:
        super()._put_instead(reply, instead)
        for replaced in self._on_replaced:
            replaced(reply, instead)

    # --- writes -------------------------------------------------------------------------------------------------

    def when_written(self, callback: Callable[[int, int], None], place: object) -> None:
        """Have ``callback(began, ended)`` called when the reply in this place is out: nanoseconds of its write.

        ``place`` is one of ``slots``, or None for all ``parts``.
        """
        self._waiting.append((callback, place))

    def tell_written(self) -> None:
        """Call those whose replies are out."""
        if not self._waiting or self.parts:
            return
        began, ended, waiting = self._began, perf_counter_ns(), self._waiting
        self._began, self._waiting = 0, []
        for callback, place in waiting:
            if place is None or place not in self.slots:
                callback(began, ended)
            else:
                self._waiting.append((callback, place))

    def try_write(self) -> bool:
        """Write as much as the socket takes now, and tell whose replies are out. True if all of it is."""
        if not self._waiting:
            return not self.is_writing and self._write_now()
        self._began = self._began or perf_counter_ns()
        is_out = super().try_write()
        self.tell_written()
        return is_out

    def _completed(self) -> None:
        if self._waiting:
            self._began = self._began or perf_counter_ns()
        super()._completed()
        self.tell_written()

    async def _write_all(self) -> None:
        if self._waiting:
            self._began = self._began or perf_counter_ns()
        await super()._write_all()
        self.tell_written()

    def close(self) -> None:
        """Drop all replies; nobody is told of a write any more."""
        super().close()
        self._waiting.clear()
