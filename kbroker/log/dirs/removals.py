"""Directories of logs that are not in use, and the removal of logs and segments after ``file.delete.delay.ms``.

A suffix of a directory's name says why it is not in use, as in Apache Kafka. ``-delete``: it is removed. ``-stray``: a
person is to look at it. ``-future``: its log is on the way here.

To unlink a segment of a gigabyte takes a file system half a second when the disk is busy, so removal goes in steps that
may run in any thread; only what is to go, and when, is decided where the logs are owned.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from kbroker.log.disk import Disk
from kbroker.log.log_dir import DELETE_SUFFIX, FUTURE_SUFFIX, LogDir

if TYPE_CHECKING:
    from kbroker.log.dirs.due_flushes import DueFlushes
    from kbroker.log.partition_log import PartitionLog
    from kbroker.types import TopicPartition

logger = logging.getLogger(__name__)

STEP_BYTES = 1 << 30
"""The bytes that one step removes, about. A stop of the node waits for the step."""
STEP_FILES = 1000
"""The files that one step removes, about, where they are small."""


class RemovalTask:
    """The removals that are due. Call :meth:`step` in any thread until it is false, then :meth:`end` as the owner.

    A task may be dropped between two steps: the next start finds what is left by its name.
    """

    __slots__ = ("_disk", "_failed", "_failures", "_removed")

    def __init__(
        self,
        disk: Disk,
        directories: list[str],
        files: list[tuple[PartitionLog, list[str]]],
        failed: Callable[[PartitionLog, OSError], None],
    ) -> None:
        self._disk = disk
        self._failed = failed
        self._failures: list[tuple[PartitionLog, OSError]] = []
        self._removed = self._remove(directories, files)

    def step(self) -> bool:
        """Remove some; false when nothing is left."""
        size = 0
        for count, length in enumerate(self._removed, 1):
            size += length
            if size >= STEP_BYTES or count >= STEP_FILES:
                return True
        return False

    def end(self) -> None:
        """Tell which logs' files could not be removed."""
        for log, error in self._failures:
            self._failed(log, error)

    def _remove(self, directories: list[str], files: list[tuple[PartitionLog, list[str]]]) -> Iterator[int]:
        """The length of each file that was removed."""
        disk = self._disk
        for directory in directories:
            try:
                if disk.exists(directory):
                    yield from self._remove_files(os.path.join(directory, name) for name in disk.list_dir(directory))
                    disk.remove_tree(directory)
            except OSError as error:
                logger.warning("cannot remove %s: %s", directory, error)
        for log, paths in files:
            try:
                yield from self._remove_files(paths)
            except OSError as error:
                self._failures.append((log, error))

    def _remove_files(self, paths: Iterable[str]) -> Iterator[int]:
        disk = self._disk
        for path in paths:
            if disk.is_dir(path):
                continue
            try:
                length = disk.size(path)
            except FileNotFoundError:
                continue  # its log was deleted meanwhile, and goes as a whole
            disk.remove(path)
            yield length


class Removals:
    """Files and directories that wait for their removal."""

    __slots__ = ("_directories", "_disk", "_failed", "_logs")

    def __init__(self, disk: Disk, failed: Callable[[PartitionLog, OSError], None]) -> None:
        """``failed`` hears of a log of which a file could not be removed."""
        self._disk = disk
        self._failed = failed
        self._directories: list[tuple[int | None, str, int]] = []
        """Due time (``None``: not decided yet), path, delay."""
        self._logs: set[PartitionLog] = set()
        """Logs with files that wait."""

    def add_directory(self, path: str, delay_ms: int = 0) -> None:
        """Have a directory removed ``delay_ms`` after it was first looked at."""
        self._directories.append((None, path, delay_ms))

    def add_log(self, log: PartitionLog) -> None:
        """Look at the files of this log."""
        self._logs.add(log)

    def forget(self, log: PartitionLog) -> None:
        """Look no longer at the files of a log, which was deleted itself."""
        self._logs.discard(log)

    def task(self, now_ms: int) -> RemovalTask | None:
        """Take what is due; ``None`` if nothing is."""
        directories: list[str] = []
        waiting: list[tuple[int | None, str, int]] = []
        for due, path, delay in self._directories:
            if due is None:
                due = now_ms + delay
            if due <= now_ms:
                directories.append(path)
            else:
                waiting.append((due, path, delay))
        self._directories = waiting
        files: list[tuple[PartitionLog, list[str]]] = []
        for log in sorted(self._logs, key=lambda log: log.topic_partition):
            paths, others_wait = log.take_expired_files(now_ms)
            if paths:
                files.append((log, paths))
            if not others_wait:
                self._logs.discard(log)
        if not directories and not files:
            return None
        return RemovalTask(self._disk, directories, files, self._failed)


class MarkedDirectories:
    """Renames the directories of logs that go out of use; their logs are neither flushed nor looked after any more."""

    __slots__ = ("_flushes", "_removals", "_rng")

    def __init__(self, rng: random.Random, flushes: DueFlushes, removals: Removals) -> None:
        self._rng = rng
        self._flushes = flushes
        self._removals = removals

    def future_path(self, topic_partition: TopicPartition, log_dir: LogDir) -> str:
        """The directory in which a log is written that is moving to this log dir."""
        return log_dir.marked_path(topic_partition, FUTURE_SUFFIX, self._rng)

    def unfinished_path(self, topic_partition: TopicPartition, log_dir: LogDir) -> str:
        """The directory in which another node hands a log over: the next start removes it."""
        return log_dir.marked_path(topic_partition, DELETE_SUFFIX, self._rng)

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
