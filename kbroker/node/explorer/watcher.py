"""Somebody who watches a node, and what waits for them: so much at the most, the oldest gives way."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection
from typing import Final

import trio

from kbroker.node.explorer.not_shown import Untold
from kbroker.observe.explorer.exchange import Closed, ConnectionInfo, Exchange, Skipped

MAX_WAITING_BYTES: Final = 8 << 20
"""Bytes that wait for one watcher. The oldest give way to newer ones."""

EXCHANGE_BYTES: Final = 512
"""Bytes that an exchange takes beside its frames."""

CLOSED_BYTES: Final = 256
"""Bytes that the end of a connection takes."""

TOO_SLOW: Final = "the watcher does not read fast enough"


class Watcher:
    """Somebody who watches: what waits for them, within ``MAX_WAITING_BYTES``."""

    def __init__(self, api_keys: Collection[int] | None = None, client: str = "", *, controllers: bool = False) -> None:
        """``api_keys``: those that are asked for, None for all; ``client``: a part of the client id; ``controllers``:
        also what comes in on listeners of controllers.
        """
        self.api_keys = None if api_keys is None else frozenset(api_keys)
        self.client = client.encode()
        self.controllers = controllers
        self._waiting: deque[tuple[Exchange, ConnectionInfo, int] | Closed] = deque()
        self._bytes = 0
        self._waiting_of: Counter[int] = Counter()
        """Exchanges that wait, by their connections."""
        self.skipped = Untold()
        """Requests that were not seen, and of which it has not been told."""
        self._lost: Counter[int] = Counter()
        self._told: dict[int, ConnectionInfo] = {}
        self._some = trio.Event()

    def wants(self, api_key: int, client_id: bytes, is_controller: bool) -> bool:
        """Whether a request is for this watcher."""
        return (
            (self.api_keys is None or api_key in self.api_keys)
            and (not is_controller or self.controllers)
            and (not self.client or self.client in client_id)
        )

    def put(self, exchange: Exchange, info: ConnectionInfo) -> None:
        """Have an exchange wait to be taken."""
        size = _size(exchange)
        self._bytes += size
        self._waiting.append((exchange, info, size))
        self._waiting_of[exchange.connection] += 1
        self._make_room()
        self._some.set()

    def _make_room(self) -> None:
        while self._bytes > MAX_WAITING_BYTES:
            oldest = self._next()
            if not isinstance(oldest, Closed):
                self._lost[oldest[0].api_key] += 1

    def _next(self) -> tuple[Exchange, ConnectionInfo, int] | Closed:
        """Take the oldest that waits."""
        oldest = self._waiting.popleft()
        if isinstance(oldest, Closed):
            self._bytes -= CLOSED_BYTES
            return oldest
        exchange, _, size = oldest
        self._bytes -= size
        self._waiting_of[exchange.connection] -= 1
        if not self._waiting_of[exchange.connection]:
            del self._waiting_of[exchange.connection]
        return oldest

    def connection_closed(self, number: int, node: int) -> None:
        """A connection has ended; those are told who have heard of it."""
        if self._told.pop(number, None) is not None or number in self._waiting_of:
            self._waiting.append(Closed(number, node))
            self._bytes += CLOSED_BYTES
            self._make_room()
            self._some.set()

    async def wait(self, seconds: float) -> None:
        """Wait until there is something to take, or for so long."""
        if not self._waiting:
            self._some = trio.Event()
            with trio.move_on_after(seconds):
                await self._some.wait()

    def take(self, most: int) -> list[Exchange | ConnectionInfo | Closed | Skipped]:
        """The next items, each connection before its first exchange."""
        items: list[Exchange | ConnectionInfo | Closed | Skipped] = []
        if self._lost:
            items.append(Skipped(dict(self._lost), TOO_SLOW))
            self._lost.clear()
        while self._waiting and len(items) < most:
            next_one = self._next()
            if isinstance(next_one, Closed):
                self._told.pop(next_one.number, None)
                items.append(next_one)
                continue
            exchange, info, _ = next_one
            told = self._told.get(info.number)
            if told is not info and told != info:
                self._told[info.number] = info
                items.append(info)
            items.append(exchange)
        return items


def _size(exchange: Exchange) -> int:
    return EXCHANGE_BYTES + exchange.request.kept + (0 if exchange.response is None else exchange.response.kept)
