"""Moves a log from one log dir to another, beside its readers and writers (AlterReplicaLogDirs, KIP-113)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from kbroker.errors import ApiError, ErrorCode
from kbroker.log.dirs.log_move import LogMove, MoveInterrupted, SourceFailed
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.log.log_dir import LogDir
    from kbroker.log.manager import LogManager
    from kbroker.node.replicas.partition import Partition
    from kbroker.node.replicas.partition_events import CheckpointRequests
    from kbroker.node.replicas.partition_table import PartitionTable
    from kbroker.node.replicas.replica_log_dirs import ReplicaLogDirs
    from kbroker.node.replicas.replication_throttles import ReplicationThrottles
    from kbroker.runtime.env import Env

logger = logging.getLogger(__name__)

CHUNK = 256 * 1024
"""Bytes that are copied at once: about a millisecond of the event loop."""

_REFUSED = "%s cannot be moved to %s: %s"

_RETRY_SECONDS = 0.5

_LOOK_AGAIN_MS = 1000
"""Interval at which a throttled move looks whether the throttle is still the same."""


class LogMover:
    """Moves logs between the node's log dirs, each in a task of its own."""

    def __init__(
        self,
        *,
        env: Env,
        log_manager: LogManager,
        table: PartitionTable,
        log_dirs: ReplicaLogDirs,
        throttles: ReplicationThrottles,
        checkpoints: CheckpointRequests,
        start_soon: Callable[..., object],
    ) -> None:
        """``start_soon`` starts a task that lives with the node."""
        self._env = env
        self._log_manager = log_manager
        self._table = table
        self._log_dirs = log_dirs
        self._throttles = throttles
        self._checkpoints = checkpoints
        self._start_soon = start_soon

    def alter(self, topic: str, index: int, path: str) -> None:
        """Begin to move a partition's log to the log dir ``path``; a partition that comes later is made there.

        ``ReplicaManager.alterReplicaLogDirs``. LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR if that one or the partition's
        is offline, INVALID_REPLICA_ASSIGNMENT if it is cordoned, REPLICA_NOT_AVAILABLE for a partition that is not
        here, UNKNOWN_TOPIC_OR_PARTITION for one that is nowhere.
        """
        tp = TopicPartition(topic, index)
        moves = self._log_manager.moves
        target = moves.find_log_dir(path)
        if target.cordoned:
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{path} is cordoned")
        partition = self._table.find(*tp)
        if partition is None:
            moves.prefer(tp, target)
            if not self._table.exists(topic, index):
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {tp}")
            raise ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, f"this broker holds no replica of {tp}")
        partition.log  # noqa: B018 - refuses if it is offline
        if any(log_dir.offline is not None for log_dir in self._log_manager.log_dirs):
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp} is not moved while a log dir is offline")
        move = moves.of(tp)
        if move is not None:
            if move.target is target:
                return
            move.abandon()
        if self._log_manager.log_dir_of(tp) is not target:
            self._start_soon(self._move, partition, target)

    async def resume(self) -> None:
        """Take up again the moves that a stop or a crash interrupted, once there are metadata."""
        interrupted = self._log_manager.moves.interrupted
        while interrupted and self._table.image.offset < 0:
            await trio.sleep(0.1)
        for tp, target in interrupted.items():
            try:
                self.alter(tp.topic, tp.partition, target.path)
            except ApiError as error:
                logger.warning("the move of %s to %s is not taken up again: %s", tp, target.path, error)

    async def _move(self, partition: Partition, target: LogDir) -> None:
        """Move a partition's log to ``target`` for good; ends when it is there, or the move was called off."""
        while True:
            try:
                log = partition.log
                while log.segments_held:  # by the cleaner, or by a move that was just called off
                    await trio.sleep(_RETRY_SECONDS)
                    log = partition.log
                move = self._log_manager.moves.begin(log, target, now_ms=self._env.wall_clock_ms())
            except Exception as error:
                logger.error(_REFUSED, partition.topic_partition, target.path, error)
                return
            if move is None:
                self._follow(partition)
                return
            try:
                await self._carry(move)
            except MoveInterrupted:
                if move.over:
                    return
                move.abandon()
                logger.info("the move of %s to %s was interrupted", partition.topic_partition, target.path)
            except SourceFailed as error:
                self._log_dirs.storage_failed(partition, error)
                move.abandon()
                return
            except OSError as error:
                move.abandon()
                logger.error(_REFUSED, partition.topic_partition, target.path, error)
                self._log_dirs.mark_offline(target, error)
                return
            except Exception as error:
                # A damaged batch, most likely. The log stays where it is, and the node has others.
                move.abandon()
                unexpected = not isinstance(error, ApiError)
                logger.error(_REFUSED, partition.topic_partition, target.path, error, exc_info=unexpected)
                return
            except BaseException:
                move.abandon()
                raise
            else:
                self._follow(partition)
                self._checkpoints.request()
                self._log_dirs.take_partitions_offline()  # the one that it was in may have failed at the last step
                return

    def _follow(self, partition: Partition) -> None:
        """The partition's log is another object now."""
        log = self._log_manager.log_of(partition.topic_partition)
        if log is not None:
            partition.replace_log(log)

    async def _carry(self, move: LogMove) -> None:
        env = self._env
        await catch_up(env, self._throttles, move)
        task = move.begin_close()
        if task is not None:
            await env.run_blocking(task.run)
        # What follows is done once for the few records of the meantime.
        move.take_name(env.wall_clock_ms())
        await env.run_blocking(move.future.disk.sync_dir, move.target.path)
        await catch_up(env, self._throttles, move)
        move.finish(env.wall_clock_ms())


async def catch_up(env: Env, throttles: ReplicationThrottles, move: LogMove) -> None:
    """Copy until nothing is missing at this moment, no faster than the throttle allows. ``MoveInterrupted``."""
    quota = throttles.alter_log_dirs
    while True:
        began = env.now()
        quota.record(move.copy(CHUNK, env.wall_clock_ms()), throttles.now_ms())
        if not move.lag:
            return
        # As long as the copying took, everything else may run.
        await trio.sleep(min(env.now() - began, 0.05))
        while wait_ms := quota.wait_ms(throttles.now_ms(), _LOOK_AGAIN_MS):
            await trio.sleep(wait_ms / 1000)
            move.check()
