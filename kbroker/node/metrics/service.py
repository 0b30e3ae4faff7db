"""Metrics of a node as one part of it: the counts, the page and its server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from kbroker.node.metrics.node_metrics import NodeMetrics
from kbroker.node.metrics.page import MetricsPage
from kbroker.node.metrics.server import MetricsServer

if TYPE_CHECKING:
    from kbroker.node.metrics.measured_node import MeasuredNode
    from kbroker.runtime.env import Env


class MetricsService:
    """``bind`` and ``show`` it before the node's parts are made, and ``start`` it when they are there."""

    def __init__(self, address: tuple[str, int], env: Env, node: MeasuredNode) -> None:
        """``address`` is that of the page."""
        self.counts = NodeMetrics(env)
        self._node = node
        page = MetricsPage(node, self.counts)
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
            if self.counts.leader_offsets is not None:
                self.counts.leader_offsets.close()

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
