"""The counts of one node."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kbroker.metrics.rates import Rates
from kbroker.metrics.requests import RequestTimes
from kbroker.metrics.traffic import Traffic
from kbroker.node.metrics.event_loop import EventLoopTimes
from kbroker.node.metrics.measured_dispatcher import MeasuredDispatcher

if TYPE_CHECKING:
    from kbroker.env import Env
    from kbroker.raft_metadata.image import MetadataDelta, MetadataImage, PartitionImage


class NodeMetrics:
    """Counts since the node's start. Those of the node's other parts are asked for at each scrape."""

    def __init__(self, env: Env) -> None:
        self.started_ms = env.wall_clock_ms()
        self.traffic = Traffic()
        self.requests = RequestTimes()
        self.loop = EventLoopTimes()
        self.rates = Rates(env.now)
        self.unclean_elections = 0
        self.dispatcher = partial(MeasuredDispatcher, times=self.requests)
        """Makes the dispatcher of a connection."""
        self._image: MetadataImage | None = None

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
