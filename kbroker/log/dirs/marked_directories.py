"""Directories of logs that are not in use: a suffix of the name says why, as in Apache Kafka.

``-delete``: it is removed (``Removals``). ``-stray``: a person is to look at it. ``-future``: it is on its way here.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from kbroker.log.log_dir import DELETE_SUFFIX, FUTURE_SUFFIX, LogDir

if TYPE_CHECKING:
    from kbroker.log.dirs.due_flushes import DueFlushes
    from kbroker.log.dirs.removals import Removals
    from kbroker.log.partition_log import PartitionLog
    from kbroker.types import TopicPartition


class MarkedDirectories:
    """Gives directories such names; the logs that they were of are neither flushed nor looked after any more."""

    __slots__ = ("_flushes", "_removals", "_rng")

    def __init__(self, rng: random.Random, flushes: DueFlushes, removals: Removals) -> None:
        self._rng = rng
        self._flushes = flushes
        self._removals = removals

    def future_path(self, topic_partition: TopicPartition, log_dir: LogDir) -> str:
        """The directory in which a log is written that is moving to this log dir."""
        return log_dir.marked_path(topic_partition, FUTURE_SUFFIX, self._rng)

    def set_aside(self, log: PartitionLog, log_dir: LogDir, suffix: str) -> None:
        """Rename the directory of a log, if it has one by now; ``OSError``.

        Readers that hold a region of it are not disturbed.
        """
        old, is_on_disk = log.directory, log.is_on_disk
        self.leave(log)
        if is_on_disk:
            path = log_dir.marked_path(log.topic_partition, suffix, self._rng)
            log.directory = path
            self._rename(log_dir, old, path, log.config.file_delete_delay_ms)

    def leave(self, log: PartitionLog) -> None:
        """Let a log go, and its directory keep its name."""
        self._flushes.forget(log)
        self._removals.forget(log)
        log.renamed(log.directory)

    def set_directory_aside(
        self, directory: str, topic_partition: TopicPartition, log_dir: LogDir, suffix: str
    ) -> None:
        """Rename a directory that no log uses, and whose removal need not wait; ``OSError``."""
        self._rename(log_dir, directory, log_dir.marked_path(topic_partition, suffix, self._rng), 0)

    def _rename(self, log_dir: LogDir, directory: str, marked_path: str, delay_ms: int) -> None:
        log_dir.disk.rename(directory, marked_path)  # a full disk, too, is to lose what is deleted
        if marked_path.endswith(DELETE_SUFFIX):
            self._removals.add_directory(marked_path, delay_ms)
