"""The image as one value, and the effect of each kind of metadata record on it.

State changes in ``MetadataDelta.replay`` alone: on the active controller (before its records are committed), on a
follower, and when a log or snapshot is read at start. A delta makes shallow copies of the mappings it changes and
shares the others with the image before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kbroker.raft_metadata.image.cluster import (
    BrokerImage,
    ClusterDelta,
    ControllerImage,
    FeaturesDelta,
    FeaturesImage,
    MetadataReplayError,
    register_broker_record,
    register_controller_record,
)
from kbroker.raft_metadata.image.configs import ConfigResource, ConfigsDelta, ConfigsImage, ResourceType
from kbroker.raft_metadata.image.principals import PrincipalsDelta, PrincipalsImage
from kbroker.raft_metadata.image.topics import PartitionImage, TopicImage, TopicsDelta, TopicsImage
from kbroker.raft_metadata.metadata_version import CONTROLLER_REGISTRATION
from kbroker.types import OffsetAndEpoch
from kbroker.value_types import dataclass, field, replace
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


class MetadataDelta:
    """The changes between two images, made by replaying records.

    Subscribers look at ``changed_topics`` and ``deleted_topics`` (by id, the latter as they were), ``changed_configs``,
    ``changed_brokers``, ``features_changed``. A topic that was created and deleted within the delta is in neither.
    """

    @classmethod
    def whole(cls, image: MetadataImage) -> MetadataDelta:
        """Returns the changes that make this image of an empty one."""
        # There may be a hundred thousand partitions: no records are made of them.
        delta = cls(MetadataImage(topics=image.topics))
        for record in replace(image, topics=TopicsImage()).records():
            delta.replay(record)
        delta.controller_id = image.controller_id
        for topic_id, topic in image.topics.by_id.items():
            delta.changed_topics[topic_id] = None
            if topic.partitions:
                delta.changed_partitions[topic_id] = set(topic.partitions)
        return delta

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.controller_id = image.controller_id
        self.next_producer_id = image.next_producer_id
        self._features = FeaturesDelta(image.features)
        self._cluster = ClusterDelta(image.brokers, image.controllers)
        self._topics = TopicsDelta(image.topics)
        self._configs = ConfigsDelta(image.configs)
        self._principals = PrincipalsDelta(image.principals)
        self.changed_topics = self._topics.changed
        self.deleted_topics = self._topics.deleted
        self.changed_partitions = self._topics.changed_partitions
        self.changed_configs = self._configs.changed
        self.changed_brokers = self._cluster.changed_brokers
        self.changed_controllers = self._cluster.changed_controllers

    @property
    def features(self) -> FeaturesImage:
        """The features of the next image."""
        return self._features.apply()

    @property
    def features_changed(self) -> bool:
        """Whether the level of a feature was set."""
        return self._features.changed

    @property
    def is_empty(self) -> bool:
        """Whether the next image equals the one before but for its offset."""
        return not (
            self.changed_topics
            or self.deleted_topics
            or self.changed_configs
            or self.changed_brokers
            or self.changed_controllers
            or self.features_changed
            or self._principals.changed
            or self.controller_id != self.image.controller_id
            or self.next_producer_id != self.image.next_producer_id
        )

    def partitions_in(self, image: MetadataImage) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
        """Returns the partitions that came or changed, as they are in an image, each with its topic and index."""
        for topic_id, indexes in self.changed_partitions.items():
            topic = image.topics.by_id.get(topic_id)
            if topic is not None:
                for index in indexes:
                    yield topic, index, topic.partitions[index]

    def replay(self, record: object) -> None:
        """Replay one record; :class:`MetadataReplayError` if it contradicts the records before it."""
        rule = _RULES.get(type(record))
        if rule is None:
            raise MetadataReplayError(f"no rule for a record of type {type(record).__name__}")
        rule(self, record)

    def apply(self, provenance: OffsetAndEpoch) -> MetadataImage:
        """The next image; ``provenance`` is the offset of the last record replayed and its epoch."""
        return MetadataImage(
            offset=provenance.offset,
            epoch=provenance.epoch,
            features=self._features.apply(),
            brokers=self._cluster.brokers,
            controllers=self._cluster.controllers,
            topics=self._topics.apply(),
            configs=self._configs.apply(),
            next_producer_id=self.next_producer_id,
            principals=self._principals.apply(),
            controller_id=self.controller_id,
        )

    def _on_remove_topic(self, record: rec.RemoveTopicRecord) -> None:
        name = self._topics.on_remove_topic(record)
        self._configs.forget(ConfigResource(ResourceType.TOPIC, name))

    def _on_producer_ids(self, record: rec.ProducerIdsRecord) -> None:
        if record.next_producer_id < self.next_producer_id:
            raise MetadataReplayError(
                f"the next producer id goes back from {self.next_producer_id} to {record.next_producer_id}"
            )
        self.next_producer_id = record.next_producer_id


def _ignore(delta: MetadataDelta, record: object) -> None:
    """Ignore a record without effect on the image. The ``loader`` acts on those of transactions."""


_Rule = Callable[[MetadataDelta, Any], object]

_RULES: dict[type[Any], _Rule] = {
    rec.TopicRecord: lambda delta, record: delta._topics.on_topic(record),
    rec.PartitionRecord: lambda delta, record: delta._topics.on_partition(record),
    rec.PartitionChangeRecord: lambda delta, record: delta._topics.on_partition_change(record),
    rec.RemoveTopicRecord: MetadataDelta._on_remove_topic,
    rec.ClearElrRecord: lambda delta, record: delta._topics.on_clear_elr(record),
    rec.ConfigRecord: lambda delta, record: delta._configs.on_config(record),
    rec.RegisterBrokerRecord: lambda delta, record: delta._cluster.on_register_broker(record),
    rec.UnregisterBrokerRecord: lambda delta, record: delta._cluster.on_unregister_broker(record),
    rec.UnregisterControllerRecord: lambda delta, record: delta._cluster.on_unregister_controller(record),
    rec.FenceBrokerRecord: lambda delta, record: delta._cluster.on_fence_broker(record),
    rec.UnfenceBrokerRecord: lambda delta, record: delta._cluster.on_unfence_broker(record),
    rec.BrokerRegistrationChangeRecord: lambda delta, record: delta._cluster.on_broker_change(record),
    rec.RegisterControllerRecord: lambda delta, record: delta._cluster.on_register_controller(record),
    rec.FeatureLevelRecord: lambda delta, record: delta._features.on_feature_level(record),
    rec.ProducerIdsRecord: MetadataDelta._on_producer_ids,
    rec.ClientQuotaRecord: lambda delta, record: delta._principals.on_client_quota(record),
    rec.AccessControlEntryRecord: lambda delta, record: delta._principals.on_acl(record),
    rec.RemoveAccessControlEntryRecord: lambda delta, record: delta._principals.on_remove_acl(record),
    rec.UserScramCredentialRecord: lambda delta, record: delta._principals.on_scram(record),
    rec.RemoveUserScramCredentialRecord: lambda delta, record: delta._principals.on_remove_scram(record),
    rec.DelegationTokenRecord: lambda delta, record: delta._principals.on_token(record),
    rec.RemoveDelegationTokenRecord: lambda delta, record: delta._principals.on_remove_token(record),
    rec.NoOpRecord: _ignore,
    rec.BeginTransactionRecord: _ignore,
    rec.EndTransactionRecord: _ignore,
    rec.AbortTransactionRecord: _ignore,
    rec.ZkMigrationStateRecord: _ignore,
}
