"""Finds the logs that are due to be flushed: by a sealed segment, or by their configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, ValuesView
from functools import partial

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
        return min(
            (min(log.flush_due_ms, now_ms + log.config.flush_ms) for log in self._by_config()),
            default=NEVER,
        )
