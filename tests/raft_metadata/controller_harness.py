"""A controller without a log, for tests: what it decides is written as the log has it, read, and replayed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, TypeVar, cast

from kbroker.config import BrokerConfig
from kbroker.errors import ApiError
from kbroker.raft_metadata.config_schema import ConfigSchema
from kbroker.raft_metadata.controller import Controller, ControllerResult, ControllerView
from kbroker.raft_metadata.controller.alter_partition import InSyncReplica, IsrChange, alter_partitions
from kbroker.raft_metadata.controller.brokers import BrokerRegistration, fence_broker, register_broker, unfence_broker
from kbroker.raft_metadata.controller.configs import SET, ConfigChange, incremental_alter_configs
from kbroker.raft_metadata.controller.features import UPGRADE, FeatureUpdate, update_features
from kbroker.raft_metadata.controller.topics import CreatedTopic, create_topics
from kbroker.raft_metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION, METADATA_VERSION, SUPPORTED_FEATURES
from kbroker.raft_metadata.image import ConfigResource, Endpoint, PartitionImage, ResourceType
from kbroker.raft_metadata.metadata_version import LATEST_METADATA_VERSION
from kbroker.raft_metadata.raft.batches import decode_batches, encode_records
from kbroker.raft_metadata.storage import bootstrap_records
from kbroker.raft_metadata.topics import NewTopic
from kbroker.types import OffsetAndEpoch, Uuid
from kbroker.wire.records.metadata import FeatureLevelRecord
from tests.handlers.metadata_plane import properties

T = TypeVar("T")

FEATURES = {name: (levels.min, levels.max) for name, levels in SUPPORTED_FEATURES.items()}


class Harness:
    """Applies each result at once, as a quorum would. ``epochs``: each broker's present epoch.

    ``level`` of ``metadata.version``: that of a fresh cluster, with the other features that such a one has.
    """

    def __init__(self, *, elr: bool = True, level: int = LATEST_METADATA_VERSION, recovery_timeout_ms: int = 0) -> None:
        config = BrokerConfig.from_properties(properties(Path("data")))
        self.controller = Controller(1, ConfigSchema(config), random.Random(7), recovery_timeout_ms=recovery_timeout_ms)
        self.epochs: dict[int, int] = {}
        self._lives = 0
        self.written: list[tuple[int, bytes]] = []
        """Each batch, and the level that it was written at."""
        self.apply(ControllerResult(None, bootstrap_records({METADATA_VERSION: level})))
        if not elr:
            off = FeatureLevelRecord(name=ELIGIBLE_LEADER_REPLICAS_VERSION, feature_level=0)
            self.apply(ControllerResult(None, [off]))

    def apply(self, result: ControllerResult[Any]) -> Any:
        records = [record for record in result.records if record is not None]
        if records:
            level = self.level or cast(FeatureLevelRecord, records[0]).feature_level
            data = encode_records(
                records, base_offset=self.view.next_offset, epoch=1, timestamp_ms=0, metadata_version=level
            )
            [batch] = decode_batches(data)
            assert batch.records == records, "the level's version of a record holds all of it"
            self.written.append((level, data))
            self.controller.replay(batch.records, OffsetAndEpoch(batch.last_offset, 1))
        return result.response

    @staticmethod
    def decide(result: ControllerResult[T]) -> T:
        """Returns the response of what is not applied."""
        list(result.records)
        return result.response

    @property
    def view(self) -> ControllerView:
        """The view of the image that the next operation gets."""
        return self.controller.view()

    @property
    def level(self) -> int:
        """The level of ``metadata.version``."""
        return self.controller.image.features.metadata_version

    def raise_level(self, level: int) -> None:
        """An upgrade of ``metadata.version``."""
        self.apply(update_features(self.view, [FeatureUpdate(METADATA_VERSION, level, UPGRADE)]))

    def broker(self, broker_id: int, rack: str | None = None, *, unfence: bool = True, previous_epoch: int = -1) -> int:
        """A new life of a broker."""
        self._lives += 1
        incarnation = Uuid(bytes([broker_id, self._lives]) * 8)
        registration = self.registration(broker_id, incarnation)._replace(
            rack=rack, previous_broker_epoch=previous_epoch
        )
        epoch: int = self.apply(register_broker(self.view, registration))
        self.epochs[broker_id] = epoch
        if unfence:
            self.unfence(broker_id)
        return epoch

    def registration(self, broker_id: int, incarnation: Uuid) -> BrokerRegistration:
        """The registration of a broker with one log directory."""
        endpoints = [Endpoint("PLAINTEXT", "h", 9092)]
        return BrokerRegistration(broker_id, incarnation, endpoints, FEATURES, [Uuid(bytes([100 + broker_id]) * 16)])

    def fence(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.apply(fence_broker(self.view, broker_id, self.epochs[broker_id]))

    def unfence(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.apply(unfence_broker(self.view, broker_id, self.epochs[broker_id]))

    def create(self, name: str, partitions: int, factor: int) -> CreatedTopic:
        return self._created(NewTopic(name, partitions, factor))

    def assign(self, name: str, *replicas: int, **configs: str) -> None:
        """A topic with one partition on these brokers; ``configs`` with ``_`` for ``.``."""
        own = [(key.replace("_", "."), value) for key, value in configs.items()]
        self._created(NewTopic(name, assignments=[(0, replicas)], configs=own))

    def _created(self, topic: NewTopic) -> CreatedTopic:
        outcome: CreatedTopic | ApiError = self.apply(create_topics(self.view, [topic]))[topic.name]
        if isinstance(outcome, ApiError):
            raise outcome
        return outcome

    def configure(self, topic: str, name: str, value: str) -> None:
        changes = {ConfigResource(ResourceType.TOPIC, topic): [ConfigChange(name, SET, value)]}
        errors = self.apply(incremental_alter_configs(self.view, changes))
        assert set(errors.values()) == {None}

    def partition(self, topic: str = "t", partition: int = 0) -> PartitionImage:
        return self.controller.image.topics.by_name[topic].partitions[partition]

    def isr_change(
        self,
        isr: list[InSyncReplica] | list[int],
        *,
        topic: str = "t",
        leader_epoch: int | None = None,
        partition_epoch: int | None = None,
        recovery: int = 0,
    ) -> IsrChange:
        """An AlterPartition of partition 0 with the present epochs, unless others are given."""
        now = self.partition(topic)
        return IsrChange(
            self.controller.image.topics.by_name[topic].id,
            0,
            now.leader_epoch if leader_epoch is None else leader_epoch,
            [replica if isinstance(replica, InSyncReplica) else InSyncReplica(replica) for replica in isr],
            recovery,
            now.partition_epoch if partition_epoch is None else partition_epoch,
        )

    def alter(self, isr_change: IsrChange, leader: int) -> Any:
        """Broker ``leader`` asks for this; the partition or the error."""
        [outcome] = self.apply(alter_partitions(self.view, leader, self.epochs[leader], [isr_change]))
        return outcome
