"""The page of a scrape: the figures of a node, written family by family in a dialect.

A node may have 100,000 partitions: the page is written in pieces, as fast as its reader takes it, and everybody else
has a turn between two of them. Figures of one page may therefore be some moments apart.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING

import trio

from kbroker.node.metrics.figures import PAUSE, Figures
from kbroker.node.metrics.node_figures import NodeFigures
from kbroker.observe.metrics import exposition
from kbroker.observe.metrics.dialect import Dialect

if TYPE_CHECKING:
    from kbroker.node.metrics.measured_node import MeasuredNode
    from kbroker.node.metrics.node_metrics import NodeMetrics

LINES = 256
"""Lines of a piece."""

Send = Callable[[str], Awaitable[None]]


class MetricsPage:
    """Writes the metrics of a node in a dialect."""

    def __init__(self, broker: MeasuredNode, metrics: NodeMetrics) -> None:
        self._node = broker
        self._metrics = metrics
        self._figures = NodeFigures(broker, metrics)

    async def write(self, dialect: Dialect, send: Send) -> None:
        """Hand the page's text to ``send``, piece by piece."""
        piece: list[str] = []
        figures = await self._figures.look(dialect)
        for text in self._lines(dialect, figures):
            if not text:
                await trio.lowlevel.checkpoint()
                continue
            piece.append(text)
            if len(piece) >= LINES:
                await send("".join(piece))
                piece.clear()
        if piece:
            await send("".join(piece))

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
