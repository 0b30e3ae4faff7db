"""When logs are flushed and checkpointed, on a clock that jumps."""

from __future__ import annotations

import errno
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import trio
import trio.testing
from trio.testing import MockClock

from kbroker.log.dirs.removals import STEP_FILES
from kbroker.log.fake_disk import FakeDisk
from kbroker.log.log_config import LogConfig
from kbroker.log.manager import LogManager
from kbroker.log.partition_log import PartitionLog
from kbroker.node.logs.log_cleaner import CleanerSettings, InlineCompactor, LogCleaner
from kbroker.node.logs.log_flusher import LogFlusher
from kbroker.node.replicas.partition_events import CheckpointRequests
from kbroker.types import TopicPartition
from kbroker.wire.record_batch import Record, build_batch
from tests.log.test_compaction import end_txn, put
from tests.patience import LONG

CONFIG: Any = SimpleNamespace(
    replica_high_watermark_checkpoint_interval_ms=5000,
    log_initial_task_delay_ms=1000,
    log_retention_check_interval_ms=300_000,
    producer_id_expiration_check_interval_ms=600_000,
    producer_id_expiration_ms=86_400_000,
)


class InlineEnv:
    """Trio's clock, and blocking work at once."""

    def __init__(self) -> None:
        self.is_blocking = False
        """Whether what runs would be in a thread."""

    def now(self) -> float:
        return trio.current_time()

    def wall_clock_ms(self) -> int:
        return 1_000_000 + int(trio.current_time() * 1000)

    async def run_blocking(self, fn: Callable[..., Any], *args: Any) -> Any:
        self.is_blocking = True
        try:
            return fn(*args)
        finally:
            self.is_blocking = False


class Replicas:
    """As much of a replica manager as the flusher needs."""

    def __init__(self, env: InlineEnv, manager: LogManager) -> None:
        self.env = env
        self.manager = manager
        self.partitions: dict[Any, Any] = {}
        self.failed: list[BaseException] = []
        self.told = 0
        self.checkpoints = CheckpointRequests()
        self.log_dirs = self.progress = self

    def high_watermarks(self) -> dict[TopicPartition, int]:
        return {log.topic_partition: log.log_end_offset for log in self.manager}

    async def checkpoint(self) -> None:
        self.manager.checkpoint(self.high_watermarks())

    def take_partitions_offline(self) -> None:
        self.told = sum(log_dir.offline is not None for log_dir in self.manager.log_dirs)

    def log_starts_moved(self) -> None:
        pass

    def flush_failed(self, task: Any, error: BaseException) -> None:
        self.failed.append(error)
        log_dir = self.manager.log_dir_of(task.topic_partition)
        assert log_dir is not None
        self.manager.mark_offline(log_dir, error)


@asynccontextmanager
async def flushing() -> AsyncIterator[tuple[Any, Any, Replicas]]:
    """While a flusher runs: what makes a log, what appends to it, and the replicas."""
    env: Any = InlineEnv()
    manager = LogManager.open(["/data"], FakeDisk(), now_ms=0, rng=random.Random(1))
    replicas: Any = Replicas(env, manager)

    def make(name: str, config: LogConfig) -> PartitionLog:
        return manager.create_log(TopicPartition(name, 0), None, config)

    def append(log: PartitionLog) -> None:
        data = bytearray(build_batch([Record(0, 1, None, b"x" * 50)]))
        log.append_as_leader(data, 0, now_ms=env.wall_clock_ms())
        replicas.checkpoints.request()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(LogFlusher(env, CONFIG, manager, replicas).run)
        yield make, append, replicas
        nursery.cancel_scope.cancel()


