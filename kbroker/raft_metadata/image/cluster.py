"""Brokers and controllers that have registered, their endpoints, and the finalized feature levels of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from kbroker.raft_metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION, METADATA_VERSION
from kbroker.raft_metadata.metadata_version import CORDONED_DIRECTORIES, DIRECTORIES
from kbroker.types import ZERO_UUID, Uuid
from kbroker.value_types import NamedTuple, dataclass, field, replace
from kbroker.wire.records import metadata as rec

DIR_MIGRATING = ZERO_UUID
"""The directory of a replica from before directories had ids."""
DIR_UNASSIGNED = Uuid(bytes(15) + b"\x01")
"""The directory of a replica whose broker has not assigned one yet."""
DIR_LOST = Uuid(bytes(15) + b"\x02")
"""The directory of a replica that its broker cannot use, whatever has become of the disk."""


class MetadataReplayError(Exception):
    """A record that cannot follow from the state before it: the log is damaged or its writer had a bug."""


class Endpoint(NamedTuple):
    """The address of one of a node's listeners. ``security_protocol``: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT,
    3 SASL_SSL."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


Endpoints = Mapping[str, Endpoint]
"""By listener name."""

Features = Mapping[str, tuple[int, int]]
"""The lowest and the highest level that a node supports, by the feature's name."""


class _EndpointEntry(Protocol):
    name: str
    host: str
    port: int
    security_protocol: int


class _FeatureEntry(Protocol):
    name: str
    min_supported_version: int
    max_supported_version: int


E = TypeVar("E")


def endpoint_entries(entry: Callable[..., E], endpoints: Iterable[Endpoint]) -> list[E]:
    """Endpoints as entries of a record or request, of the class ``entry``."""
    return [entry(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol) for e in endpoints]


def feature_entries(entry: Callable[..., E], features: Features) -> list[E]:
    """Features as entries of a record or request, of the class ``entry``."""
    return [
        entry(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in features.items()
    ]


def read_endpoints(entries: Iterable[_EndpointEntry]) -> dict[str, Endpoint]:
    """The endpoints of a record or request, by listener name; the last of two with one name."""
    return {e.name: Endpoint(e.name, e.host, e.port, e.security_protocol) for e in entries}


def read_features(entries: Iterable[_FeatureEntry]) -> dict[str, tuple[int, int]]:
    """The feature ranges of a record or request, by name; the last of two with one name."""
    return {f.name: (f.min_supported_version, f.max_supported_version) for f in entries}


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """A registered broker. ``epoch`` is the offset of its registration record."""

    id: int
    epoch: int
    incarnation_id: Uuid
    endpoints: Endpoints
    features: Features = field(default_factory=dict)
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[Uuid, ...] = ()
    cordoned_log_dirs: tuple[Uuid, ...] | None = None

    @property
    def active(self) -> bool:
        """Whether the broker may lead and be in an ISR: unfenced and not in controlled shutdown."""
        return not self.fenced and not self.in_controlled_shutdown

    @property
    def has_uncordoned_dirs(self) -> bool:
        """Whether a log directory takes new replicas (KIP-1066), as far as the broker has reported."""
        return not self.log_dirs or not set(self.log_dirs) <= set(self.cordoned_log_dirs or ())

    def has_online_dir(self, directory: Uuid) -> bool:
        """Whether a replica placed in ``directory`` is on a disk that works.

        Ids whose first 15 bytes are zero are reserved: unassigned and migrating count as online, lost does not.
        """
        if directory in (DIR_UNASSIGNED, DIR_MIGRATING):
            return True
        return not self.log_dirs or directory in self.log_dirs


def is_one_machine(brokers: Iterable[BrokerImage]) -> bool:
    """Whether all of these are nodes of one machine: of one rack that is named, and with the same hosts."""
    places = {(broker.rack, frozenset(each.host for each in broker.endpoints.values())) for broker in brokers}
    return len(places) == 1 and None not in next(iter(places))


@dataclass(frozen=True, slots=True)
class ControllerImage:
    """A registered controller (quorum node)."""

    id: int
    incarnation_id: Uuid
    endpoints: Endpoints
    features: Features
    zk_migration_ready: bool = False


def register_broker_record(broker: BrokerImage, metadata_version: int) -> rec.RegisterBrokerRecord:
    """The record that registers this broker, with the fields that this level of ``metadata.version`` has."""
    cordoned = broker.cordoned_log_dirs if metadata_version >= CORDONED_DIRECTORIES else None
    return rec.RegisterBrokerRecord(
        broker_id=broker.id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=endpoint_entries(rec.BrokerEndpoint, broker.endpoints.values()),
        features=feature_entries(rec.BrokerFeature, broker.features),
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_dirs) if metadata_version >= DIRECTORIES else [],
        cordoned_log_dirs=None if cordoned is None else list(cordoned),
    )


