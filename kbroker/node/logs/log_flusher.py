"""Background work on logs: flushes, checkpoints, retention, and the expiry of producers.

A node to which nobody writes wakes for none of it but the retention check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import trio

from kbroker.node.replicas.cautious_clock import CautiousClock
from kbroker.node.replicas.partition import Partition
from kbroker.node.replicas.replica_manager import ReplicaManager

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.log.log_dir import LogDir
    from kbroker.log.manager import LogManager
    from kbroker.observe.metrics.histogram import Histogram
    from kbroker.runtime.env import Env

_ROOM_SECONDS = 1.0
"""Between two looks whether a full disk has room again."""
_RETENTION_SECONDS = 10.0
"""Between two rounds of retention while a disk is full, however long log.retention.check.interval.ms is."""

_SHORTEST_WAIT = 0.01
"""Between two flushes of one round, in seconds, however short flush.ms is."""


class LogFlusher:
    """The background work on one node's logs. ``run`` it for as long as the node serves."""

    def __init__(
        self, env: Env, config: BrokerConfig, log_manager: LogManager, replica_manager: ReplicaManager
    ) -> None:
        self._env = env
        self._config = config
        self._log_manager = log_manager
        self._replica_manager = replica_manager
        self._clock = CautiousClock(env)
        self._look_for_expired = trio.Event()
        self.producer_id_expiration_ms: Callable[[], int] = lambda: config.producer_id_expiration_ms
        """Asked each time that logs forget producers: it may change at run time."""
        self.times: Histogram | None = None
        """Of flushes, on a node that has metrics."""

    async def run(self) -> None:
        """Do all of it, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._checkpoint_loop)
            nursery.start_soon(self._retention_loop)
            nursery.start_soon(self._removal_loop)
            nursery.start_soon(self._producer_expiry_loop)
            nursery.start_soon(self._room_loop)

    async def _checkpoint_loop(self) -> None:
        """After something was written, and not more often than every interval: flush what asks for it, checkpoint."""
        interval = self._config.replica_high_watermark_checkpoint_interval_ms / 1000
        manager = self._replica_manager
        while True:
            await manager.checkpoints.wait()
            await self._sleep_and_flush(interval)
            manager.checkpoints.clear()
            await self.flush_due()
            await manager.log_dirs.checkpoint()
            manager.log_dirs.take_partitions_offline()
            self._look_for_expired.set()
            if self._log_manager.waits_for_flush:
                manager.checkpoints.request()  # flush.ms has not passed yet, and perhaps nobody writes any more

    async def _sleep_and_flush(self, seconds: float) -> None:
        """Sleep, but wake for flushes that flush.ms asks for."""
        end = self._env.now() + seconds
        while (left := end - self._env.now()) > 0:
            now_ms = self._env.wall_clock_ms()
            wait = (self._log_manager.next_flush_ms(now_ms) - now_ms) / 1000
            if wait >= left:
                await trio.sleep(left)
                return
            await trio.sleep(max(wait, _SHORTEST_WAIT))
            await self.flush_due()

    async def flush_due(self) -> None:
        """Flush sealed segments, and logs whose flush.messages or flush.ms ask for it."""
        with self._failures_noticed():
            tasks = self._log_manager.flush_tasks(self._env.wall_clock_ms())
        for task in tasks:
            began = self._env.now()
            try:
                await self._env.run_blocking(task.run)
            except OSError as error:
                self._replica_manager.log_dirs.flush_failed(task, error)
            else:
                task.end()
            if self.times is not None:
                self.times.observe_seconds(self._env.now() - began)

    def _partitions(self) -> Iterable[Partition]:
        for partition in list(self._replica_manager.partitions.values()):
            if partition.has_log and not partition.offline:
                yield partition

    async def _retention_loop(self) -> None:
        await trio.sleep(self._config.log_initial_task_delay_ms / 1000)
        while True:
            self.apply_retention()
            self._look_for_expired.set()
            await trio.sleep(self._config.log_retention_check_interval_ms / 1000)

    def apply_retention(self) -> None:
        """Delete what retention allows, up to the high watermarks."""
        manager = self._replica_manager
        now_ms = self._clock.now_ms()
        with self._failures_noticed():
            if self._log_manager.delete_old_segments(now_ms, manager.high_watermarks().get):
                manager.checkpoints.request()
                manager.progress.log_starts_moved()

    async def _room_loop(self) -> None:
        """While log dirs are full: delete what retention allows, and look whether there is room for clients again."""
        manager = self._log_manager
        token = trio.lowlevel.current_trio_token()
        filled = trio.Event()

        def on_full() -> None:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(filled.set)  # from any thread

        for log_dir in manager.locked():
            log_dir.room.on_full = on_full
        known: list[LogDir] = []
        retention_at = 0.0
        while True:
            filled = trio.Event()
            full = self._full_dirs()
            if full != known:
                known = full
                self._room_changed()
            if not full:
                await filled.wait()
                continue
            if self._env.now() >= retention_at:
                self.apply_retention()
                retention_at = self._env.now() + _RETENTION_SECONDS
            self._look_for_expired.set()
            with trio.move_on_after(_ROOM_SECONDS):
                await filled.wait()
            self._look_for_room()

    def _look_for_room(self) -> None:
        for log_dir in self._full_dirs():
            try:
                log_dir.room.fill_reserve()
            except OSError as error:
                self._replica_manager.log_dirs.mark_offline(log_dir, error)

    def _full_dirs(self) -> list[LogDir]:
        log_dirs = self._log_manager.locked()
        return [log_dir for log_dir in log_dirs if log_dir.room.is_full and log_dir.offline is None]

    def _room_changed(self) -> None:
        manager = self._replica_manager
        manager.log_dirs.take_partitions_offline()
        fetchers = manager.fetchers
        if fetchers is not None:
            for partition in list(manager.partitions.values()):
                if partition.state.is_leader:
                    continue
                if partition.read_only:
                    fetchers.unfollow(partition)
                else:
                    fetchers.follow(partition)
        for callback in self._log_manager.on_offline:
            callback()

    @contextmanager
    def _failures_noticed(self) -> Iterator[None]:
        """Take partitions offline whose log dirs fail inside this context."""
        failed = self._failed_dirs()
        yield
        if self._failed_dirs() != failed:
            self._replica_manager.log_dirs.take_partitions_offline()

    async def _removal_loop(self) -> None:
        """Apart from the other loops, as a disk may take long over it and flushes are not to wait."""
        while True:
            await self._look_for_expired.wait()
            self._look_for_expired = trio.Event()
            await self.remove_expired()

    async def remove_expired(self) -> None:
        """Remove for good what was deleted ``file.delete.delay.ms`` ago."""
        task = self._log_manager.removal_task(self._clock.now_ms())
        if task is None:
            return
        while await self._env.run_blocking(task.step):
            pass
        with self._failures_noticed():
            task.end()

    def _failed_dirs(self) -> int:
        return sum(log_dir.offline is not None for log_dir in self._log_manager.log_dirs)

    async def _producer_expiry_loop(self) -> None:
        while True:
            await trio.sleep(self._config.producer_id_expiration_check_interval_ms / 1000)
            now_ms = self._clock.now_ms()
            self._log_manager.set_producer_id_expiration(self.producer_id_expiration_ms())
            for partition in self._partitions():
                partition.log.producers.remove_expired_producers(now_ms)
                await trio.lowlevel.checkpoint()
