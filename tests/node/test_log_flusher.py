"""When logs are flushed and checkpointed, on a clock that jumps."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import trio
import trio.testing

from kbroker.log.fake_disk import FakeDisk
from kbroker.log.log_config import LogConfig
from kbroker.log.manager import LogManager
from kbroker.log.partition_log import PartitionLog
from kbroker.node.log_flusher import LogFlusher
from kbroker.types import TopicPartition
from kbroker.wire.record_batch import Record, build_batch

CONFIG: Any = SimpleNamespace(
    replica_high_watermark_checkpoint_interval_ms=5000,
    log_initial_task_delay_ms=1000,
    log_retention_check_interval_ms=300_000,
    producer_id_expiration_check_interval_ms=600_000,
)


class InlineEnv:
    """Trio's clock, and blocking work at once."""

    def now(self) -> float:
        return trio.current_time()

    def wall_clock_ms(self) -> int:
        return 1_000_000 + int(trio.current_time() * 1000)

    async def run_blocking(self, fn: Callable[..., Any], *args: Any) -> Any:
        return fn(*args)


class Replicas:
    """As much of a replica manager as the flusher needs."""

    def __init__(self, manager: LogManager) -> None:
        self.manager = manager
        self.partitions: dict[Any, Any] = {}
        self.failed: list[BaseException] = []
        self.mark_clean()

    def mark_clean(self) -> None:
        self.event = trio.Event()

    def mark_dirty(self) -> None:
        self.event.set()

    async def wait_dirty(self) -> None:
        await self.event.wait()

    def high_watermarks(self) -> dict[TopicPartition, int]:
        return {log.topic_partition: log.log_end_offset for log in self.manager}

    def log_dirs_changed(self) -> None:
        pass

    def log_starts_moved(self) -> None:
        pass

    def flush_failed(self, task: Any, error: BaseException) -> None:
        self.failed.append(error)
        log_dir = self.manager.log_dir_of(task.topic_partition)
        assert log_dir is not None
        self.manager.mark_offline(log_dir, error)


def scenario(
    test: Callable[[Callable[[str, LogConfig], PartitionLog], Callable[[PartitionLog], None], Replicas], Any],
) -> FakeDisk:
    """``test(make a log, append to it, the replicas)`` while a flusher runs."""
    disk = FakeDisk()

    async def main() -> None:
        env: Any = InlineEnv()
        manager = LogManager.open(["/data"], disk, now_ms=0, rng=random.Random(1))
        replicas: Any = Replicas(manager)

        def make(name: str, config: LogConfig) -> PartitionLog:
            return manager.create_log(TopicPartition(name, 0), None, config)

        def append(log: PartitionLog) -> None:
            data = bytearray(build_batch([Record(0, 1, None, b"x" * 50)]))
            log.append_as_leader(data, 0, now_ms=env.wall_clock_ms())
            replicas.mark_dirty()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(LogFlusher(env, CONFIG, manager, replicas).run)
            await test(make, append, replicas)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return disk


def test_flush_ms_is_kept_also_when_nobody_writes_any_more() -> None:
    async def test(make: Any, append: Any, replicas: Replicas) -> None:
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

    scenario(test)


def test_sealed_segments_are_flushed_and_checkpointed() -> None:
    async def test(make: Any, append: Any, replicas: Replicas) -> None:
        log = make("t", LogConfig(segment_bytes=200))
        for _ in range(5):
            append(log)
        sealed = log.active_segment.base_offset
        assert sealed > 0
        await trio.sleep(5.1)
        assert log.recovery_point == sealed

    disk = scenario(test)
    lines = disk.read_bytes("/data/recovery-point-offset-checkpoint").decode().split()
    assert lines[-3:-1] == ["t", "0"]
    assert int(lines[-1]) > 0
    assert disk.read_bytes("/data/replication-offset-checkpoint").decode().split()[-1] == "5"


def test_a_failed_flush_is_told_once() -> None:
    async def test(make: Any, append: Any, replicas: Replicas) -> None:
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

    scenario(test)


def test_deleted_files_go_after_their_delay() -> None:
    async def test(make: Any, append: Any, replicas: Replicas) -> None:
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

    scenario(test)
