"""Clean offsets of a node's logs, and the checkpoints that must be durable around a round of the cleaner."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kbroker.log.checkpoint_files import CLEANER_OFFSETS, RECOVERY_POINTS
from kbroker.log.dirs.checkpoint_tasks import CheckpointTasks
from kbroker.log.dirs.removals import Removals
from kbroker.log.log_dir import LogDir
from kbroker.log.partition_log import PartitionLog
from kbroker.types import TopicPartition


class CleanerOffsets:
    """Over ``LogDir.cleaner_offsets`` of the dirs that the logs are in at the time: ``LogManager.cleaner_offsets``."""

    __slots__ = ("_checkpoints", "_dir_of", "_removals")

    def __init__(
        self, dir_of: Mapping[TopicPartition, LogDir], checkpoints: CheckpointTasks, removals: Removals
    ) -> None:
        self._dir_of = dir_of
        self._checkpoints = checkpoints
        self._removals = removals

    def of(self, topic_partition: TopicPartition) -> int | None:
        """The (exclusive) end of the clean part of a log; ``None`` if it was never compacted."""
        log_dir = self._dir_of.get(topic_partition)
        return log_dir.cleaner_offsets.get(topic_partition) if log_dir is not None else None

    def before_round(self, log: PartitionLog, first_dirty_offset: int) -> Callable[[], None]:
        """Before segments of a log are replaced. The result makes two things durable, in any thread (``OSError``).

        From then on offsets may be missing between the log's segments, which otherwise means damage. So it must be
        known that the log was compacted; and all of what is compacted must lie below the recovery point, so that a
        recovery can tell the one from the other.
        """
        log_dir = self._dir_of[log.topic_partition]
        log_dir.cleaner_offsets.setdefault(log.topic_partition, first_dirty_offset)
        return self._checkpoints.collect(log_dir, RECOVERY_POINTS, CLEANER_OFFSETS)

    def after_round(self, log: PartitionLog, offset: int) -> Callable[[], None]:
        """Note that a log is clean up to ``offset``. The result makes that durable, in any thread (``OSError``)."""
        log_dir = self._dir_of[log.topic_partition]
        log_dir.cleaner_offsets[log.topic_partition] = offset
        self._removals.add_log(log)
        return self._checkpoints.collect(log_dir, CLEANER_OFFSETS)
