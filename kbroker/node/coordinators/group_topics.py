"""The cluster's topics as the group coordinator sees them: a view of a metadata image."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kbroker.cores.groups.topics import TopicMetadata

if TYPE_CHECKING:
    from kbroker.raft_metadata.image import MetadataImage, TopicImage
    from kbroker.types import Uuid


class ImageTopics:
    """Implements ``kbroker.cores.groups.topics.CoordinatorMetadataImage``, with a cache."""

    def __init__(self, image: MetadataImage) -> None:
        self.version = image.offset
        self._topics = image.topics
        self._brokers = image.brokers
        self._known: dict[str, TopicMetadata] = {}

    def names(self) -> Iterable[str]:
        """Every topic."""
        return self._topics.by_name

    def by_name(self, name: str) -> TopicMetadata | None:
        """The topic of that name."""
        known = self._known.get(name)
        if known is None:
            topic = self._topics.by_name.get(name)
            if topic is None:
                return None
            known = self._known[name] = TopicMetadata(topic.name, topic.id, len(topic.partitions), self._racks(topic))
        return known

    def by_id(self, topic_id: Uuid) -> TopicMetadata | None:
        """The topic of that id."""
        topic = self._topics.by_id.get(topic_id)
        return None if topic is None else self.by_name(topic.name)

    def partition_count(self, topic_id: Uuid) -> int:
        """The topic's number of partitions, -1 if it does not exist."""
        topic = self._topics.by_id.get(topic_id)
        return -1 if topic is None else len(topic.partitions)

    def _racks(self, topic: TopicImage) -> tuple[tuple[str, ...], ...]:
        racks = {broker_id: broker.rack for broker_id, broker in self._brokers.items() if broker.rack is not None}
        if not racks:
            return ()
        return tuple(
            tuple(sorted(racks[replica] for replica in partition.replicas if replica in racks))
            for partition in topic.partitions.values()
        )
