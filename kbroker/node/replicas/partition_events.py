"""Announces what happens to a partition: waiting requests are woken, the ISR and the checkpoints follow.

Code that appends, moves the high watermark, or serves a follower's fetch calls `Progress`, and knows no waiter.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from kbroker.cores.replication.purgatory import Purgatory
    from kbroker.errors import ApiError, ErrorCode
    from kbroker.log.partition_log import PartitionLog
    from kbroker.node.replicas.isr import IsrMembership, LocalPartition
    from kbroker.observe.metrics.traffic import Traffic
    from kbroker.raft_metadata.image import MetadataImage
    from kbroker.runtime.env import Env
    from kbroker.types import TopicPartition

ALL_BYTES = 2**63 - 1
"""As many as any waiting fetch may want."""


class CheckpointRequests:
    """A flag and its waiter: the checkpoint files on disk are out of date. ``node.logs.log_flusher`` waits."""

    def __init__(self) -> None:
        self.pending = False
        self._event = trio.Event()

    def request(self) -> None:
        """Have the checkpoints written within ``replica.high.watermark.checkpoint.interval.ms``."""
        self.pending = True
        self._event.set()

    async def wait(self) -> None:
        """Wait until they are out of date."""
        await self._event.wait()

    def clear(self) -> None:
        """Forget the requests so far: the checkpoints are about to be written."""
        self.pending = False
        self._event = trio.Event()


class Progress:
    """The listeners of this node's partitions: the purgatory, the ISR, the checkpoints."""

    def __init__(
        self,
        *,
        env: Env,
        purgatory: Purgatory,
        isr: IsrMembership,
        checkpoints: CheckpointRequests,
        image: Callable[[], MetadataImage],
    ) -> None:
        self.env = env
        self.image = image
        """Gives the metadata that the partitions are in step with."""
        self.isr = isr
        self.clock_warnings = ClockWarnings(env)
        self.traffic: Traffic | None = None
        """Counts by topic, on a node that has metrics; set before the first partition is made."""
        self._purgatory = purgatory
        self._checkpoints = checkpoints

    def _now_ms(self) -> int:
        return int(self.env.now() * 1000)

    # --- the leader's log -------------------------------------------------------------------------------------

    def appended(self, partition: LocalPartition, log: PartitionLog, added_bytes: int) -> None:
        """After an append: advance the high watermark, wake readers and producers of this partition."""
        state = partition.state
        if state.progress:
            state.leader_appended(log.log_end_offset, self._now_ms())
            self._purgatory.appended(partition.topic_partition, added_bytes)
        before = state.high_watermark
        if state.maybe_advance_high_watermark(log.log_end_offset):
            self.high_watermark_moved(partition, log, before, added_bytes)
        if not self._checkpoints.pending:
            self._checkpoints.request()

    def advance_high_watermark(self, partition: LocalPartition, log: PartitionLog) -> None:
        """Let the leader's high watermark follow its replicas, and wake the requests that wait for it."""
        state = partition.state
        before = state.high_watermark
        if state.maybe_advance_high_watermark(log.log_end_offset):
            self.high_watermark_moved(partition, log, before)

    def high_watermark_moved(
        self, partition: LocalPartition, log: PartitionLog, before: int, added_bytes: int = ALL_BYTES
    ) -> None:
        """The high watermark is not ``before`` any more: wake readers and producers of this partition."""
        high_watermark = partition.state.high_watermark
        stable = True
        unstable = log.first_unstable_offset
        if unstable is not None:
            log.on_high_watermark_updated(high_watermark)
            stable = partition.last_stable_offset > min(before, unstable)
        key = partition.topic_partition
        purgatory = self._purgatory
        if key in purgatory.views or key in purgatory.produces:
            purgatory.high_watermark_moved(key, high_watermark, added_bytes, stable)

    def log_start_moved(self, partition: LocalPartition) -> None:
        """DeleteRecords has moved a log's start: waiting followers get it at once, consumers with the next response."""
        self._checkpoints.request()
        self._purgatory.appended(partition.topic_partition, ALL_BYTES)
        self._purgatory.mark(partition.topic_partition)

    def log_starts_moved(self) -> None:
        """Retention has moved the starts of some logs: followers and consumers learn of it with their next response."""
        for key in self._purgatory.views:
            self._purgatory.mark(key)

    # --- followers --------------------------------------------------------------------------------------------

    def follower_fetched(
        self, partition: LocalPartition, replica: int, fetch_offset: int, log_start_offset: int, broker_epoch: int
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
            self.low_watermark_moved(partition)
        if replica not in state.maximal_isr:
            self.isr.follower_fetched(partition, replica)
        self.advance_high_watermark(partition, log)

    def isr_changed(self, partition: LocalPartition) -> None:
        """The high watermark waits for others than before, so followers outside of the ISR may have caught up."""
        self.advance_high_watermark(partition, partition.log)
        self.isr.reconsider(partition)

    def low_watermark(self, partition: LocalPartition) -> int:
        """The least log start offset of the replicas whose brokers live (``Partition.lowWatermarkIfLeader``)."""
        brokers = self.image().brokers
        lowest = partition.log.log_start_offset
        for replica, progress in partition.state.progress.items():
            broker = brokers.get(replica)
            if broker is not None and not broker.fenced:
                lowest = min(lowest, progress.log_start_offset)
        return lowest

    def low_watermark_moved(self, partition: LocalPartition) -> None:
        """A follower's log start offset has moved, or a broker lives or not: DeleteRecords may be over."""
        key = partition.topic_partition
        if key in self._purgatory.deletes and partition.state.is_leader and not partition.offline:
            self._purgatory.low_watermark_moved(key, self.low_watermark(partition))

    def low_watermarks_moved(self, partitions: Mapping[tuple[str, int], LocalPartition]) -> None:
        """Other brokers live than before: DeleteRecords that wait for some of these partitions may be over."""
        for key in list(self._purgatory.deletes):
            partition = partitions.get(key)
            if partition is not None:
                self.low_watermark_moved(partition)

    # --- the partition itself ---------------------------------------------------------------------------------

    def unavailable(self, partition: LocalPartition, error: ErrorCode) -> None:
        """Another leads, the topic is gone, or the disk has failed: waiting requests end with ``error``."""
        self._purgatory.partition_changed(partition.topic_partition, error)

    def epoch_changed(self, partition: LocalPartition, log: PartitionLog, before: int) -> None:
        """This node goes on to lead in the next epoch, with the high watermark that was ``before`` or a later one:
        nothing was cut off, and requests wait on."""
        self._purgatory.epoch_changed(partition.topic_partition)
        if partition.state.high_watermark != before:
            self.high_watermark_moved(partition, log, before)
        self.low_watermark_moved(partition)

    def assignment_changed(self, partition: LocalPartition) -> None:
        """The metadata have changed a partition that this node goes on to lead: the ISR may be smaller, and a replica
        may begin anew."""
        self.advance_high_watermark(partition, partition.log)
        self._purgatory.mark(partition.topic_partition)
        if partition.state.progress:
            self.isr.reconsider(partition)


logger = logging.getLogger(__name__)

SILENT_SECONDS = 60.0
"""Seconds between two warnings: all producers meet the same clock."""


class ClockWarnings:
    """Logs one line once in a while, for the whole node."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._told_at = -SILENT_SECONDS

    def on_refused(self, topic_partition: TopicPartition, error: ApiError) -> None:
        """Records were refused with INVALID_TIMESTAMP."""
        now = self._env.now()
        if now < self._told_at + SILENT_SECONDS:
            return
        self._told_at = now
        here = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(self._env.wall_clock_ms() // 1000))
        record_errors = getattr(error, "record_errors", ())
        logger.warning(
            "records for %s are refused with INVALID_TIMESTAMP: %s; it is %s here, is a clock wrong?",
            topic_partition,
            record_errors[0][1] if record_errors else error.message,
            here,
        )
