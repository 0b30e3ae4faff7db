"""What a browser is fed with: exchanges as documents for server-sent events, and the fields of those that it asks for.

A feed keeps the latest exchanges, within bounds, and has readers. It is fed by one thread and read by others.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Any, Final

from kbroker.explorer.exchange import Exchange, Names, Skipped
from kbroker.explorer.lines import Item, line_of
from kbroker.explorer.story import LookUp, Story, Told, document_of
from kbroker.wire.registry import API_KEYS

MAX_KEPT: Final = 2000
"""Exchanges."""

MAX_KEPT_BYTES: Final = 32 << 20

MAX_WAITING: Final = 1000
"""Events that wait for one reader. The oldest give way, and the reader is told how many."""


class Feed:
    """The exchanges of one or several nodes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._story = Story()
        self._kept: OrderedDict[tuple[int, int], Told] = OrderedDict()
        self._bytes = 0
        self._readers: list[FeedReader] = []

    def add(self, item: Item, look_up: LookUp | None = None) -> None:
        """Take an item of a node's stream."""
        with self._lock:
            told = self._story.add(item, look_up)
            if told is not None:
                self._keep(told)
                event = event_of("exchange", document_of(told))
            elif isinstance(item, Skipped):
                counts = {API_KEYS[key].name if key in API_KEYS else str(key): n for key, n in item.counts.items()}
                event = event_of("skipped", {"counts": counts, "why": item.why})
            else:
                return
            for reader in self._readers:
                reader.put(event)

    def _keep(self, told: Told) -> None:
        exchange = told.decoded.exchange
        self._kept[exchange.node, exchange.number] = told
        self._bytes += _size(exchange)
        while len(self._kept) > MAX_KEPT or self._bytes > MAX_KEPT_BYTES:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= _size(oldest.decoded.exchange)

    def read(self) -> FeedReader:
        """A reader, who gets what is kept, and then what comes. It is to be closed."""
        with self._lock:
            reader = FeedReader(self)
            for told in self._kept.values():
                reader.put(event_of("exchange", document_of(told)))
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
            told = self._kept.get((node, number))
        return None if told is None else document_of(told, trees=True)

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
            items += [told.decoded.exchange for told in self._kept.values()]
        return map(line_of, items)


class FeedReader:
    """A reader's events that wait, as text."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._waiting: deque[str] = deque()
        self._lost = 0
        self._some = threading.Condition()

    def put(self, event: str) -> None:
        """Have an event wait."""
        with self._some:
            if len(self._waiting) >= MAX_WAITING:
                self._waiting.popleft()
                self._lost += 1
            self._waiting.append(event)
            self._some.notify()

    def take(self, seconds: float) -> str:
        """All events that wait, once there is one; a comment if none comes in this time."""
        with self._some:
            self._some.wait_for(lambda: self._waiting, seconds)
            events = "".join(self._waiting)
            self._waiting.clear()
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
    return f"event: {kind}\ndata: {json.dumps(document)}\n\n"


def _size(exchange: Exchange) -> int:
    return 2000 + exchange.request.kept + (0 if exchange.response is None else exchange.response.kept)
