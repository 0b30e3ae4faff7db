"""Topics and partitions: CreateTopics, DeleteTopics, CreatePartitions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.controller.configs import SET, ConfigChange
from kbroker.raft_metadata.controller.placement import UsableBroker, place_replicas
from kbroker.raft_metadata.controller.result import MAX_RECORDS_PER_USER_OP, ControllerResult
from kbroker.raft_metadata.controller.schema import ConfigEntry
from kbroker.raft_metadata.controller.topic_names import validate_topic_name
from kbroker.raft_metadata.image import (
    ConfigResource,
    PartitionImage,
    ResourceType,
    has_collision_chars,
    partition_record,
    unify_collision_chars,
)
from kbroker.types import ZERO_UUID, Uuid, random_uuid
from kbroker.wire.records.metadata import RemoveTopicRecord, TopicRecord

if TYPE_CHECKING:
    from kbroker.raft_metadata.controller.controller import Controller


class NewTopic(NamedTuple):
    """A topic to create. -1 asks for the default; ``assignments`` are (partition, brokers) chosen by the client."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Sequence[tuple[str, str | None]] = ()


class CreatedTopic(NamedTuple):
    """A topic as it was, or would be, created. ``configs`` is every effective property, in name order."""

    topic_id: Uuid
    num_partitions: int
    replication_factor: int
    configs: list[ConfigEntry]


class NewPartitions(NamedTuple):
    """``total`` is the number of partitions that the topic is to have; ``assignments`` the new ones' brokers."""

    name: str
    total: int
    assignments: Sequence[Sequence[int]] | None = None


