"""All logs of a node: its log dirs, the logs in them, and the checkpoints that a restart begins from.

A log dir holds a directory ``topic-partition`` for each log, ``meta.properties``, a ``.lock``, the checkpoints
and, after a clean stop, a marker; all as Apache Kafka 4.3.1 has them.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from kbroker.errors import ApiError, ErrorCode, FatalError
from kbroker.log import opening
from kbroker.log.checkpoint_files import (
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    write_clean_shutdown,
)
from kbroker.log.compaction.cleaner_offsets import CleanerOffsets
from kbroker.log.dirs.checkpoint_tasks import CheckpointTasks, write_all
from kbroker.log.dirs.due_flushes import DueFlushes
from kbroker.log.dirs.marked_directories import MarkedDirectories
from kbroker.log.dirs.move_registry import LogMoves
from kbroker.log.dirs.removals import Removals, RemovalTask
from kbroker.log.dirs.shutdown import close_logs
from kbroker.log.dirs.start_up import LoadedLogs, OpeningProgress, load_logs
from kbroker.log.disk import Disk, OsDisk, raise_file_limit
from kbroker.log.flushing import FlushTask
from kbroker.log.log_config import LogConfig
from kbroker.log.log_dir import DELETE_SUFFIX, STRAY_SUFFIX, LogDir
from kbroker.log.partition_log import PartitionLog
from kbroker.log.segments.open_files import OpenFiles
from kbroker.types import TopicPartition, Uuid

logger = logging.getLogger(__name__)

_STRAY = "%s/%s is not a log of this node any more; it is renamed"


class LogManager:
    """Use :meth:`open`; then one owner calls everything, as with :class:`PartitionLog`.

    A node uses :meth:`lock` in its place, and opens the logs later: :meth:`load` and :meth:`take_in`.
    """

    def __init__(
        self,
        log_dirs: list[LogDir],
        disk: Disk,
        rng: random.Random,
        producer_id_expiration_ms: int,
    ) -> None:
        self.disk = disk
        self.log_dirs = log_dirs
        self.on_offline: list[Callable[[], None]] = []
        """Called when a log dir has failed. Must not wait."""
        self.high_watermarks: dict[TopicPartition, int] = {}
        """As the checkpoints had them on opening."""
        self.failed: dict[TopicPartition, str] = {}
        """Logs that could not be opened: which file, and why."""
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._is_open = False
        """Whether the logs were taken in."""
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._dir_of: dict[TopicPartition, LogDir] = {}
        self._contested: list[tuple[PartitionLog, LogDir]] = []
        """Logs of another topic of the name than the one in ``_logs``; until :meth:`set_stray_aside`."""
        self._flushes = DueFlushes(self._logs.values(), self._log_dir_with, self.mark_offline)
        self._removals = Removals(disk, self._retention_failed)
        self._marked = MarkedDirectories(disk, rng, self._flushes, self._removals)
        self._checkpoints = CheckpointTasks(self._with_moving, self._dir_of)
        self.cleaner_offsets = CleanerOffsets(self._dir_of, self._checkpoints, self._removals)
        self.moves = LogMoves(
            log_dirs,
            self._log_dir_with,
            self._marked,
            adopt=self._adopt,
            make_anew=self._make_anew,
            mark_offline=self.mark_offline,
        )

    # -- opening

    @classmethod
    def open(
        cls,
        log_dirs: Iterable[str | os.PathLike[str]],
        disk: Disk,
        *,
        now_ms: int,
        log_config: Callable[[TopicPartition], LogConfig] | None = None,
        cluster_id: str | None = None,
        node_id: int | None = None,
        rng: random.Random | None = None,
        producer_id_expiration_ms: int = 24 * 60 * 60 * 1000,
        progress: OpeningProgress | None = None,
    ) -> LogManager:
        """:meth:`lock` the log dirs and open every log in them. ``FatalError`` if all dirs fail, too."""
        manager = cls.lock(
            log_dirs,
            disk,
            cluster_id=cluster_id,
            node_id=node_id,
            rng=rng,
            producer_id_expiration_ms=producer_id_expiration_ms,
        )
        try:
            log_config = log_config or (lambda tp: LogConfig())
            manager.take_in(manager.load(now_ms=now_ms, log_config=log_config, progress=progress))
        except BaseException:
            manager._unlock()
            raise
        return manager

    @classmethod
    def lock(
        cls,
        log_dirs: Iterable[str | os.PathLike[str]],
        disk: Disk,
        *,
        cluster_id: str | None = None,
        node_id: int | None = None,
        rng: random.Random | None = None,
        producer_id_expiration_ms: int = 24 * 60 * 60 * 1000,
    ) -> LogManager:
        """Lock and identify the log dirs; no log is open yet.

        With ``cluster_id`` and ``node_id`` each ``meta.properties`` is held against them; a directory that
        has none gets one. A directory that fails goes offline; ``FatalError`` if one is locked or belongs to someone
        else.
        """
        rng = rng if rng is not None else random.SystemRandom()
        capacity = max(64, raise_file_limit() * 3 // 8) if isinstance(disk, OsDisk) else 512
        resolve = os.path.abspath if isinstance(disk, OsDisk) else os.path.normpath
        paths = [resolve(os.fspath(path)) for path in log_dirs]
        dirs = [LogDir(disk, path, OpenFiles(disk, max(16, capacity // len(paths)))) for path in paths]
        manager = cls(dirs, disk, rng, producer_id_expiration_ms)
        try:
            for log_dir in dirs:
                log_dir.open(cluster_id, node_id, rng)
        except BaseException:
            manager._unlock()
            raise
        return manager

    def load(
        self,
        *,
        now_ms: int,
        log_config: Callable[[TopicPartition], LogConfig],
        progress: OpeningProgress | None = None,
    ) -> LoadedLogs:
        """Open every log in the locked dirs, in any thread; :meth:`take_in` what it returns.

        Other threads may read ``progress``, and end it by that: ``OpeningStopped``. A directory that fails goes
        offline.
        """
        return load_logs(
            self.disk,
            self.log_dirs,
            now_ms=now_ms,
            log_config=log_config,
            producer_id_expiration_ms=self._producer_id_expiration_ms,
            progress=progress if progress is not None else OpeningProgress(),
        )

    def take_in(self, loaded: LoadedLogs) -> None:
        """Hold the logs that were opened. ``FatalError`` if no log dir works."""
        self.failed = loaded.failed
        self.high_watermarks.update(loaded.high_watermarks)
        self.moves.interrupted = loaded.interrupted_moves
        for path in loaded.doomed:
            self._removals.add_directory(path)
        for log, log_dir in loaded.logs:
            self._add(log, log_dir)
        for tp, log_dir in loaded.dir_of.items():
            self._dir_of.setdefault(tp, log_dir)
        self._is_open = True  # not before: a clean stop would leave its marker without logs that were left out
        if all(log_dir.offline is not None for log_dir in self.log_dirs):
            raise FatalError("no log dir can be used: " + "; ".join(str(d.offline) for d in self.log_dirs))

    def _add(self, log: PartitionLog, log_dir: LogDir) -> None:
        other = self._logs.get(log.topic_partition)
        if other is not None and other.topic_id != log.topic_id:
            # One is of a topic that was deleted while its log dir was offline. Which, `set_stray_aside` is told.
            self._contested.append((log, log_dir))
        else:
            self._adopt_longer(log, log_dir)

    def _adopt_longer(self, log: PartitionLog, log_dir: LogDir) -> None:
        tp = log.topic_partition
        other = self._logs.get(tp)
        if other is not None:
            # The node stopped at the last step of a move: both have what was durable, one perhaps more.
            other_dir = self._dir_of[tp]
            if log.log_end_offset <= other.log_end_offset:
                log, log_dir, other, other_dir = other, other_dir, log, log_dir
            logger.warning(
                "the log of %s is in two log dirs; %s, up to offset %d, is kept, and %s, up to offset %d, is set aside",
                tp,
                log_dir.path,
                log.log_end_offset,
                other_dir.path,
                other.log_end_offset,
            )
            self._rename_stray(other, other_dir)
        self._adopt(log, log_dir)

    def _adopt(self, log: PartitionLog, log_dir: LogDir) -> None:
        log.on_rolled = self._on_rolled
        log.before_roll = self._checkpoints.before_roll
        log.before_truncation = self._checkpoints.before_truncation
        self._logs[log.topic_partition] = log
        self._dir_of[log.topic_partition] = log_dir

    def _on_rolled(self, log: PartitionLog) -> None:
        self._flushes.add(log)
        self._removals.add_log(log)

    # -- looking up

    def __iter__(self) -> Iterator[PartitionLog]:
        return iter(list(self._logs.values()))

    def __len__(self) -> int:
        return len(self._logs)

    def get_log(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """The log of a partition; ``None`` if there is none.

        ``ApiError(KAFKA_STORAGE_ERROR)`` if there is one that cannot be used.
        """
        log = self._logs.get(topic_partition)
        if log is None and self.failed:
            reason = self.failed.get(topic_partition)
            if reason is not None:
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, reason)
        return log

    def log_of(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """The log of a partition if there is one that can be used."""
        return self._logs.get(topic_partition)

    def log_dir_of(self, topic_partition: TopicPartition) -> LogDir | None:
        """The log dir that holds, or held, a partition's log."""
        return self._dir_of.get(topic_partition)

    def log_dir_of_flush(self, task: FlushTask) -> LogDir:
        """The log dir that it writes to: the log may be in another one by now."""
        path = os.path.dirname(task.directory)
        return next(log_dir for log_dir in self.log_dirs if log_dir.path == path)

    def logs_in(self, log_dir: LogDir) -> list[PartitionLog]:
        """The logs of one log dir."""
        return list(self.iter_logs_in(log_dir))

    def iter_logs_in(self, log_dir: LogDir) -> Iterator[PartitionLog]:
        """The logs of one log dir that are there now. Others may run between two of them: some may be gone by then."""
        return (log for tp, log in list(self._logs.items()) if self._dir_of.get(tp) is log_dir)

    def _log_dir_with(self, log: PartitionLog) -> LogDir:
        return self._dir_of[log.topic_partition]

    # -- making and removing

    def create_log(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid | None,
        config: LogConfig,
        *,
        now_ms: int = 0,
        is_new: bool = True,
    ) -> PartitionLog:
        """The partition's log: the one that is there, with this configuration from now on, or a new one.

        A new one goes to the log dir with the fewest logs that is not cordoned, and touches the disk only on its first
        write. If all are cordoned, which the controller did not know yet, the first takes it.
        INCONSISTENT_TOPIC_ID if the log that is there belongs to another topic of this name.
        KAFKA_STORAGE_ERROR if there is none, the partition is not new, and a log dir is offline: it is in there.
        """
        log = self.get_log(topic_partition)
        if log is not None:
            if topic_id is not None and log.topic_id is not None and log.topic_id != topic_id:
                raise ApiError(
                    ErrorCode.INCONSISTENT_TOPIC_ID,
                    f"{log.directory} holds the data of another topic of the same name",
                )
            if log.topic_id is None:
                log.adopt_topic_id(topic_id)
            log.update_config(config)
            return log
        if not is_new and any(log_dir.offline is not None for log_dir in self.log_dirs):
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {topic_partition} may be in a log dir that is offline"
            )
        log_dir = self.moves.take_preferred(topic_partition) or self._least_loaded()
        log = opening.create_log(
            os.path.join(log_dir.path, str(topic_partition)),
            topic_partition,
            topic_id,
            config,
            self.disk,
            now_ms=now_ms,
            files=log_dir.files,
            producer_id_expiration_ms=self._producer_id_expiration_ms,
        )
        self._adopt(log, log_dir)
        self._checkpoints.forget(log_dir, topic_partition)
        return log

    def _make_anew(self, log: PartitionLog, now_ms: int) -> None:
        """Make a log that was never written anew, where it is preferred now."""
        tp = log.topic_partition
        del self._logs[tp], self._dir_of[tp]
        self.create_log(tp, log.topic_id, log.config, now_ms=now_ms)

    def _least_loaded(self) -> LogDir:
        online = [log_dir for log_dir in self.log_dirs if log_dir.offline is None]
        if not online:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "all log dirs are offline")
        open_to_new = [log_dir for log_dir in online if not log_dir.cordoned]
        if len(online) == 1 or not open_to_new:
            return online[0]
        counts = {id(log_dir): 0 for log_dir in self.log_dirs}
        for tp in self._logs:
            counts[id(self._dir_of[tp])] += 1
        return min(open_to_new, key=lambda log_dir: counts[id(log_dir)])

    def delete_log(self, topic_partition: TopicPartition) -> None:
        """Forget a log and rename its directory for removal (:meth:`removal_task`), also of one that could not be
        opened. Fine if there is none.

        Readers that hold a region of it are not disturbed. ``OSError`` if the rename fails.
        """
        self._set_aside(topic_partition, DELETE_SUFFIX)

    def set_stray_aside(self, expected: Callable[[TopicPartition, Uuid | None], bool]) -> list[TopicPartition]:
        """Rename logs that the cluster's metadata does not know, for a person to look at (suffix ``-stray``,
        as Kafka does); answer which. Without a topic id are logs that were never flushed, and those that could not be
        opened."""
        found: dict[TopicPartition, Uuid | None] = dict.fromkeys(self.failed)
        found.update((tp, log.topic_id) for tp, log in self._logs.items())
        strays = [tp for tp, topic_id in sorted(found.items()) if not expected(tp, topic_id)]
        for tp in strays:
            log_dir = self._dir_of[tp]
            logger.warning(_STRAY, log_dir.path, tp)
            try:
                self._set_aside(tp, STRAY_SUFFIX)
            except OSError as error:
                self.mark_offline(log_dir, error)
        contested, self._contested = self._contested, []
        for log, log_dir in contested:
            if expected(log.topic_partition, log.topic_id):
                self._adopt_longer(log, log_dir)  # there may be one that does not know its topic
            else:
                logger.warning(_STRAY, log_dir.path, log.topic_partition)
                self._rename_stray(log, log_dir)
                strays.append(log.topic_partition)
        for tp in strays:
            self.high_watermarks.pop(tp, None)
        return strays

    def _rename_stray(self, log: PartitionLog, log_dir: LogDir) -> None:
        log_dir.cleaner_offsets.pop(log.topic_partition, None)
        try:
            self._marked.set_aside(log, log_dir, STRAY_SUFFIX)
        except OSError as error:
            self.mark_offline(log_dir, error)

    def _set_aside(self, tp: TopicPartition, suffix: str) -> None:
        could_not_be_opened = self.failed.pop(tp, None) is not None
        move = self.moves.of(tp)
        if move is not None:
            move.abandon()
        log = self._logs.pop(tp, None)
        log_dir = self._dir_of.pop(tp, None)
        if log_dir is None:
            return
        log_dir.cleaner_offsets.pop(tp, None)
        if log is not None:
            self._marked.set_aside(log, log_dir, suffix)
        elif could_not_be_opened:
            # Or it would be taken for that of the next topic of this name.
            self._marked.set_directory_aside(os.path.join(log_dir.path, str(tp)), tp, log_dir, suffix)

    def removal_task(self, now_ms: int) -> RemovalTask | None:
        """Take what was renamed for removal ``file.delete.delay.ms`` ago: directories, segments. ``None`` without any.

        A log dir in which a segment cannot be removed goes offline as the task is ended.
        """
        return self._removals.task(now_ms)

    def delete_old_segments(
        self, now_ms: int, high_watermark: Callable[[TopicPartition], int | None] | None = None
    ) -> int:
        """Retention over all logs (every ``log.retention.check.interval.ms``); how many segments went.

        ``high_watermark`` tells the bound of each; without it the log's end is. ``None`` leaves the log out. A log dir
        that fails goes offline, and the others are done.
        """
        total = 0
        for tp, log in list(self._logs.items()):
            bound = log.log_end_offset if high_watermark is None else high_watermark(tp)
            if bound is None or self._dir_of[tp].offline is not None:
                continue
            try:
                count = log.delete_old_segments(now_ms, high_watermark=bound)
            except OSError as error:
                self._retention_failed(log, error)
                continue
            if count:
                total += count
                self._removals.add_log(log)
        return total

    def _retention_failed(self, log: PartitionLog, error: OSError) -> None:
        log_dir = self._dir_of.get(log.topic_partition)
        if log_dir is not None and log_dir.offline is None:
            self.mark_offline(log_dir, error)

    # -- durability

    def set_producer_id_expiration(self, expiration_ms: int) -> None:
        """Have the logs, and those that are made from now on, forget producers that were idle for so long."""
        if expiration_ms != self._producer_id_expiration_ms:
            self._producer_id_expiration_ms = expiration_ms
            for log in self:
                log.producers.producer_id_expiration_ms = expiration_ms

    def mark_offline(self, log_dir: LogDir, error: BaseException) -> None:
        """A log dir failed: nothing is written there any more, and its next start verifies all.

        The owner does that, not a thread that works for it: ``on_offline`` wakes tasks.
        """
        log_dir.mark_offline(error)
        for callback in self.on_offline:
            callback()

    def check_any_online(self) -> None:
        """``FatalError`` when every log dir has failed: there is nothing left to serve from."""
        if all(log_dir.offline is not None for log_dir in self.log_dirs):
            raise FatalError("no log dir works any more: " + "; ".join(str(d.offline) for d in self.log_dirs))

    def flush_tasks(self, now_ms: int) -> list[FlushTask]:
        """Begin the flushes that are due: of sealed segments, and of logs with ``flush.messages`` or ``flush.ms``.

        Run each in a thread and then end it here; on ``OSError`` mark the log dir offline and do neither. A log dir
        where a file cannot even be opened is offline then.
        """
        return self._flushes.begin(now_ms)

    @property
    def waits_for_flush(self) -> bool:
        """Whether some log has records that ``flush.ms`` asks to flush sooner or later."""
        return self._flushes.some_wait

    def next_flush_ms(self, now_ms: int) -> int:
        """The time (milliseconds) of the next flush by ``flush.ms``, also for records that are written from now on."""
        return self._flushes.next_ms(now_ms)

    def _with_moving(self, log_dir: LogDir) -> list[PartitionLog]:
        """The logs of a log dir, and those that may be there after a crash."""
        logs = self.logs_in(log_dir)
        logs += [log for log, place in self._contested if place is log_dir]
        logs += [move.future for move in self.moves.to(log_dir)]
        return logs

    def checkpoint_task(
        self, high_watermarks: Mapping[TopicPartition, int] | None = None
    ) -> Callable[[], list[tuple[LogDir, OSError]]]:
        """Collect what the checkpoint files are to say; the result writes those that changed, in any thread.

        A log without one of ``high_watermarks`` keeps that of the last start: a node may stop before it has partitions.

        It returns the log dirs that failed, which are then to be marked offline here.
        """
        tasks: list[tuple[LogDir, Callable[[], None]]] = []
        for log_dir in self.log_dirs:
            if log_dir.offline is None:
                marks: dict[TopicPartition, int] | None = None
                if high_watermarks is not None:
                    marks = {
                        tp: offset
                        for tp, offset in {**self.high_watermarks, **high_watermarks}.items()
                        if self._dir_of.get(tp) is log_dir and (log := self._logs.get(tp)) and log.is_on_disk
                    }
                task = self._checkpoints.collect(
                    log_dir, RECOVERY_POINTS, LOG_START_OFFSETS, CLEANER_OFFSETS, high_watermarks=marks
                )
                tasks.append((log_dir, task))

        return partial(write_all, tasks)

    def checkpoint(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """Write recovery points, log start offsets and, if given, high watermarks, durably."""
        for log_dir, error in self.checkpoint_task(high_watermarks)():
            self.mark_offline(log_dir, error)

    def close(self, *, high_watermarks: Mapping[TopicPartition, int] | None = None, broker_epoch: int = -1) -> None:
        """A clean stop: flush all, write the checkpoints and leave the marker in each dir where all went well.

        Logs that were never taken in are left as they are.
        """
        if not self._is_open:
            self.release()
            return
        logs = [(log, self._dir_of[tp]) for tp, log in self._logs.items()]
        close_logs(logs + self._contested, self.disk, self.mark_offline)
        self.checkpoint(high_watermarks)
        for log_dir in self.log_dirs:
            if log_dir.offline is None and not self._failed_in(log_dir):
                try:
                    self.disk.sync_dir(log_dir.path)
                    write_clean_shutdown(self.disk, log_dir.path, broker_epoch=broker_epoch)
                except OSError as error:
                    self.mark_offline(log_dir, error)
        self.release()

    def _failed_in(self, log_dir: LogDir) -> bool:
        return any(self._dir_of.get(tp) is log_dir for tp in self.failed)

    def release(self) -> None:
        """Let go of files and locks without a word to the disk, as after a crash or a test."""
        self._logs.clear()
        for log_dir in self.log_dirs:
            log_dir.files.clear()
        self._unlock()

    def _unlock(self) -> None:
        for log_dir in self.log_dirs:
            log_dir.unlock()
