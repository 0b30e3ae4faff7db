"""The HTTP server of a node's metrics: ``/metrics``, ``/health`` and ``/ready``, for GET and HEAD."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from kbroker.node.peers.http_server import Exchange, HttpServer
from kbroker.observe.metrics.dialect import Dialect
from kbroker.observe.metrics.exposition import CONTENT_TYPE

if TYPE_CHECKING:
    from kbroker.node.metrics.page import MetricsPage

logger = logging.getLogger(__name__)


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
        url = urlsplit(target)
        if url.path == "/metrics":
            wanted = parse_qs(url.query).get("dialect", [Dialect.STRIMZI])[-1]
            try:
                dialect = Dialect(wanted)
            except ValueError:
                await exchange.answer(400, f"there is no dialect {wanted[:40]!r}; there are {', '.join(Dialect)}\n")
                return
            await exchange.begin(200, CONTENT_TYPE)
            await self._page.write(dialect, exchange.send)
            await exchange.end()
        elif url.path == "/health":
            progress = self._progress()
            await exchange.answer(200, f"ok: {progress}\n" if progress else "ok\n")
        elif url.path == "/ready":
            reason = self._unready()
            await exchange.answer(503 if reason else 200, f"{reason or 'ready'}\n")
        else:
            await exchange.answer(404, "there are /metrics, /health and /ready\n")
