"""Metrics of a node as one part of it: the counts, the page, and its server (``/metrics``, ``/health``, ``/ready``)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import trio

from kbroker.config.listeners import QuorumVoter
from kbroker.node.metrics.figures import PAUSE, Figures
from kbroker.node.metrics.node_figures import NodeFigures
from kbroker.node.metrics.node_metrics import NodeMetrics
from kbroker.node.peers.http_server import Exchange, HttpServer
from kbroker.observe.metrics import exposition, families
from kbroker.observe.metrics.dialect import Dialect
from kbroker.observe.metrics.exposition import CONTENT_TYPE

if TYPE_CHECKING:
    from kbroker.node.metrics.measured_node import MeasuredNode
    from kbroker.runtime.env import Env

logger = logging.getLogger(__name__)


OTHER_SECONDS = 5.0
"""The time that another node's page may take."""

LINES = 256
"""Lines of a piece."""

Send = Callable[[str], Awaitable[None]]


class MetricsPage:
    """Writes the metrics of a node in a dialect."""

    def __init__(self, broker: MeasuredNode, metrics: NodeMetrics, others: Sequence[QuorumVoter] = ()) -> None:
        """``others``: ids and addresses of pages that this one shows, too."""
        self._node = broker
        self._metrics = metrics
        self._figures = NodeFigures(broker, metrics)
        self._others = others

    async def write(self, dialect: Dialect, send: Send, *, is_part: bool = False, alone: bool = False) -> None:
        """Hand the page's text to ``send``, piece by piece; with a label of this node if it ``is_part`` of another's.

        ``alone``: without other nodes' pages.
        """
        piece: list[str] = []
        figures = await self._figures.look(dialect)
        lines = self._lines(dialect, figures)
        others: exposition.Others | None = None
        if self._others and not alone:
            pages = await self._ask_others(dialect)
            up = [((str(number),), float(bool(page))) for number, page in pages.items()]
            head = exposition.head(families.OTHER_UP, dialect)
            lines = chain((head, *exposition.lines(families.OTHER_UP, dialect, up)), lines)
            others = exposition.by_family(pages.values())
        if is_part or others is not None:
            node = str(self._node.config.node_id)
            lines = (exposition.labelled(text, node) for text in lines)
        if others is not None:
            lines = exposition.joined(lines, others)
        for text in lines:
            if not text:
                await trio.lowlevel.checkpoint()
                continue
            piece.append(text)
            if len(piece) >= LINES:
                await send("".join(piece))
                piece.clear()
        if piece:
            await send("".join(piece))

    async def _ask_others(self, dialect: Dialect) -> dict[int, str]:
        """The pages of the other nodes by their ids, empty if one does not answer."""
        pages = dict.fromkeys((other.node_id for other in self._others), "")

        async def ask(other: QuorumVoter) -> None:
            request = f"GET /metrics?part=1&dialect={dialect} HTTP/1.0\r\n\r\n"
            data = b""
            with trio.move_on_after(OTHER_SECONDS), suppress(OSError, trio.BrokenResourceError):
                async with await trio.open_tcp_stream(other.host, other.port) as stream:
                    await stream.send_all(request.encode())
                    async for piece in stream:
                        data += piece
                head, _, body = data.partition(b"\r\n\r\n")
                if b" 200 " in head.partition(b"\r\n")[0]:
                    pages[other.node_id] = body.decode()

        async with trio.open_nursery() as nursery:
            for other in self._others:
                nursery.start_soon(ask, other)
        return pages

    def _lines(self, dialect: Dialect, figures: Figures) -> Iterator[str]:
        """The page's lines; an empty one where others are to have a turn."""
        for figure in figures:
            if figure is PAUSE:
                yield ""
                continue
            family, samples = figure
            begun = False
            for text in exposition.lines(family, dialect, samples):
                if text and not begun:
                    yield exposition.head(family, dialect)
                    begun = True
                yield text
        yield from self._metrics.clients.lines(self._metrics.env.now())


