"""Flushes of the logs of a node: those that are due, by a sealed segment or by their configuration; a clean stop."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, ValuesView
from functools import partial

from kbroker.log.checkpoint_files import write_clean_shutdown
from kbroker.log.disk import Disk, OsDisk
from kbroker.log.flushing import NEVER, FlushTask, begin_flushes
from kbroker.log.log_dir import LogDir
from kbroker.log.partition_log import PartitionLog


class DueFlushes:
    """Over ``logs``, as they are at the time; none of a log dir that is offline."""

    def __init__(
        self,
        logs: ValuesView[PartitionLog],
        log_dir_of: Callable[[PartitionLog], LogDir],
        mark_offline: Callable[[LogDir, OSError], None],
    ) -> None:
        self._logs = logs
        self._log_dir_of = log_dir_of
        self._mark_offline = mark_offline
        self._rolled: set[PartitionLog] = set()

    def add(self, log: PartitionLog) -> None:
        """Have a log be flushed that has sealed a segment, or was cut."""
        self._rolled.add(log)

    def forget(self, log: PartitionLog) -> None:
        """Have a log not be flushed, as it is not used any more."""
        self._rolled.discard(log)

    def _by_config(self) -> Iterator[PartitionLog]:
        return (log for log in self._logs if log.flushes_by_config and self._log_dir_of(log).offline is None)

    def begin(self, now_ms: int) -> list[FlushTask]:
        """Begin the flushes that are due. A log dir where a file cannot be opened goes offline."""
        rolled = sorted(self._rolled, key=lambda log: log.topic_partition)
        self._rolled.clear()
        due = [(log, not log.durability.cut) for log in rolled if not log.flushes_by_config]
        due += [(log, False) for log in self._by_config() if log.needs_flush(now_ms)]
        begins = ((partial(log.begin_flush, sealed_only=sealed), self._log_dir_of(log)) for log, sealed in due)
        return [task for task, _ in begin_flushes(begins, self._mark_offline)]

    @property
    def some_wait(self) -> bool:
        """Whether some log has records that ``flush.ms`` asks to flush sooner or later."""
        return any(log.flush_due_ms < NEVER for log in self._by_config())

    def next_ms(self, now_ms: int) -> int:
        """The time (milliseconds) of the next flush by ``flush.ms``, also for records that are written from now on."""
        return min((min(log.flush_due_ms, now_ms + log.config.flush_ms) for log in self._by_config()), default=NEVER)


def close_logs(
    logs: Iterable[tuple[PartitionLog, LogDir]],
    disk: Disk,
    checkpoint: Callable[[], list[tuple[LogDir, OSError]]],
    mark_offline: Callable[[LogDir, OSError], None],
    on_closed: Callable[[], None],
) -> set[LogDir]:
    """Make everything durable, and write the checkpoints. A dir that fails goes offline, and the others are done; the
    dirs themselves are for the caller to sync. Calls ``on_closed``, in some thread, with each log.

    Returns the dirs in which something could not be written, also for want of room.
    """
    failed: set[LogDir] = set()

    def on_failure(log_dir: LogDir, error: OSError) -> None:
        failed.add(log_dir)
        mark_offline(log_dir, error)

    tasks = begin_flushes(((log.begin_close, log_dir) for log, log_dir in logs), on_failure)
    for (task, log_dir), failure in zip(tasks, _run([task for task, _ in tasks], disk, on_closed), strict=True):
        if failure is None:
            task.end()
        else:
            on_failure(log_dir, failure)
    for log_dir, error in checkpoint():
        on_failure(log_dir, error)
    return failed


def leave_markers(
    log_dirs: Iterable[LogDir],
    failed: Collection[LogDir],
    disk: Disk,
    broker_epoch: int,
    mark_offline: Callable[[LogDir, OSError], None],
) -> None:
    """Leave the marker of a clean stop in each dir where all went well."""
    for log_dir in log_dirs:
        if log_dir.offline is None and log_dir not in failed:
            try:
                disk.sync_dir(log_dir.path)
                write_clean_shutdown(log_dir.disk, log_dir.path, broker_epoch=broker_epoch)
            except OSError as error:
                mark_offline(log_dir, error)


def _run(tasks: list[FlushTask], disk: Disk, on_closed: Callable[[], None]) -> list[OSError | None]:
    def run(task: FlushTask) -> OSError | None:
        try:
            task.run()
        except OSError as error:
            return error
        on_closed()
        return None

    if len(tasks) > 4 and isinstance(disk, OsDisk):
        from concurrent.futures import ThreadPoolExecutor  # at the end: a node that serves does without it

        # Many small fsyncs wait for the same commits of the file system: side by side they share them.
        with ThreadPoolExecutor(8, thread_name_prefix="kbroker-close") as pool:
            return list(pool.map(run, tasks))
    return [run(task) for task in tasks]
