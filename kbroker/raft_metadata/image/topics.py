"""Topics and their partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from functools import lru_cache
from math import isqrt
from typing import Final, TypeVar, cast

from kbroker.raft_metadata.image.cluster import DIR_MIGRATING, DIR_UNASSIGNED, MetadataReplayError
from kbroker.raft_metadata.metadata_version import DIRECTORIES
from kbroker.raft_metadata.topics import has_collision_chars, unify_collision_chars
from kbroker.types import Uuid
from kbroker.value_types import dataclass, field
from kbroker.wire.records import metadata as rec

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

RECOVERED = 0
"""``leader_recovery_state``: the leader came from the ISR."""
RECOVERING = 1
"""The leader was elected uncleanly and has not finished recovery: no replica may join the ISR yet."""

NO_LEADER = -1
NO_LEADER_CHANGE = -2
"""``PartitionChangeRecord.leader``: the same leader in the same leader epoch."""


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
        """The log directory of the replica on ``broker_id``, as far as the controller knows."""
        for index, replica in enumerate(self.replicas):
            if replica == broker_id and index < len(self.directories):
                return self.directories[index]
        return DIR_UNASSIGNED


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

    def is_adding(self, topic: str, partition: int, broker_id: int) -> bool:
        """Whether a reassignment that is under way brings a replica of the partition to the broker (KIP-455)."""
        found = self.partition(topic, partition)
        return found is not None and broker_id in found.adding_replicas

    def records(self, metadata_version: int) -> Iterator[rec.TopicRecord | rec.PartitionRecord]:
        """The topics as records of this level, each with its partitions behind it."""
        for topic in self.by_id.values():
            yield rec.TopicRecord(name=topic.name, topic_id=topic.id)
            for partition_id, partition in topic.partitions.items():
                yield partition_record(topic.id, partition_id, partition, metadata_version)


def partition_record(
    topic_id: Uuid, partition_id: int, partition: PartitionImage, metadata_version: int
) -> rec.PartitionRecord:
    """The record that creates this partition, with the fields that this level of ``metadata.version`` has."""
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
        directories=list(partition.directories) if metadata_version >= DIRECTORIES else [],
        eligible_leader_replicas=list(partition.elr) or None,
        last_known_elr=list(partition.last_known_elr) or None,
    )


def changed_partition(old: PartitionImage, record: rec.PartitionChangeRecord) -> PartitionImage:
    """The partition that the record makes of ``old``."""
    replicas, isr, directories = old.replicas, old.isr, old.directories
    leader, leader_epoch = old.leader, old.leader_epoch
    if record.replicas is not None:
        replicas = _shared(tuple(record.replicas))
    if record.directories is not None:
        directories = _directories(record.directories, len(replicas))
    elif record.replicas is not None:
        known = any(directory != DIR_MIGRATING for directory in old.directories)
        directories = _directories(list(map(old.directory, replicas)) if known else None, len(replicas))
    if record.isr is not None:
        isr = _shared(tuple(record.isr))
    if record.leader != NO_LEADER_CHANGE:
        # The same leader written again still starts a new epoch (Kafka's PartitionRegistration.merge).
        leader, leader_epoch = record.leader, leader_epoch + 1
    removing, adding = record.removing_replicas, record.adding_replicas
    elr, last_known_elr = record.eligible_leader_replicas, record.last_known_elr
    recovery = record.leader_recovery_state
    return PartitionImage(
        replicas,
        isr,
        leader,
        leader_epoch,
        old.partition_epoch + 1,
        old.removing_replicas if removing is None else tuple(removing),
        old.adding_replicas if adding is None else tuple(adding),
        old.elr if elr is None else tuple(elr),
        old.last_known_elr if last_known_elr is None else tuple(last_known_elr),
        directories,
        old.leader_recovery_state if recovery == -1 else recovery,
    )


def _directories(directories: Sequence[bytes] | None, replicas: int) -> tuple[Uuid, ...]:
    """The replicas' directories by a record; records of a level without directories have none."""
    if not directories:
        return _shared((DIR_MIGRATING,) * replicas)
    return _shared_ids(tuple(directories))


