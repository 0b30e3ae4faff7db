"""Requests and answers of a node as its watchers get them: how many at most, and what becomes of the others.

A node spends no more than a share of a processor on being watched. When that is spent, requests are counted and not
shown until a good part of it is saved again: what is shown are whole sequences. For rare requests something is kept.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Collection
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Final, Protocol

from kbroker.node.explorer.budget import EXCHANGE, Budget
from kbroker.node.explorer.kept_frames import CUT_OFF, client_id_of, redact, request_frame
from kbroker.node.explorer.not_shown import MAX_PENDING_BYTES, Missed
from kbroker.node.explorer.watcher import EXCHANGE_BYTES, Watcher
from kbroker.observe.explorer.exchange import (
    MAX_KEPT,
    ConnectionInfo,
    Exchange,
    Frame,
    Skipped,
    unshown_frame,
    whole_frame,
)
from kbroker.observe.explorer.redaction import LARGEST, PREFIX, is_request, may_have_secrets
from kbroker.wire.registry import API_KEYS

if TYPE_CHECKING:
    from kbroker.handlers.services.connection import Connection
    from kbroker.handlers.services.explorer import ShownConnection
    from kbroker.runtime.env import Env

logger = logging.getLogger(__name__)

_COMMON_NAMES: Final = ("Produce", "Fetch", "OffsetCommit", "ShareFetch", "ShareAcknowledge", "ListOffsets")

COMMON: Final = frozenset(
    key for key, api in API_KEYS.items() if api.name in _COMMON_NAMES or api.name.endswith("Heartbeat")
)
"""APIs whose requests come again and again. Others are rare, and seen as long as anything is left to be spent."""

MAX_LOGINS: Final = 1024
"""Clients that log in at a time and are known by one number before and after that."""


class Requests(Protocol):
    """The requests of one connection (`watched_requests.WatchedRequests`)."""

    def watch(self, wanted: bool) -> None:
        """Have each request seen from the next one on, or none."""


class WatchedConnection:
    """A connection that a tap knows. What is asked of it comes from the connection itself, as long as that is open."""

    __slots__ = (
        *("_info", "_known", "client_id", "connection", "is_controller", "missed", "node", "number"),
        *("requests", "since_ms", "software", "waiting"),
    )

    def __init__(
        self, node: int, number: int, connection: ShownConnection, missed: Missed, software: str = "unknown"
    ) -> None:
        """``missed`` counts its requests that are not seen; ``software``: what it said of itself as it logged in."""
        self.missed = missed
        self.node = node
        self.number = number
        self.software = software
        self._known: tuple[object, str, str] | None = None
        self._info: ConnectionInfo | None = None
        self.waiting: set[Begun] = set()
        """Requests that are seen and not complete."""
        self.connection = connection
        self.is_controller = connection.is_controller
        self.client_id: bytes | None = None
        """The client id that its first request has; None before that."""
        self.requests: Requests | None = None
        """The connection's own, where it has its parts; None while it logs in."""
        self.since_ms = -1.0
        """The time from which on it is served."""

    def info(self) -> ConnectionInfo:
        """The client at the other end, as far as it is known now; the same object as long as nothing is new."""
        connection = self.connection
        name, version = connection.client_software_name, connection.client_software_version
        known = connection.principal, name, version
        if self._info is None or self._known != known:
            self._known = known
            self._info = self._make_info(name, version)
        return self._info

    def _make_info(self, name: str, version: str) -> ConnectionInfo:
        connection = self.connection
        return ConnectionInfo(
            self.number,
            connection.peer,
            connection.listener_name,
            connection.is_controller,
            str(connection.principal),
            self.software if name == "unknown" else f"{name} {version}",
            self.node,
        )


