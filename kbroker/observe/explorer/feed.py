"""Exchanges for a browser: documents for server-sent events, and the fields of those that it asks for.

A feed keeps the latest exchanges, within bounds, and has readers. It is fed by one thread and read by others.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kbroker.observe.explorer.decoded import Decoded
from kbroker.observe.explorer.exchange import ConnectionInfo, Exchange, Names, Skipped, StreamStart
from kbroker.observe.explorer.explained import LookUp, Story, document_of, trees_of
from kbroker.observe.explorer.lines import Item, line_of
from kbroker.observe.explorer.sequences import Step
from kbroker.version import __version__
from kbroker.wire.registry import API_KEYS

MAX_KEPT: Final = 2000
"""Exchanges."""

MAX_KEPT_BYTES: Final = 32 << 20

MAX_WAITING: Final = 1000
"""Events that wait for one reader. The oldest give way, and the reader is told how many."""


MAX_WAITING_BYTES: Final = 8 << 20
"""Characters of them."""


class _FeedEntry(NamedTuple):
    """An exchange as it came, and its document as text: messages take many times as much."""

    exchange: Exchange
    connection: ConnectionInfo | None
    run: str
    document: str

    @property
    def size(self) -> int:
        """About the bytes that it takes."""
        exchange = self.exchange
        answer = 0 if exchange.response is None else exchange.response.kept
        return 1000 + exchange.request.kept + answer + len(self.document)


class Feed:
    """The exchanges of one or several nodes."""

    def __init__(self, *, max_kept_bytes: int = MAX_KEPT_BYTES, max_waiting_bytes: int = MAX_WAITING_BYTES) -> None:
        self._max_kept_bytes = max_kept_bytes
        self._max_waiting_bytes = max_waiting_bytes
        self._lock = threading.Lock()
        self._story = Story()
        self._kept: OrderedDict[tuple[int, str, int], _FeedEntry] = OrderedDict()
        self._bytes = 0
        self._readers: list[FeedReader] = []

    def add(self, item: Item, look_up: LookUp | None = None) -> None:
        """Take an item of a node's stream. Others are served while ``look_up`` waits."""
        if isinstance(item, Exchange):
            self._add_exchange(item, look_up)
            return
        with self._lock:
            self._story.add(item)
            if isinstance(item, Skipped):
                counts = {API_KEYS[key].name if key in API_KEYS else str(key): n for key, n in item.counts.items()}
                event = event_of("skipped", {"counts": counts, "why": item.why})
                self._put(event)

    def _add_exchange(self, exchange: Exchange, look_up: LookUp | None) -> None:
        with self._lock:
            decoded = self._story.decoded(exchange)
            ids = [] if look_up is None else self._story.to_ask(decoded)
        found = look_up(ids) if look_up is not None and ids else {}
        with self._lock:
            self._story.names.known.update(found)
            document = json.dumps(document_of(self._story.tell(decoded)))
            kept = _FeedEntry(exchange, decoded.connection, decoded.run, document)
            self._keep(kept)
            self._put(_event("exchange", kept.document))

    def _put(self, event: str) -> None:
        for reader in self._readers:
            reader.put(event)

    def _keep(self, kept: _FeedEntry) -> None:
        key = kept.exchange.node, kept.run, kept.exchange.number
        replaced = self._kept.pop(key, None)
        self._bytes += kept.size - (0 if replaced is None else replaced.size)
        self._kept[key] = kept
        while len(self._kept) > MAX_KEPT or self._bytes > self._max_kept_bytes:
            self._bytes -= self._kept.popitem(last=False)[1].size

    def read(self) -> FeedReader:
        """A reader, who gets what is kept, and then what comes. It is to be closed."""
        with self._lock:
            reader = FeedReader(self, self._max_waiting_bytes)
            for kept in self._kept.values():
                reader.put(_event("exchange", kept.document))
            self._readers.append(reader)
            return reader

    def leave(self, reader: FeedReader) -> None:
        """The reader reads no more."""
        with self._lock:
            if reader in self._readers:
                self._readers.remove(reader)

    def details(self, node: int, run: str, number: int) -> dict[str, Any] | None:
        """All that is known of an exchange, its fields included; None if it is kept no more."""
        with self._lock:
            kept = self._kept.get((node, run, number))
        if kept is None:
            return None
        document: dict[str, Any] = json.loads(kept.document)
        return document | trees_of(Decoded(kept.exchange, None))

    def connections(self) -> list[ConnectionInfo]:
        """The connections that have been seen and are open."""
        with self._lock:
            return self._story.connections()

    def open_steps(self) -> dict[tuple[int, int], Step]:
        """(node, connection) -> the last step on it of a sequence that goes on."""
        with self._lock:
            return self._story.open_steps()

    def saved(self) -> Iterator[str]:
        """The lines of a file of what is kept: each exchange after its connection, in the run of its node."""
        with self._lock:
            starts = dict(self._story.starts)
            names = Names(dict(self._story.names.known))
            kept = list(self._kept.values())
        return map(line_of, _items_of_file(starts, names, kept))


def _items_of_file(starts: Mapping[int, StreamStart], names: Names, kept: Sequence[_FeedEntry]) -> Iterator[Item]:
    """The beginning of a file, and exchanges, before which all is told that a reader has to know."""
    first = next(iter(starts.values()), StreamStart(-1, "", f"kbroker {__version__}", 0.0))
    runs = {first.node: first.run}
    connections: dict[tuple[int, int], ConnectionInfo] = {}
    yield first
    yield names
    for exchange, connection, run, _ in kept:
        node = exchange.node
        if runs.get(node) != run:
            runs[node] = run
            connections = {key: known for key, known in connections.items() if key[0] != node}
            yield starts.get(node, first)._replace(node=node, run=run, at_ms=exchange.at_ms)
        if connection is not None and connections.get((node, connection.number)) != connection:
            connections[node, connection.number] = connection
            yield connection
        yield exchange


class FeedReader:
    """A reader's events that wait, as text."""

    def __init__(self, feed: Feed, max_bytes: int) -> None:
        self._feed = feed
        self._max_bytes = max_bytes
        self._waiting: deque[str] = deque()
        self._size = 0
        self._lost = 0
        self._some = threading.Condition()

    def put(self, event: str) -> None:
        """Have an event wait."""
        with self._some:
            self._waiting.append(event)
            self._size += len(event)
            while len(self._waiting) > MAX_WAITING or (self._size > self._max_bytes and len(self._waiting) > 1):
                self._size -= len(self._waiting.popleft())
                self._lost += 1
            self._some.notify()

    def take(self, seconds: float) -> str:
        """All events that wait, once there is one; a comment if none comes in this time."""
        with self._some:
            self._some.wait_for(lambda: self._waiting, seconds)
            events = "".join(self._waiting)
            self._waiting.clear()
            self._size = 0
            if self._lost:
                why = "this page does not read fast enough"
                events = event_of("skipped", {"counts": {"": self._lost}, "why": why}) + events
                self._lost = 0
            return events or ": nothing new\n\n"

    def close(self) -> None:
        """Read no more."""
        self._feed.leave(self)


def event_of(kind: str, document: dict[str, Any]) -> str:
    """A server-sent event."""
    return _event(kind, json.dumps(document))


def _event(kind: str, document: str) -> str:
    return f"event: {kind}\ndata: {document}\n\n"