@lru_cache(4096)
def _shared_ids(directories: tuple[bytes, ...]) -> tuple[Uuid, ...]:
    return tuple(map(_shared_id, directories))


@lru_cache(4096)
def _shared(values: tuple[T, ...]) -> tuple[T, ...]:
    """Returns the same object for the same values: most partitions have those of others."""
    return values


@lru_cache(4096)
def _shared_id(directory: bytes) -> Uuid:
    """Returns the same object for the same directory: a broker has few."""
    return Uuid(directory)


LARGE: Final = 2_000
"""Mappings with fewer keys are copied with each change: to read them costs less, and the copy costs 20 µs."""

_GONE: Final = object()


class Layered(MutableMapping[K, V]):
    """A large mapping whose copies share nearly all of it: the changes since it was last copied as a whole lie on top.

    Iterates as a dictionary does; but a key that goes and comes back keeps its place.
    """

    __slots__ = ("_base", "_size", "_top")

    def __init__(self, base: dict[K, V], top: dict[K, object], size: int) -> None:
        self._base = base
        """Never changed."""
        self._top = top
        """Key -> value of what came or changed, or `_GONE`."""
        self._size = size

    def copied(self) -> Layered[K, V]:
        """Returns a copy to change. One in as many as the root of its size takes as long as it is large."""
        if len(self._top) > isqrt(len(self._base)):
            merged = dict(self._base)
            for key, value in self._top.items():
                if value is _GONE:
                    del merged[key]
                else:
                    merged[key] = cast(V, value)
            return Layered(merged, {}, self._size)
        return Layered(self._base, dict(self._top), self._size)

    def __getitem__(self, key: K) -> V:
        found = self._top.get(key)
        if found is None:
            return self._base[key]
        if found is _GONE:
            raise KeyError(key)
        return cast(V, found)

    def __setitem__(self, key: K, value: V) -> None:
        self._size += key not in self
        self._top[key] = value

    def __delitem__(self, key: K) -> None:
        if key not in self:
            raise KeyError(key)
        self._size -= 1
        if key in self._base:
            self._top[key] = _GONE
        else:
            del self._top[key]

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[K]:
        base, top = self._base, self._top
        yield from (key for key in base if top.get(key) is not _GONE)
        yield from (key for key, value in top.items() if value is not _GONE and key not in base)


def _copied(mapping: Mapping[K, V]) -> MutableMapping[K, V]:
    """Returns a copy to change of an image's mapping, which nobody changes any more."""
    if isinstance(mapping, Layered):
        return mapping.copied()
    if isinstance(mapping, dict) and len(mapping) >= LARGE:
        return Layered(mapping, {}, len(mapping))
    return dict(mapping)


