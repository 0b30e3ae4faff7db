"""The partitions of which this node has a replica, by topic and index, and the metadata that they are in step with."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kbroker.errors import ApiError, ErrorCode
from kbroker.node.replicas.partition import Partition
from kbroker.raft_metadata.image import EMPTY_IMAGE, MetadataImage
from kbroker.types import TopicPartition, Uuid


class PartitionTable:
    """Finds partitions. ``node.replicas.metadata_follower`` adds and removes them, after ``image`` is set, some in
    each turn of the event loop."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.image: MetadataImage = EMPTY_IMAGE
        """The latest metadata; empty before the first image."""
        self.behind: dict[tuple[str, int], bool] = {}
        """Partitions that are still as an earlier image has them, or not made yet; those that came into being while
        this node ran are true. `find` and all that use it never see one."""
        self.bring_in_step: Callable[[tuple[str, int]], None] = lambda key: None
        """Makes a partition what ``image`` has it be (``node.replicas.metadata_follower``)."""

    def find(self, topic: str, partition: int) -> Partition | None:
        """Returns the local partition as the latest metadata have it; None if this node has no replica."""
        key = topic, partition
        if self.behind and key in self.behind:
            self.bring_in_step(key)
        return self.partitions.get(key)

    def get_partition(self, topic: str, partition: int) -> Partition:
        """The local partition; ``ApiError`` as ``ReplicaManager.getPartitionOrException``."""
        found = self.find(topic, partition)
        if found is not None:
            return found
        code = self.absence(topic, partition)
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            raise ApiError(code, f"this broker holds no replica of {topic}-{partition}")
        raise ApiError(code, "This server does not host this topic-partition.")

    def absence(self, topic: str, partition: int) -> ErrorCode:
        """The error of a partition that is not here: it is elsewhere, or nowhere."""
        if self.exists(topic, partition):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def get_leader(self, topic: str, partition: int, current_leader_epoch: int = -1) -> Partition:
        """The partition, led here and in the client's leader epoch (-1: in any). ``ApiError`` otherwise."""
        found = self.get_partition(topic, partition)
        found.check_leader_epoch(current_leader_epoch)
        if not found.state.is_leader:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {topic}-{partition}")
        return found

    def exists(self, topic: str, partition: int) -> bool:
        """Whether the metadata knows the partition, here or elsewhere."""
        return self.image.topics.partition(topic, partition) is not None

    def topic_id(self, name: str) -> Uuid | None:
        """The id of a topic, by the metadata."""
        topic = self.image.topics.by_name.get(name)
        return topic.id if topic is not None else None

    def topic_name(self, topic_id: Uuid) -> str | None:
        """The name of a topic, by the metadata."""
        topic = self.image.topics.by_id.get(topic_id)
        return topic.name if topic is not None else None

    def led_with_followers(self) -> Iterator[Partition]:
        """The partitions that this node leads and others replicate, of those whose log is open and works."""
        for partition in list(self.partitions.values()):
            state = partition.state
            if state.is_leader and state.progress and partition.has_log and not partition.offline:
                yield partition

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """The content of ``replication-offset-checkpoint``."""
        return {
            partition.topic_partition: partition.state.high_watermark
            for partition in self.partitions.values()
            if partition.has_log and not partition.offline
        }
