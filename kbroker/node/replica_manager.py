"""The partitions that this node holds: which it leads, their logs, and who waits for them.

It follows the metadata (``on_image``), appends and reads for the handlers, and wakes what waits in the purgatory.
All of it runs on the event loop; only cold reads and flushes leave it, elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import trio

from kbroker.errors import ApiError, ErrorCode
from kbroker.log.log_config import LogConfig
from kbroker.node.clock_warnings import ClockWarnings
from kbroker.node.partition import ALL_BYTES, Partition
from kbroker.node.replica_log_dirs import ReplicaLogDirs
from kbroker.node.replication_throttles import ReplicationThrottles
from kbroker.replication.delayed import Appended, DelayedProduce, Purgatory
from kbroker.replication.replica_selector import ReplicaView, select_by_rack
from kbroker.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.env import Env
    from kbroker.log.manager import LogManager
    from kbroker.log.partition_log import FlushTask, PartitionLog
    from kbroker.node.isr import IsrManager
    from kbroker.node.replica_fetchers import ReplicaFetchers

logger = logging.getLogger(__name__)

_TOPIC_RESOURCE = 2  # ConfigResource.Type.TOPIC
_BROKER_RESOURCE = 4


class ReplicaManager:
    """The node's partitions by (topic, partition), in step with the metadata image."""

    def __init__(
        self,
        *,
        node_id: int,
        env: Env,
        config: BrokerConfig,
        log_manager: LogManager,
        topic_log_config: Callable[[Mapping[str, str]], LogConfig],
    ) -> None:
        self.node_id = node_id
        self.env = env
        self.config = config
        self.log_manager = log_manager
        self.purgatory = Purgatory()
        self.log_dirs = ReplicaLogDirs(self)
        self.throttles = ReplicationThrottles(env, config)
        self.clock_warnings = ClockWarnings(env)
        self.partitions: dict[tuple[str, int], Partition] = {}
        self._dirty = trio.Event()
        self._is_dirty = False
        self._topic_log_config = topic_log_config
        self._high_watermarks: Mapping[TopicPartition, int] = {}
        self._image: Any = None
        self._nursery: trio.Nursery | None = None
        self._wake_timer = trio.Event()
        self._timer_until = 0.0
        self.fetchers: ReplicaFetchers | None = None
        """Where there are other brokers: what copies the partitions that they lead."""
        self.isr: IsrManager | None = None
        """And what has the ISR follow the followers."""

    # --- metadata ---------------------------------------------------------------------------------------------

    def load(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Give the checkpointed high watermarks, before the first image."""
        self._high_watermarks = high_watermarks

    def on_image(self, delta: Any, image: Any) -> None:
        """Follow the metadata: make, lead, and drop partitions. Synchronous; touches the disk only to delete."""
        before, self._image = self._image, image
        self.throttles.on_image(delta if before is not None else None, image)
        if before is None:
            # First: the log of a topic that was deleted while this node was down is in the way of the next of its name.
            self.log_manager.set_stray_aside(self._is_own)
            for topic in image.topics.by_name.values():
                self._apply_topic(topic, image, is_new=False)
            self.log_dirs_changed()
            self._brokers_changed()
            return
        for topic_id in delta.deleted_topics:
            old = before.topics.by_id.get(topic_id)
            if old is not None:
                self._drop_topic(old)
        for topic_id in delta.changed_topics:
            topic = image.topics.by_id.get(topic_id)
            if topic is not None:
                self._apply_topic(topic, image)
        if delta.changed_brokers:
            self._brokers_changed()
        if any(resource.type == _BROKER_RESOURCE for resource in delta.changed_configs):
            # A broker's properties are the defaults of every topic.
            for name in image.topics.by_name:
                self._apply_configs(name, image)
            return
        for resource in delta.changed_configs:
            if resource.type == _TOPIC_RESOURCE:
                self._apply_configs(resource.name, image)

    def _is_own(self, tp: TopicPartition, topic_id: Uuid | None) -> bool:
        """Whether a log that was found is of a partition that the metadata have here, and of this topic: an earlier one
        of its name had another id (``LogManager.isStrayReplica``). One without an id was never flushed, and is taken
        for the partition's."""
        topic = self._image.topics.by_name.get(tp.topic)
        assigned = None if topic is None else topic.partitions.get(tp.partition)
        return assigned is not None and self.node_id in assigned.replicas and topic_id in (None, topic.id)

    def _brokers_changed(self) -> None:
        if self.fetchers is not None:
            self.fetchers.brokers_changed()
        if self.isr is not None:
            self.isr.brokers_changed()
        for key in list(self.purgatory.deletes):
            partition = self.partitions.get(key)  # type: ignore[call-overload]
            if partition is not None:
                self._low_watermark_moved(partition)

    @property
    def image(self) -> Any:
        """The metadata that the partitions are in step with; None before there is any."""
        return self._image

    def _apply_topic(self, topic: Any, image: Any, *, is_new: bool = True) -> None:
        config: LogConfig | None = None
        now_ms = self._now_ms()
        for index, assigned in topic.partitions.items():
            key = (topic.name, index)
            partition = self.partitions.get(key)
            if self.node_id not in assigned.replicas:
                if partition is not None:
                    self._drop(partition)
                continue
            if partition is None:
                if config is None:
                    config = self._topic_log_config(image.configs.for_topic(topic.name))
                tp = TopicPartition(topic.name, index)
                partition = Partition(self, tp, topic.id, config, is_new=is_new)
                self.partitions[key] = partition
                try:
                    self.open_log(partition)
                except ApiError as error:
                    logger.error("%s", error)
            self._apply_leadership(partition, assigned, now_ms)

    def _apply_leadership(self, partition: Partition, assigned: Any, now_ms: int) -> None:
        state = partition.state
        if (assigned.leader, assigned.leader_epoch, assigned.partition_epoch) == (
            state.leader,
            state.leader_epoch,
            state.partition_epoch,
        ):
            return  # another partition of the topic has changed
        if assigned.leader == self.node_id:
            log = partition.log if partition.has_log and not partition.offline else None
            new = state.become_leader(
                leader_epoch=assigned.leader_epoch,
                partition_epoch=assigned.partition_epoch,
                replicas=assigned.replicas,
                isr=assigned.isr,
                log_end_offset=log.log_end_offset if log is not None else 0,
                now_ms=now_ms,
            )
            if new:
                if self.fetchers is not None:
                    self.fetchers.unfollow(partition)
                if log is not None:
                    partition.on_leadership(log)
                    self.purgatory.partition_changed(partition.topic_partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif log is not None:
                self.advance_high_watermark(partition, log)  # the ISR may be smaller
                self.purgatory.followers_news(partition.topic_partition)  # and a replica may begin anew
                if self.isr is not None and state.progress:
                    self.isr.reconsider(partition)
        else:
            was_leader = state.is_leader
            state.become_follower(
                leader=assigned.leader,
                leader_epoch=assigned.leader_epoch,
                partition_epoch=assigned.partition_epoch,
                replicas=assigned.replicas,
                isr=assigned.isr,
            )
            if was_leader:
                self.purgatory.partition_changed(partition.topic_partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if self.fetchers is not None:
                self.fetchers.follow(partition)

    def _apply_configs(self, name: str, image: Any) -> None:
        topic = image.topics.by_name.get(name)
        if topic is None:
            return
        config = self._topic_log_config(image.configs.for_topic(name))
        for index in topic.partitions:
            partition = self.partitions.get((name, index))
            if partition is not None:
                partition.set_config(config)
                if partition.state.is_leader and partition.has_log and not partition.offline:
                    self.advance_high_watermark(partition, partition.log)  # min.insync.replicas may be less

    def _drop_topic(self, topic: Any) -> None:
        for index in topic.partitions:
            partition = self.partitions.get((topic.name, index))
            if partition is not None and partition.topic_id == topic.id:
                self._drop(partition)

    def _drop(self, partition: Partition) -> None:
        tp = partition.topic_partition
        del self.partitions[tp]
        partition.state.leader = -1
        if self.fetchers is not None:
            self.fetchers.unfollow(partition)
        self.purgatory.partition_changed(tp, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self._delete_log(tp)
        partition.offline = True
        self.mark_dirty()

    def _delete_log(self, tp: TopicPartition) -> None:
        """If the disk refuses, the log dir has failed; what is left there belongs to no topic at its next start."""
        log_dir = self.log_manager.log_dir_of(tp)
        try:
            self.log_manager.delete_log(tp)
        except OSError as error:
            assert log_dir is not None
            self.log_manager.mark_offline(log_dir, error)
            self.log_dirs_changed()

    # --- logs -------------------------------------------------------------------------------------------------

    def open_log(self, partition: Partition) -> None:
        """Find or make the partition's log."""
        tp = partition.topic_partition
        try:
            log = self.log_manager.create_log(
                tp,
                partition.topic_id,
                partition.config,
                now_ms=self.env.wall_clock_ms(),
                is_new=partition.is_new,
            )
        except OSError as error:
            self.storage_failed(partition, error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot create the log of {tp}") from error
        partition.attach_log(log, self._high_watermarks.get(tp, 0))

    def storage_failed(self, partition: Partition, error: BaseException) -> None:
        """A read, write or flush failed: the log dir is offline until the node is started again."""
        log_dir = self.log_manager.log_dir_of(partition.topic_partition)
        if log_dir is None:
            partition.offline = True
            return
        self.log_manager.mark_offline(log_dir, error)
        self.log_dirs_changed()

    def flush_failed(self, task: FlushTask, error: BaseException) -> None:
        """A flush that had been begun for a log failed: as ``storage_failed``, unless the log was deleted meanwhile."""
        if task.topic_partition in self.partitions:
            self.log_manager.mark_offline(self.log_manager.log_dir_of_flush(task), error)
            self.log_dirs_changed()

    async def checkpoint(self) -> None:
        """Write the checkpoint files, off the event loop. A log dir that fails is offline until the next start."""
        failed = await self.env.run_blocking(self.log_manager.checkpoint_task(self.high_watermarks()))
        for log_dir, error in failed:
            self.log_manager.mark_offline(log_dir, error)
        if failed:
            self.log_dirs_changed()

    def log_dirs_changed(self) -> None:
        """Take the partitions of failed log dirs offline, and tell who waits for them."""
        for key, partition in self.partitions.items():
            log_dir = self.log_manager.log_dir_of(partition.topic_partition)
            if log_dir is not None and log_dir.offline is not None and not partition.offline:
                partition.offline = True
                self.purgatory.partition_changed(key, ErrorCode.KAFKA_STORAGE_ERROR)

    # --- requests ---------------------------------------------------------------------------------------------

    def appended(self, partition: Partition, log: PartitionLog, added_bytes: int) -> None:
        """After an append: advance the high watermark, wake readers and producers of this partition."""
        if partition.state.progress:
            partition.state.leader_appended(log.log_end_offset, self._now_ms())
            self.purgatory.appended(partition.topic_partition, added_bytes)
        state = partition.state
        before = state.high_watermark
        if state.maybe_advance_high_watermark(log.log_end_offset):
            self.high_watermark_moved(partition, log, before, added_bytes)
        if not self._is_dirty:
            self.mark_dirty()

    def advance_high_watermark(self, partition: Partition, log: PartitionLog, added_bytes: int = ALL_BYTES) -> None:
        """Let the leader's high watermark follow its replicas; whoever waits for it is told."""
        state = partition.state
        before = state.high_watermark
        if state.maybe_advance_high_watermark(log.log_end_offset):
            self.high_watermark_moved(partition, log, before, added_bytes)

    def high_watermark_moved(
        self, partition: Partition, log: PartitionLog, before: int, added_bytes: int = ALL_BYTES
    ) -> None:
        """The high watermark is not ``before`` any more: wake readers and producers of this partition."""
        high_watermark = partition.state.high_watermark
        stable = True
        unstable = log.first_unstable_offset
        if unstable is not None:
            log.on_high_watermark_updated(high_watermark)
            stable = partition.last_stable_offset > min(before, unstable)
        key = partition.topic_partition
        purgatory = self.purgatory
        if partition.state.progress:
            purgatory.followers_news(key)
        if key in purgatory.fetches or key in purgatory.readers:
            purgatory.advanced(key, added_bytes, stable)
        if key in purgatory.produces:
            purgatory.high_watermark_moved(key, high_watermark)

    def mark_dirty(self) -> None:
        """The checkpoints on disk are out of date."""
        self._is_dirty = True
        self._dirty.set()

    async def wait_dirty(self) -> None:
        """Until something was appended or changed that the checkpoints on disk do not know."""
        await self._dirty.wait()

    def mark_clean(self) -> None:
        """The checkpoints are about to be written."""
        self._is_dirty = False
        self._dirty = trio.Event()

    def get_partition(self, topic: str, partition: int) -> Partition:
        """The local partition; ``ApiError`` as ``ReplicaManager.getPartitionOrException``."""
        found = self.partitions.get((topic, partition))
        if found is not None:
            return found
        image = self._image
        if image is not None and image.topics.partition(topic, partition) is not None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker holds no replica of {topic}-{partition}")
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")

    def get_leader(self, topic: str, partition: int, current_leader_epoch: int = -1) -> Partition:
        """The partition, led here and in the client's leader epoch."""
        found = self.get_partition(topic, partition)
        found.check_leader_epoch(current_leader_epoch)
        if not found.state.is_leader:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {topic}-{partition}")
        return found

    def topic_id(self, name: str) -> Uuid | None:
        """The id of a topic, by the metadata."""
        topic = self._image.topics.by_name.get(name) if self._image is not None else None
        return topic.id if topic is not None else None

    def topic_name(self, topic_id: Uuid) -> str | None:
        """The name of a topic, by the metadata."""
        topic = self._image.topics.by_id.get(topic_id) if self._image is not None else None
        return topic.name if topic is not None else None

    def start_soon(self, function: Callable[..., Any], *args: Any) -> None:
        """Start a task that lives with the node and must not fail."""
        if self._nursery is not None:
            self._nursery.start_soon(function, *args)

    def watch_produce(
        self, appends: Sequence[Appended], on_complete: Callable[[dict[Hashable, Any]], None], timeout_ms: int
    ) -> None:
        """Have ``on_complete(results)`` called once all is replicated or cannot be any more, perhaps at once.

        The results are by partition: None, or an error. REQUEST_TIMED_OUT for what is still waited for when the time
        (milliseconds) is out; NOT_LEADER_OR_FOLLOWER for what is not led any more in the epoch of its append. A
        partition that was appended to in several epochs or lives has one result for all, which is the error then.

        It looks before it waits (``tryCompleteElseWatch``): what has come to pass before is not told again.
        """
        required: dict[Hashable, int] = {}
        for partition, _, end_offset in appends:
            key = partition.topic_partition
            required[key] = max(end_offset, required.get(key, 0))  # the last may be one that was sent again
        operation = DelayedProduce(required, on_complete)
        for partition, leader_epoch, _ in appends:
            key, state = partition.topic_partition, partition.state
            if not state.is_leader or state.leader_epoch != leader_epoch:
                # Also if it was dropped, whatever has its name now.
                operation.fail(key, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif partition.offline:
                operation.fail(key, ErrorCode.KAFKA_STORAGE_ERROR)
            else:
                operation.high_watermark_reached(key, state.high_watermark)
        if operation.done:
            return
        self.purgatory.watch_produce(operation)
        if self.purgatory.expirations.add(operation, timeout_ms, self.env.now()) < self._timer_until:
            self._wake_timer.set()

    async def _expire(self) -> None:
        purgatory = self.purgatory
        while True:
            self._wake_timer = trio.Event()
            self._timer_until = purgatory.expirations.next_deadline()
            with trio.move_on_at(self._timer_until):
                await self._wake_timer.wait()
            for operation in purgatory.expirations.take_expired(self.env.now()):
                operation.expire(ErrorCode.REQUEST_TIMED_OUT)
                purgatory.unwatch_produce(operation)

    def exists(self, topic: str, partition: int) -> bool:
        """Whether the metadata knows the partition."""
        return self._image is not None and self._image.topics.partition(topic, partition) is not None

    def delete_records(self, topic: str, index: int, offset: int) -> int:
        """Move the log start offset to ``offset`` (-1: the high watermark); where it is now.

        ``Partition.deleteRecordsOnLeader``. The followers hear of it; ``low_watermark`` tells how far they are.
        """
        partition = self.get_leader(topic, index)
        if not partition.config.delete:
            raise ApiError(ErrorCode.POLICY_VIOLATION, "records of a compacted topic cannot be deleted")
        high_watermark = partition.high_watermark
        if offset == -1:
            offset = high_watermark
        if offset < 0 or offset > high_watermark:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        log = partition.log
        try:
            log.maybe_increment_log_start_offset(offset)
        except OSError as error:
            self.storage_failed(partition, error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR) from error
        self.mark_dirty()
        self.purgatory.appended(partition.topic_partition, ALL_BYTES)  # so that waiting followers hear of it
        self.purgatory.readers_news(partition.topic_partition)
        return log.log_start_offset

    def low_watermark(self, partition: Partition) -> int:
        """The least log start offset of the replicas whose brokers live (``Partition.lowWatermarkIfLeader``)."""
        progress = partition.state.progress
        brokers = self._image.brokers
        lowest = partition.log.log_start_offset
        for replica in progress:
            broker = brokers.get(replica)
            if broker is not None and not broker.fenced:
                lowest = min(lowest, progress[replica].log_start_offset)
        return lowest

    def _low_watermark_moved(self, partition: Partition) -> None:
        key = partition.topic_partition
        if key in self.purgatory.deletes and partition.state.is_leader and not partition.offline:
            self.purgatory.low_watermark_moved(key, self.low_watermark(partition))

    def _now_ms(self) -> int:
        return int(self.env.now() * 1000)

    def check_follower(self, partition: Partition, replica: int, broker_epoch: int) -> None:
        """``ApiError`` NOT_LEADER_OR_FOLLOWER for a fetch by a stranger, or by an earlier life of a broker."""
        progress = partition.state.progress.get(replica)
        if progress is None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {replica} is no replica of this partition")
        if -1 < broker_epoch < progress.broker_epoch:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {replica} has been started anew since")

    def follower_fetched(
        self, partition: Partition, replica: int, fetch_offset: int, log_start_offset: int, broker_epoch: int = -1
    ) -> None:
        """Note a follower's progress; the high watermark may follow, and the ISR."""
        state = partition.state
        log = partition.log
        started_at = state.progress[replica].log_start_offset
        state.update_follower(
            replica,
            fetch_offset=fetch_offset,
            log_start_offset=log_start_offset,
            leader_log_end_offset=log.log_end_offset,
            now_ms=self._now_ms(),
            broker_epoch=broker_epoch,
        )
        if log_start_offset != started_at:
            self._low_watermark_moved(partition)
        if self.isr is not None and replica not in state.maximal_isr:
            self.isr.follower_fetched(partition, replica)
        self.advance_high_watermark(partition, log)

    def preferred_read_replica(self, partition: Partition, fetch_offset: int, rack: str) -> int:
        """The follower that a consumer in ``rack`` had better read from; -1 if that is this leader."""
        state = partition.state
        brokers = self._image.brokers
        now_ms = self._now_ms()

        def rack_of(broker_id: int) -> str | None:
            broker = brokers.get(broker_id)
            return broker.rack if broker is not None and not broker.fenced else None

        followers = [
            ReplicaView(replica, rack_of(replica), progress.log_end_offset, now_ms - progress.last_caught_up_ms)
            for replica, progress in state.progress.items()
            if replica in state.isr and progress.log_start_offset <= fetch_offset <= progress.log_end_offset
        ]
        leader = ReplicaView(self.node_id, rack_of(self.node_id), partition.log.log_end_offset)
        selected = select_by_rack(leader, followers, rack)
        return -1 if selected == self.node_id else selected

    async def flush(self, partition: Partition) -> None:
        """Make a partition's log durable, off the event loop. A failed flush takes the partition offline for good:
        the kernel may have dropped the pages, so a second try would prove nothing."""
        log, task = partition.log, None
        try:
            task = log.begin_flush()  # it may have to open a file
            if task is None:
                return
            await self.env.run_blocking(task.run)
        except OSError as error:
            if task is None:
                self.storage_failed(partition, error)
            else:
                self.flush_failed(task, error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"flushing {partition.topic_partition} failed") from error
        task.end()

    def log_starts_moved(self) -> None:
        """Retention has moved the starts of some logs: followers and consumers are to hear of it."""
        for key in self.purgatory.sessions:
            self.purgatory.followers_news(key)
        for key in self.purgatory.readers:
            self.purgatory.readers_news(key)

    async def run(self) -> None:
        """The background work, for as long as the node runs."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self.log_dirs.resume_moves)
            nursery.start_soon(self._expire)
            nursery.start_soon(trio.sleep_forever)

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """What ``replication-offset-checkpoint`` is to hold."""
        return {
            partition.topic_partition: partition.state.high_watermark
            for partition in self.partitions.values()
            if partition.has_log and not partition.offline
        }
