"""The classes that a connection's dispatcher and reply queue are turned into, by how much of its requests is seen.

Nobody watches: the plain classes, which know nothing of this. They stay the same objects, with all their state, so that
whatever is under way ends in them; each of these classes bears being there for the second half of a request alone.
Those with metrics stay observed by them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol

from kbroker.node.serving.dispatcher import Dispatcher
from kbroker.node.serving.observed_requests import ObservedDispatcher, ObservedReplyQueue
from kbroker.node.serving.reply_queue import ReplyQueue

if TYPE_CHECKING:
    from kbroker.handlers.registration import Registration
    from kbroker.runtime.later import Later
    from kbroker.runtime.round import Round
    from kbroker.types import Part

UNASKED: Final = 0
"""Nobody asks for requests of this API: they are served, and that is all."""
COUNT: Final = 1
"""They are counted as not shown where they are not seen."""
LOOK: Final = 2
"""Decide for each request whether to record it."""


class Watch(Protocol):
    """Is told of the requests of one connection by the classes here (`watched_requests.WatchedRequests`).

    Of a request that is seen: ``came``, ``answers_later`` perhaps, ``answered`` if no shortcut serves it, ``served``;
    or ``failed``.
    """

    missed: list[int]
    """Counts what is not seen, by API key."""
    ways: bytes
    """A constant of this module for each API key."""
    is_left: bool
    """Whether the next request is one that has come, and could not be served then."""
    leaves: bool
    """Whether to ``leave`` after this request."""

    @property
    def begun(self) -> object:
        """The request that is served, if it is seen, and until its answer is known; else None."""

    def met(self, frame: memoryview) -> None:
        """The first request is there. The dispatcher has another class afterwards."""

    def look(self, frame: memoryview) -> int:
        """``LOOK``, and the dispatcher is a `WatchedDispatcher`, if a request is to be seen; else whether it counts."""

    def came(self, frame: memoryview) -> None:
        """A request is there: it is ``begun`` if it is seen, else counted."""

    def answers_later(self, later: Later[Any], api_key: int, version: int, correlation_id: int) -> None:
        """The request's answer comes later."""

    def answered(self, response: object, queued: int) -> None:
        """Its handler has answered: the last of the queue's ``slots``, or behind the first ``queued`` ``parts``."""

    def served(self, round: Round | None) -> None:
        """All is done for it, but perhaps for an answer that comes later.

        In a crowded round of the poller: until its end, another reply may take the place of the request's.
        """

    def failed(self, error: BaseException) -> None:
        """The request has failed, and ends its connection."""

    def leave(self) -> None:
        """The dispatcher is a `WatchedDispatcher` no more."""

    def unsettle(self) -> None:
        """The dispatcher is a `CountingDispatcher` in place of a `SteadyDispatcher`."""


_serve_now = Dispatcher.serve_now
"""Called for each request, and looked up but once."""


class NewDispatcher(Dispatcher):
    """Has not served a request: of the first one the client id is taken."""

    __slots__ = ()
    watcher: Watch

    def serve_now(self, frame: memoryview, round: Round | None = None) -> bool:
        """Serve a request as the class that this is a moment later."""
        self.watcher.met(frame)
        return self.serve_now(frame, round)


class CountingDispatcher(Dispatcher):
    """Counts requests as not shown, but for those that are asked about (``LOOK``)."""

    __slots__ = ()
    watcher: Watch

    def serve_now(self, frame: memoryview, round: Round | None = None) -> bool:
        """Serve a request at once, or return false; it counts if it was served."""
        watcher = self.watcher
        key = frame[1]
        way = watcher.ways[key]
        if way == LOOK:
            way = watcher.look(frame)
            if way == LOOK:
                return self.serve_now(frame, round)
        watcher.missed[key] += way
        served = _serve_now(self, frame, round)
        if not served:
            watcher.missed[key] -= way
        return served

    async def serve(self, frame: memoryview) -> None:
        """Serve a request whose handler may wait, and count it."""
        watcher = self.watcher
        key = frame[1]
        way = watcher.ways[key]
        if way == LOOK:
            way = watcher.look(frame)
            if way == LOOK:
                await self.serve(frame)
                return
        watcher.missed[key] += way
        await super().serve(frame)

    @property
    def sole_api(self) -> int:
        """The API key of the connection's shortcuts; -1 if it has none, or those of several APIs."""
        known = self._shortcuts.known
        return next(iter(known)) if len(known) == 1 else -1


class SteadyDispatcher(Dispatcher):
    """Serves one API in the plain way: its requests count by ``requests``. Others are left to a `CountingDispatcher`.

    To count each request costs two percent of serving a small one, and most connections ask for one API at a time.
    """

    __slots__ = ()
    watcher: Watch

    def narrow(self, api_key: int) -> Mapping[int, Registration]:
        """Serve no other API at once; the table that it has had."""
        table = self._table
        self._table = {api_key: table[api_key]} if api_key in table else {}
        return table

    def widen(self, table: Mapping[int, Registration]) -> None:
        """Serve all of the table."""
        self._table = table

    def restrict(self, api_keys: Collection[int] | None) -> None:
        """Serve only these APIs, of all that there are."""
        self.watcher.unsettle()
        self.restrict(api_keys)

    async def serve(self, frame: memoryview) -> None:
        """Serve a request whose handler may wait, and any of another API."""
        if frame[0] << 8 | frame[1] in self._table:
            await super().serve(frame)
            return
        self.watcher.unsettle()
        if not self.serve_now(frame):
            await self.serve(frame)


