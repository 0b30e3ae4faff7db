"""Metrics of a node as one part of it: the counts, the page, and the server of the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from kbroker.node.metrics.node_metrics import NodeMetrics
from kbroker.node.metrics.page import MetricsPage
from kbroker.node.metrics.server import MetricsServer

if TYPE_CHECKING:
    from kbroker.env import Env
    from kbroker.node.metrics.measured_node import MeasuredNode


class MetricsService:
    """``bind`` it before the node's parts are made, and ``start`` it when they are there."""

    def __init__(self, address: tuple[str, int], env: Env, node: MeasuredNode) -> None:
        self.counts = NodeMetrics(env)
        self._node = node
        self._server = MetricsServer(address, MetricsPage(node, self.counts), self._unready)

    @property
    def port(self) -> int:
        """The port of the page."""
        return self._server.port

    async def bind(self) -> None:
        """Take the page's address. ``FatalError`` if it cannot be had."""
        await self._server.bind()

    def start(self, nursery: trio.Nursery) -> None:
        """Serve the page, and begin to measure."""
        trio.lowlevel.add_instrument(self.counts.loop)
        metadata, counts = self._node.metadata, self.counts
        metadata.subscribe(counts.on_image)
        metadata.controller_log.change_times = counts.changes
        metadata.controller_log.commit_times = counts.commits
        nursery.start_soon(self._serve)

    async def _serve(self) -> None:
        try:
            await self._server.serve()
        finally:
            trio.lowlevel.remove_instrument(self.counts.loop)

    def _unready(self) -> str:
        """The reason why the node cannot serve clients yet, or no more; empty if it can."""
        node, config = self._node, self._node.config
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
