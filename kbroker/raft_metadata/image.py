"""The cluster's metadata as a value: an immutable :class:`MetadataImage`, and the :class:`MetadataDelta` to the next.

``MetadataDelta.replay`` is the only place where a metadata record changes state: on the active controller (before
its records are committed), on a follower, and when a log or snapshot is read at start. A delta copies only the
mappings it touches, shallowly, so an image costs what changed plus one pointer per sibling.

Images are shared between all readers: the mappings in them must not be written to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from kbroker.types import ZERO_UUID, OffsetAndEpoch, Uuid
from kbroker.wire.records import metadata as rec

RECOVERED = 0
"""``leader_recovery_state``: the leader came from the ISR."""
RECOVERING = 1
"""The leader was elected uncleanly and has not finished recovery: nobody may join the ISR yet."""

NO_LEADER = -1
NO_LEADER_CHANGE = -2
"""``PartitionChangeRecord.leader``: as it was, in the same leader epoch."""

METADATA_VERSION = "metadata.version"
ELIGIBLE_LEADER_REPLICAS_VERSION = "eligible.leader.replicas.version"
TRANSACTION_VERSION = "transaction.version"


class ConfigResource(NamedTuple):
    """What a configuration belongs to: ``type`` is one of ``ResourceType``'s numbers; an empty broker name is the
    cluster-wide default."""

    type: int
    name: str


class ResourceType:
    """``ConfigResource.Type`` ids of Kafka."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32

    NAMES: Mapping[int, str] = MappingProxyType(
        {
            0: "UNKNOWN",
            2: "TOPIC",
            4: "BROKER",
            8: "BROKER_LOGGER",
            16: "CLIENT_METRICS",
            32: "GROUP",
        }
    )


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a node listens under a listener name. ``security_protocol``: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT,
    3 SASL_SSL."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """A registered broker. ``epoch`` is the offset of its registration record."""

    id: int
    epoch: int
    incarnation_id: Uuid
    endpoints: Mapping[str, Endpoint]
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[Uuid, ...] = ()
    cordoned_log_dirs: tuple[Uuid, ...] | None = None

    @property
    def active(self) -> bool:
        """May lead and be in an ISR."""
        return not self.fenced and not self.in_controlled_shutdown

    @property
    def has_uncordoned_dirs(self) -> bool:
        """Whether a log directory takes new replicas (KIP-1066), as far as is known."""
        return not self.log_dirs or not set(self.log_dirs) <= set(self.cordoned_log_dirs or ())

    def has_online_dir(self, directory: Uuid) -> bool:
        """Whether a replica placed in ``directory`` is on a disk that works. Ids whose first 15 bytes are zero are
        reserved: unassigned and migrating count as online, lost does not."""
        if directory in (_DIR_UNASSIGNED, _DIR_MIGRATING):
            return True
        return not self.log_dirs or directory in self.log_dirs


_DIR_UNASSIGNED = ZERO_UUID
_DIR_LOST = Uuid(bytes(15) + b"\x01")
_DIR_MIGRATING = Uuid(bytes(15) + b"\x02")


@dataclass(frozen=True, slots=True)
class ControllerImage:
    """A registered controller (quorum node)."""

    id: int
    incarnation_id: Uuid
    endpoints: Mapping[str, Endpoint]
    features: Mapping[str, tuple[int, int]]
    zk_migration_ready: bool = False


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """One partition's assignment and leadership.

    ``directories`` runs parallel to ``replicas``. ``isr`` is a subset of ``replicas``; ``leader`` is in ``isr`` or -1.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    directories: tuple[Uuid, ...] = ()
    leader_recovery_state: int = RECOVERED

    @property
    def preferred_leader(self) -> int:
        """The first replica."""
        return self.replicas[0] if self.replicas else NO_LEADER

    def directory(self, broker_id: int) -> Uuid:
        """Where ``broker_id`` keeps its replica, as far as the controller knows."""
        for index, replica in enumerate(self.replicas):
            if replica == broker_id and index < len(self.directories):
                return self.directories[index]
        return _DIR_UNASSIGNED


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic. Partition ids run from 0 without holes; the mapping is in id order."""

    name: str
    id: Uuid
    partitions: Mapping[int, PartitionImage]


@dataclass(frozen=True, slots=True)
class TopicsImage:
    """All topics, by name and by id. ``colliding``: names with ``.`` or ``_`` by their form with ``_`` only."""

    by_name: Mapping[str, TopicImage] = field(default_factory=dict)
    by_id: Mapping[Uuid, TopicImage] = field(default_factory=dict)
    colliding: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def partition(self, topic: str, partition: int) -> PartitionImage | None:
        """The partition, or None if the topic or the partition does not exist."""
        found = self.by_name.get(topic)
        return None if found is None else found.partitions.get(partition)


_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ConfigsImage:
    """Dynamic configurations: what was set, never defaults."""

    by_resource: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)

    def get(self, resource: ConfigResource) -> Mapping[str, str]:
        """What is set for the resource (empty if nothing)."""
        return self.by_resource.get(resource, _NOTHING)

    def for_topic(self, name: str) -> Mapping[str, str]:
        """The topic's overrides."""
        return self.by_resource.get(ConfigResource(ResourceType.TOPIC, name), _NOTHING)

    def for_broker(self, broker_id: int | None) -> Mapping[str, str]:
        """The broker's own dynamic configs; of all brokers' default with None."""
        name = "" if broker_id is None else str(broker_id)
        return self.by_resource.get(ConfigResource(ResourceType.BROKER, name), _NOTHING)


