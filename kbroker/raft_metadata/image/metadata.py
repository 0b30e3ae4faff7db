"""The cluster's metadata as one value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kbroker.raft_metadata.image.cluster import (
    BrokerImage,
    ControllerImage,
    register_broker_record,
    register_controller_record,
)
from kbroker.raft_metadata.image.configs import ConfigsImage
from kbroker.raft_metadata.image.features import FeaturesImage
from kbroker.raft_metadata.image.principals import PrincipalsImage
from kbroker.raft_metadata.image.topics import TopicsImage
from kbroker.raft_metadata.metadata_version import CONTROLLER_REGISTRATION
from kbroker.types import OffsetAndEpoch
from kbroker.value_types import dataclass, field
from kbroker.wire.records import metadata as rec


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """The cluster's metadata by the log up to ``offset`` (that of the last record in it; -1 when empty)."""

    offset: int = -1
    epoch: int = 0
    features: FeaturesImage = field(default_factory=FeaturesImage)
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    controllers: Mapping[int, ControllerImage] = field(default_factory=dict)
    topics: TopicsImage = field(default_factory=TopicsImage)
    configs: ConfigsImage = field(default_factory=ConfigsImage)
    next_producer_id: int = -1
    principals: PrincipalsImage = field(default_factory=PrincipalsImage)
    controller_id: int = -1
    """The active controller's node id as of this image, -1 if unknown."""

    @property
    def provenance(self) -> OffsetAndEpoch:
        """The position of the last record of the log that is in the image."""
        return OffsetAndEpoch(self.offset, self.epoch)

    def alive_brokers(self) -> list[BrokerImage]:
        """Unfenced brokers in id order."""
        return [self.brokers[broker] for broker in sorted(self.brokers) if not self.brokers[broker].fenced]

    def records(self) -> Iterator[object]:
        """The image as records of its level, in the order of Kafka's snapshots: replayed onto an empty image they give
        it again."""
        level = self.features.metadata_version
        yield from self.features.records()
        for broker_id in sorted(self.brokers):
            yield register_broker_record(self.brokers[broker_id], level)
        if level >= CONTROLLER_REGISTRATION:
            for controller_id in sorted(self.controllers):
                yield register_controller_record(self.controllers[controller_id])
        yield from self.topics.records(level)
        yield from self.configs.records()
        yield from self.principals.quota_records()
        if self.next_producer_id >= 0:
            yield rec.ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=self.next_producer_id)
        yield from self.principals.acls.values()
        yield from self.principals.scram.values()
        yield from self.principals.delegation_tokens.values()


EMPTY_IMAGE = MetadataImage()
