"""The node's log dirs under its replicas: logs are opened, flushed and checkpointed, and a disk that fails takes its
partitions offline (KIP-112)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import trio

from kbroker.errors import ApiError, ErrorCode
from kbroker.log.full_disk import is_no_room
from kbroker.log.log_dir import LogDescription, LogDirDescription
from kbroker.raft_metadata.image import DIR_LOST
from kbroker.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from kbroker.log.dirs.log_move import LogMove
    from kbroker.log.durable_log import DurableLog
    from kbroker.log.flushing import FlushTask
    from kbroker.log.log_dir import LogDir
    from kbroker.log.manager import LogManager
    from kbroker.log.partition_log import PartitionLog
    from kbroker.node.replicas.partition import Partition
    from kbroker.node.replicas.partition_events import CheckpointRequests, Progress
    from kbroker.node.replicas.partition_table import PartitionTable
    from kbroker.raft_metadata.image import PartitionImage
    from kbroker.runtime.env import Env


HELD_SECONDS = 0.1
"""Between two attempts to change segments that are compacted or moved."""

WATCH_SECONDS = 0.5
"""Between two looks whether the log dirs are still there."""


class ReplicaLogDirs:
    """The log dirs; one that has failed stays offline until the node is started again."""

    def __init__(
        self,
        *,
        env: Env,
        log_manager: LogManager,
        table: PartitionTable,
        progress: Progress,
        checkpoints: CheckpointRequests,
        high_watermarks: Mapping[TopicPartition, int],
    ) -> None:
        """``high_watermarks`` are those that were checkpointed before this start."""
        self._env = env
        self._log_manager = log_manager
        self._table = table
        self._progress = progress
        self._checkpoints = checkpoints
        self._high_watermarks = high_watermarks
        self.on_damage: Callable[[Partition], None] = lambda partition: None
        """Called when damage was found in a partition's log (``node.replicas.metadata_follower``)."""
        # Once, and not for each log: a bound method takes memory.
        self.on_log_damage: Callable[[DurableLog], None] = self._damaged

    def describe(self, wanted: Collection[TopicPartition] | None) -> list[LogDirDescription]:
        """Describe each log dir and the logs in it, as DescribeLogDirs answers; None wants all of them.

        Where some are wanted, the others cost nothing.
        """
        log_manager = self._log_manager
        result = []
        for log_dir in log_manager.log_dirs:
            if log_dir.offline is None:
                try:
                    total, usable = log_dir.usage()
                except OSError:
                    pass
                else:
                    moves = log_manager.moves.to(log_dir)
                    logs: Iterable[PartitionLog]
                    if wanted is None:
                        logs = log_manager.iter_logs_in(log_dir)
                    else:
                        found = (log_manager.log_of(tp) for tp in wanted if log_manager.log_dir_of(tp) is log_dir)
                        logs = [log for log in found if log is not None]
                        moves = [move for move in moves if move.topic_partition in wanted]
                    described = _described(logs, moves)
                    result.append(LogDirDescription(log_dir.path, False, total, usable, described, log_dir.cordoned))
                    continue
            result.append(LogDirDescription(log_dir.path, True, -1, -1, []))
        return result

    def directory_of(self, partition: Partition, assigned: PartitionImage) -> Uuid | None:
        """The log directory of a partition's log, as the controller is to know it; None if there is none yet.

        A log that cannot be used is nowhere, so that another replica leads: `DIR_LOST`. So is one that cannot be
        written because the disk is full, unless nobody else is in sync: then it is there to be read. And so is one that
        is damaged, until others lead, as far as there are any (`Partition.must_give_way`).
        """
        tp = partition.topic_partition
        if tp in self._log_manager.failed and self._log_manager.log_of(tp) is None:  # else it is in another dir
            return DIR_LOST
        if self._is_full(tp) and any(broker != self._table.node_id for broker in assigned.isr):
            return DIR_LOST
        if partition.must_give_way(assigned):
            return DIR_LOST
        log_dir = self._log_manager.log_dir_of(tp)
        return None if log_dir is None else log_dir.directory_id

    # --- logs -------------------------------------------------------------------------------------------------

    def open_log(self, partition: Partition) -> None:
        """Find or make the partition's log, and attach it. ``ApiError`` KAFKA_STORAGE_ERROR."""
        tp = partition.topic_partition
        try:
            log = self._log_manager.create_log(
                tp, partition.topic_id, partition.config, now_ms=self._env.wall_clock_ms(), is_new=partition.is_new
            )
        except OSError as error:
            self.storage_failed(partition, error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot create the log of {tp}") from error
        partition.attach_log(log, self._high_watermarks.get(tp, 0))
        self._follow_log_dir(partition)

    def _is_full(self, tp: TopicPartition) -> bool:
        log_dir = self._log_manager.log_dir_of(tp)
        return log_dir is not None and log_dir.room.is_full

    def delete_log(self, tp: TopicPartition) -> None:
        """Delete a partition's log. If the disk refuses, the log dir has failed, and what is left there is deleted at
        its next start, as it belongs to no topic."""
        log_dir = self._log_manager.log_dir_of(tp)
        try:
            self._log_manager.delete_log(tp)
        except OSError as error:
            assert log_dir is not None
            self.mark_offline(log_dir, error)

    async def flush(self, partition: Partition) -> None:
        """Make a partition's log durable, off the event loop. ``ApiError`` KAFKA_STORAGE_ERROR.

        A failed flush takes the partition offline for good: the kernel may have dropped the pages, so a second try
        would prove nothing.
        """
        log, task = partition.log, None
        try:
            task = log.begin_flush()  # it may have to open a file
            if task is None:
                return
            await self._env.run_blocking(task.run)
        except OSError as error:
            if task is None:
                self.storage_failed(partition, error)
            else:
                self.flush_failed(task, error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"flushing {partition.topic_partition} failed") from error
        task.end()

    async def checkpoint(self) -> None:
        """Write the checkpoint files, off the event loop. A log dir that fails goes offline."""
        task = self._log_manager.checkpoint_task(self._table.high_watermarks())
        failed = await self._env.run_blocking(task)
        for log_dir, error in failed:
            self._log_manager.mark_offline(log_dir, error)
        if failed:
            self.take_partitions_offline()
            self._checkpoints.request()

    async def watch(self, interval: float = WATCH_SECONDS) -> None:
        """Take log dirs offline that are removed, or whose disks are unmounted, until cancelled.

        What is open is still written and read then, and nobody would ever find it. ``FatalError`` if the node cannot go
        on without it.
        """
        while True:
            await trio.sleep(interval)
            if self._log_manager.find_gone():
                self.take_partitions_offline()

    # --- failures ---------------------------------------------------------------------------------------------

    def storage_failed(self, partition: Partition, error: BaseException) -> None:
        """A read, write or flush of a partition's log failed: take its log dir offline."""
        log_dir = self._log_manager.log_dir_of(partition.topic_partition)
        if log_dir is None:
            partition.offline = True
            return
        self.mark_offline(log_dir, error)

    def flush_failed(self, task: FlushTask, error: BaseException) -> None:
        """A flush that had been begun failed: as `storage_failed`, unless the log was deleted meanwhile."""
        if task.topic_partition in self._table.partitions:
            log = self._log_manager.log_of(task.topic_partition)
            if log is not None and is_no_room(error):
                log.flush_again(self._env.wall_clock_ms())
            self.mark_offline(self._log_manager.log_dir_of_flush(task), error)

    def _damaged(self, log: DurableLog) -> None:
        """Damage was found in a partition's log: the controller is to hear of it, or the log has a hole there."""
        partition = self._table.partitions.get(log.topic_partition)
        if partition is not None and partition.note_damage(log):
            for callback in self._log_manager.on_offline:
                callback()
            self.on_damage(partition)

    def healed(self, partition: Partition) -> None:
        """The leader knows where a log ends since it was cut back, so it is like any that lags. ``OSError``."""
        partition.log.healed()
        for callback in self._log_manager.on_offline:
            callback()

    async def make_holes(self, partition: Partition) -> None:
        """Take damaged bytes out of the log of a partition that this node goes on to lead, for nobody else may."""
        tp = partition.topic_partition
        while partition.log.has_damaged_bytes and partition.state.is_leader:
            assigned = self._table.image.topics.partition(*tp)
            if assigned is None or partition.must_give_way(assigned):
                return
            try:
                task = partition.log.begin_holes(self._env.wall_clock_ms())
                if task is None:  # somebody is at the segments
                    await trio.sleep(HELD_SECONDS)
                    continue
                try:
                    await self._env.run_blocking(task.run)
                finally:
                    task.end()
            except OSError as error:
                self.storage_failed(partition, error)
                return
            self._progress.unavailable(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def mark_offline(self, log_dir: LogDir, error: BaseException) -> None:
        """Take a log dir offline, and its partitions."""
        self._log_manager.mark_offline(log_dir, error)
        self.take_partitions_offline()

    def take_partitions_offline(self) -> None:
        """Take the partitions of failed log dirs offline, and end the requests that wait for them; those of full ones
        are read-only until there is room."""
        for partition in list(self._table.partitions.values()):
            self._follow_log_dir(partition)

    def _follow_log_dir(self, partition: Partition) -> None:
        log_dir = self._log_manager.log_dir_of(partition.topic_partition)
        if log_dir is None or partition.offline:
            return
        if log_dir.offline is not None:
            partition.offline = True
            self._progress.unavailable(partition, ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            partition.read_only = log_dir.room.is_full


def _described(logs: Iterable[PartitionLog], moves: Iterable[LogMove]) -> Iterator[LogDescription]:
    for log in logs:
        yield LogDescription(log.topic_partition, log.size, damage=log.damage)
    for move in moves:
        yield LogDescription(move.topic_partition, move.future.size, move.lag, True)