class Tap:
    """Sees the exchanges of one node for as long as somebody watches. Times come from the node's wall clock."""

    def __init__(
        self, env: Env, node: int, budget: Budget | None = None, max_pending_bytes: int = MAX_PENDING_BYTES
    ) -> None:
        self._max_pending_bytes = max_pending_bytes
        self.env = env
        self.node = node
        self.run = secrets.token_hex(4)
        """Tells this run of the node from others, whose exchanges and connections have the same numbers."""
        self.is_watched = False
        self.budget = Budget() if budget is None else budget
        self._missed = Missed(of_controllers=False)
        self._missed_by_controllers = Missed(of_controllers=True)
        self.pending: set[Begun] = set()
        """Requests that are seen and not complete."""
        self.pending_bytes = 0
        self._watchers: list[Watcher] = []
        self._api_keys: frozenset[int] | None = frozenset()
        """Those that anybody asks for; None for all."""
        self._controllers = self._by_client = False
        """Whether anybody asks for controllers' listeners, and whether all ask for certain clients alone."""
        self._connections: dict[int, WatchedConnection] = {}
        self._logins: dict[tuple[str, str], WatchedConnection] = {}
        self._numbers = 0
        self._exchanges = 0

    # --- who is there

    def add(self, watcher: Watcher) -> None:
        """Somebody watches from now on: requests from before are the others'."""
        self._share_out()
        self._watchers.append(watcher)
        self._on_watchers()

    def remove(self, watcher: Watcher) -> None:
        """They watch no more."""
        self._watchers.remove(watcher)
        self._on_watchers()

    def _on_watchers(self) -> None:
        watchers = self._watchers
        self.is_watched = bool(watchers)
        keys = [watcher.api_keys for watcher in watchers]
        self._api_keys = None if None in keys else frozenset().union(*(each for each in keys if each is not None))
        self._controllers = any(watcher.controllers for watcher in watchers)
        self._by_client = all(watcher.client for watcher in watchers)
        self.refill()
        for seen in self._connections.values():
            if seen.requests is not None:
                seen.requests.watch(self.asks_of(seen))
        if not watchers:
            for begun in list(self.pending):
                begun.drop()
            self._missed.clear()
            self._missed_by_controllers.clear()

    def asks_of(self, seen: WatchedConnection) -> bool:
        """Whether anybody asks for requests to the listener of a connection."""
        return self.is_watched and (self._controllers or not seen.is_controller)

    def refill(self) -> None:
        """Allow what has been saved since the last time; whoever watches calls it again and again."""
        self.budget.refill(perf_counter())

    # --- who has come and gone

    def connected(self, connection: Connection) -> WatchedConnection:
        """A connection is served from now on, and known until it ends."""
        login = self._logins.pop((connection.listener_name, connection.peer), None)
        if login is None:
            seen = self._seen(self._next_number(), connection)
        else:
            seen = self._seen(login.number, connection, login.info().software)
        number = seen.number
        seen.since_ms = float(self.env.wall_clock_ms())
        self._connections[number] = seen

        def closed() -> None:
            for begun in list(seen.waiting):
                begun.ended(CUT_OFF)
            del self._connections[number]
            self._tell_closed(number)

        connection.when_closed.append(closed)
        return seen

    async def login(
        self, connection: ShownConnection, frame: bytes, answer: Awaitable[bytes], api_keys: Collection[int]
    ) -> bytes:
        """Show a step of a login, and its answer; of a frame that is no request of ``api_keys`` the size alone."""
        begun = self.begin(self._logs_in(connection), frame)
        if begun is not None and not (begun.api_key in api_keys and is_request(frame)):
            begun.request = unshown_frame(len(frame))
        try:
            reply = await answer
        except BaseException as error:
            if begun is not None:
                last: bytes | None = getattr(error, "reply", None)
                if last is None:
                    begun.ended(f"the connection was closed: {error}")
                else:
                    begun.answered(lambda: whole_frame(last[4:]))
            raise
        if begun is not None:
            begun.answered(lambda: whole_frame(reply[4:]))
        return reply

    def login_failed(self, connection: ShownConnection) -> None:
        """Tell that the connection of a client that tried to log in is closed."""
        key = connection.listener_name, connection.peer
        seen = self._logins.get(key)
        if seen is not None and seen.connection is connection:
            del self._logins[key]
            self._tell_closed(seen.number)

    def _tell_closed(self, number: int) -> None:
        for watcher in self._watchers:
            watcher.connection_closed(number, self.node)

    def _logs_in(self, connection: ShownConnection) -> WatchedConnection:
        """A client that logs in, and has the same number afterwards."""
        key = connection.listener_name, connection.peer
        seen = self._logins.get(key)
        if seen is None or seen.connection is not connection:
            while len(self._logins) >= MAX_LOGINS:
                del self._logins[next(iter(self._logins))]
            seen = self._logins[key] = self._seen(self._next_number(), connection)
        return seen

    def _seen(self, number: int, connection: ShownConnection, software: str = "unknown") -> WatchedConnection:
        missed = self._missed_by_controllers if connection.is_controller else self._missed
        return WatchedConnection(self.node, number, connection, missed, software)

    def connections(self) -> list[WatchedConnection]:
        """The connections that are open."""
        return list(self._connections.values())

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    # --- what they ask

    def begin(self, seen: WatchedConnection, frame: memoryview | bytes) -> Begun | None:
        """A request has come; None if it is not to be seen. Copies the frame, which a log may write into."""
        if len(frame) < PREFIX:
            return None  # of a login: it is no request
        api_key = frame[0] << 8 | frame[1]
        keys = self._api_keys
        if (keys is not None and api_key not in keys) or (seen.is_controller and not self._controllers):
            return None
        if self._by_client and not self._is_wanted(seen, frame):
            return None
        budget = self.budget
        if not (budget.is_open or (budget.is_open_for_rare and api_key not in COMMON)):
            seen.missed.too_fast[api_key & 0xFF] += 1
            return None
        most = LARGEST if may_have_secrets(api_key) else MAX_KEPT
        size = EXCHANGE_BYTES + min(len(frame), most)
        if self.pending_bytes + size > self._max_pending_bytes:
            seen.missed.unanswered[api_key & 0xFF] += 1
            return None
        began = thread_time()
        begun = Begun(self, seen, api_key, request_frame(api_key, frame), size)
        budget.spend(thread_time() - began + EXCHANGE)
        return begun

    def _is_wanted(self, seen: WatchedConnection, frame: memoryview | bytes) -> bool:
        """Whether anybody asks for a request of its client."""
        api_key = frame[0] << 8 | frame[1]
        client_id = client_id_of(frame)
        return any(watcher.wants(api_key, client_id, seen.is_controller) for watcher in self._watchers)

    def complete(self, begun: Begun, end: str = "") -> None:
        """An exchange is complete: it waits for those who want it."""
        self._exchanges += 1
        took_ms = -1.0 if begun.response is None else begun.took_ms
        seen, request, response = begun.seen, begun.request, begun.response
        exchange = Exchange(self.node, self._exchanges, seen.number, begun.at_ms, request, response, took_ms, end)
        client_id = client_id_of(begun.request.pieces[0][1])
        redact(exchange)
        info = begun.seen.info()
        for watcher in self._watchers:
            if watcher.wants(begun.api_key, client_id, info.is_controller):
                watcher.put(exchange, info)

    def take_skipped(self, watcher: Watcher) -> list[Skipped]:
        """The requests that were not seen since the last call for this watcher, and that it asks for.

        For one who asks for certain clients those of others' clients are counted, too.
        """
        self._share_out()
        return watcher.skipped.take(watcher.api_keys, of_others=bool(watcher.client) and len(self._watchers) > 1)

    def _share_out(self) -> None:
        """Tell each watcher's count the requests that were not seen, and that it may ask for."""
        for missed in (self._missed, self._missed_by_controllers):
            for each in self._watchers:
                if each.controllers or not missed.of_controllers:
                    each.skipped.add(missed)
            missed.clear()


