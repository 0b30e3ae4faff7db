"""From batches and snapshots to images."""

from __future__ import annotations

from kbroker.raft_metadata.image import ConfigResource, ResourceType
from kbroker.raft_metadata.image.loader import ImageLoader
from kbroker.raft_metadata.raft.batches import MetadataBatch
from kbroker.types import OffsetAndEpoch, Uuid
from kbroker.wire.records.metadata import ConfigRecord, TopicRecord

KEPT, GONE = Uuid(b"k" * 16), Uuid(b"g" * 16)


def batch(*records: object) -> MetadataBatch:
    return MetadataBatch(0, len(records) - 1, 1, 0, False, list(records), 100)


def test_a_snapshot_tells_what_is_gone() -> None:
    """A follower that was away for long gets a snapshot while it runs: what is not in it must be dropped."""
    loader = ImageLoader()
    loader.take(
        batch(
            TopicRecord(name="kept", topic_id=KEPT),
            TopicRecord(name="gone", topic_id=GONE),
            ConfigRecord(resource_type=ResourceType.TOPIC, resource_name="gone", name="retention.ms", value="5"),
        )
    )
    loader.publish(OffsetAndEpoch(2, 1))
    delta, image = loader.load_snapshot([TopicRecord(name="kept", topic_id=KEPT)], OffsetAndEpoch(9, 2))
    assert list(image.topics.by_name) == ["kept"] and (image.offset, image.epoch) == (8, 2)
    assert list(delta.deleted_topics) == [GONE] and list(delta.changed_topics) == [KEPT]
    assert list(delta.changed_configs) == [ConfigResource(ResourceType.TOPIC, "gone")]
    assert loader.image is image