@dataclass(frozen=True, slots=True)
class FeaturesImage:
    """Finalized feature levels by name (``metadata.version`` among them); a missing name is level 0."""

    levels: Mapping[str, int] = field(default_factory=dict)

    @property
    def metadata_version(self) -> int:
        """The level of ``metadata.version``; 0 before the bootstrap records."""
        return self.levels.get(METADATA_VERSION, 0)

    @property
    def elr_enabled(self) -> bool:
        """Whether the controller keeps eligible leader replicas (KIP-966)."""
        return self.levels.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) >= 1


QuotaEntity = tuple[tuple[str, str | None], ...]
"""Sorted (entity type, entity name or None for the default) pairs."""


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """Everything the metadata log says up to ``offset`` (the offset of the last record in it; -1 when empty)."""

    offset: int = -1
    epoch: int = 0
    features: FeaturesImage = field(default_factory=FeaturesImage)
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    controllers: Mapping[int, ControllerImage] = field(default_factory=dict)
    topics: TopicsImage = field(default_factory=TopicsImage)
    configs: ConfigsImage = field(default_factory=ConfigsImage)
    next_producer_id: int = -1
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    acls: Mapping[Uuid, rec.AccessControlEntryRecord] = field(default_factory=dict)
    scram: Mapping[tuple[str, int], rec.UserScramCredentialRecord] = field(default_factory=dict)
    delegation_tokens: Mapping[str, rec.DelegationTokenRecord] = field(default_factory=dict)
    controller_id: int = -1
    """The active controller's node id as of this image, -1 if unknown."""

    @property
    def provenance(self) -> OffsetAndEpoch:
        """Which part of the log this image stands for."""
        return OffsetAndEpoch(self.offset, self.epoch)

    def alive_brokers(self) -> list[BrokerImage]:
        """Unfenced brokers in id order."""
        return [self.brokers[broker] for broker in sorted(self.brokers) if not self.brokers[broker].fenced]

    def records(self) -> Iterator[Any]:
        """The image as records, in the order of Kafka's snapshots: replayed onto an empty image they give it again."""
        levels = self.features.levels
        if METADATA_VERSION in levels:
            yield rec.FeatureLevelRecord(name=METADATA_VERSION, feature_level=levels[METADATA_VERSION])
        for name in sorted(levels):
            if name != METADATA_VERSION:
                yield rec.FeatureLevelRecord(name=name, feature_level=levels[name])
        for broker_id in sorted(self.brokers):
            yield register_broker_record(self.brokers[broker_id])
        for controller_id in sorted(self.controllers):
            yield register_controller_record(self.controllers[controller_id])
        for topic in self.topics.by_id.values():
            yield rec.TopicRecord(name=topic.name, topic_id=topic.id)
            for partition_id, partition in topic.partitions.items():
                yield partition_record(topic.id, partition_id, partition)
        for resource, configs in self.configs.by_resource.items():
            for name, value in configs.items():
                yield rec.ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)
        for entity, quotas in self.client_quotas.items():
            for key, quota in quotas.items():
                yield rec.ClientQuotaRecord(
                    entity=[rec.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                    key=key,
                    value=quota,
                )
        if self.next_producer_id >= 0:
            yield rec.ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=self.next_producer_id)
        yield from self.acls.values()
        yield from self.scram.values()
        yield from self.delegation_tokens.values()


