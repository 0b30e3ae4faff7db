"""The content of a log dir's checkpoint files, the tasks that write them, and the checkpoints around a compaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from kbroker.log.checkpoint_files import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    OFFSET_CHECKPOINTS,
    RECOVERY_POINTS,
)
from kbroker.log.dirs.removals import Removals
from kbroker.log.flushing import NEVER, FlushTask
from kbroker.log.log_dir import LogDir
from kbroker.log.partition_log import PartitionLog
from kbroker.types import TopicPartition


class CheckpointTasks:
    """Collects on the owner's side, at once, what a task then writes in any thread.

    Tasks may run in any order: of two that write the same file, what was collected later stays.
    """

    def __init__(
        self, logs_in: Callable[[LogDir], Iterable[PartitionLog]], dir_of: Mapping[TopicPartition, LogDir]
    ) -> None:
        self._logs_in = logs_in
        self._dir_of = dir_of
        self._number = 0
        self._collected: dict[tuple[str, str], Mapping[TopicPartition, int]] = {}
        """By log dir and file, what was collected last; it may not be written yet."""

    def collect(
        self, log_dir: LogDir, *names: str, high_watermarks: dict[TopicPartition, int] | None = None
    ) -> Callable[[], None]:
        """A task that writes these checkpoint files, in this order, if they change and the dir is not offline by then;
        ``OSError``. A log that has a recovery point and no cleaner offset was never compacted: those come first."""
        work = [(name, self._offsets(log_dir, name)) for name in names]
        if high_watermarks is not None:
            work.append((HIGH_WATERMARKS, high_watermarks))
        self._collected.update(((log_dir.path, name), offsets) for name, offsets in work)
        self._number += 1
        number = self._number

        def run() -> None:
            if log_dir.offline is None:
                log_dir.check_present()
            for name, offsets in work:
                if log_dir.offline is None:
                    log_dir.write_offsets(name, offsets, number)

        return run

    def forget(self, log_dir: LogDir, topic_partition: TopicPartition) -> None:
        """A log is made anew: write down that the files say nothing of it, if they do. ``OSError``.

        They may still speak of the last one of its name, and after a crash the new one would be judged by that: it
        would be taken for durable, or dropped as it ends before its log start offset.
        """
        log_dir.cleaner_offsets.pop(topic_partition, None)
        if any(topic_partition in offsets for name in OFFSET_CHECKPOINTS for offsets in self._said(log_dir, name)):
            present = {log.topic_partition for log in self._logs_in(log_dir) if log.is_on_disk}
            *_, said = self._said(log_dir, HIGH_WATERMARKS)
            marks = {tp: offset for tp, offset in said.items() if tp in present}
            self.collect(log_dir, CLEANER_OFFSETS, RECOVERY_POINTS, LOG_START_OFFSETS, high_watermarks=marks)()

    def before_roll(self, log: PartitionLog) -> None:
        """Have the files speak of a log before it has a second segment, and claim no more than there is. ``OSError``.

        Recovery takes offsets that are missing between segments of a log for lost only if it knows that compaction did
        not leave that; of a log that the files say nothing of it does not know. And it reads the last segment, so that
        the next one begins where the files claim that all is durable, while the indexes made anew are not.
        """
        log_dir = self._dir_of.get(log.topic_partition)
        if log_dir is not None:
            claimed = log_dir.written.get(RECOVERY_POINTS, {}).get(log.topic_partition, NEVER)
            if CLEANER_OFFSETS not in log_dir.written or claimed > log.durability.checkpoint:
                self.collect(log_dir, CLEANER_OFFSETS, RECOVERY_POINTS)()

    def before_truncation(self, log: PartitionLog, offset: int, lowered: bool) -> None:
        """Have the files claim no more than what is left of a log that is about to be cut at ``offset``. ``OSError``.

        ``lowered``: its recovery point or log start offset has changed.
        """
        tp = log.topic_partition
        log_dir = self._dir_of.get(tp)
        if log_dir is None or log_dir.offline is not None:
            return
        *_, said = self._said(log_dir, HIGH_WATERMARKS)
        if lowered or said.get(tp, 0) > offset:
            clean = log_dir.cleaner_offsets.get(tp)
            if clean is not None:
                log_dir.cleaner_offsets[tp] = min(clean, offset)
            marks = {**said, tp: min(said[tp], offset)} if tp in said else None
            self.collect(log_dir, CLEANER_OFFSETS, RECOVERY_POINTS, LOG_START_OFFSETS, high_watermarks=marks)()

    def _said(self, log_dir: LogDir, name: str) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]:
        """The offsets in a checkpoint file, and those that belong there now."""
        written = log_dir.written.get(name, {})
        return written, self._collected.get((log_dir.path, name), written)

    def _offsets(self, log_dir: LogDir, name: str) -> dict[TopicPartition, int]:
        if name == CLEANER_OFFSETS:
            return dict(log_dir.cleaner_offsets)
        logs = [log for log in self._logs_in(log_dir) if log.is_on_disk]
        if name == RECOVERY_POINTS:
            return {log.topic_partition: log.durability.checkpoint for log in logs}
        assert name == LOG_START_OFFSETS, name
        # As in Kafka: what the first segment's name says need not be said again, once that is durable.
        return {
            log.topic_partition: log.log_start_offset
            for log in logs
            if log.log_start_offset > (log.segments[0].base_offset if log.durability.is_named else 0)
        }


class BeforeRound:
    """Makes durable what a round of compaction relies on."""

    def __init__(self, flush: FlushTask | None, checkpoint: Callable[[], None]) -> None:
        self._flush = flush
        self._checkpoint = checkpoint

    def run(self) -> None:
        """Wait for the disk, in any thread. ``OSError``."""
        if self._flush is not None:
            self._flush.run()
        self._checkpoint()

    def end(self) -> None:
        """Take note, as the owner, that :meth:`run` succeeded."""
        if self._flush is not None:
            self._flush.end()


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

    def before_round(self, log: PartitionLog, first_dirty_offset: int) -> BeforeRound:
        """Before segments of a log are replaced: the result is to be run and ended.

        From then on offsets may be missing between the log's segments, which otherwise means damage. So it must be
        known that the log was compacted; and all of what is compacted must lie below the recovery point, so that a
        recovery can tell the one from the other. The markers that have ended transactions are to be as durable as what
        is removed because of them: they may stand far behind it.
        """
        log_dir = self._dir_of[log.topic_partition]
        log_dir.cleaner_offsets.setdefault(log.topic_partition, first_dirty_offset)
        has_markers = any(entry.coordinator_epoch >= 0 for entry in log.producers.active_producers.values())
        flush = log.begin_flush() if has_markers else None
        # What lies below the log start is not looked at, and must not be there again.
        checkpoint = self._checkpoints.collect(log_dir, CLEANER_OFFSETS, RECOVERY_POINTS, LOG_START_OFFSETS)
        return BeforeRound(flush, checkpoint)

    def after_round(self, log: PartitionLog, offset: int) -> Callable[[], None]:
        """Note that a log is clean up to ``offset``. The result makes that durable, in any thread (``OSError``)."""
        log_dir = self._dir_of[log.topic_partition]
        log_dir.cleaner_offsets[log.topic_partition] = offset
        self._removals.add_log(log)
        return self._checkpoints.collect(log_dir, CLEANER_OFFSETS)


def write_all(tasks: Sequence[tuple[LogDir, Callable[[], None]]]) -> list[tuple[LogDir, OSError]]:
    """Run tasks that write checkpoint files, in any thread; the log dirs where that failed."""
    failed: list[tuple[LogDir, OSError]] = []
    for log_dir, task in tasks:
        try:
            task()
        except OSError as error:
            failed.append((log_dir, error))
    return failed
