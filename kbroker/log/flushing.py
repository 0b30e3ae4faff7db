"""What of a log is durable, and how more of it becomes so.

A flush has three steps: begun on the owner's side, run anywhere (it waits for the disk), ended on the owner's side.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from kbroker.log.checkpoints import PARTITION_METADATA
from kbroker.log.disk import DiskFile
from kbroker.log.file_names import SNAPSHOT_SUFFIX, file_name
from kbroker.log.leader_epochs import LeaderEpochs

if TYPE_CHECKING:
    from kbroker.log.log_config import LogConfig
    from kbroker.log.log_dir import LogDir
    from kbroker.log.partition_log import PartitionLog
    from kbroker.log.segment_list import SegmentList
    from kbroker.types import TopicPartition

NEVER = 2**63 - 1


class FlushTask:
    """A flush that was begun."""

    __slots__ = (
        "_epochs",
        "_files",
        "_generation",
        "_indexed",
        "_log",
        "_names",
        "_sealed_only",
        "_sync_dirs",
        "directory",
        "offset",
    )

    def __init__(
        self,
        log: PartitionLog,
        offset: int,
        files: list[DiskFile],
        names: list[str],
        epochs: list[tuple[int, int]] | None,
        sync_dirs: list[str],
        sealed_only: bool,
        indexed: int,
    ) -> None:
        self._log = log
        self._indexed = indexed
        self._sealed_only = sealed_only
        self.directory = log.directory
        """Where the log was when the flush was begun."""
        self._generation = log.generation
        self._files = files
        self._names = names
        self._epochs = epochs
        self._sync_dirs = sync_dirs
        self.offset = offset
        """Everything below is durable once :meth:`run` has returned."""

    @property
    def topic_partition(self) -> TopicPartition:
        """Whose log it is."""
        return self._log.topic_partition

    def run(self) -> None:
        """Wait for the disk. May run in a thread; ``OSError`` if the disk fails, and then the log is not to
        be trusted any more."""
        disk = self._log.disk
        with self._log.durability.lock:
            for file in self._files:
                file.sync()
            for path in self._names:
                try:
                    disk.open(path).sync()
                except FileNotFoundError:
                    continue  # the segment was deleted meanwhile
            try:
                if self._epochs is not None:
                    LeaderEpochs(self._epochs).write(disk, self.directory, sync=True)
                for directory in self._sync_dirs:
                    disk.sync_dir(directory)
            except FileNotFoundError:
                if disk.exists(self.directory):
                    raise

    def end(self) -> None:
        """Take note that :meth:`run` succeeded."""
        log = self._log
        if self._generation == log.generation:  # else what was made durable is in part not the log any more
            base = log.active_segment.base_offset
            log.durability.flushed(self.offset, self._indexed, log.log_end_offset, base, self._sealed_only)


class Durability:
    """What is known of it for one log."""

    __slots__ = ("cut", "first_unflushed_ms", "indexed", "lock", "names_flushed", "recovery_point")

    def __init__(self, recovery_point: int, indexed: int) -> None:
        self.recovery_point = recovery_point
        """Every batch below is durable."""
        self.indexed = indexed
        """So are the indexes of the segments that end here or below. Those of the active segment are not flushed with
        it: after a crash it is read, and they are made anew."""
        self.first_unflushed_ms = -1
        """When the first record was written that is not durable yet, or -1."""
        self.names_flushed = False
        """The names of all files are durable."""
        self.cut = False
        """The end was cut, or may have been by an earlier process, and that is not durable yet."""
        self.lock = threading.Lock()

    @property
    def checkpoint(self) -> int:
        """The recovery point as a checkpoint file is to hold it: after a crash what follows is read again.

        It must not be where a segment ends whose indexes are not durable: that one would be taken for sound. While the
        segment is active that cannot be told yet, so it is one less then.
        """
        return self.recovery_point if self.recovery_point <= self.indexed else self.recovery_point - 1

    def needs_flush(self, log_end_offset: int, active_base: int, config: LogConfig, now_ms: int) -> bool:
        """Whether a sealed segment, ``flush.messages`` or ``flush.ms`` ask for a flush."""
        if self.recovery_point < active_base or self.indexed < active_base:
            return True
        if self.recovery_point >= log_end_offset:
            return False
        if log_end_offset - self.recovery_point >= config.flush_messages:
            return True
        return self.first_unflushed_ms >= 0 and now_ms - self.first_unflushed_ms >= config.flush_ms

    def due_ms(self, log_end_offset: int, flush_ms: int) -> int:
        """When ``flush.ms`` asks for a flush of what is not durable yet; far in the future if it does not."""
        if self.first_unflushed_ms < 0 or self.recovery_point >= log_end_offset:
            return NEVER
        return self.first_unflushed_ms + flush_ms

    def truncated(self, offset: int) -> bool:
        """The end is about to be cut at ``offset``; answer whether that lowers the recovery point."""
        self.names_flushed = False
        self.cut = True
        self.indexed = min(self.indexed, offset)
        if self.recovery_point <= offset:
            return False
        self.recovery_point = offset
        return True

    def flushed(self, offset: int, indexed: int, log_end_offset: int, active_base: int, sealed_only: bool) -> None:
        """Everything below ``offset`` is durable, and the indexes below ``indexed``."""
        self.indexed = max(self.indexed, min(indexed, log_end_offset))
        self.recovery_point = max(self.recovery_point, min(offset, log_end_offset))
        if active_base <= offset:
            self.names_flushed = True
            if not sealed_only:
                self.cut = False

    def begin(
        self,
        log: PartitionLog,
        segment_list: SegmentList,
        *,
        sealed_only: bool,
        extra: Sequence[str],
        closing: bool,
    ) -> FlushTask | None:
        """Prepare a flush up to the log end, or of the sealed segments; ``None`` if all is durable.

        The indexes of the active segment are left out unless the log is ``closing``: after a crash it is read in
        any case.
        """
        offset = segment_list.bases[-1] if sealed_only else log.log_end_offset
        write_epochs = log.leader_epochs.dirty
        active_base = segment_list.bases[-1]
        done = offset <= self.recovery_point and active_base <= self.indexed and not self.cut
        if done and not (closing and (write_epochs or extra or self.indexed < offset)):
            return None
        files: list[DiskFile] = []
        names: list[str] = list(extra)
        for segment, end in zip(segment_list.segments, segment_list.bases[1:], strict=False):
            if end > self.indexed or (self.cut and end == self.indexed):
                snapshot = os.path.join(log.directory, file_name(end) + SNAPSHOT_SUFFIX)
                names += [segment.path, *segment.index_paths(), snapshot]
        active = segment_list.segments[-1]
        if not sealed_only:
            if active.size:
                files.append(active.log_file())
                if closing:
                    names += active.index_paths()
            elif self.cut:
                names.append(active.path)  # there may be no file yet
        epochs = log.leader_epochs.entries if write_epochs else None
        sync_dirs: list[str] = []
        if closing or not self.names_flushed:
            names.append(os.path.join(log.directory, PARTITION_METADATA))
            sync_dirs = [log.directory]
            if not closing:  # or whoever closes all logs does that for all
                sync_dirs.append(os.path.dirname(log.directory))
        log.leader_epochs.dirty = False
        if not sealed_only:
            self.first_unflushed_ms = -1
        indexed = offset if closing else active_base
        return FlushTask(log, offset, files, names, epochs, sync_dirs, sealed_only, indexed)


def begin_flushes(
    flushes: Iterable[tuple[Callable[[], FlushTask | None], LogDir]], mark_offline: Callable[[LogDir, OSError], None]
) -> list[tuple[FlushTask, LogDir]]:
    """Begin flushes, each of a log in that log dir. To begin one may open files: a dir that fails goes offline, nothing
    is begun in one that is, and the others are done."""
    tasks: list[tuple[FlushTask, LogDir]] = []
    for begin, log_dir in flushes:
        if log_dir.offline is not None:
            continue
        try:
            task = begin()
        except OSError as error:
            mark_offline(log_dir, error)
            continue
        if task is not None:
            tasks.append((task, log_dir))
    return tasks