async def test_flush_ms_is_kept_also_when_nobody_writes_any_more(autojump_clock: MockClock) -> None:
    async with flushing() as (make, append, replicas):
        quick, slow, never = (
            make("quick", LogConfig(flush_ms=700)),
            make("slow", LogConfig(flush_ms=12_000)),
            make("never", LogConfig()),
        )
        for log in (quick, slow, never):
            append(log)
        await trio.sleep(0.69)
        assert quick.recovery_point == 0
        await trio.sleep(0.1)
        assert quick.recovery_point == 1
        append(quick)
        await trio.sleep(0.8)
        assert quick.recovery_point == 2
        await trio.sleep(10)
        assert slow.recovery_point == 0
        await trio.sleep(4)
        assert slow.recovery_point == 1
        assert never.recovery_point == 0
        before = replicas.manager.disk.operations  # type: ignore[attr-defined]
        await trio.sleep(1000)
        assert replicas.manager.disk.operations == before, "nothing is done for logs that nobody writes"  # type: ignore[attr-defined]


async def test_sealed_segments_are_flushed_and_checkpointed(autojump_clock: MockClock) -> None:
    async with flushing() as (make, append, replicas):
        log = make("t", LogConfig(segment_bytes=200))
        for _ in range(5):
            append(log)
        sealed = log.active_segment.base_offset
        assert sealed > 0
        await trio.sleep(5.1)
        assert log.recovery_point == sealed
    disk: Any = replicas.manager.disk
    lines = disk.read_bytes("/data/recovery-point-offset-checkpoint").decode().split()
    assert lines[-3:-1] == ["t", "0"]
    assert int(lines[-1]) > 0
    assert disk.read_bytes("/data/replication-offset-checkpoint").decode().split()[-1] == "5"


async def test_a_failed_flush_is_told_once(autojump_clock: MockClock) -> None:
    async with flushing() as (make, append, replicas):
        log = make("t", LogConfig(flush_ms=100))
        append(log)
        disk = replicas.manager.disk

        def fail(operation: str, path: str) -> None:
            if operation == "sync":
                raise OSError(5, "broken", path)

        disk.on_operation = fail  # type: ignore[attr-defined]
        await trio.sleep(60)
        assert len(replicas.failed) == 1
        assert log.recovery_point == 0
        assert replicas.manager.log_dirs[0].offline is not None


def _to_be_compacted(make: Any, replicas: Any) -> tuple[PartitionLog, LogCleaner]:
    """Returns a log whose last record, the marker of a transaction, is not durable; and what compacts it."""
    log = make("t", LogConfig(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0, flush_ms=60_000))
    put(log, [(b"k", b"v")], producer_id=9, sequence=0, transactional=True)
    log.roll(0)
    log.flush()
    end_txn(log, 9, commit=True)
    replicas.partitions = {
        log.topic_partition: SimpleNamespace(
            config=log.config, has_log=True, offline=False, log=log, last_stable_offset=log.log_end_offset
        )
    }
    settings = CleanerSettings(1, 1 << 20, 1 << 16, 1e300, 10)
    env = replicas.env
    env.disk = replicas.manager.disk
    return log, LogCleaner(env, replicas.manager, replicas, lambda: settings, InlineCompactor(env))


async def test_the_flush_before_a_compaction_is_as_good_as_any(autojump_clock: MockClock) -> None:
    async with flushing() as (make, _, replicas):
        log, cleaner = _to_be_compacted(make, replicas)
        assert log.recovery_point < log.log_end_offset
        assert await cleaner.clean_filthiest()
        assert log.recovery_point == log.log_end_offset


async def test_what_the_flush_before_a_compaction_had_no_room_for_is_flushed_later(autojump_clock: MockClock) -> None:
    async with flushing() as (make, _, replicas):
        log, cleaner = _to_be_compacted(make, replicas)
        manager, end = replicas.manager, log.log_end_offset

        def full(operation: str, path: str) -> None:
            if operation == "sync":
                raise OSError(errno.ENOSPC, "No space left on device", path)

        manager.disk.on_operation = full  # type: ignore[attr-defined]
        assert await cleaner.clean_filthiest()
        manager.disk.on_operation = None  # type: ignore[attr-defined]
        assert log.recovery_point < end
        replicas.checkpoints.request()
        with trio.fail_after(LONG):
            while log.recovery_point < end:
                await trio.sleep(1)


