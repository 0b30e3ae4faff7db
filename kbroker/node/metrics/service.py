"""Metrics of a node as one part of it: the counts, the page and its server, the export by OTLP."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from kbroker.node.metrics.node_metrics import NodeMetrics

if TYPE_CHECKING:
    from kbroker.config.otlp import OtlpSettings
    from kbroker.node.metrics.measured_node import MeasuredNode
    from kbroker.node.metrics.otlp.export import OtlpExport
    from kbroker.node.metrics.server import MetricsServer
    from kbroker.runtime.env import Env


class MetricsService:
    """``bind`` and ``show`` it before the node's parts are made, and ``start`` it when they are there."""

    def __init__(
        self, address: tuple[str, int] | None, otlp: OtlpSettings | None, env: Env, node: MeasuredNode
    ) -> None:
        """``address``: that of the page, if there is one; ``otlp``: where else the metrics go."""
        self._server: MetricsServer | None = None
        self._export: OtlpExport | None = None
        if otlp is not None:
            from kbroker.node.metrics.otlp import export, feed

            export.check_packages()
            feed.keep_observations()
        self.counts = NodeMetrics(env)
        self._node = node
        if otlp is not None:
            self._export = export.OtlpExport(otlp, node, self.counts)
        if address is not None:
            from kbroker.node.metrics.page import MetricsPage
            from kbroker.node.metrics.server import MetricsServer

            self._server = MetricsServer(
                address, MetricsPage(node, self.counts), unready=self._unready, progress=self._progress
            )

    @property
    def port(self) -> int | None:
        """The port of the page; None without one."""
        return None if self._server is None else self._server.port

    async def bind(self) -> None:
        """Take the page's address. ``FatalError`` if it cannot be had."""
        if self._server is not None:
            await self._server.bind()

    def show(self, nursery: trio.Nursery) -> None:
        """Serve the page as soon as the node's parts are there, although none runs yet."""
        if self._server is not None:
            nursery.start_soon(self._server.serve)

    def start(self, nursery: trio.Nursery) -> None:
        """Begin to measure, and export."""
        trio.lowlevel.add_instrument(self.counts.loop)
        metadata, counts = self._node.metadata, self.counts
        metadata.subscribe(counts.on_image)
        metadata.controller_log.change_times = counts.changes
        metadata.controller_log.commit_times = counts.commits
        nursery.start_soon(self._run)

    async def _run(self) -> None:
        try:
            if self._export is not None:
                await self._export.run()
            else:
                await trio.sleep_forever()
        finally:
            trio.lowlevel.remove_instrument(self.counts.loop)
            if self.counts.leaders is not None:
                self.counts.leaders.close()

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
