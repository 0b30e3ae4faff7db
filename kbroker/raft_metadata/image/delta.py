"""The effect of each kind of metadata record on an image.

State changes in ``MetadataDelta.replay`` alone: on the active controller (before its records are committed), on a
follower, and when a log or snapshot is read at start. A delta makes shallow copies of the mappings it changes and
shares the others with the image before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kbroker.raft_metadata.image.cluster import ClusterDelta
from kbroker.raft_metadata.image.configs import ConfigResource, ConfigsDelta, ResourceType
from kbroker.raft_metadata.image.errors import MetadataReplayError
from kbroker.raft_metadata.image.features import FeaturesDelta
from kbroker.raft_metadata.image.metadata import MetadataImage
from kbroker.raft_metadata.image.principals import PrincipalsDelta
from kbroker.raft_metadata.image.topics import TopicsDelta
from kbroker.types import OffsetAndEpoch
from kbroker.wire.records import metadata as rec


class MetadataDelta:
    """The changes between two images, made by replaying records.

    Subscribers look at ``changed_topics`` and ``deleted_topics`` (by id, the latter as they were), ``changed_configs``,
    ``changed_brokers``, ``features_changed``. A topic that was created and deleted within the delta is in neither.
    """

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
