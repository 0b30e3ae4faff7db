"""This node's replicas, as handlers and coordinators see them: find a partition, and wait until it is replicated.

Puts the parts together: the partition table, what follows the metadata (``node.replicas.metadata_follower``), what
happens to a partition (``node.replicas.partition_events``), the log dirs under it (``node.replicas.replica_log_dirs``),
and, where there are other brokers, replication from and to them (``node.replication``). All of it runs on the event
loop; only cold reads and flushes leave it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import trio

from kbroker.cores.replication.purgatory import Appended, Key, OffsetWaiter, Purgatory, Results
from kbroker.errors import ApiError, ErrorCode
from kbroker.log.log_config import LogConfig
from kbroker.node.replicas.isr import IsrMembership
from kbroker.node.replicas.log_mover import LogMover
from kbroker.node.replicas.metadata_follower import MetadataFollower
from kbroker.node.replicas.partition_events import CheckpointRequests, Progress
from kbroker.node.replicas.partition_table import PartitionTable
from kbroker.node.replicas.replica_log_dirs import ReplicaLogDirs
from kbroker.node.replicas.replication_throttles import ReplicationThrottles

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.log.manager import LogManager
    from kbroker.node.replicas.partition import Partition
    from kbroker.node.replicas.replica_fetchers import ReplicaFetchers
    from kbroker.raft_metadata.image import MetadataImage
    from kbroker.runtime.env import Env
    from kbroker.types import TopicPartition
    from kbroker.wire.messages.offset_for_leader_epoch import HandedOver


class ReplicaManager(PartitionTable):
    """The partition table with all that acts on it. ``run`` it for as long as the node runs."""

    def __init__(
        self,
        *,
        node_id: int,
        env: Env,
        config: BrokerConfig,
        log_manager: LogManager,
        topic_log_config: Callable[[Mapping[str, str]], LogConfig],
    ) -> None:
        """``topic_log_config`` gives the effective configuration of a topic that has these configs of its own."""
        super().__init__(node_id)
        self.env = env
        self.give: Callable[[TopicPartition, int, str], Awaitable[HandedOver]] | None = None
        """Hands a log over; None where there are no other nodes, or where `log.hand.over.enable` is false."""
        self.log_manager = log_manager
        self.purgatory = Purgatory()
        self.throttles = ReplicationThrottles(env, config)
        self.checkpoints = CheckpointRequests()
        self.isr = IsrMembership(env=env, max_lag_ms=config.replica_lag_time_max_ms, image=self._latest_image)
        self.progress = Progress(
            env=env, purgatory=self.purgatory, isr=self.isr, checkpoints=self.checkpoints, image=self._latest_image
        )
        self.log_dirs = ReplicaLogDirs(
            env=env,
            log_manager=log_manager,
            table=self,
            progress=self.progress,
            checkpoints=self.checkpoints,
            high_watermarks=log_manager.high_watermarks,
        )
        self.log_mover = LogMover(
            env=env,
            log_manager=log_manager,
            table=self,
            log_dirs=self.log_dirs,
            throttles=self.throttles,
            checkpoints=self.checkpoints,
            start_soon=self.start_soon,
        )
        self.metadata = MetadataFollower(
            env=env,
            log_manager=log_manager,
            table=self,
            progress=self.progress,
            checkpoints=self.checkpoints,
            log_dirs=self.log_dirs,
            throttles=self.throttles,
            topic_log_config=topic_log_config,
            start_soon=self.start_soon,
        )
        self.log_dirs.on_damage = self.metadata.look_after_damage
        self._nursery: trio.Nursery | None = None
        self._early: list[tuple[Callable[..., Any], tuple[Any, ...]]] | None = []
        """Tasks that ``run`` starts; None once it has."""
        self._wake_timer = trio.Event()
        self._timer_until = 0.0

    def _latest_image(self) -> MetadataImage:
        return self.image

    @property
    def fetchers(self) -> ReplicaFetchers | None:
        """Copy the partitions that other brokers lead; None as long as there are no others."""
        return self.metadata.fetchers

    async def run(self) -> None:
        """Run the background work, for as long as the node runs."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                nursery.start_soon(self.log_mover.resume)
                nursery.start_soon(self._expire)
                early, self._early = self._early or [], None
                for function, args in early:
                    nursery.start_soon(function, *args)
                await trio.sleep_forever()
            finally:
                self._nursery = None  # it takes no more tasks, and an image may still come while a node stops

    def start_soon(self, function: Callable[..., Any], *args: Any) -> None:
        """Start a task that lives with the node and must not fail: when ``run`` begins, and none when it has ended."""
        if self._nursery is not None:
            self._nursery.start_soon(function, *args)
        elif self._early is not None:
            self._early.append((function, args))

    # --- requests ---------------------------------------------------------------------------------------------

    def watch_produce(
        self, appends: Sequence[Appended], on_complete: Callable[[Results], None], timeout_ms: int
    ) -> None:
        """Have ``on_complete(results)`` called once all is replicated or cannot be any more, perhaps at once.

        The results are by partition: None, or an error. REQUEST_TIMED_OUT for what is still waited for when the time
        (milliseconds) is out; NOT_LEADER_OR_FOLLOWER for what is not led any more in the epoch of its append. A
        partition that was appended to in several epochs or lives has one result for all, which is the error then.

        It checks before it waits (``tryCompleteElseWatch``): earlier events do not come again.
        """
        required: dict[Key, int] = {}
        for partition, _, end_offset in appends:
            key = partition.topic_partition
            required[key] = max(end_offset, required.get(key, 0))  # the last may be one that was sent again
        operation = OffsetWaiter(required, on_complete)
        for partition, leader_epoch, _ in appends:
            key, state = partition.topic_partition, partition.state
            if not state.is_leader or state.leader_epoch != leader_epoch:
                # Also if it was dropped, whatever has its name now.
                operation.fail(key, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif partition.offline:
                operation.fail(key, ErrorCode.KAFKA_STORAGE_ERROR)
            else:
                operation.reached(key, state.high_watermark)
        if operation.done:
            return
        self.purgatory.watch_produce(operation)
        if self.purgatory.expirations.add(operation, timeout_ms, self.env.now()) < self._timer_until:
            self._wake_timer.set()

    def watch_stored(
        self, appends: Sequence[tuple[Partition, int]], on_complete: Callable[[Results], None], timeout_ms: int
    ) -> None:
        """Do as `watch_produce` for what this node has just written itself, up to an end offset of each partition, once
        it is flushed where ``flush.messages`` asks for that."""
        written = [Appended(partition, partition.state.leader_epoch, end) for partition, end in appends]
        unflushed = [partition for partition, _ in appends if not partition.offline and partition.must_flush]
        if unflushed:
            self.start_soon(self._flush_and_watch, unflushed, written, on_complete, timeout_ms)
        else:
            self.watch_produce(written, on_complete, timeout_ms)

    async def _flush_and_watch(
        self,
        unflushed: Sequence[Partition],
        appends: Sequence[Appended],
        on_complete: Callable[[Results], None],
        timeout_ms: int,
    ) -> None:
        failed: Results = {}
        for partition in unflushed:
            try:
                await partition.flush()
            except ApiError as error:  # where the disk is full, nothing else tells
                failed[partition.topic_partition] = error.code
        self.watch_produce(appends, lambda results: on_complete({**results, **failed}), timeout_ms)

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

    async def hand_over(self, topic_partition: TopicPartition, asker: int, directory: str) -> HandedOver:
        """Hand the log of a replica that goes over to the broker that gets it (``node.replicas.hand_overs``).
        ``ApiError``."""
        if self.give is None:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "this node hands no logs over")
        return await self.give(topic_partition, asker, directory)

    def delete_records(self, topic: str, index: int, offset: int) -> int:
        """Move the log start offset to ``offset`` (-1: the high watermark); where it is now.

        ``Partition.deleteRecordsOnLeader``. Followers get the new offset by Fetch; ``low_watermark`` is their progress.
        """
        partition = self.get_leader(topic, index)
        if partition.config.compact and not partition.config.delete:
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
            partition.storage_failed(error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR) from error
        self.progress.log_start_moved(partition)
        return log.log_start_offset
