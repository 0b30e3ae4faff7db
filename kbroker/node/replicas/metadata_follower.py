"""Keeps this node's partitions in step with the metadata: makes, leads, follows and drops them.

Called with each image, on the event loop. Synchronous; touches the disk only to make and to delete logs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from kbroker.errors import ApiError, ErrorCode
from kbroker.node.replicas.partition import Partition
from kbroker.raft_metadata.image import ResourceType
from kbroker.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from kbroker.log.log_config import LogConfig
    from kbroker.log.manager import LogManager
    from kbroker.node.replicas.partition_events import CheckpointRequests, Progress
    from kbroker.node.replicas.partition_table import PartitionTable
    from kbroker.node.replicas.replica_fetchers import ReplicaFetchers
    from kbroker.node.replicas.replica_log_dirs import ReplicaLogDirs
    from kbroker.node.replicas.replication_throttles import ReplicationThrottles
    from kbroker.raft_metadata.image import MetadataDelta, MetadataImage, PartitionImage, TopicImage
    from kbroker.runtime.env import Env

logger = logging.getLogger(__name__)


class MetadataFollower:
    """Applies images to the partition table (``ReplicaManager.applyDelta``)."""

    def __init__(
        self,
        *,
        env: Env,
        log_manager: LogManager,
        table: PartitionTable,
        progress: Progress,
        checkpoints: CheckpointRequests,
        log_dirs: ReplicaLogDirs,
        throttles: ReplicationThrottles,
        topic_log_config: Callable[[Mapping[str, str]], LogConfig],
        start_soon: Callable[..., None],
    ) -> None:
        """``topic_log_config`` gives the effective configuration of a topic that has these configs of its own."""
        self._env = env
        self._log_manager = log_manager
        self._table = table
        self._progress = progress
        self._checkpoints = checkpoints
        self._log_dirs = log_dirs
        self._throttles = throttles
        self._topic_log_config = topic_log_config
        self._start_soon = start_soon
        self.fetchers: ReplicaFetchers | None = None
        """Copy the partitions that other brokers lead. None as long as there are no others (``node.replication``)."""
        self.is_handed_over: Callable[[Partition, PartitionImage], bool] = lambda partition, assigned: False
        """Whether another node of the machine hands a log over before it is followed (``node.replicas.hand_overs``)."""

    def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply an image; ``delta`` is what has changed since the last one."""
        table = self._table
        before, table.image = table.image, image
        is_first = before.offset < 0
        self._throttles.on_image(None if is_first else delta, image)
        if is_first:
            self._apply_first(image)
        else:
            self._apply_delta(before, delta, image)

    def _apply_first(self, image: MetadataImage) -> None:
        # First: the log of a topic that was deleted while this node was down is in the way of the next of its name.
        self._log_manager.set_stray_aside(self._is_own, self._is_only)
        for topic in image.topics.by_name.values():
            self._apply_partitions(topic, topic.partitions, image, is_new=False)
        self._log_dirs.take_partitions_offline()
        self._brokers_changed()

    def _apply_delta(self, before: MetadataImage, delta: MetadataDelta, image: MetadataImage) -> None:
        for topic_id in delta.deleted_topics:
            old = before.topics.by_id.get(topic_id)
            if old is not None:
                self._drop_topic(old)
        for topic_id, indexes in delta.changed_partitions.items():
            topic = image.topics.by_id.get(topic_id)
            if topic is not None:
                self._apply_partitions(topic, indexes, image)
        if delta.changed_brokers:
            self._brokers_changed()
        if any(resource.type == ResourceType.BROKER for resource in delta.changed_configs):
            # A broker's properties are the defaults of every topic.
            for name in image.topics.by_name:
                self._apply_configs(name, image)
            return
        for resource in delta.changed_configs:
            if resource.type == ResourceType.TOPIC:
                self._apply_configs(resource.name, image)

    def _is_own(self, tp: TopicPartition, topic_id: Uuid | None) -> bool:
        """Whether a log that was found belongs to a partition that the metadata have here (``isStrayReplica``).

        An earlier topic of the same name had another id. A log without an id was never flushed, and is taken for the
        partition's.
        """
        topic = self._table.image.topics.by_name.get(tp.topic)
        assigned = None if topic is None else topic.partitions.get(tp.partition)
        if topic is None or assigned is None:
            return False
        return self._table.node_id in assigned.replicas and topic_id in (None, topic.id)

    def _is_only(self, tp: TopicPartition) -> bool:
        assigned = self._table.image.topics.partition(*tp)
        return assigned is None or len(assigned.replicas) == 1

    def _brokers_changed(self) -> None:
        """Brokers have come, were fenced or started anew, or have another address."""
        progress = self._progress
        if self.fetchers is not None:
            self.fetchers.brokers_changed()
        for partition in self._table.led_with_followers():
            progress.isr.exclude_ineligible(partition)
            progress.isr_changed(partition)
        progress.low_watermarks_moved(self._table.partitions)
        for partition in self._table.partitions.values():
            if partition.is_damaged:  # another replica may have come, or have gone for good
                self._start_soon(self._lead_or_stand_aside, partition)

    # --- topics -----------------------------------------------------------------------------------------------

    def _apply_partitions(
        self, topic: TopicImage, indexes: Iterable[int], image: MetadataImage, *, is_new: bool = True
    ) -> None:
        table = self._table
        config: LogConfig | None = None
        now_ms = int(self._env.now() * 1000)
        for index in indexes:
            assigned = topic.partitions[index]
            key = TopicPartition(topic.name, index)
            partition = table.partitions.get(key)
            if table.node_id not in assigned.replicas:
                if partition is not None:
                    self._drop(partition)
                continue
            if partition is None:
                if config is None:
                    config = self._topic_log_config(image.configs.for_topic(topic.name))
                partition = table.partitions[key] = Partition(
                    key,
                    topic.id,
                    config,
                    node_id=table.node_id,
                    progress=self._progress,
                    storage=self._log_dirs,
                    is_new=is_new,
                    leader_epoch=assigned.leader_epoch,
                )
                try:
                    self._log_dirs.open_log(partition)
                except ApiError as error:
                    logger.error("%s", error)
                    partition.offline = partition.topic_partition in self._log_manager.failed
            self._apply_leadership(partition, assigned, now_ms)

    def look_after_damage(self, partition: Partition) -> None:
        """Have a damaged log fetched again from the leader, or take out what is damaged, once nobody else is to lead.

        ``directory_assignments`` tells the controller before.
        """
        assigned = self._table.image.topics.partition(*partition.topic_partition)
        if assigned is None or partition.offline:
            return
        if partition.state.is_leader:
            if partition.must_give_way(assigned):
                self._start_soon(
                    self._lead_or_stand_aside, partition
                )  # whoever found it may be in the midst of reading
            else:
                self._start_soon(self._log_dirs.make_holes, partition)
        elif self.fetchers is not None:
            self.fetchers.unfollow(partition)
            self.fetchers.follow(partition)

    async def _lead_or_stand_aside(self, partition: Partition) -> None:
        """Follow the image anew: a damaged log serves nobody before the controller has heard of it."""
        assigned = self._table.image.topics.partition(*partition.topic_partition)
        if assigned is not None and self._table.partitions.get(partition.topic_partition) is partition:
            self._apply_leadership(partition, assigned, int(self._env.now() * 1000))

    def _apply_leadership(self, partition: Partition, assigned: PartitionImage, now_ms: int) -> None:
        state = partition.state
        leader = partition.leader_to_obey(assigned)
        if (leader, assigned.leader_epoch, assigned.partition_epoch) == (
            state.leader,
            state.leader_epoch,
            state.partition_epoch,
        ):
            return
        if leader == self._table.node_id:
            self._lead(partition, assigned, now_ms)
        else:
            self._follow(partition, assigned, leader)
        if partition.is_damaged:
            self.look_after_damage(partition)

    def _lead(self, partition: Partition, assigned: PartitionImage, now_ms: int) -> None:
        log = partition.log if partition.has_log and not partition.offline else None
        is_new_epoch = partition.state.become_leader(
            leader_epoch=assigned.leader_epoch,
            partition_epoch=assigned.partition_epoch,
            replicas=assigned.replicas,
            isr=assigned.isr,
            log_end_offset=log.log_end_offset if log is not None else 0,
            now_ms=now_ms,
        )
        if not is_new_epoch:
            if log is not None:
                self._progress.assignment_changed(partition)
            return
        if self.fetchers is not None:
            self.fetchers.unfollow(partition)
        if log is not None:
            partition.on_leadership(log)
            self._progress.unavailable(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _follow(self, partition: Partition, assigned: PartitionImage, leader: int) -> None:
        state = partition.state
        was_leader = state.is_leader
        state.become_follower(
            leader=leader,
            leader_epoch=assigned.leader_epoch,
            partition_epoch=assigned.partition_epoch,
            replicas=assigned.replicas,
            isr=assigned.isr,
        )
        if was_leader:
            self._progress.unavailable(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self.fetchers is not None and not self.is_handed_over(partition, assigned):
            self.fetchers.follow(partition)

    def _apply_configs(self, name: str, image: MetadataImage) -> None:
        topic = image.topics.by_name.get(name)
        if topic is None:
            return
        config = self._topic_log_config(image.configs.for_topic(name))
        for index in topic.partitions:
            partition = self._table.partitions.get((name, index))
            if partition is not None:
                partition.set_config(config)
                if partition.state.is_leader and partition.has_log and not partition.offline:
                    # min.insync.replicas may be less
                    self._progress.advance_high_watermark(partition, partition.log)

    def _drop_topic(self, topic: TopicImage) -> None:
        for index in topic.partitions:
            partition = self._table.partitions.get((topic.name, index))
            if partition is not None and partition.topic_id == topic.id:
                self._drop(partition)

    def _drop(self, partition: Partition) -> None:
        tp = partition.topic_partition
        del self._table.partitions[tp]
        partition.state.leader = -1
        if self.fetchers is not None:
            self.fetchers.unfollow(partition)
        self._progress.unavailable(partition, self._table.absence(*tp))
        self._log_dirs.delete_log(tp)
        partition.offline = True
        self._checkpoints.request()
