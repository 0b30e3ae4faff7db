"""The counts of one node, and the places where they are taken."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import trio

from kbroker.metrics.rates import Rates
from kbroker.metrics.requests import RequestTimes
from kbroker.metrics.traffic import Traffic
from kbroker.node.metrics.event_loop import EventLoopTimes
from kbroker.node.metrics.measured_dispatcher import MeasuredDispatcher
from kbroker.node.metrics.page import MetricsPage
from kbroker.node.metrics.server import MetricsServer

if TYPE_CHECKING:
    from kbroker.env import Env
    from kbroker.node.broker import Broker
    from kbroker.raft_metadata.image import MetadataDelta, MetadataImage, PartitionImage


class NodeMetrics:
    """Counts since the node's start. Those of the node's other parts are asked for at each scrape."""

    def __init__(self, address: tuple[str, int], env: Env) -> None:
        self._address = address
        self._server: MetricsServer | None = None
        self._broker: Broker | None = None
        self.started_ms = env.wall_clock_ms()
        self.traffic = Traffic()
        self.requests = RequestTimes()
        self.loop = EventLoopTimes()
        self.rates = Rates(env.now)
        self.unclean_elections = 0
        self.dispatcher = partial(MeasuredDispatcher, times=self.requests)
        """Makes the dispatcher of a connection."""
        self._image: MetadataImage | None = None

    @property
    def port(self) -> int:
        """The port of the page."""
        assert self._server is not None
        return self._server.port

    async def bind(self, broker: Broker) -> None:
        """Take the page's address. ``FatalError`` if it cannot be had."""
        self._broker = broker
        self._server = MetricsServer(self._address, MetricsPage(broker, self), self._unready)
        await self._server.bind()

    def start(self, nursery: trio.Nursery) -> None:
        """Serve the page, and begin to measure: the node's parts are there."""
        assert self._server is not None and self._broker is not None
        trio.lowlevel.add_instrument(self.loop)
        self._broker.metadata.subscribe(self.on_image)
        nursery.start_soon(self._serve, self._server)

    async def _serve(self, server: MetricsServer) -> None:
        try:
            await server.serve()
        finally:
            trio.lowlevel.remove_instrument(self.loop)

    def _unready(self) -> str:
        """Why the node cannot serve clients yet, or no more; empty if it can."""
        broker = self._broker
        assert broker is not None
        image, config = broker.metadata.image, broker.config
        if image.controller_id < 0:
            return "there is no active controller"
        if config.is_broker:
            own = image.brokers.get(config.node_id)
            if own is None or own.fenced:
                return "the broker is fenced"
            if own.in_controlled_shutdown:
                return "the broker is stopping"
            if len(broker.listeners) < len(config.listeners):
                return "the broker is starting"
        return ""

    def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Count unclean elections, and forget the traffic of topics that are deleted."""
        before, self._image = self._image, image
        if before is None:
            return
        for topic in delta.deleted_topics.values():
            self.traffic.forget(topic.name)
        for topic_id in delta.changed_topics:
            old, new = before.topics.by_id.get(topic_id), image.topics.by_id.get(topic_id)
            if old is None or new is None:
                continue
            for index, partition in new.partitions.items():
                earlier = old.partitions.get(index)
                if earlier is not None and earlier is not partition and _is_unclean(earlier, partition):
                    self.unclean_elections += 1


def _is_unclean(before: PartitionImage, after: PartitionImage) -> bool:
    """Whether the leader has come from outside of the ISR and of the ELR (KIP-966)."""
    return (
        after.leader >= 0
        and after.leader != before.leader
        and after.leader not in before.isr
        and after.leader not in before.elr
    )
