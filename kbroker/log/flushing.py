"""Durability of a log: the part of it that is on the disk, and flushes, which extend that part.

A flush has three steps: begun on the owner's side, run anywhere (it waits for the disk), ended on the owner's side.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from kbroker.log.checkpoint_files import PARTITION_METADATA, TOPIC_ID_COPY
from kbroker.log.disk import Disk, DiskFile
from kbroker.log.file_names import SNAPSHOT_SUFFIX, file_name
from kbroker.log.leader_epochs import LeaderEpochs
from kbroker.value_types import dataclass, field

if TYPE_CHECKING:
    from kbroker.log.log_config import LogConfig
    from kbroker.log.log_dir import LogDir
    from kbroker.log.segments.segment_list import SegmentList
    from kbroker.types import TopicPartition

NEVER = 2**63 - 1


@dataclass(slots=True, eq=False)
class FlushTask:
    """A flush that was begun."""

    topic_partition: TopicPartition
    disk: Disk
    directory: str
    """The log's directory when the flush was begun."""
    is_current: Callable[[], bool]
    """Whether the log is in the generation in which the flush was begun; any thread may ask. In a later one a part of
    what is made durable is not the log any more, and another log may have the directory."""
    offset: int
    """Everything below is durable once :meth:`run` has returned."""
    indexed: int
    """Indexes of segments that end here or below are durable, too."""
    sealed_only: bool
    lock: threading.Lock
    """Held while the flush runs: a log has one at a time."""
    on_durable: Callable[[FlushTask], None]
    files: list[DiskFile] = field(default_factory=list)
    """Open files to sync."""
    names: list[str] = field(default_factory=list)
    """Files to open and sync."""
    epochs: list[tuple[int, int]] | None = None
    """Leader epochs to be written."""
    sync_dirs: list[str] = field(default_factory=list)
    names_version: int = -1
    """`Durability.names` when the flush was begun, if it makes them durable."""

    def run(self) -> None:
        """Wait for the disk. May run in a thread; ``OSError`` if the disk fails, and then the log is not to
        be trusted any more."""
        disk = self.disk
        with self.lock:
            for file in self.files:
                file.sync()
            for path in self.names:
                try:
                    disk.open(path).sync()
                except FileNotFoundError:
                    continue  # the segment was deleted meanwhile
            try:
                if self.epochs is not None:
                    LeaderEpochs(self.epochs).write(disk, self.directory, sync=True, is_wanted=self.is_current)
                for directory in self.sync_dirs:
                    disk.sync_dir(directory)
            except FileNotFoundError:
                if self.is_current() and disk.exists(self.directory):
                    raise

    def end(self) -> None:
        """Take note that :meth:`run` succeeded."""
        self.on_durable(self)