class MetricsServer(HttpServer):
    """Serves the page of one node, from ``bind`` until it is cancelled."""

    def __init__(
        self, address: tuple[str, int], page: MetricsPage, *, unready: Callable[[], str], progress: Callable[[], str]
    ) -> None:
        """``unready`` says why the node is not ready to serve, ``progress`` how far its start is; empty if it is."""
        super().__init__("metrics", address, self._answer)
        self._page = page
        self._unready = unready
        self._progress = progress

    async def serve(self) -> None:
        """Answer until cancelled."""
        logger.info("metrics are on %s/metrics", self.url)
        await super().serve()

    async def _answer(self, exchange: Exchange, target: str) -> None:
        try:
            url = urlsplit(target)
        except ValueError:
            await exchange.answer(400, "this is no address\n")
            return
        if url.path == "/metrics":
            query = parse_qs(url.query)
            wanted = query.get("dialect", [Dialect.STRIMZI])[-1]
            try:
                dialect = Dialect(wanted)
            except ValueError:
                await exchange.answer(400, f"there is no dialect {wanted[:40]!r}; there are {', '.join(Dialect)}\n")
                return
            await exchange.begin(200, CONTENT_TYPE)
            await self._page.write(dialect, exchange.send, is_part="part" in query, alone="alone" in query)
            await exchange.end()
        elif url.path == "/health":
            progress = self._progress()
            await exchange.answer(200, f"ok: {progress}\n" if progress else "ok\n")
        elif url.path == "/ready":
            reason = self._unready()
            await exchange.answer(503 if reason else 200, f"{reason or 'ready'}\n")
        else:
            await exchange.answer(404, "there are /metrics, /health and /ready\n")


class MetricsService:
    """``bind`` it before the node's parts are made, ``show`` it when they are there, and ``start`` it to measure."""

    def __init__(
        self, address: tuple[str, int], env: Env, node: MeasuredNode, others: Sequence[QuorumVoter] = ()
    ) -> None:
        """``address`` is that of the page, ``others`` are ids and addresses of pages that it shows, too."""
        self.counts = NodeMetrics(env)
        self._node = node
        page = MetricsPage(node, self.counts, others)
        self._server = MetricsServer(address, page, unready=self._unready, progress=self._progress)

    @property
    def port(self) -> int | None:
        """The port of the page."""
        return self._server.port

    async def bind(self) -> None:
        """Take the page's address. ``FatalError`` if it cannot be had."""
        await self._server.bind()

    def show(self, nursery: trio.Nursery) -> None:
        """Serve the page as soon as the node's parts are there, although none runs yet."""
        nursery.start_soon(self._server.serve)

    def start(self, nursery: trio.Nursery) -> None:
        """Begin to measure."""
        trio.lowlevel.add_instrument(self.counts.loop)
        metadata, counts = self._node.metadata, self.counts
        metadata.subscribe(counts.on_image)
        metadata.controller_log.change_times = counts.changes
        metadata.controller_log.commit_times = counts.commits
        nursery.start_soon(self._run)

    async def _run(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            trio.lowlevel.remove_instrument(self.counts.loop)

    def _progress(self) -> str:
        """The progress of opening the logs, for people; empty once that is done."""
        return "" if self._node.opening is None else str(self._node.opening)

    def _unready(self) -> str:
        """The reason why the node cannot serve clients yet, or no more; empty if it can."""
        node, config = self._node, self._node.config
        if node.opening is not None:
            return str(node.opening)
        image = node.metadata.image
        if image.controller_id < 0:
            return "there is no active controller"
        if config.is_broker:
            own = image.brokers.get(config.node_id)
            if own is None or own.fenced:
                return "the broker is fenced"
            if own.in_controlled_shutdown:
                return "the broker is stopping"
            if len(node.listeners) < len(config.listeners):
                return "the broker is starting"
        return ""