class Begun:
    """A request that is seen, until it is complete."""

    __slots__ = ("_at", "_size", "_tap", "api_key", "at_ms", "is_complete", "request", "response", "seen", "took_ms")

    def __init__(self, tap: Tap, seen: WatchedConnection, api_key: int, request: Frame, size: int) -> None:
        """``size``: bytes that count until it is complete."""
        self._tap = tap
        self._size = size
        tap.pending_bytes += size
        tap.pending.add(self)
        self.api_key = api_key
        self._at = perf_counter()
        self.at_ms = float(tap.env.wall_clock_ms())
        self.seen = seen
        self.request = request
        self.response: Frame | None = None
        self.took_ms = -1.0
        self.is_complete = False
        seen.waiting.add(self)

    def answered(self, make: Callable[[], Frame | None], end: str = "") -> None:
        """The answer is there; ``make`` makes its frame. Without one, ``end`` says why."""
        if self.is_complete:
            return
        self._complete()
        self.took_ms = (perf_counter() - self._at) * 1000
        began = thread_time()
        try:
            self.response = make()
            self._tap.complete(self, end)
        except Exception:  # the client's request is served all the same
            logger.exception("explorer: a request to API key %d cannot be shown", self.api_key)
        self._tap.budget.spend(thread_time() - began)

    def ended(self, why: str) -> None:
        """There is no answer."""
        self.answered(lambda: None, why)

    def drop(self) -> None:
        """Nobody watches any more."""
        self._complete()
        self.request = unshown_frame(0)

    def _complete(self) -> None:
        self.is_complete = True
        self.seen.waiting.discard(self)
        self._tap.pending.discard(self)
        self._tap.pending_bytes -= self._size