class Durability:
    """The durable part of one log."""

    __slots__ = (
        "_lock",
        "cut",
        "first_unflushed_ms",
        "flushed_names",
        "indexed",
        "is_named",
        "names",
        "recovery_point",
    )

    def __init__(self, recovery_point: int, indexed: int) -> None:
        self.recovery_point = recovery_point
        """Every batch below is durable."""
        self.indexed = indexed
        """Indexes of segments that end here or below are durable, too. Those of the active segment are not flushed with
        it: after a crash it is read, and they are made anew."""
        self.first_unflushed_ms = -1
        """Time at which the first record was written that is not durable yet, or -1."""
        self.names = 0
        """Grows with each change of the names of files."""
        self.flushed_names = -1
        """The number when they were made durable last."""
        self.is_named = True
        """The topic's id is durable, and so is that no segment before the first comes back."""
        self.cut = False
        """The end was cut, or may have been by an earlier process, and that is not durable yet."""
        self._lock: threading.Lock | None = None

    @property
    def checkpoint(self) -> int:
        """The recovery point as a checkpoint file is to hold it: after a crash what follows is read again.

        It must not be where a segment ends whose indexes are not durable: that one would be taken for sound. While the
        segment is active that cannot be told yet, so it is one less then.
        """
        return self.recovery_point if self.recovery_point <= self.indexed else self.recovery_point - 1

    def renamed(self) -> None:
        """The log starts later, or the topic's id was written: the next flush makes that durable, or a clean stop."""
        self.names += 1
        self.is_named = False

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
        """The time (milliseconds) at which ``flush.ms`` asks for a flush; far in the future if it does not."""
        if self.first_unflushed_ms < 0 or self.recovery_point >= log_end_offset:
            return NEVER
        return self.first_unflushed_ms + flush_ms

    def truncated(self, offset: int) -> bool:
        """The end is about to be cut at ``offset``; answer whether that lowers the recovery point."""
        self.names += 1
        self.cut = True
        self.indexed = min(self.indexed, offset)
        if self.recovery_point <= offset:
            return False
        self.recovery_point = offset
        return True

    def flushed(self, task: FlushTask, log_end_offset: int, active_base: int) -> None:
        """Everything below the task's offset is durable, and the indexes below ``indexed``."""
        self.indexed = max(self.indexed, min(task.indexed, log_end_offset))
        self.recovery_point = max(self.recovery_point, min(task.offset, log_end_offset))
        self.flushed_names = max(self.flushed_names, task.names_version)
        self.is_named = self.is_named or task.names_version == self.names
        if active_base <= task.offset and not task.sealed_only:
            self.cut = False

    def begin(
        self,
        segment_list: SegmentList,
        leader_epochs: LeaderEpochs,
        log_end_offset: int,
        *,
        topic_partition: TopicPartition,
        is_current: Callable[[], bool],
        on_durable: Callable[[FlushTask], None],
        sealed_only: bool,
        extra: Sequence[str],
        closing: bool,
    ) -> FlushTask | None:
        """Prepare a flush up to the log end, or of the sealed segments; ``None`` if all is durable.

        ``extra`` are more files to sync, ``on_durable`` is called when the flush has ended. The indexes of the active
        segment are left out unless the log is ``closing``: after a crash it is read in any case.
        """
        active_base = segment_list.bases[-1]
        offset = active_base if sealed_only else log_end_offset
        done = offset <= self.recovery_point and active_base <= self.indexed and not self.cut
        is_dirty = leader_epochs.dirty or extra or self.indexed < offset or not self.is_named
        if done and not (closing and is_dirty):
            return None
        if self._lock is None:
            self._lock = threading.Lock()  # not before: most logs of a node with many are idle
        task = FlushTask(
            topic_partition,
            segment_list.disk,
            segment_list.directory,
            is_current,
            offset,
            indexed=offset if closing else active_base,
            sealed_only=sealed_only,
            lock=self._lock,
            on_durable=on_durable,
            names=list(extra),
        )
        self._add_segments(task, segment_list, closing=closing)
        if leader_epochs.dirty:
            task.epochs = leader_epochs.entries  # dirty until that has ended: a stop may drop the task
        if closing or self.flushed_names < self.names:
            task.names_version = self.names
            task.names += (os.path.join(task.directory, name) for name in (PARTITION_METADATA, TOPIC_ID_COPY))
            task.sync_dirs.append(task.directory)
            if not closing:  # or whoever closes all logs does that for all
                task.sync_dirs.append(os.path.dirname(task.directory))
        if not sealed_only:
            self.first_unflushed_ms = -1
        return task

    def _add_segments(self, task: FlushTask, segment_list: SegmentList, *, closing: bool) -> None:
        """Add the files of segments that are not durable yet."""
        for segment, end in zip(segment_list.segments, segment_list.bases[1:], strict=False):
            if end > self.indexed or (self.cut and end == self.indexed):
                snapshot = os.path.join(task.directory, file_name(end) + SNAPSHOT_SUFFIX)
                task.names += [segment.path, *segment.index_paths(), snapshot]
        if task.sealed_only:
            return
        active = segment_list.segments[-1]
        if active.size:
            task.files.append(active.log_file())
            if closing:
                task.names += active.index_paths()
        elif self.cut:
            task.names += [active.path, *active.index_paths()]  # there may be no file yet


def begin_flushes(
    flushes: Iterable[tuple[Callable[[], FlushTask | None], LogDir]], mark_offline: Callable[[LogDir, OSError], None]
) -> list[tuple[FlushTask, LogDir]]:
    """Begin flushes, each of a log in the log dir beside it.

    Beginning a flush may open files: a dir that fails goes offline, an offline dir is left out, the others are done.
    """
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
