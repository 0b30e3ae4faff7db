"""The HTTP side of a node's explorer: ``/exchanges`` streams what is seen, ``/connections`` lists who is there.

``/exchanges?api=Produce,Fetch&client=PART&controllers=1`` asks for less, or for what controllers are asked, too.
``/names?ids=ID,ID`` tells the names of topics by the text of their ids. All is in the form of
`kbroker.observe.explorer.lines`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, Protocol, cast
from urllib.parse import parse_qs, urlsplit

import trio

from kbroker.node.explorer.budget import ProcessorTime
from kbroker.node.explorer.watcher import Watcher
from kbroker.node.peers.http_server import Exchange, HttpServer, may_ask
from kbroker.node.serving.timed_steps import timed_steps
from kbroker.observe.explorer.exchange import ClientInfo, Names, StreamStart
from kbroker.observe.explorer.lines import Item, line_of
from kbroker.security.sasl.conversation import SaslConversation
from kbroker.types import uuid_from_str
from kbroker.version import __version__
from kbroker.wire.registry import API_KEYS

if TYPE_CHECKING:
    from kbroker.node.explorer.observed_node import ObservedNode
    from kbroker.node.explorer.tap import Tap, WatchedConnection


LINES: Final = "application/x-ndjson"
MAX_WATCHERS: Final = 8
MAX_NAMES: Final = 100
"""Ids in one question."""
LINES_A_TURN: Final = 64
"""Lines that are made before others have their turn."""
PULSE_SECONDS: Final = 1.0
"""After so long a watcher hears something in any case: how many were skipped, or an empty line."""
GATHER_SECONDS: Final = 0.1
"""The time, in seconds, in which all that comes is sent together."""

_LONGEST_ID: Final = 256
"""Characters of a client id that are told."""


class ExplorerPages:
    """Answers for one node."""

    def __init__(self, address: tuple[str, int], tap: Tap, node: ObservedNode) -> None:
        self._host = address[0]
        self._tap = tap
        self._node = node
        self._watchers = 0
        self.server = HttpServer("explorer", address, self._answer)

    async def _answer(self, exchange: Exchange, target: str) -> None:
        if not may_ask(exchange.headers, self._host):
            await exchange.answer(403, "this address is not for pages of other sites, nor under other names\n")
            return
        try:
            url = urlsplit(target)
        except ValueError:
            await exchange.answer(400, "this is no address\n")
            return
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        if url.path == "/exchanges":
            await self._stream(exchange, query)
        elif url.path == "/connections":
            await self._connections(exchange)
        elif url.path == "/names":
            await self._names(exchange, query)
        else:
            await exchange.answer(404, "there are /exchanges, /connections and /names\n")

    async def _connections(self, exchange: Exchange) -> None:
        await exchange.begin(200, LINES)
        seen = self._tap.connections()
        for begin in range(0, len(seen), LINES_A_TURN):
            some = [each for each in seen[begin : begin + LINES_A_TURN] if not cast(_Served, each.connection).closed]
            await _send(exchange, [client_info(each, self._tap.run) for each in some])
            await trio.lowlevel.checkpoint()
        await exchange.end()

    async def _names(self, exchange: Exchange, query: Mapping[str, str]) -> None:
        topics = self._node.metadata.image.topics.by_id
        found = {}
        for text in query.get("ids", "").split(",")[:MAX_NAMES]:
            try:
                topic = topics.get(uuid_from_str(text))
            except ValueError:
                continue
            if topic is not None:
                found[text] = topic.name
        await exchange.answer(200, line_of(Names(found)), LINES)

    async def _stream(self, exchange: Exchange, query: Mapping[str, str]) -> None:
        try:
            watcher = _watcher_for(query)
        except ValueError as error:
            await exchange.answer(400, f"{error}\n")
            return
        if self._watchers >= MAX_WATCHERS:
            await exchange.answer(503, f"{MAX_WATCHERS} watch already\n")
            return
        exchange.has_no_end()
        self._watchers += 1
        self._tap.add(watcher)
        try:
            await exchange.begin(200, LINES)
            node_id, cluster_id = self._node.config.node_id, self._node.services.cluster_id
            start = StreamStart(node_id, cluster_id, f"kbroker {__version__}", self._now_ms(), self._tap.run)
            await _send(exchange, [start])
            work = ProcessorTime(self._tap.budget)
            while not exchange.is_head:
                await timed_steps(self._next_lines(exchange, watcher), work.start, work.stop)
            await exchange.end()
        finally:
            self._watchers -= 1
            self._tap.remove(watcher)

    async def _next_lines(self, exchange: Exchange, watcher: Watcher) -> None:
        await watcher.wait(PULSE_SECONDS if self._tap.budget.is_open else GATHER_SECONDS)
        self._tap.refill()
        items: list[Item] = [*watcher.take(LINES_A_TURN)]
        items += self._tap.take_skipped(watcher)
        if items:
            await _send(exchange, items)
        else:
            await exchange.send("\n")
        if len(items) < LINES_A_TURN:
            await trio.sleep(GATHER_SECONDS)

    def _now_ms(self) -> float:
        return float(self._tap.env.wall_clock_ms())


async def _send(exchange: Exchange, items: Iterable[Item]) -> None:
    await exchange.send("".join(map(line_of, items)))


def _watcher_for(query: Mapping[str, str]) -> Watcher:
    """The watcher that a query asks for; ``ValueError`` for an API that does not exist."""
    keys = None
    if query.get("api"):
        by_name = {api.name.lower(): key for key, api in API_KEYS.items()}
        names = query["api"].split(",")
        missing = [name for name in names if name.lower() not in by_name]
        if missing:
            raise ValueError(f"there is no API {missing[0][:40]!r}")
        keys = [by_name[name.lower()] for name in names]
    return Watcher(keys, query.get("client", ""), controllers=query.get("controllers") == "1")


class _Served(Protocol):
    """The parts of `kbroker.node.serving.connection.Connection` that are told."""

    closed: bool
    session: object | None
    stream: object
    is_of_node: bool

    @property
    def frames(self) -> int: ...

    @property
    def bytes_received(self) -> int: ...


def client_info(seen: WatchedConnection, run: str) -> ClientInfo:
    """A connection that is served, and what has come on it; ``run``: the node's."""
    connection = cast(_Served, seen.connection)
    session = connection.session
    return ClientInfo(
        seen.info(),
        (seen.client_id or b"").decode("utf-8", "replace")[:_LONGEST_ID],
        session.mechanism if isinstance(session, SaslConversation) else "",
        _tls_of(connection.stream),
        seen.since_ms,
        connection.frames,
        connection.bytes_received,
        run,
        connection.is_of_node,
    )


def _tls_of(stream: object) -> str:
    """Version and cipher suite of a stream with TLS; empty for a plain one."""
    version, cipher = getattr(stream, "version", None), getattr(stream, "cipher", None)
    return f"{version} {cipher}" if isinstance(version, str) and isinstance(cipher, str) else ""
