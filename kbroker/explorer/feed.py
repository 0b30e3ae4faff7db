"""Exchanges for a browser: documents for server-sent events, and the fields of those that it asks for.

A feed keeps the latest exchanges, within bounds, and has readers. It is fed by one thread and read by others.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from kbroker.explorer.decoded import Decoded
from kbroker.explorer.exchange import Exchange, Names, Skipped
from kbroker.explorer.lines import Item, line_of
from kbroker.explorer.story import LookUp, Story, document_of, trees_of
from kbroker.wire.registry import API_KEYS

MAX_KEPT: Final = 2000
"""Exchanges."""

MAX_KEPT_BYTES: Final = 32 << 20

MAX_WAITING: Final = 1000
"""Events that wait for one reader. The oldest give way, and the reader is told how many."""


MAX_WAITING_BYTES: Final = 8 << 20
"""Characters of them."""


class _Kept(NamedTuple):
    """An exchange as it came, and its document as text: messages take many times as much."""

    exchange: Exchange
    document: str

    @property
    def size(self) -> int:
        """About the bytes that it takes."""
        exchange = self.exchange
        answer = 0 if exchange.response is None else exchange.response.kept
        return 1000 + exchange.request.kept + answer + len(self.document)


class Feed:
    """The exchanges of one or several nodes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._story = Story()
        self._kept: OrderedDict[tuple[int, int], _Kept] = OrderedDict()
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
            kept = _Kept(exchange, json.dumps(document_of(self._story.tell(decoded))))
            self._keep(kept)
            self._put(_event("exchange", kept.document))

    def _put(self, event: str) -> None:
        for reader in self._readers:
            reader.put(event)

    def _keep(self, kept: _Kept) -> None:
        key = kept.exchange.node, kept.exchange.number
        replaced = self._kept.pop(key, None)
        self._bytes += kept.size - (0 if replaced is None else replaced.size)
        self._kept[key] = kept
        while len(self._kept) > MAX_KEPT or self._bytes > MAX_KEPT_BYTES:
            self._bytes -= self._kept.popitem(last=False)[1].size

    def read(self) -> FeedReader:
        """A reader, who gets what is kept, and then what comes. It is to be closed."""
        with self._lock:
            reader = FeedReader(self)
            for kept in self._kept.values():
                reader.put(_event("exchange", kept.document))
            self._readers.append(reader)
            return reader

    def leave(self, reader: FeedReader) -> None:
        """The reader reads no more."""
        with self._lock:
            if reader in self._readers:
                self._readers.remove(reader)

    def details(self, node: int, number: int) -> dict[str, Any] | None:
        """All that is known of an exchange, its fields included; None if it is kept no more."""
        with self._lock:
            kept = self._kept.get((node, number))
        if kept is None:
            return None
        document: dict[str, Any] = json.loads(kept.document)
        return document | trees_of(Decoded(kept.exchange, None))

    def connections(self) -> list[dict[str, Any]]:
        """The connections that have been seen and are open."""
        with self._lock:
            return [each._asdict() for each in self._story.connections()]

    def saved(self) -> Iterator[str]:
        """The lines of a file of what is kept."""
        with self._lock:
            items: list[Item] = [
                *self._story.nodes[:1],
                *self._story.connections(),
                Names(dict(self._story.names.known)),
            ]
            items += [kept.exchange for kept in self._kept.values()]
        return map(line_of, items)


class FeedReader:
    """A reader's events that wait, as text."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._waiting: deque[str] = deque()
        self._size = 0
        self._lost = 0
        self._some = threading.Condition()

    def put(self, event: str) -> None:
        """Have an event wait."""
        with self._some:
            self._waiting.append(event)
            self._size += len(event)
            while len(self._waiting) > MAX_WAITING or (self._size > MAX_WAITING_BYTES and len(self._waiting) > 1):
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
