"""Writes a follower's log: appends what the leader sent, and cuts back what the leader does not have.

``cores.replication.follower_state`` decides what to do.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from kbroker.cores.replication.follower_state import Append, FollowerLog, follower_high_watermark
from kbroker.log.validated_batches import UnexpectedAppendOffset
from kbroker.raft_metadata.image import DIR_LOST
from kbroker.raft_metadata.metadata_version import DIRECTORIES

if TYPE_CHECKING:
    from collections.abc import Callable, Sized

    from kbroker.log.partition_log import AppendInfo, PartitionLog
    from kbroker.log.segments.segment import OwnCopy
    from kbroker.node.replicas.partition import Partition
    from kbroker.node.replicas.partition_events import CheckpointRequests, Progress
    from kbroker.node.replicas.replication_throttles import ReplicationThrottles
    from kbroker.runtime.env import Env
    from kbroker.types import TopicPartition

logger = logging.getLogger(__name__)


PARTITION_BYTES = 16 << 10
"""Bytes that each partition of an answer counts for beside its records. A short answer gives way to nobody: the next
request waits for its own answer anyway."""
FIRST_WRITE_BYTES = 256 << 10
"""Bytes that the first records of a partition count for besides: to make its files takes a third of a millisecond."""


class NotYet(Exception):
    """A log cannot be cut back before a copy is made of a file that another node's log has, too."""


class WriterOwner(Protocol):
    """The node's parts that a writer acts on."""

    env: Env
    progress: Progress
    checkpoints: CheckpointRequests
    throttles: ReplicationThrottles
    start_soon: Callable[..., None]