EMPTY_IMAGE = MetadataImage()


def partition_record(topic_id: Uuid, partition_id: int, partition: PartitionImage) -> rec.PartitionRecord:
    """The record that creates this partition."""
    return rec.PartitionRecord(
        partition_id=partition_id,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories),
        eligible_leader_replicas=list(partition.elr) or None,
        last_known_elr=list(partition.last_known_elr) or None,
    )


def changed_partition(old: PartitionImage, record: rec.PartitionChangeRecord) -> PartitionImage:
    """The partition that the record makes of ``old``."""
    changes: dict[str, Any] = {"partition_epoch": old.partition_epoch + 1}
    if record.replicas is not None:
        changes["replicas"] = tuple(record.replicas)
    if record.directories is not None:
        changes["directories"] = _directories(record.directories, len(changes.get("replicas", old.replicas)))
    elif record.replicas is not None:
        changes["directories"] = tuple(old.directory(broker) for broker in record.replicas)
    if record.isr is not None:
        changes["isr"] = tuple(record.isr)
    if record.removing_replicas is not None:
        changes["removing_replicas"] = tuple(record.removing_replicas)
    if record.adding_replicas is not None:
        changes["adding_replicas"] = tuple(record.adding_replicas)
    if record.eligible_leader_replicas is not None:
        changes["elr"] = tuple(record.eligible_leader_replicas)
    if record.last_known_elr is not None:
        changes["last_known_elr"] = tuple(record.last_known_elr)
    if record.leader != NO_LEADER_CHANGE:
        # The same leader written again still starts a new epoch (Kafka's PartitionRegistration.merge).
        changes["leader"] = record.leader
        changes["leader_epoch"] = old.leader_epoch + 1
    if record.leader_recovery_state != -1:
        changes["leader_recovery_state"] = record.leader_recovery_state
    return replace(old, **changes)


def register_broker_record(broker: BrokerImage) -> rec.RegisterBrokerRecord:
    """The record that registers this broker."""
    return rec.RegisterBrokerRecord(
        broker_id=broker.id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            rec.BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in broker.endpoints.values()
        ],
        features=[
            rec.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in broker.features.items()
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_dirs),
        cordoned_log_dirs=None if broker.cordoned_log_dirs is None else list(broker.cordoned_log_dirs),
    )


def register_controller_record(controller: ControllerImage) -> rec.RegisterControllerRecord:
    """The record that registers this controller."""
    return rec.RegisterControllerRecord(
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        end_points=[
            rec.ControllerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in controller.endpoints.values()
        ],
        features=[
            rec.ControllerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in controller.features.items()
        ],
    )


def has_collision_chars(name: str) -> bool:
    """Whether another topic's metrics could carry the same name (``.`` and ``_`` look alike there)."""
    return "." in name or "_" in name


def unify_collision_chars(name: str) -> str:
    """The form under which two colliding names are equal."""
    return name.replace(".", "_")


class MetadataReplayError(Exception):
    """A record that cannot follow from the state before it: the log is damaged or its writer had a bug."""