class TopicsDelta:
    """The changes of topics, by id; a topic that was created and deleted within the delta is in neither ``changed``
    nor ``deleted``."""

    def __init__(self, image: TopicsImage) -> None:
        self.changed: dict[Uuid, None] = {}
        self.deleted: dict[Uuid, TopicImage] = {}
        self.changed_partitions: dict[Uuid, set[int]] = {}
        self._image = image
        self._by_name: MutableMapping[str, TopicImage] | None = None
        self._by_id: MutableMapping[Uuid, TopicImage] | None = None
        self._colliding: dict[str, tuple[str, ...]] | None = None
        self._partitions: dict[Uuid, dict[int, PartitionImage]] = {}

    def apply(self) -> TopicsImage:
        """The next image."""
        if self._by_name is None or self._by_id is None:
            return self._image
        colliding = self._image.colliding if self._colliding is None else self._colliding
        return TopicsImage(self._by_name, self._by_id, colliding)

    def _mutable(self) -> tuple[MutableMapping[str, TopicImage], MutableMapping[Uuid, TopicImage]]:
        if self._by_name is None or self._by_id is None:
            self._by_name = _copied(self._image.by_name)
            self._by_id = _copied(self._image.by_id)
        return self._by_name, self._by_id

    def _collisions(self) -> dict[str, tuple[str, ...]]:
        if self._colliding is None:
            self._colliding = dict(self._image.colliding)
        return self._colliding

    def on_topic(self, record: rec.TopicRecord) -> None:
        """Add a topic, without partitions yet."""
        by_name, by_id = self._mutable()
        name, topic_id = record.name, Uuid(record.topic_id)
        if name in by_name or topic_id in by_id:
            raise MetadataReplayError(f"topic {name!r} exists already")
        partitions: dict[int, PartitionImage] = {}
        topic = TopicImage(name, topic_id, partitions)
        by_name[name] = by_id[topic_id] = topic
        self._partitions[topic_id] = partitions
        self.changed[topic_id] = None
        if has_collision_chars(name):
            colliding = self._collisions()
            key = unify_collision_chars(name)
            colliding[key] = (*colliding.get(key, ()), name)

    def _own_partitions(self, topic_id: Uuid) -> dict[int, PartitionImage]:
        own = self._partitions.get(topic_id)
        if own is None:
            by_name, by_id = self._mutable()
            topic = by_id.get(topic_id)
            if topic is None:
                raise MetadataReplayError(f"no topic has the id {topic_id.hex()}")
            own = self._partitions[topic_id] = dict(topic.partitions)
            changed = TopicImage(topic.name, topic_id, own)
            by_name[topic.name] = by_id[topic_id] = changed
            self.changed[topic_id] = None
        return own

    def _note(self, topic_id: Uuid, partition_id: int) -> None:
        changed = self.changed_partitions.get(topic_id)
        if changed is None:
            changed = self.changed_partitions[topic_id] = set()
        changed.add(partition_id)

    def on_partition(self, record: rec.PartitionRecord) -> None:
        """Add a partition."""
        topic_id = Uuid(record.topic_id)
        self._own_partitions(topic_id)[record.partition_id] = PartitionImage(
            _shared(tuple(record.replicas)),
            _shared(tuple(record.isr)),
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            tuple(record.removing_replicas),
            tuple(record.adding_replicas),
            tuple(record.eligible_leader_replicas or ()),
            tuple(record.last_known_elr or ()),
            _directories(record.directories, len(record.replicas)),
            record.leader_recovery_state,
        )
        self._note(topic_id, record.partition_id)

    def on_partition_change(self, record: rec.PartitionChangeRecord) -> None:
        """Change a partition."""
        topic_id = Uuid(record.topic_id)
        partitions = self._own_partitions(topic_id)
        old = partitions.get(record.partition_id)
        if old is None:
            raise MetadataReplayError(f"partition {record.partition_id} of {topic_id.hex()} does not exist")
        partitions[record.partition_id] = changed_partition(old, record)
        self._note(topic_id, record.partition_id)

    def on_remove_topic(self, record: rec.RemoveTopicRecord) -> str:
        """Remove a topic; its name, by which its configs are kept."""
        by_name, by_id = self._mutable()
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
        self.changed.pop(topic_id, None)
        self.changed_partitions.pop(topic_id, None)
        before = self._image.by_id.get(topic_id)
        if before is not None:
            self.deleted[topic_id] = before
        return topic.name

    def on_clear_elr(self, record: rec.ClearElrRecord) -> None:
        """Clear the eligible leader replicas of a topic, or of all topics."""
        by_name, _ = self._mutable()
        if record.topic_name:
            if record.topic_name not in by_name:
                raise MetadataReplayError(f"no topic is named {record.topic_name!r}")
            topics = [by_name[record.topic_name]]
        else:
            topics = list(by_name.values())
        for topic in topics:
            for partition_id, partition in list(topic.partitions.items()):
                if partition.elr or partition.last_known_elr:
                    self.on_partition_change(
                        rec.PartitionChangeRecord(
                            partition_id=partition_id, topic_id=topic.id, eligible_leader_replicas=[], last_known_elr=[]
                        )
                    )
