"""The view of a metadata image that the group coordinator has."""

from __future__ import annotations

from kbroker.cores.groups.topics import TopicMetadata
from kbroker.node.coordinators.group_driver import ImageTopics
from kbroker.raft_metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage, TopicsImage
from kbroker.types import ZERO_UUID, Uuid

TOPIC_ID = Uuid(b"0123456789abcdef")


def image(*racks: str | None) -> MetadataImage:
    """An image with a topic of two partitions, on brokers in these racks."""
    brokers = {index: BrokerImage(index, 1, ZERO_UUID, {}, rack=rack) for index, rack in enumerate(racks)}
    partition = PartitionImage(replicas=tuple(reversed(brokers)), isr=(), leader=0)
    topic = TopicImage("t", TOPIC_ID, {0: partition, 1: PartitionImage(replicas=(0,), isr=(), leader=0)})
    return MetadataImage(offset=7, brokers=brokers, topics=TopicsImage({"t": topic}, {TOPIC_ID: topic}))


def test_topics() -> None:
    topics = ImageTopics(image("a", None, "b"))
    assert topics.version == 7 and list(topics.names()) == ["t"]
    assert topics.by_name("t") == topics.by_id(TOPIC_ID) == TopicMetadata("t", TOPIC_ID, 2, (("a", "b"), ("a",)))
    assert topics.partition_count(TOPIC_ID) == 2
    assert topics.by_name("u") is topics.by_id(ZERO_UUID) is None and topics.partition_count(ZERO_UUID) == -1


def test_brokers_without_racks() -> None:
    topic = ImageTopics(image(None)).by_name("t")
    assert topic is not None and topic.racks == ()