def register_controller_record(controller: ControllerImage) -> rec.RegisterControllerRecord:
    """The record that registers this controller."""
    return rec.RegisterControllerRecord(
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        end_points=endpoint_entries(rec.ControllerEndpoint, controller.endpoints.values()),
        features=feature_entries(rec.ControllerFeature, controller.features),
    )


class ClusterDelta:
    """The changes of brokers and controllers; ``changed_...`` has the ids of those that came, went or changed."""

    def __init__(self, brokers: Mapping[int, BrokerImage], controllers: Mapping[int, ControllerImage]) -> None:
        self.changed_brokers: dict[int, None] = {}
        self.changed_controllers: dict[int, None] = {}
        self._old_brokers = brokers
        self._old_controllers = controllers
        self._brokers: dict[int, BrokerImage] | None = None
        self._controllers: dict[int, ControllerImage] | None = None

    @property
    def brokers(self) -> Mapping[int, BrokerImage]:
        """The brokers with all changes so far."""
        return self._old_brokers if self._brokers is None else self._brokers

    @property
    def controllers(self) -> Mapping[int, ControllerImage]:
        """The controllers with all changes so far."""
        return self._old_controllers if self._controllers is None else self._controllers

    def _mutable_brokers(self) -> dict[int, BrokerImage]:
        if self._brokers is None:
            self._brokers = dict(self._old_brokers)
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

    def on_register_broker(self, record: rec.RegisterBrokerRecord) -> None:
        """Add a broker; an earlier registration of the id is replaced."""
        self._mutable_brokers()[record.broker_id] = BrokerImage(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=Uuid(record.incarnation_id),
            endpoints=read_endpoints(record.end_points),
            features=read_features(record.features),
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            log_dirs=tuple(Uuid(directory) for directory in record.log_dirs),
            cordoned_log_dirs=(
                None if record.cordoned_log_dirs is None else tuple(Uuid(d) for d in record.cordoned_log_dirs)
            ),
        )
        self.changed_brokers[record.broker_id] = None

    def on_unregister_broker(self, record: rec.UnregisterBrokerRecord) -> None:
        """Remove a broker."""
        brokers = self._mutable_brokers()
        old = brokers.pop(record.broker_id, None)
        if old is None or old.epoch != record.broker_epoch:
            raise MetadataReplayError(f"broker {record.broker_id} epoch {record.broker_epoch} is not registered")
        self.changed_brokers[record.broker_id] = None

    def on_fence_broker(self, record: rec.FenceBrokerRecord) -> None:
        """Fence a broker."""
        self._change_broker(record.id, record.epoch, fenced=True)

    def on_unfence_broker(self, record: rec.UnfenceBrokerRecord) -> None:
        """Unfence a broker."""
        self._change_broker(record.id, record.epoch, fenced=False)

    def on_broker_change(self, record: rec.BrokerRegistrationChangeRecord) -> None:
        """Change a registered broker."""
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

    def on_register_controller(self, record: rec.RegisterControllerRecord) -> None:
        """Add a controller; an earlier registration of the id is replaced."""
        if self._controllers is None:
            self._controllers = dict(self._old_controllers)
        self._controllers[record.controller_id] = ControllerImage(
            id=record.controller_id,
            incarnation_id=Uuid(record.incarnation_id),
            endpoints=read_endpoints(record.end_points),
            features=read_features(record.features),
            zk_migration_ready=record.zk_migration_ready,
        )
        self.changed_controllers[record.controller_id] = None

    def on_unregister_controller(self, record: rec.UnregisterControllerRecord) -> None:
        """Remove a controller. One that is not there is no mistake, as in Kafka's ``ClusterDelta``."""
        if self._controllers is None:
            self._controllers = dict(self._old_controllers)
        self._controllers.pop(record.controller_id, None)
        self.changed_controllers[record.controller_id] = None


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

    def records(self) -> Iterator[rec.FeatureLevelRecord]:
        """The levels as records; ``metadata.version`` comes first, since it decides how the others are read."""
        names = sorted(self.levels, key=lambda name: (name != METADATA_VERSION, name))
        for name in names:
            yield rec.FeatureLevelRecord(name=name, feature_level=self.levels[name])


class FeaturesDelta:
    """The changes of feature levels."""

    def __init__(self, image: FeaturesImage) -> None:
        self._image = image
        self._levels: dict[str, int] | None = None

    @property
    def changed(self) -> bool:
        """Whether a level was set."""
        return self._levels is not None

    def apply(self) -> FeaturesImage:
        """The next image."""
        return self._image if self._levels is None else FeaturesImage(self._levels)

    def on_feature_level(self, record: rec.FeatureLevelRecord) -> None:
        """Set a level; 0 removes the feature."""
        if self._levels is None:
            self._levels = dict(self._image.levels)
        if record.feature_level == 0:
            self._levels.pop(record.name, None)
        else:
            self._levels[record.name] = record.feature_level