class MetadataDelta:
    """What a run of records changes in an image.

    ``changed_topics`` / ``deleted_topics`` (by id), ``changed_configs``, ``changed_brokers``, ``features_changed`` say
    what a subscriber has to look at; a topic that was created and deleted within the delta is in neither.
    """

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.changed_topics: dict[Uuid, None] = {}
        self.deleted_topics: dict[Uuid, TopicImage] = {}
        self.changed_partitions: dict[Uuid, set[int]] = {}
        self.changed_configs: dict[ConfigResource, None] = {}
        self.changed_brokers: dict[int, None] = {}
        self.changed_controllers: dict[int, None] = {}
        self.features_changed = False
        self.controller_id = image.controller_id
        self.next_producer_id = image.next_producer_id
        self._by_name: dict[str, TopicImage] | None = None
        self._by_id: dict[Uuid, TopicImage] | None = None
        self._colliding: dict[str, tuple[str, ...]] | None = None
        self._partitions: dict[Uuid, dict[int, PartitionImage]] = {}
        self._configs: dict[ConfigResource, Mapping[str, str]] | None = None
        self._own_configs: set[ConfigResource] = set()
        self._brokers: dict[int, BrokerImage] | None = None
        self._controllers: dict[int, ControllerImage] | None = None
        self._levels: dict[str, int] | None = None
        self._quotas: dict[QuotaEntity, Mapping[str, float]] | None = None
        self._acls: dict[Uuid, rec.AccessControlEntryRecord] | None = None
        self._scram: dict[tuple[str, int], rec.UserScramCredentialRecord] | None = None
        self._tokens: dict[str, rec.DelegationTokenRecord] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been replayed that an image shows."""
        return not (
            self.changed_topics
            or self.deleted_topics
            or self.changed_configs
            or self.changed_brokers
            or self.changed_controllers
            or self.features_changed
            or self.controller_id != self.image.controller_id
            or self.next_producer_id != self.image.next_producer_id
            or self._quotas is not None
            or self._acls is not None
            or self._scram is not None
            or self._tokens is not None
        )

    def replay(self, record: Any) -> None:
        """Take one record in; :class:`MetadataReplayError` if it contradicts what came before."""
        method = _REPLAY.get(type(record))
        if method is None:
            raise MetadataReplayError(f"no rule for a record of type {type(record).__name__}")
        method(self, record)

    def apply(self, provenance: OffsetAndEpoch) -> MetadataImage:
        """The next image; ``provenance`` is the offset of the last record replayed and its epoch."""
        image = self.image
        topics = image.topics
        if self._by_name is not None:
            assert self._by_id is not None
            topics = TopicsImage(
                self._by_name, self._by_id, topics.colliding if self._colliding is None else self._colliding
            )
        return MetadataImage(
            offset=provenance.offset,
            epoch=provenance.epoch,
            features=image.features if self._levels is None else FeaturesImage(self._levels),
            brokers=image.brokers if self._brokers is None else self._brokers,
            controllers=image.controllers if self._controllers is None else self._controllers,
            topics=topics,
            configs=image.configs if self._configs is None else ConfigsImage(self._configs),
            next_producer_id=self.next_producer_id,
            client_quotas=image.client_quotas if self._quotas is None else self._quotas,
            acls=image.acls if self._acls is None else self._acls,
            scram=image.scram if self._scram is None else self._scram,
            delegation_tokens=image.delegation_tokens if self._tokens is None else self._tokens,
            controller_id=self.controller_id,
        )

    # Topics

    def _topics(self) -> tuple[dict[str, TopicImage], dict[Uuid, TopicImage]]:
        if self._by_name is None or self._by_id is None:
            self._by_name = dict(self.image.topics.by_name)
            self._by_id = dict(self.image.topics.by_id)
        return self._by_name, self._by_id

    def _collisions(self) -> dict[str, tuple[str, ...]]:
        if self._colliding is None:
            self._colliding = dict(self.image.topics.colliding)
        return self._colliding

    def _on_topic(self, record: rec.TopicRecord) -> None:
        by_name, by_id = self._topics()
        name, topic_id = record.name, Uuid(record.topic_id)
        if name in by_name or topic_id in by_id:
            raise MetadataReplayError(f"topic {name!r} exists already")
        partitions: dict[int, PartitionImage] = {}
        topic = TopicImage(name, topic_id, partitions)
        by_name[name] = by_id[topic_id] = topic
        self._partitions[topic_id] = partitions
        self.changed_topics[topic_id] = None
        if has_collision_chars(name):
            colliding = self._collisions()
            key = unify_collision_chars(name)
            colliding[key] = (*colliding.get(key, ()), name)

    def _own_partitions(self, topic_id: Uuid) -> dict[int, PartitionImage]:
        own = self._partitions.get(topic_id)
        if own is None:
            by_name, by_id = self._topics()
            topic = by_id.get(topic_id)
            if topic is None:
                raise MetadataReplayError(f"no topic has the id {topic_id.hex()}")
            own = self._partitions[topic_id] = dict(topic.partitions)
            changed = TopicImage(topic.name, topic_id, own)
            by_name[topic.name] = by_id[topic_id] = changed
            self.changed_topics[topic_id] = None
        return own

    def _on_partition(self, record: rec.PartitionRecord) -> None:
        topic_id = Uuid(record.topic_id)
        self._own_partitions(topic_id)[record.partition_id] = PartitionImage(
            replicas=tuple(record.replicas),
            isr=tuple(record.isr),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            removing_replicas=tuple(record.removing_replicas),
            adding_replicas=tuple(record.adding_replicas),
            elr=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
            directories=_directories(record.directories, len(record.replicas)),
            leader_recovery_state=record.leader_recovery_state,
        )
        self.changed_partitions.setdefault(topic_id, set()).add(record.partition_id)

    def _on_partition_change(self, record: rec.PartitionChangeRecord) -> None:
        topic_id = Uuid(record.topic_id)
        partitions = self._own_partitions(topic_id)
        old = partitions.get(record.partition_id)
        if old is None:
            raise MetadataReplayError(f"partition {record.partition_id} of {topic_id.hex()} does not exist")
        partitions[record.partition_id] = changed_partition(old, record)
        self.changed_partitions.setdefault(topic_id, set()).add(record.partition_id)

    def _on_remove_topic(self, record: rec.RemoveTopicRecord) -> None:
        by_name, by_id = self._topics()
        topic_id = Uuid(record.topic_id)
        topic = by_id.pop(topic_id, None)
        if topic is None:
            raise MetadataReplayError(f"no topic has the id {topic_id.hex()}")
        del by_name[topic.name]
        if has_collision_chars(topic.name):
            colliding = self._collisions()
            key = unify_collision_chars(topic.name)
            left = tuple(name for name in colliding.get(key, ()) if name != topic.name)
            if left:
                colliding[key] = left
            else:
                colliding.pop(key, None)
        self._partitions.pop(topic_id, None)
        self.changed_topics.pop(topic_id, None)
        self.changed_partitions.pop(topic_id, None)
        before = self.image.topics.by_id.get(topic_id)
        if before is not None:
            self.deleted_topics[topic_id] = before
        resource = ConfigResource(ResourceType.TOPIC, topic.name)
        configs = self.image.configs.by_resource if self._configs is None else self._configs
        if resource in configs:
            self._mutable_configs().pop(resource)
            self._own_configs.discard(resource)
            self.changed_configs[resource] = None

    def _on_clear_elr(self, record: rec.ClearElrRecord) -> None:
        by_name, _ = self._topics()
        if record.topic_name:
            if record.topic_name not in by_name:
                raise MetadataReplayError(f"no topic is named {record.topic_name!r}")
            topics = [by_name[record.topic_name]]
        else:
            topics = list(by_name.values())
        for topic in topics:
            for partition_id, partition in list(topic.partitions.items()):
                if partition.elr or partition.last_known_elr:
                    self._on_partition_change(
                        rec.PartitionChangeRecord(
                            partition_id=partition_id,
                            topic_id=topic.id,
                            eligible_leader_replicas=[],
                            last_known_elr=[],
                        )
                    )

    # Configs

    def _mutable_configs(self) -> dict[ConfigResource, Mapping[str, str]]:
        if self._configs is None:
            self._configs = dict(self.image.configs.by_resource)
        return self._configs

    def _on_config(self, record: rec.ConfigRecord) -> None:
        configs = self._mutable_configs()
        resource = ConfigResource(record.resource_type, record.resource_name)
        if resource not in self._own_configs:
            configs[resource] = dict(configs.get(resource, _NOTHING))
            self._own_configs.add(resource)
        own = configs[resource]
        assert isinstance(own, dict)
        if record.value is None:
            own.pop(record.name, None)
        else:
            own[record.name] = record.value
        if not own:
            del configs[resource]
            self._own_configs.discard(resource)
        self.changed_configs[resource] = None

    # Brokers and controllers

    def _mutable_brokers(self) -> dict[int, BrokerImage]:
        if self._brokers is None:
            self._brokers = dict(self.image.brokers)
        return self._brokers

    def _change_broker(self, broker_id: int, epoch: int, **changes: Any) -> None:
        brokers = self._mutable_brokers()
        old = brokers.get(broker_id)
        if old is None:
            raise MetadataReplayError(f"broker {broker_id} is not registered")
        if old.epoch != epoch:
            raise MetadataReplayError(f"broker {broker_id} has epoch {old.epoch}, the record says {epoch}")
        brokers[broker_id] = replace(old, **changes)
        self.changed_brokers[broker_id] = None

    def _on_register_broker(self, record: rec.RegisterBrokerRecord) -> None:
        self._mutable_brokers()[record.broker_id] = BrokerImage(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=Uuid(record.incarnation_id),
            endpoints={e.name: Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points},
            features={f.name: (f.min_supported_version, f.max_supported_version) for f in record.features},
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            log_dirs=tuple(Uuid(directory) for directory in record.log_dirs),
            cordoned_log_dirs=(
                None if record.cordoned_log_dirs is None else tuple(Uuid(d) for d in record.cordoned_log_dirs)
            ),
        )
        self.changed_brokers[record.broker_id] = None

    def _on_unregister_broker(self, record: rec.UnregisterBrokerRecord) -> None:
        brokers = self._mutable_brokers()
        old = brokers.pop(record.broker_id, None)
        if old is None or old.epoch != record.broker_epoch:
            raise MetadataReplayError(f"broker {record.broker_id} epoch {record.broker_epoch} is not registered")
        self.changed_brokers[record.broker_id] = None

    def _on_fence_broker(self, record: rec.FenceBrokerRecord) -> None:
        self._change_broker(record.id, record.epoch, fenced=True)

    def _on_unfence_broker(self, record: rec.UnfenceBrokerRecord) -> None:
        self._change_broker(record.id, record.epoch, fenced=False)

    def _on_broker_change(self, record: rec.BrokerRegistrationChangeRecord) -> None:
        changes: dict[str, Any] = {}
        if record.fenced:
            changes["fenced"] = record.fenced > 0
        if record.in_controlled_shutdown:
            changes["in_controlled_shutdown"] = record.in_controlled_shutdown > 0
        if record.log_dirs:
            changes["log_dirs"] = tuple(Uuid(directory) for directory in record.log_dirs)
        if record.cordoned_log_dirs is not None:
            changes["cordoned_log_dirs"] = tuple(Uuid(directory) for directory in record.cordoned_log_dirs)
        self._change_broker(record.broker_id, record.broker_epoch, **changes)

    def _on_register_controller(self, record: rec.RegisterControllerRecord) -> None:
        if self._controllers is None:
            self._controllers = dict(self.image.controllers)
        self._controllers[record.controller_id] = ControllerImage(
            id=record.controller_id,
            incarnation_id=Uuid(record.incarnation_id),
            endpoints={e.name: Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points},
            features={f.name: (f.min_supported_version, f.max_supported_version) for f in record.features},
            zk_migration_ready=record.zk_migration_ready,
        )
        self.changed_controllers[record.controller_id] = None

    # The rest

    def _on_feature_level(self, record: rec.FeatureLevelRecord) -> None:
        if self._levels is None:
            self._levels = dict(self.image.features.levels)
        if record.feature_level == 0:
            self._levels.pop(record.name, None)
        else:
            self._levels[record.name] = record.feature_level
        self.features_changed = True

    def _on_producer_ids(self, record: rec.ProducerIdsRecord) -> None:
        if record.next_producer_id < self.next_producer_id:
            raise MetadataReplayError(
                f"the next producer id goes back from {self.next_producer_id} to {record.next_producer_id}"
            )
        self.next_producer_id = record.next_producer_id

    def _on_client_quota(self, record: rec.ClientQuotaRecord) -> None:
        if self._quotas is None:
            self._quotas = {entity: dict(quotas) for entity, quotas in self.image.client_quotas.items()}
        entity = tuple(sorted(((e.entity_type, e.entity_name) for e in record.entity), key=lambda pair: pair[0]))
        quotas = dict(self._quotas.get(entity, {}))
        if record.remove:
            quotas.pop(record.key, None)
        else:
            quotas[record.key] = record.value
        if quotas:
            self._quotas[entity] = quotas
        else:
            self._quotas.pop(entity, None)

    def _on_acl(self, record: rec.AccessControlEntryRecord) -> None:
        if self._acls is None:
            self._acls = dict(self.image.acls)
        self._acls[Uuid(record.id)] = record

    def _on_remove_acl(self, record: rec.RemoveAccessControlEntryRecord) -> None:
        if self._acls is None:
            self._acls = dict(self.image.acls)
        if self._acls.pop(Uuid(record.id), None) is None:
            raise MetadataReplayError(f"no ACL has the id {bytes(record.id).hex()}")

    def _on_scram(self, record: rec.UserScramCredentialRecord) -> None:
        if self._scram is None:
            self._scram = dict(self.image.scram)
        self._scram[record.name, record.mechanism] = record

    def _on_remove_scram(self, record: rec.RemoveUserScramCredentialRecord) -> None:
        if self._scram is None:
            self._scram = dict(self.image.scram)
        self._scram.pop((record.name, record.mechanism), None)

    def _on_token(self, record: rec.DelegationTokenRecord) -> None:
        if self._tokens is None:
            self._tokens = dict(self.image.delegation_tokens)
        self._tokens[record.token_id] = record

    def _on_remove_token(self, record: rec.RemoveDelegationTokenRecord) -> None:
        if self._tokens is None:
            self._tokens = dict(self.image.delegation_tokens)
        self._tokens.pop(record.token_id, None)

    def _on_nothing(self, record: Any) -> None:
        """Records that an image does not show. Transactions are the business of whoever reads the log (``loader``)."""


def _directories(directories: Any, replicas: int) -> tuple[Uuid, ...]:
    if not directories:
        return (_DIR_UNASSIGNED,) * replicas
    return tuple(Uuid(directory) for directory in directories)


_REPLAY: dict[type[Any], Any] = {
    rec.TopicRecord: MetadataDelta._on_topic,
    rec.PartitionRecord: MetadataDelta._on_partition,
    rec.PartitionChangeRecord: MetadataDelta._on_partition_change,
    rec.RemoveTopicRecord: MetadataDelta._on_remove_topic,
    rec.ClearElrRecord: MetadataDelta._on_clear_elr,
    rec.ConfigRecord: MetadataDelta._on_config,
    rec.RegisterBrokerRecord: MetadataDelta._on_register_broker,
    rec.UnregisterBrokerRecord: MetadataDelta._on_unregister_broker,
    rec.FenceBrokerRecord: MetadataDelta._on_fence_broker,
    rec.UnfenceBrokerRecord: MetadataDelta._on_unfence_broker,
    rec.BrokerRegistrationChangeRecord: MetadataDelta._on_broker_change,
    rec.RegisterControllerRecord: MetadataDelta._on_register_controller,
    rec.FeatureLevelRecord: MetadataDelta._on_feature_level,
    rec.ProducerIdsRecord: MetadataDelta._on_producer_ids,
    rec.ClientQuotaRecord: MetadataDelta._on_client_quota,
    rec.AccessControlEntryRecord: MetadataDelta._on_acl,
    rec.RemoveAccessControlEntryRecord: MetadataDelta._on_remove_acl,
    rec.UserScramCredentialRecord: MetadataDelta._on_scram,
    rec.RemoveUserScramCredentialRecord: MetadataDelta._on_remove_scram,
    rec.DelegationTokenRecord: MetadataDelta._on_token,
    rec.RemoveDelegationTokenRecord: MetadataDelta._on_remove_token,
    rec.NoOpRecord: MetadataDelta._on_nothing,
    rec.BeginTransactionRecord: MetadataDelta._on_nothing,
    rec.EndTransactionRecord: MetadataDelta._on_nothing,
    rec.AbortTransactionRecord: MetadataDelta._on_nothing,
    rec.ZkMigrationStateRecord: MetadataDelta._on_nothing,
}