async def test_deleted_files_go_after_their_delay(autojump_clock: MockClock) -> None:
    async with flushing() as (make, append, replicas):
        log = make("t", LogConfig(segment_bytes=200, retention_bytes=200, file_delete_delay_ms=60_000))
        for _ in range(8):
            append(log)
        await trio.sleep(5.5)
        names = {name for name in replicas.manager.disk.list_dir("/data/t-0") if name.endswith(".deleted")}
        assert names
        append(log)
        await trio.sleep(50)
        assert names <= set(replicas.manager.disk.list_dir("/data/t-0"))
        await trio.sleep(300)
        assert not names & set(replicas.manager.disk.list_dir("/data/t-0"))


async def test_files_are_removed_off_the_event_loop_and_failures_are_told_on_it(autojump_clock: MockClock) -> None:
    """To unlink a large one can take a second."""

    async with flushing() as (make, append, replicas):
        log = make("t", LogConfig(segment_bytes=200, retention_bytes=200, file_delete_delay_ms=1000))
        gone = make("gone", LogConfig(file_delete_delay_ms=1000))
        for _ in range(8):
            append(log)
            append(gone)
        manager = replicas.manager
        manager.delete_log(gone.topic_partition)
        removed: list[str] = []

        def watch(operation: str, path: str) -> None:
            if operation == "remove":
                assert replicas.env.is_blocking
                removed.append(path)
                if path.endswith(".deleted"):
                    raise OSError(5, "broken", path)

        told: list[bool] = []
        manager.on_offline.append(lambda: told.append(replicas.env.is_blocking))
        manager.disk.on_operation = watch  # type: ignore[attr-defined]
        await trio.sleep(301)
        assert not [name for name in manager.disk.list_dir("/data") if name.startswith("gone")]
        assert any(path.endswith(".deleted") for path in removed)
        assert told == [False]


def test_a_long_removal_is_done_in_steps() -> None:
    """To stop the node takes one step at most."""

    async def test(make: Any, append: Any, replicas: Replicas) -> None:
        manager = replicas.manager
        for number in range(STEP_FILES):
            log = make(f"t{number}", LogConfig(file_delete_delay_ms=0))
            append(log)
            manager.delete_log(log.topic_partition)
        task = manager.removal_task(replicas.env.wall_clock_ms())
        assert task is not None
        names = manager.disk.list_dir("/data")
        assert task.step()
        left = manager.disk.list_dir("/data")
        assert 0 < len(left) < len(names)
        while task.step():
            pass
        task.end()
        assert not [name for name in manager.disk.list_dir("/data") if name.endswith("-delete")]


async def test_a_file_that_cannot_be_opened_for_a_flush_takes_its_log_dir_offline(autojump_clock: MockClock) -> None:
    """The file had been closed: a node keeps a bounded number of files open."""

    async with flushing() as (make, append, replicas):
        log = make("t", LogConfig(flush_ms=100))
        append(log)
        log.release()
        disk = replicas.manager.disk
        opened = disk.open

        def fail(path: str, *, create: bool = False) -> Any:
            if path.endswith(".log"):
                raise OSError(5, "broken", path)
            return opened(path, create=create)

        disk.open = fail  # type: ignore[method-assign]
        await trio.sleep(0.2)
        assert log.recovery_point == 0
        assert replicas.manager.log_dirs[0].offline is not None
        assert replicas.told == 1, "its partitions are offline, too"


async def test_files_that_cannot_be_removed_take_their_log_dir_offline(autojump_clock: MockClock) -> None:
    async with flushing() as (make, append, replicas):
        log = make("t", LogConfig(segment_bytes=200, retention_bytes=200, file_delete_delay_ms=60_000))
        for _ in range(8):
            append(log)
        await trio.sleep(70)

        def fail(operation: str, path: str) -> None:
            if operation == "remove":
                raise OSError(5, "broken", path)

        replicas.manager.disk.on_operation = fail  # type: ignore[attr-defined]
        append(log)
        await trio.sleep(5.1)
        assert replicas.manager.log_dirs[0].offline is not None
        assert replicas.told == 1
