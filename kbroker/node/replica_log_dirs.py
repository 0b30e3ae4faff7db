"""The node's log dirs as replicas see them: what is in each, and moves from one to another (KIP-113)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

import trio

from kbroker.errors import ApiError, ErrorCode
from kbroker.node.log_mover import move_log
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.node.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)


class LogDescription(NamedTuple):
    """A log in a log directory; one that ``is_future`` is on its way there, and lacks ``offset_lag`` records."""

    topic_partition: TopicPartition
    size: int
    offset_lag: int = 0
    is_future: bool = False


class LogDirDescription(NamedTuple):
    """One log directory: its file system's bytes, and the logs in it."""

    path: str
    offline: bool
    total_bytes: int
    usable_bytes: int
    logs: list[LogDescription]


class ReplicaLogDirs:
    """What DescribeLogDirs and AlterReplicaLogDirs ask for."""

    def __init__(self, manager: ReplicaManager) -> None:
        self._manager = manager

    def describe(self) -> list[LogDirDescription]:
        """What DescribeLogDirs tells."""
        log_manager = self._manager.log_manager
        result = []
        for log_dir in log_manager.log_dirs:
            if log_dir.offline is None:
                try:
                    total, usable = log_dir.usage()
                except OSError:
                    pass
                else:
                    logs = [LogDescription(log.topic_partition, log.size) for log in log_manager.logs_in(log_dir)]
                    logs += [
                        LogDescription(move.topic_partition, move.future.size, move.lag, True)
                        for move in log_manager.moves.to(log_dir)
                    ]
                    result.append(LogDirDescription(log_dir.path, False, total, usable, logs))
                    continue
            result.append(LogDirDescription(log_dir.path, True, -1, -1, []))
        return result

    def alter(self, topic: str, index: int, path: str) -> None:
        """Begin to move a partition's log to the log dir ``path``; a partition that comes later is made there.

        ``ReplicaManager.alterReplicaLogDirs``. LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR if that one or the partition's
        is offline, REPLICA_NOT_AVAILABLE for a partition that is not here.
        """
        tp = TopicPartition(topic, index)
        log_manager = self._manager.log_manager
        target = log_manager.moves.find_log_dir(path)
        partition = self._manager.partitions.get(tp)
        if partition is None:
            log_manager.moves.prefer(tp, target)
            raise ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, f"this broker holds no replica of {tp}")
        partition.log  # noqa: B018 - refuses if it is offline
        if any(log_dir.offline is not None for log_dir in log_manager.log_dirs):
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp} is not moved while a log dir is offline")
        move = log_manager.moves.of(tp)
        if move is not None:
            if move.target is target:
                return
            move.abandon()
        if log_manager.log_dir_of(tp) is not target:
            self._manager.start_soon(move_log, self._manager, partition, target)

    async def resume_moves(self) -> None:
        """Moves that a stop or a crash interrupted."""
        interrupted = self._manager.log_manager.moves.interrupted
        while interrupted and self._manager.image is None:
            await trio.sleep(0.1)
        for tp, target in interrupted.items():
            try:
                self.alter(tp.topic, tp.partition, target.path)
            except ApiError as error:
                logger.warning("the move of %s to %s is not taken up again: %s", tp, target.path, error)