class WatchedDispatcher(Dispatcher):
    """Has requests seen."""

    __slots__ = ()
    watcher: Watch

    def serve_now(self, frame: memoryview, round: Round | None = None) -> bool:
        """Serve a request at once, or return false; it is seen whether or not a shortcut serves it."""
        watcher = self.watcher
        if not watcher.is_left and watcher.ways[frame[1]]:
            watcher.came(frame)
        if watcher.begun is None:
            served = _serve_now(self, frame, round)
            watcher.is_left = not served
        else:
            try:
                served = _serve_now(self, frame, round)
            except BaseException as error:
                watcher.failed(error)
                raise
            watcher.is_left = not served
            if served:
                watcher.served(round)
        if served and watcher.leaves:
            watcher.leave()
        return served

    async def serve(self, frame: memoryview) -> None:
        """Serve a request whose handler may wait."""
        watcher = self.watcher
        if not watcher.is_left and watcher.ways[frame[1]]:
            watcher.came(frame)
        watcher.is_left = False
        try:
            await super().serve(frame)
        except BaseException as error:
            watcher.failed(error)
            raise
        watcher.served(None)
        if watcher.leaves:
            watcher.leave()


class WatchedReplyQueue(ReplyQueue):
    """Has answers seen."""

    __slots__ = ()
    watcher: Watch

    def answer(
        self, response: object, api_key: int, version: int, correlation_id: int, parts: list[Part] | None = None
    ) -> None:
        """Queue an answer, and have it seen."""
        queued = len(self.parts)
        super().answer(response, api_key, version, correlation_id, parts)
        self.watcher.answered(response, queued)

    def delay(self, delayed: Later[Any], api_key: int, version: int, correlation_id: int) -> None:
        """Keep the place of an answer that comes later, and is seen then."""
        self.watcher.answers_later(delayed, api_key, version, correlation_id)
        super().delay(delayed, api_key, version, correlation_id)


class _NewMeasured(NewDispatcher, ObservedDispatcher):
    __slots__ = ()


class _CountingMeasured(CountingDispatcher, ObservedDispatcher):
    __slots__ = ()


class _SteadyMeasured(SteadyDispatcher, ObservedDispatcher):
    __slots__ = ()


class _WatchedMeasured(WatchedDispatcher, ObservedDispatcher):
    __slots__ = ()


class _WatchedMeasuredQueue(WatchedReplyQueue, ObservedReplyQueue):
    __slots__ = ()


class Stage(Enum):
    """A part of a connection's requests is seen; its dispatchers' classes without and with metrics, and its queues'."""

    PLAIN = (Dispatcher, ObservedDispatcher), (ReplyQueue, ObservedReplyQueue)
    NEW = (NewDispatcher, _NewMeasured), (ReplyQueue, ObservedReplyQueue)
    COUNTING = (CountingDispatcher, _CountingMeasured), (ReplyQueue, ObservedReplyQueue)
    STEADY = (SteadyDispatcher, _SteadyMeasured), (ReplyQueue, ObservedReplyQueue)
    WATCHED = (WatchedDispatcher, _WatchedMeasured), (WatchedReplyQueue, _WatchedMeasuredQueue)


class Parts:
    """The dispatcher and the reply queue of a connection, which are turned into those of a stage."""

    __slots__ = ("_dispatcher", "_is_measured", "_replies", "_table")

    def __init__(self, dispatcher: Dispatcher, replies: ReplyQueue) -> None:
        self._dispatcher = dispatcher
        self._replies = replies
        self._is_measured = isinstance(dispatcher, ObservedDispatcher)
        self._table: Mapping[int, Registration] = {}

    def change(self, stage: Stage) -> None:
        """Turn them into those of a stage other than ``STEADY``."""
        dispatcher = self._dispatcher
        if isinstance(dispatcher, SteadyDispatcher):
            dispatcher.widen(self._table)
        dispatchers, queues = stage.value
        dispatcher.__class__ = dispatchers[self._is_measured]
        self._replies.__class__ = queues[self._is_measured]

    @property
    def requests(self) -> int:
        """Requests so far."""
        return self._dispatcher.requests

    @property
    def sole_api(self) -> int:
        """The API that can be served steadily: that of all shortcuts, while each request is counted; else -1."""
        return self._dispatcher.sole_api if isinstance(self._dispatcher, CountingDispatcher) else -1

    def make_steady(self, api_key: int) -> None:
        """Serve one API in the plain way, until there is a request of another one."""
        dispatcher: Dispatcher = self._dispatcher
        dispatcher.__class__ = Stage.STEADY.value[0][self._is_measured]
        assert isinstance(dispatcher, SteadyDispatcher)
        self._table = dispatcher.narrow(api_key)
