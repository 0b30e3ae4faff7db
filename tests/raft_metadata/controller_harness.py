"""A controller without a log, for tests: what it decides is replayed at once."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from kbroker.config import BrokerConfig
from kbroker.errors import ApiError
from kbroker.raft_metadata.controller import Controller, ControllerResult
from kbroker.raft_metadata.controller.alter_partition import InSyncReplica, PartitionWish, alter_partitions
from kbroker.raft_metadata.controller.brokers import BrokerRegistration
from kbroker.raft_metadata.controller.configs import SET, ConfigChange
from kbroker.raft_metadata.controller.features import SUPPORTED_FEATURES
from kbroker.raft_metadata.controller.schema import ConfigSchema
from kbroker.raft_metadata.controller.topics import CreatedTopic, NewTopic
from kbroker.raft_metadata.image import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    ConfigResource,
    Endpoint,
    PartitionImage,
    ResourceType,
)
from kbroker.raft_metadata.storage import bootstrap_records
from kbroker.types import OffsetAndEpoch, Uuid
from kbroker.wire.records.metadata import FeatureLevelRecord
from tests.handlers.metadata_plane import properties

FEATURES = {name: (levels.min, levels.max) for name, levels in SUPPORTED_FEATURES.items()}


class Harness:
    """Applies each result at once, as a quorum would. ``epochs``: each broker's present epoch."""

    def __init__(self, *, elr: bool = True) -> None:
        config = BrokerConfig.from_properties(properties(Path("data")))
        self.controller = Controller(1, ConfigSchema(config), random.Random(7))
        self.epochs: dict[int, int] = {}
        self._lives = 0
        self.apply(ControllerResult(None, bootstrap_records()))
        if not elr:
            off = FeatureLevelRecord(name=ELIGIBLE_LEADER_REPLICAS_VERSION, feature_level=0)
            self.apply(ControllerResult(None, [off]))

    def apply(self, result: ControllerResult[Any]) -> Any:
        if result.records:
            last = OffsetAndEpoch(self.controller.next_offset + len(result.records) - 1, 1)
            self.controller.replay(result.records, last)
        return result.response

    def broker(self, broker_id: int, rack: str | None = None, *, unfence: bool = True, previous_epoch: int = -1) -> int:
        """A new life of a broker."""
        self._lives += 1
        registration = BrokerRegistration(
            broker_id,
            Uuid(bytes([broker_id, self._lives]) * 8),
            [Endpoint("PLAINTEXT", "h", 9092)],
            FEATURES,
            [Uuid(bytes([100 + broker_id]) * 16)],
            rack,
            previous_epoch,
        )
        epoch: int = self.apply(self.controller.brokers.register(registration))
        self.epochs[broker_id] = epoch
        if unfence:
            self.unfence(broker_id)
        return epoch

    def fence(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.apply(self.controller.brokers.fence(broker_id, self.epochs[broker_id]))

    def unfence(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.apply(self.controller.brokers.unfence(broker_id, self.epochs[broker_id]))

    def create(self, name: str, partitions: int, factor: int) -> CreatedTopic:
        return self._created(NewTopic(name, partitions, factor))

    def assign(self, name: str, *replicas: int, **configs: str) -> None:
        """A topic with one partition on these brokers; ``configs`` with ``_`` for ``.``."""
        own = [(key.replace("_", "."), value) for key, value in configs.items()]
        self._created(NewTopic(name, assignments=[(0, replicas)], configs=own))

    def _created(self, topic: NewTopic) -> CreatedTopic:
        outcome: CreatedTopic | ApiError = self.apply(self.controller.topics.create_topics([topic]))[topic.name]
        if isinstance(outcome, ApiError):
            raise outcome
        return outcome

    def configure(self, topic: str, name: str, value: str) -> None:
        changes = {ConfigResource(ResourceType.TOPIC, topic): [ConfigChange(name, SET, value)]}
        errors = self.apply(self.controller.configs.incremental_alter(changes))
        assert set(errors.values()) == {None}

    def partition(self, topic: str = "t", partition: int = 0) -> PartitionImage:
        return self.controller.image.topics.by_name[topic].partitions[partition]

    def wish(
        self,
        isr: list[InSyncReplica] | list[int],
        *,
        topic: str = "t",
        leader_epoch: int | None = None,
        partition_epoch: int | None = None,
        recovery: int = 0,
    ) -> PartitionWish:
        """An AlterPartition of partition 0 with the present epochs, unless others are given."""
        now = self.partition(topic)
        return PartitionWish(
            self.controller.image.topics.by_name[topic].id,
            0,
            now.leader_epoch if leader_epoch is None else leader_epoch,
            [replica if isinstance(replica, InSyncReplica) else InSyncReplica(replica) for replica in isr],
            recovery,
            now.partition_epoch if partition_epoch is None else partition_epoch,
        )

    def alter(self, wish: PartitionWish, leader: int) -> Any:
        """Broker ``leader`` asks for this; the partition or the error."""
        [outcome] = self.apply(alter_partitions(self.controller, leader, self.epochs[leader], [wish]))
        return outcome
