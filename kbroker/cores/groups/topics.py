"""The topics as consumer groups see them, and the hash by which a group notices that they have changed.

The driver hands a `CoordinatorMetadataImage` to the coordinator whenever the metadata image changes.
Rules: Kafka's ``CoordinatorMetadataImage`` and ``Utils.computeTopicHash``, ``computeGroupHash`` (4.3).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from kbroker.types import Uuid
from kbroker.value_types import NamedTuple

if TYPE_CHECKING:
    import xxhash

_HASH_FORMAT = 0
_LONG = struct.Struct("<Q")
_INT = struct.Struct("<i")


class TopicMetadata(NamedTuple):
    """A topic. ``racks`` has, by partition, the sorted racks of the replicas (of brokers that name one)."""

    name: str
    id: Uuid
    partition_count: int
    racks: tuple[tuple[str, ...], ...] = ()


class CoordinatorMetadataImage(Protocol):
    """A version of the cluster's topics; immutable."""

    @property
    def version(self) -> int:
        """Grows with every change of the cluster's metadata."""

    def names(self) -> Iterable[str]:
        """Every topic."""

    def by_name(self, name: str) -> TopicMetadata | None:
        """The topic of that name."""

    def by_id(self, topic_id: Uuid) -> TopicMetadata | None:
        """The topic of that id."""

    def partition_count(self, topic_id: Uuid) -> int:
        """The topic's number of partitions, -1 if it does not exist."""


class NoTopics:
    """The image before the first one is known."""

    version = 0

    def names(self) -> Iterable[str]:
        """No topic."""
        return ()

    def by_name(self, name: str) -> TopicMetadata | None:
        """No topic has the name."""
        return None

    def by_id(self, topic_id: Uuid) -> TopicMetadata | None:
        """No topic has the id."""
        return None

    def partition_count(self, topic_id: Uuid) -> int:
        """-1."""
        return -1


def topic_hash(topic: TopicMetadata) -> int:
    """64 bits, signed, over id, name, partitions and their racks; the value that Kafka stores."""
    import xxhash  # a node without groups starts without it

    hasher = xxhash.xxh3_64()
    hasher.update(bytes([_HASH_FORMAT]))
    # Kafka hashes the id as two numbers, each in the byte order of the hash.
    hasher.update(topic.id[7::-1] + topic.id[:7:-1])
    _put_string(hasher, topic.name)
    hasher.update(_INT.pack(topic.partition_count))
    for partition in range(topic.partition_count):
        hasher.update(_INT.pack(partition))
        for rack in topic.racks[partition] if partition < len(topic.racks) else ():
            hasher.update(_INT.pack(_utf16_length(rack)))
            _put_string(hasher, rack)
    return _signed(hasher.intdigest())


def group_hash(topics: Iterable[tuple[str, int]]) -> int:
    """64 bits, signed, over the hashes of topics given with their names; 0 for none."""
    import xxhash

    ordered = sorted(topics)
    if not ordered:
        return 0
    return _signed(
        xxhash.xxh3_64_intdigest(b"".join(_LONG.pack(value & 0xFFFF_FFFF_FFFF_FFFF) for _, value in ordered))
    )


def _put_string(hasher: xxhash.xxh3_64, text: str) -> None:
    hasher.update(text.encode("utf-16-le", "surrogatepass"))
    hasher.update(_INT.pack(_utf16_length(text)))


def _utf16_length(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


class MetadataHasher:
    """Group hashes against one image after another; hashes of unchanged topics are kept."""

    def __init__(self) -> None:
        self.image: CoordinatorMetadataImage = NoTopics()
        self._topic_hashes: dict[str, int] = {}

    def update(self, image: CoordinatorMetadataImage, changed: Iterable[str]) -> None:
        """Take the next image; ``changed`` names the topics that differ or are gone."""
        self.image = image
        for name in changed:
            self._topic_hashes.pop(name, None)

    def group_hash(self, names: Iterable[str]) -> int:
        """The metadata hash of a group that subscribes to the names; those without a topic do not count."""
        hashes = []
        for name in names:
            value = self._topic_hashes.get(name)
            if value is None:
                topic = self.image.by_name(name)
                if topic is None:
                    continue
                value = self._topic_hashes[name] = topic_hash(topic)
            hashes.append((name, value))
        return group_hash(hashes)
