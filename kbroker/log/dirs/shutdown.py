"""Closes all logs of a node at a clean stop, so that the next start need not look into them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kbroker.log.disk import Disk, OsDisk
from kbroker.log.flushing import FlushTask, begin_flushes
from kbroker.log.log_dir import LogDir
from kbroker.log.partition_log import PartitionLog


def close_logs(
    logs: Iterable[tuple[PartitionLog, LogDir]], disk: Disk, mark_offline: Callable[[LogDir, OSError], None]
) -> None:
    """Make everything durable. A dir that fails goes offline, and the others are done; the dirs themselves are for the
    caller to sync."""
    tasks = begin_flushes(((log.begin_close, log_dir) for log, log_dir in logs), mark_offline)
    for (task, log_dir), failure in zip(tasks, _run([task for task, _ in tasks], disk), strict=True):
        if failure is None:
            task.end()
        else:
            mark_offline(log_dir, failure)


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
