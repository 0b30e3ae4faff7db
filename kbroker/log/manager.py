"""All logs of a node: its log dirs, the logs in them, and the checkpoints that a restart begins from.

A log dir holds a directory ``topic-partition`` for each log, ``meta.properties``, a ``.lock``, the checkpoints
and, after a clean stop, a marker; all as Apache Kafka 4.3.1 has them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from functools import partial

from kbroker.errors import ApiError, ErrorCode, FatalError, LogDirFailure
from kbroker.log import opening
from kbroker.log.checkpoint_files import CLEANER_OFFSETS, LOG_START_OFFSETS, RECOVERY_POINTS
from kbroker.log.dirs.checkpoint_tasks import CheckpointTasks, CleanerOffsets, write_all
from kbroker.log.dirs.due_flushes import DueFlushes, close_logs, leave_markers
from kbroker.log.dirs.log_move import LogMoves
from kbroker.log.dirs.removals import MarkedDirectories, Removals, RemovalTask
from kbroker.log.dirs.start_up import (
    FoundLogs,
    IsOwn,
    LoadedLogs,
    NoOthers,
    OpeningProgress,
    load_logs,
    of_another_history,
)
from kbroker.log.disk import Disk, OsDisk, raise_file_limit
from kbroker.log.flushing import FlushTask
from kbroker.log.full_disk import is_no_room
from kbroker.log.log_config import LogConfig
from kbroker.log.log_dir import DELETE_SUFFIX, STRAY_SUFFIX, LogDir
from kbroker.log.partition_log import PartitionLog
from kbroker.types import METADATA_TOPIC, TopicPartition, Uuid

_OF_OTHERS = (
    "it has logs, and the cluster's metadata, which have never had this directory, know none of their topics; nothing"
    " in it is touched"
)


class LogManager:
    """Use :meth:`open`; then one owner calls everything, as with :class:`PartitionLog`.

    A node uses :meth:`lock` in its place, and opens the logs later: :meth:`load` and :meth:`take_in`.
    """

    def __init__(self, log_dirs: list[LogDir], disk: Disk, rng: random.Random, producer_id_expiration_ms: int) -> None:
        self.disk = disk
        self.log_dirs = log_dirs
        self.on_offline: list[Callable[[], None]] = []
        """Called when a log dir has failed, is full or has room again, and when a log is damaged or has healed. Must
        not wait."""
        self.metadata_dir: LogDir | None = None
        """That of the metadata log, if this node has it locked, too; perhaps one of ``log_dirs``."""
        self.high_watermarks: dict[TopicPartition, int] = {}
        """As the checkpoints had them on opening."""
        self.failed: dict[TopicPartition, str] = {}
        """Logs that could not be opened, and directories that have a log's name and are none: which, and why."""
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._is_open = False
        """Whether the logs were taken in."""
        self.closed = 0
        """Logs that `close` has made durable so far: it may take long, and tells that it goes on."""
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._dir_of: dict[TopicPartition, LogDir] = {}
        self._flushes = DueFlushes(self._logs.values(), self._log_dir_with, self.mark_offline)
        self._removals = Removals(disk, self._retention_failed)
        self._marked = MarkedDirectories(rng, self._flushes, self._removals)
        self._found = FoundLogs(
            self._logs, self._dir_of, self.failed, self._marked, adopt=self._adopt, mark_offline=self.mark_offline
        )
        self._checkpoints = CheckpointTasks(self._with_moving, self._dir_of)
        # Once, and not for each log: a bound method takes memory.
        self._hooks = self._on_rolled, self._checkpoints.before_roll, self._checkpoints.before_truncation
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
        leaves_holes: bool = True,
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
            loaded = manager.load(now_ms=now_ms, log_config=log_config, progress=progress, leaves_holes=leaves_holes)
            manager.take_in(loaded)
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
        metadata_log_dir: str | None = None,
    ) -> LogManager:
        """Lock and identify the log dirs; no log is open yet.

        With ``cluster_id`` and ``node_id`` each ``meta.properties`` is held against them; a directory that
        has none gets one. A directory that fails goes offline; ``FatalError`` if one is locked or belongs to someone
        else. So with ``metadata_log_dir``, which may be one of them: without it there is no node.
        """
        rng = rng if rng is not None else random.SystemRandom()
        capacity = max(64, raise_file_limit() * 3 // 8) if isinstance(disk, OsDisk) else 512
        resolve = os.path.abspath if isinstance(disk, OsDisk) else os.path.normpath
        paths = [resolve(os.fspath(path)) for path in log_dirs]
        dirs = [LogDir(disk, path, max(16, capacity // len(paths))) for path in paths]
        manager = cls(dirs, disk, rng, producer_id_expiration_ms)
        if metadata_log_dir is not None:
            path = resolve(metadata_log_dir)
            own = LogDir(disk, path, 16)
            manager.metadata_dir = next((log_dir for log_dir in dirs if log_dir.path == path), own)
        try:
            for log_dir in manager.locked():
                log_dir.open(cluster_id, node_id, rng, may_be_new=log_dir is not manager.metadata_dir)
            manager.check_metadata_dir()
            manager._check_no_other_metadata()
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
        leaves_holes: bool = True,
    ) -> LoadedLogs:
        """Open every log in the locked dirs, in any thread; :meth:`take_in` what it returns.

        Other threads may read ``progress``, and end it by that: ``OpeningStopped``. A directory that fails goes
        offline. Unless damage ``leaves_holes``, logs are cut there.
        """
        return load_logs(
            self.disk,
            self.log_dirs,
            now_ms=now_ms,
            log_config=log_config,
            producer_id_expiration_ms=self._producer_id_expiration_ms,
            progress=progress if progress is not None else OpeningProgress(),
            leaves_holes=leaves_holes,
        )

    def take_in(self, loaded: LoadedLogs) -> None:
        """Hold the logs that were opened. ``FatalError`` if no log dir works."""
        self.failed.update(loaded.failed)
        self._found.nameless |= loaded.nameless
        self.high_watermarks.update(loaded.high_watermarks)
        self.moves.interrupted = loaded.interrupted_moves
        for path in loaded.doomed:
            self._removals.add_directory(path)
        for log, log_dir in loaded.logs:
            self._found.add(log, log_dir)
        for tp, log_dir in loaded.dir_of.items():
            self._dir_of.setdefault(tp, log_dir)
        self._is_open = True  # not before: a clean stop would leave its marker without logs that were left out
        if all(log_dir.offline is not None for log_dir in self.log_dirs):
            raise LogDirFailure("no log dir can be used: " + "; ".join(str(d.offline) for d in self.log_dirs))

    def _adopt(self, log: PartitionLog, log_dir: LogDir) -> None:
        log.on_rolled, log.before_roll, log.before_truncation = self._hooks
        log.before_creation = log_dir.before_creation
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

        A new one goes to the log dir with the fewest logs that is not cordoned and not full, and touches the disk only
        on its first write. If there is none, which the controller did not know yet, the first takes it.
        INCONSISTENT_TOPIC_ID if the log that is there belongs to another topic of this name.
        KAFKA_STORAGE_ERROR if there is none, the partition is not new, and a log dir is offline: it is in there.
        """
        log = self.get_log(topic_partition)
        if log is not None:
            if topic_id is not None and log.topic_id is not None and log.topic_id != topic_id:
                raise ApiError(
                    ErrorCode.INCONSISTENT_TOPIC_ID, f"{log.directory} holds the data of another topic of the same name"
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
            log_dir.new_path(topic_partition),
            topic_partition,
            topic_id,
            config,
            log_dir.disk,
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
        open_to_new = [log_dir for log_dir in online if not log_dir.cordoned and not log_dir.room.is_full]
        if len(online) == 1 or not open_to_new:
            return online[0]
        counts = {id(log_dir): 0 for log_dir in self.log_dirs}
        for tp in self._logs:
            counts[id(self._dir_of[tp])] += 1
        return min(open_to_new, key=lambda log_dir: counts[id(log_dir)])

    def delete_log(self, topic_partition: TopicPartition) -> None:
        """Forget a log and rename its directory for removal (:meth:`removal_task`). Fine if there is none.

        One that could not be opened is set aside: it would be taken for that of the next topic of this name.
        Readers that hold a region of it are not disturbed. ``OSError`` if the rename fails.
        """
        tp = topic_partition
        move = self.moves.of(tp)
        if move is not None:
            move.abandon()
        log = self._logs.pop(tp, None)
        log_dir = self._dir_of.pop(tp, None)
        if log_dir is None:
            return
        log_dir.cleaner_offsets.pop(tp, None)
        if log is not None:
            self._marked.set_aside(log, log_dir, DELETE_SUFFIX)
        elif self.failed.pop(tp, None) is not None:
            self._marked.set_directory_aside(os.path.join(log_dir.path, str(tp)), tp, log_dir, STRAY_SUFFIX)

    def set_stray_aside(self, is_own: IsOwn, is_only: NoOthers = lambda tp: True) -> list[TopicPartition]:
        """Keep the logs that the cluster's metadata have here, and set the others aside or leave them where they are
        (``FoundLogs``); answer which. Without a topic id are logs that were never flushed."""
        strays = self._found.sort_out(is_own, is_only)
        for tp in strays:
            self.high_watermarks.pop(tp, None)
        return strays

    def refuse_other_histories(self, known: Collection[Uuid], topic_ids: Container[Uuid]) -> None:
        """Take log dirs offline whose logs were not made under these metadata: of a ``known`` dir they were.

        ``FatalError`` if no log dir is left.
        """
        for log_dir in self.log_dirs:
            if log_dir.offline is None and log_dir.directory_id not in known:
                try:
                    if of_another_history(self.disk, log_dir, topic_ids):
                        self.mark_offline(log_dir, FileExistsError(_OF_OTHERS))
                except OSError as error:
                    self.mark_offline(log_dir, error)
        self.check_any_online()

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
        """A log dir failed: nothing is written there any more, and its next start verifies all. Or it is full, and what
        could not be written is written when there is room.

        The owner does that, not a thread that works for it: ``on_offline`` wakes tasks.
        """
        if is_no_room(error):
            log_dir.room.ran_out(error)
            return
        log_dir.mark_offline(error)
        for callback in self.on_offline:
            callback()

    def find_gone(self) -> bool:
        """Take log dirs offline that are gone; whether any is. ``FatalError`` if the node cannot go on without."""
        found = self._mark_gone()
        if found:
            self.check_any_online()
        return found

    def _mark_gone(self) -> bool:
        found = False
        for log_dir in self.locked():
            if log_dir.offline is None:
                try:
                    log_dir.check_present()
                except OSError as error:
                    self.mark_offline(log_dir, error)
                    found = True
        return found

    def locked(self) -> list[LogDir]:
        """Returns the log dirs, and that of the metadata log if it is another."""
        own = self.metadata_dir
        return self.log_dirs if own is None or own in self.log_dirs else [*self.log_dirs, own]

    def check_metadata_dir(self) -> None:
        """``FatalError`` when the log dir of the metadata log has failed."""
        if self.metadata_dir is not None and self.metadata_dir.offline is not None:
            raise LogDirFailure(f"the log dir of the metadata log has failed: {self.metadata_dir.offline}")

    def _check_no_other_metadata(self) -> None:
        """``FatalError`` if a metadata log is in another log dir than its own, as Kafka's ``KafkaRaftServer`` says.

        A voter that begins one anew has forgotten for whom it has voted, and what it has told leaders that it has.
        """
        own = self.metadata_dir
        for log_dir in self.log_dirs:
            path = os.path.join(log_dir.path, f"{METADATA_TOPIC}-0")
            if own is not None and log_dir is not own and log_dir.offline is None and self.disk.is_dir(path):
                raise FatalError(
                    f"{path} is a metadata log, and this node's is to be in {own.path}: set metadata.log.dir="
                    f"{log_dir.path} (it is the first of log.dirs by default)"
                )

    def check_any_online(self) -> None:
        """``FatalError`` when every log dir has failed, or that of the metadata log: there is nothing to serve from."""
        self.check_metadata_dir()
        if all(log_dir.offline is not None for log_dir in self.log_dirs):
            raise LogDirFailure("no log dir works any more: " + "; ".join(str(d.offline) for d in self.log_dirs))

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
        logs += [log for log, place in self._found.contested if place is log_dir]
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
                    log_dir, CLEANER_OFFSETS, RECOVERY_POINTS, LOG_START_OFFSETS, high_watermarks=marks
                )
                tasks.append((log_dir, task))

        return partial(write_all, tasks)

    def checkpoint(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """Write recovery points, log start offsets and, if given, high watermarks, durably."""
        for log_dir, error in self._checkpoint(high_watermarks):
            self.mark_offline(log_dir, error)

    def _checkpoint(self, high_watermarks: Mapping[TopicPartition, int] | None) -> list[tuple[LogDir, OSError]]:
        return self.checkpoint_task(high_watermarks)()

    def close(self, *, high_watermarks: Mapping[TopicPartition, int] | None = None, broker_epoch: int = -1) -> None:
        """A clean stop: flush all, write the checkpoints and leave the marker in each dir where all went well.

        Logs that were never taken in are left as they are.
        """
        self._mark_gone()
        if not self._is_open:
            self.release()
            return
        logs = [(log, self._dir_of[tp]) for tp, log in self._logs.items()]
        checkpoint = partial(self._checkpoint, high_watermarks)
        failed = close_logs(logs + self._found.contested, self.disk, checkpoint, self.mark_offline, self._on_closed)
        failed |= {self._dir_of[tp] for tp in self.failed if tp in self._dir_of and tp not in self._logs}
        leave_markers(self.log_dirs, failed, self.disk, broker_epoch, self.mark_offline)
        self.release()

    def _on_closed(self) -> None:
        self.closed += 1  # by several threads: that it grows is all that counts

    def release(self) -> None:
        """Let go of files and locks without a word to the disk, as after a crash or a test."""
        self._logs.clear()
        for log_dir in self.log_dirs:
            log_dir.files.clear()
        self._unlock()

    def _unlock(self) -> None:
        for log_dir in self.locked():
            log_dir.unlock()
