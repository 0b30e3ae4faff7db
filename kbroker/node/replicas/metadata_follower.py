"""Keeps this node's partitions in step with the metadata: makes, leads, follows and drops them.

Called with each image, on the event loop; touches the disk only to make and to delete logs. An image may change
thousands of partitions: all that have changed are noted at once (``PartitionTable.behind``), and some are brought in
step in each turn of the loop, by what is the latest image then. Whoever asks for one has that one brought in step.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING

import trio

from kbroker.errors import ApiError, ErrorCode
from kbroker.node.replicas.partition import Partition
from kbroker.node.replicas.replica_log_dirs import HELD_SECONDS
from kbroker.raft_metadata.image import NO_LEADER, ResourceType
from kbroker.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from kbroker.log.log_config import LogConfig
    from kbroker.log.manager import LogManager
    from kbroker.node.replicas.partition_events import CheckpointRequests, Progress
    from kbroker.node.replicas.partition_table import PartitionTable
    from kbroker.node.replicas.replica_fetchers import ReplicaFetchers
    from kbroker.node.replicas.replica_log_dirs import ReplicaLogDirs
    from kbroker.node.replicas.replication_throttles import ReplicationThrottles
    from kbroker.raft_metadata.image import ConfigsImage, MetadataDelta, MetadataImage, PartitionImage
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
        table.bring_in_step = self._bring_in_step
        self._in_step = trio.Event()
        self._in_step.set()
        self._put_right: list[Partition] = []
        """Partitions whose logs have leader epochs that are still to come, which are being put right."""
        self._isrs_to_see: Iterator[Partition] | None = None
        """Partitions whose ISRs are yet to be looked at after brokers have changed."""
        self._latest_config: tuple[str, ConfigsImage, LogConfig] | None = None
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
            # First: the log of a topic that was deleted while this node was down is in the way of the next of its name.
            self._log_manager.set_stray_aside(self._is_own, self._is_only)
        self._note_changes(None if is_first else delta, image)
        if len(table.behind) <= self._env.budgets.turn_partitions:
            self._take_turn()
        if table.behind and self._in_step.is_set():
            self._in_step = trio.Event()
            self._start_soon(self._catch_up)
        if is_first or delta.changed_brokers:
            self._brokers_changed()
        if is_first:
            return
        if any(resource.type == ResourceType.BROKER for resource in delta.changed_configs):
            # A broker's properties are the defaults of every topic.
            for name in image.topics.by_name:
                self._apply_configs(name, image)
            return
        for resource in delta.changed_configs:
            if resource.type == ResourceType.TOPIC:
                self._apply_configs(resource.name, image)

    async def until_in_step(self) -> None:
        """Wait until all partitions are as the latest image has them."""
        await self._in_step.wait()

    def _note_changes(self, delta: MetadataDelta | None, image: MetadataImage) -> None:
        """Note the partitions of this node that have changed; without a delta, all."""
        behind, held, node_id = self._table.behind, self._table.partitions, self._table.node_id
        if delta is not None:
            for deleted in delta.deleted_topics.values():
                for index in deleted.partitions:
                    if (deleted.name, index) in held or (deleted.name, index) in behind:
                        behind[deleted.name, index] = True
        for topic_id in image.topics.by_id if delta is None else delta.changed_topics:
            topic = image.topics.by_id.get(topic_id)
            if topic is None:
                continue
            for index in topic.partitions if delta is None else sorted(delta.changed_partitions.get(topic_id, ())):
                key = topic.name, index
                if node_id in topic.partitions[index].replicas or key in held:
                    behind.setdefault(key, delta is not None)

    def _take_turn(self) -> None:
        for key in list(islice(self._table.behind, self._env.budgets.turn_partitions)):
            self._bring_in_step(key)

    async def _catch_up(self) -> None:
        while self._table.behind:
            await trio.lowlevel.checkpoint()
            self._take_turn()
        self._in_step.set()

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
        is_under_way = self._isrs_to_see is not None
        self._isrs_to_see = self._table.led_with_followers()
        if self._see_isrs() and not is_under_way:
            self._start_soon(self._see_further_isrs)
        progress.low_watermarks_moved(self._table.partitions)
        for partition in self._table.partitions.values():
            if partition.is_damaged:  # another replica may have come, or have gone for good
                self._start_soon(self._lead_or_stand_aside, partition)

    def _see_isrs(self) -> bool:
        """Look at some ISRs, whose members may be other brokers than before; whether there are more."""
        assert self._isrs_to_see is not None
        for number, partition in enumerate(self._isrs_to_see, 1):
            self._progress.isr.exclude_ineligible(partition)
            self._progress.isr_changed(partition)
            if number == self._env.budgets.turn_isrs:
                return True
        self._isrs_to_see = None
        return False

    async def _see_further_isrs(self) -> None:
        while self._isrs_to_see is not None:
            await trio.lowlevel.checkpoint()
            if self._isrs_to_see is not None:
                self._see_isrs()

    # --- topics -----------------------------------------------------------------------------------------------

    def _bring_in_step(self, key: tuple[str, int]) -> None:
        """Make a partition what the latest image has it be, unless it is that already."""
        table = self._table
        is_new = table.behind.pop(key, None)
        if is_new is None:
            return
        partition, topic = table.partitions.get(key), table.image.topics.by_name.get(key[0])
        assigned = None if topic is None else topic.partitions.get(key[1])
        is_here = assigned is not None and table.node_id in assigned.replicas
        if partition is not None and (not is_here or topic is None or partition.topic_id != topic.id):
            self._drop(partition)
            partition = None
        elif partition is None and (is_new or not is_here):
            # A log that the start has found, of which a later image had no use before its partition was made.
            self._log_dirs.delete_log(TopicPartition(*key))
        if topic is None or assigned is None or not is_here:
            return
        if partition is None:
            partition = table.partitions[key] = Partition(
                TopicPartition(*key),
                topic.id,
                self._config_of(topic.name),
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
        self._apply_leadership(partition, assigned, int(self._env.now() * 1000))

    def _config_of(self, topic: str) -> LogConfig:
        """The configuration of a topic's logs: one object for all that are made in a row."""
        configs, latest = self._table.image.configs, self._latest_config
        if latest is None or latest[0] != topic or latest[1] is not configs:
            latest = self._latest_config = topic, configs, self._topic_log_config(configs.for_topic(topic))
        return latest[2]

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
        if assigned is not None and self._table.find(*partition.topic_partition) is partition:
            self._apply_leadership(partition, assigned, int(self._env.now() * 1000))

    def _apply_leadership(self, partition: Partition, assigned: PartitionImage, now_ms: int) -> None:
        state = partition.state
        leader = partition.leader_to_obey(assigned)
        has_later_epochs = (
            leader == self._table.node_id
            and partition.has_log
            and not partition.offline
            and partition.log.leader_epochs.latest > assigned.leader_epoch
        )
        if has_later_epochs:  # what it has is put right before it leads
            leader = NO_LEADER
            if partition not in self._put_right:
                self._put_right.append(partition)
                self._start_soon(self._put_epochs_right, partition, assigned.leader_epoch)
        if (leader, assigned.leader_epoch, assigned.partition_epoch) == (
            state.leader,
            state.leader_epoch,
            state.partition_epoch,
        ):
            return  # another partition of the topic has changed
        if leader == self._table.node_id:
            self._lead(partition, assigned, now_ms)
        else:
            self._follow(partition, assigned, leader)
        if partition.is_damaged:
            self.look_after_damage(partition)

    async def _put_epochs_right(self, partition: Partition, leader_epoch: int) -> None:
        log = partition.log
        try:
            while log.segments_held:
                await trio.sleep(HELD_SECONDS)
            log.segments_held = True
            try:
                for step in log.putting_epochs_right(leader_epoch):
                    if step is None:
                        await trio.lowlevel.checkpoint()
                    else:
                        await self._env.run_blocking(step)
                    if partition.offline:
                        return
            finally:
                log.segments_held = False
        except OSError as error:
            if not partition.offline:
                partition.storage_failed(error)
        finally:
            self._put_right.remove(partition)
        await self._lead_or_stand_aside(partition)

    def _lead(self, partition: Partition, assigned: PartitionImage, now_ms: int) -> None:
        state = partition.state
        goes_on = state.is_leader and assigned.leader_epoch == state.leader_epoch + 1  # nobody has led in between
        log = partition.log if partition.has_log and not partition.offline else None
        is_new_epoch = state.become_leader(
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
            before = state.high_watermark
            partition.on_leadership(log)
            if goes_on:
                self._progress.epoch_changed(partition, log, before)
            else:
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
        config = self._config_of(name)
        for index in topic.partitions:
            partition = self._table.partitions.get((name, index))
            if partition is not None:
                partition.set_config(config)
                if partition.state.is_leader and partition.has_log and not partition.offline:
                    # min.insync.replicas may be less
                    self._progress.advance_high_watermark(partition, partition.log)

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