class FollowerWriter:
    """Writes logs of partitions that are followed from one broker. All methods raise ``OSError`` and ``ApiError``, and
    those that cut back `NotYet`, until a copy is made that has been begun."""

    __slots__ = ("_checkpoints", "_copied", "_env", "_leader", "_progress", "_start_soon", "_throttles")

    def __init__(self, owner: WriterOwner, leader: int) -> None:
        self._env = owner.env
        self._leader = leader
        self._progress = owner.progress
        self._checkpoints = owner.checkpoints
        self._throttles = owner.throttles
        self._start_soon = owner.start_soon
        self._copied: dict[TopicPartition, Partition] = {}
        """Those whose logs get a file of their own."""

    def append(self, partition: Partition, leader_epoch: int, action: Append, records: Any) -> bool:
        """Append the records, and move the high watermark and the log start offset as the leader says.

        False if nothing could be appended: a part of a batch, or a batch of a later epoch than is known here
        (KAFKA-18723).
        """
        log = partition.log
        if records is not None and len(records):
            if self._write_or_begin_there(partition, log, leader_epoch, records) is None:
                return False
            self._checkpoints.request()
            traffic = self._progress.traffic
            if traffic is not None:
                traffic.replication_bytes_in += len(records)
                if self._progress.image().topics.is_adding(*partition.topic_partition, partition.state.local_id):
                    traffic.reassignment_bytes_in += len(records)
            throttles = self._throttles
            if throttles.follower.is_throttled(*partition.topic_partition):
                throttles.follower.record(len(records), throttles.now_ms())
        state = partition.state
        before = state.high_watermark
        high_watermark = follower_high_watermark(before, action.high_watermark, log.log_end_offset)
        if high_watermark != before:
            state.high_watermark = high_watermark
            self._progress.high_watermark_moved(partition, log, before)
            self._checkpoints.request()
        start = min(action.log_start_offset, high_watermark)
        if start > log.log_start_offset:
            log.maybe_increment_log_start_offset(start)
            self._checkpoints.request()  # or what was deleted would be back after a crash
        return True

    def _write_or_begin_there(
        self, partition: Partition, log: PartitionLog, leader_epoch: int, records: object
    ) -> AppendInfo | None:
        try:
            return self._write(log, leader_epoch, records)
        except UnexpectedAppendOffset as error:
            end = log.log_end_offset
            if log.log_start_offset != end or not error.first_offset < end <= error.last_offset:
                raise
            # Records were deleted up to the middle of a batch, and an empty log begins there. Batches are written
            # whole, so it has to begin with this one (``Partition.appendRecordsToFollowerOrFutureReplica``).
            log.truncate_fully_and_start_at(error.first_offset, now_ms=self._env.wall_clock_ms())
            info = self._write(log, leader_epoch, records)
            log.maybe_increment_log_start_offset(end)
            log.on_high_watermark_updated(partition.state.high_watermark)
            return info

    def _write(self, log: PartitionLog, leader_epoch: int, records: Any) -> AppendInfo | None:
        return log.append_as_follower(records, now_ms=self._env.wall_clock_ms(), leader_epoch=leader_epoch)

    def truncate(self, partition: Partition, offset: int) -> None:
        """Cut the log back to where it parts from the leader's."""
        log, high_watermark = partition.log, partition.state.high_watermark
        end = log.log_end_offset
        if self._cut(partition, offset):
            logger.info(
                "%s is cut back from %d to %d, where it parts from the log of broker %d",
                partition.topic_partition,
                end,
                log.log_end_offset,
                self._leader,
            )
        if log.log_end_offset < high_watermark:
            logger.warning("%s is cut back below its high watermark %d", partition.topic_partition, high_watermark)

    def _cut(self, partition: Partition, offset: int) -> bool:
        """Drop everything from ``offset`` on; whether there was something."""
        state, log = partition.state, partition.log
        if self._copied.get(partition.topic_partition) is partition:
            raise NotYet
        if (copy := log.begin_own_copy(offset)) is not None:
            self._copied[partition.topic_partition] = partition
            self._start_soon(self._make_own, partition, log, copy)
            raise NotYet
        is_shorter = log.truncate_to(offset, now_ms=self._env.wall_clock_ms())
        state.high_watermark = min(state.high_watermark, log.log_end_offset)
        # The producers' state was read from the log anew, and transactions that ended before would seem to go on.
        log.on_high_watermark_updated(state.high_watermark)
        self._checkpoints.request()
        return is_shorter

    async def _make_own(self, partition: Partition, log: PartitionLog, copy: OwnCopy) -> None:
        try:
            while await self._env.run_blocking(copy.step):
                pass
            log.end_own_copy(copy)
        except OSError as error:
            if not partition.offline and copy.segment in log.segments:  # else the file is gone for a reason
                partition.storage_failed(error)
        finally:
            if self._copied.get(partition.topic_partition) is partition:  # not another of the name
                del self._copied[partition.topic_partition]

    def drop_damaged(self, partition: Partition) -> bool:
        """Cut a damaged log back to where it is whole, for the leader has the rest; whether that was done.

        Before, it has to be out of the ISR, and lost to the controller: until `ReplicaLogDirs.healed` no leader takes
        what it had for what it has.
        """
        image, me = self._progress.image(), partition.state.local_id
        assigned = image.topics.partition(*partition.topic_partition)
        if assigned is None or me in assigned.isr:
            return False
        if assigned.directory(me) != DIR_LOST and image.features.metadata_version >= DIRECTORIES:
            return False
        log = partition.log
        end, first = log.log_end_offset, log.damage[0]
        self._cut(partition, max(first.start_offset, log.log_start_offset))
        logger.warning(
            "%s is cut back from %d to %d, to be fetched again from broker %d: %s",
            partition.topic_partition,
            end,
            first.start_offset,
            self._leader,
            first,
        )
        return True

    def start_at(self, partition: Partition, offset: int) -> None:
        """Drop the log for one that begins where the leader's does."""
        logger.info(
            "%s begins anew at %d: broker %d has nothing older", partition.topic_partition, offset, self._leader
        )
        log = partition.log
        log.truncate_fully_and_start_at(offset, now_ms=self._env.wall_clock_ms())
        partition.state.high_watermark = offset
        log.on_high_watermark_updated(offset)
        self._checkpoints.request()


def log_of(partition: Partition) -> FollowerLog:
    """The facts about a follower's log that decisions rest on."""
    log = partition.log
    return FollowerLog(log.log_start_offset, log.log_end_offset, partition.state.high_watermark, log.leader_epochs)


def weight_of(partition: Partition | None, records: Sized | None) -> int:
    """The bytes that a partition of a leader's answer counts for, before it is taken."""
    weight = PARTITION_BYTES + len(records or b"")
    if partition is None or partition.offline or not records:
        return weight
    if not (partition.has_log and partition.log.is_on_disk):
        weight += FIRST_WRITE_BYTES
    return weight
