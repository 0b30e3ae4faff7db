"""Closes all logs of a node at a clean stop, so that the next start need not look into them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from kbroker.log.checkpoint_files import write_clean_shutdown
from kbroker.log.disk import Disk, OsDisk
from kbroker.log.flushing import FlushTask, begin_flushes
from kbroker.log.log_dir import LogDir
from kbroker.log.partition_log import PartitionLog


def close_logs(
    logs: Iterable[tuple[PartitionLog, LogDir]],
    disk: Disk,
    checkpoint: Callable[[], list[tuple[LogDir, OSError]]],
    mark_offline: Callable[[LogDir, OSError], None],
) -> set[LogDir]:
    """Make everything durable, and write the checkpoints. A dir that fails goes offline, and the others are done; the
    dirs themselves are for the caller to sync.

    Returns the dirs in which something could not be written, also for want of room.
    """
    failed: set[LogDir] = set()

    def on_failure(log_dir: LogDir, error: OSError) -> None:
        failed.add(log_dir)
        mark_offline(log_dir, error)

    tasks = begin_flushes(((log.begin_close, log_dir) for log, log_dir in logs), on_failure)
    for (task, log_dir), failure in zip(tasks, _run([task for task, _ in tasks], disk), strict=True):
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


def _run(tasks: list[FlushTask], disk: Disk) -> list[OSError | None]:
    def run(task: FlushTask) -> OSError | None:
        try:
            task.run()
        except OSError as error:
            return error
        return None

    if len(tasks) > 4 and isinstance(disk, OsDisk):
        from concurrent.futures import ThreadPoolExecutor  # at the end: a node that serves does without it

        # Many small fsyncs wait for the same commits of the file system: side by side they share them.
        with ThreadPoolExecutor(8, thread_name_prefix="kbroker-close") as pool:
            return list(pool.map(run, tasks))
    return [run(task) for task in tasks]