class TopicControl:
    """Decides on topics."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    # Creation

    def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> ControllerResult[dict[str, CreatedTopic | ApiError]]:
        """Create topics, each wholly or not at all. Names must differ. ``ApiError`` POLICY_VIOLATION if the request
        as a whole is too big."""
        defaults = self._controller.schema.config
        total = 0
        for topic in topics:
            if topic.assignments:
                total += len(topic.assignments)
            else:
                total += defaults.num_partitions if topic.num_partitions == -1 else topic.num_partitions
            if total > MAX_RECORDS_PER_USER_OP:
                raise ApiError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
        records: list[Any] = []
        results: dict[str, CreatedTopic | ApiError] = {}
        taken: dict[str, str] = {}
        for topic in topics:
            try:
                own, created = self._create(topic, taken)
            except ApiError as error:
                results[topic.name] = error
                continue
            if has_collision_chars(topic.name):
                taken[unify_collision_chars(topic.name)] = topic.name
            records += own
            results[topic.name] = created
        return ControllerResult(results, [] if validate_only else records)

    def _create(self, topic: NewTopic, taken: Mapping[str, str]) -> tuple[list[Any], CreatedTopic]:
        image = self._controller.image
        validate_topic_name(topic.name)
        if topic.name in image.topics.by_name:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
        if has_collision_chars(topic.name):
            unified = unify_collision_chars(topic.name)
            others = image.topics.colliding.get(unified) or ((taken[unified],) if unified in taken else ())
            if others:
                raise ApiError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                    f"Topic '{topic.name}' collides with existing topic: {others[0]}",
                )
        null = [name for name, value in topic.configs if value is None]
        if null:
            raise ApiError(ErrorCode.INVALID_CONFIG, "Null value not supported for topic configs: " + ",".join(null))
        configs = {name: value for name, value in topic.configs if value is not None}
        config_records = self._controller.configs.incremental_records(
            ConfigResource(ResourceType.TOPIC, topic.name),
            [ConfigChange(name, SET, value) for name, value in configs.items()],
            new_resource=True,
        )
        partitions = self._assigned(topic) if topic.assignments else self._placed(topic)
        topic_id = self._new_topic_id()
        records: list[Any] = [TopicRecord(name=topic.name, topic_id=topic_id), *config_records]
        records.extend(
            partition_record(topic_id, partition_id, partition) for partition_id, partition in enumerate(partitions)
        )
        created = CreatedTopic(
            topic_id,
            len(partitions),
            len(partitions[0].replicas),
            sorted(self._controller.schema.topic_entries(image.configs, configs)),
        )
        return records, created

    def _new_topic_id(self) -> Uuid:
        while True:
            topic_id = random_uuid(self._controller.rng)
            if topic_id not in self._controller.image.topics.by_id:
                return topic_id

    def _assigned(self, topic: NewTopic) -> list[PartitionImage]:
        if topic.replication_factor != -1:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "A manual partition assignment was specified, but replication factor was not set to -1.",
            )
        if topic.num_partitions != -1:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "A manual partition assignment was specified, but numPartitions was not set to -1.",
            )
        found: dict[int, PartitionImage] = {}
        factor: int | None = None
        for partition_id, brokers in topic.assignments:
            if partition_id in found:
                raise ApiError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"Found multiple manual partition assignments for partition {partition_id}",
                )
            found[partition_id] = self._manual(partition_id, brokers, factor)
            factor = len(brokers)
        if set(found) != set(range(len(found))):
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "partitions should be a consecutive 0-based integer sequence",
            )
        return [found[partition_id] for partition_id in range(len(found))]

    def _manual(self, partition_id: int, brokers: Sequence[int], factor: int | None) -> PartitionImage:
        self.validate_assignment(brokers, factor)
        isr = [broker for broker in brokers if self._controller.brokers.is_active(broker)]
        if not isr:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"All brokers specified in the manual partition assignment for partition {partition_id} are fenced or "
                "in controlled shutdown.",
            )
        return self._partition(brokers, isr)

    def validate_assignment(self, brokers: Sequence[int], factor: int | None = None) -> None:
        """``ApiError`` INVALID_REPLICA_ASSIGNMENT unless these are distinct registered brokers, ``factor`` of them."""
        if not brokers:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "The manual partition assignment includes an empty replica list.",
            )
        previous: int | None = None
        for broker in sorted(brokers):
            if broker not in self._controller.image.brokers:
                raise ApiError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"The manual partition assignment includes broker {broker}, but no such broker is registered.",
                )
            if not self._controller.image.brokers[broker].has_uncordoned_dirs:
                raise ApiError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"The manual partition assignment includes broker {broker}, but all its log directories are "
                    "cordoned.",
                )
            if broker == previous:
                raise ApiError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"The manual partition assignment includes the broker {broker} more than once.",
                )
            previous = broker
        if factor is not None and len(brokers) != factor:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment includes a partition with {len(brokers)} replica(s), but this is not "
                f"consistent with previous partitions, which have {factor} replica(s).",
            )

    def _placed(self, topic: NewTopic) -> list[PartitionImage]:
        if topic.replication_factor < -1 or topic.replication_factor == 0:
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
        if topic.num_partitions < -1 or topic.num_partitions == 0:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
            )
        defaults = self._controller.schema.config
        count = defaults.num_partitions if topic.num_partitions == -1 else topic.num_partitions
        factor = defaults.default_replication_factor if topic.replication_factor == -1 else topic.replication_factor
        try:
            placements = place_replicas(self._usable_brokers(), count, factor, self._controller.rng)
        except ApiError as error:
            raise ApiError(error.code, f"Unable to replicate the partition {factor} time(s): {error.message}") from None
        return self._from_placements(placements, factor)

    def _from_placements(self, placements: list[list[int]], factor: int) -> list[PartitionImage]:
        partitions = []
        for replicas in placements:
            isr = [broker for broker in replicas if self._controller.brokers.is_active(broker)]
            if not isr:
                raise ApiError(
                    ErrorCode.INVALID_REPLICATION_FACTOR,
                    f"Unable to replicate the partition {factor} time(s): All brokers are currently fenced or in "
                    "controlled shutdown.",
                )
            partitions.append(self._partition(replicas, isr))
        return partitions

    def _usable_brokers(self) -> list[UsableBroker]:
        return [
            UsableBroker(broker.id, broker.rack, broker.fenced)
            for broker in self._controller.image.brokers.values()
            if not broker.in_controlled_shutdown and broker.has_uncordoned_dirs
        ]

    def _partition(self, replicas: Sequence[int], isr: Sequence[int]) -> PartitionImage:
        return PartitionImage(
            replicas=tuple(replicas),
            isr=tuple(isr),
            leader=isr[0],
            directories=tuple(self.directory(broker) for broker in replicas),
        )

    def directory(self, broker_id: int) -> Uuid:
        """Where the broker will put a new replica, as far as the controller can tell: with one directory, there
        (KIP-858)."""
        broker = self._controller.image.brokers.get(broker_id)
        return broker.log_dirs[0] if broker is not None and len(broker.log_dirs) == 1 else ZERO_UUID

    def create_partitions(
        self, topics: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> ControllerResult[dict[str, ApiError | None]]:
        """Add partitions, for each topic all or none. Names must differ."""
        records: list[Any] = []
        results: dict[str, ApiError | None] = {}
        for topic in topics:
            try:
                records += self._add_partitions(topic, len(records))
                results[topic.name] = None
            except ApiError as error:
                results[topic.name] = error
        return ControllerResult(results, [] if validate_only else records)

    def _add_partitions(self, wanted: NewPartitions, so_far: int) -> list[Any]:
        topic = self._controller.image.topics.by_name.get(wanted.name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        existing = len(topic.partitions)
        if wanted.total == existing:
            raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {existing} partition(s).")
        if wanted.total < existing:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS,
                f"The topic {wanted.name} currently has {existing} partition(s); {wanted.total} would not be an "
                "increase.",
            )
        additional = wanted.total - existing
        if wanted.assignments is not None and len(wanted.assignments) != additional:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {additional} additional partition(s), but only {len(wanted.assignments)} "
                "assignment(s) were specified.",
            )
        if so_far + additional > MAX_RECORDS_PER_USER_OP:
            raise ApiError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
        factor = len(topic.partitions[0].replicas)
        if wanted.assignments is not None:
            partitions = [
                self._manual(existing + index, brokers, factor) for index, brokers in enumerate(wanted.assignments)
            ]
        else:
            placements = place_replicas(self._usable_brokers(), additional, factor, self._controller.rng)
            partitions = self._from_placements(placements, factor)
        return [partition_record(topic.id, existing + index, partition) for index, partition in enumerate(partitions)]

    # Deletion

    def delete_topics(self, topic_ids: Collection[Uuid]) -> ControllerResult[dict[Uuid, ApiError | None]]:
        """Delete topics by id; UNKNOWN_TOPIC_ID for each that is not there."""
        records: list[Any] = []
        results: dict[Uuid, ApiError | None] = {}
        for topic_id in topic_ids:
            if topic_id in self._controller.image.topics.by_id:
                records.append(RemoveTopicRecord(topic_id=topic_id))
                results[topic_id] = None
            else:
                results[topic_id] = ApiError(ErrorCode.UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_ID_MESSAGE)
        return ControllerResult(results, records)


UNKNOWN_TOPIC_ID_MESSAGE = "This server does not host this topic ID."
"""Kafka's standard text, which DeleteTopics passes on."""
