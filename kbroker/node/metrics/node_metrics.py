"""The counts of one node."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kbroker.node.metrics.event_loop import EventLoopTimes
from kbroker.node.metrics.measured_requests import MeasuredRequests
from kbroker.node.metrics.record_times import RecordTimes
from kbroker.observe.metrics.clients import ClientSeries
from kbroker.observe.metrics.histogram import Histogram
from kbroker.observe.metrics.requests import RequestMetrics
from kbroker.observe.metrics.traffic import Traffic

if TYPE_CHECKING:
    from kbroker.node.metrics.leader_offsets import LeaderOffsets
    from kbroker.raft_metadata.image import MetadataDelta, MetadataImage, PartitionImage
    from kbroker.runtime.env import Env


class NodeMetrics:
    """Counts since the node's start. Those of the node's other parts are asked for at each scrape."""

    def __init__(self, env: Env) -> None:
        self.env = env
        self.started_ms = env.wall_clock_ms()
        self.traffic = Traffic()
        self.requests = RequestMetrics()
        self.loop = EventLoopTimes(self.requests.measure_next)
        self.clients = ClientSeries()
        self.record_times = RecordTimes(env)
        self.leader_offsets: LeaderOffsets | None = None
        """Made with the first scrape of a broker."""
        self.changes = Histogram()
        """Times of work for changes of the metadata, on the active controller."""
        self.commits = Histogram()
        """Times until these were committed."""
        self.flushes = Histogram()
        """Times of flushes of log segments."""
        self.unclean_elections = self.elections_from_elr = self.new_controllers = 0
        self.observer = partial(
            MeasuredRequests, metrics=self.requests, turn_began=partial(getattr, self.loop, "turn_began")
        )
        """Makes the observer of a connection's requests."""
        self._image: MetadataImage | None = None
        self._controller = (-1, -1)

    def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Count elections that are worth a note, and forget the traffic of topics that are deleted."""
        before, self._image = self._image, image
        if before is None:
            return
        if image.controller_id >= 0 and (image.controller_id, image.epoch) != self._controller:
            self.new_controllers += 1
            self._controller = image.controller_id, image.epoch
        for topic in delta.deleted_topics.values():
            self.traffic.forget(topic.name)
        for topic, index, partition in delta.partitions_in(image):
            old = before.topics.by_id.get(topic.id)
            earlier = None if old is None else old.partitions.get(index)
            if earlier is not None and earlier is not partition:
                self._on_change(earlier, partition)

    def _on_change(self, before: PartitionImage, after: PartitionImage) -> None:
        if after.leader < 0 or after.leader == before.leader or after.leader in before.isr:
            return
        if after.leader in before.elr:
            self.elections_from_elr += 1
        else:
            self.unclean_elections += 1
