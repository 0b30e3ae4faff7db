"""A damaged replica that was cut back, and has the rest from its leader."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import trio
from trio.testing import MockClock

from kbroker.log import opening
from kbroker.log.fake_disk import FakeDisk
from kbroker.log.log_config import LogConfig
from kbroker.log.partition_log import PartitionLog
from kbroker.node.replicas.replica_fetcher import LeaderFetcher
from kbroker.node.replicas.replica_log_dirs import ReplicaLogDirs
from kbroker.types import TopicPartition, Uuid
from kbroker.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kbroker.wire.record_batch import Record, build_batch
from tests.node.test_replica_fetchers import fetching, with_one_out_of_range
from tests.patience import SHORT

TP = TopicPartition("t", 0)


def opened(disk: FakeDisk) -> PartitionLog:
    return opening.open_log("/data/t-0", TP, None, LogConfig(), disk, now_ms=0, high_watermark=4, leaves_holes=True)


def damaged(disk: FakeDisk) -> PartitionLog:
    """A log of four records, the second of which is damaged."""
    disk.make_dirs("/data")
    disk.sync_dir("/")
    log = opening.open_log("/data/t-0", TP, None, LogConfig(), disk, now_ms=0)
    for _ in range(4):
        log.append_as_leader(build_batch([Record(0, 1, None, b"value")]), 0, now_ms=1)
    log.flush()
    file = disk.open(log.active_segment.path)
    file.write_at(log.size // 4 + 30, [b"damage"])
    file.sync()
    disk.kill()
    log = opened(disk)
    assert log.is_damaged
    return log


def log_dirs_in(env: Any) -> ReplicaLogDirs:
    unused: Any = None
    manager: Any = SimpleNamespace(on_offline=[])
    return ReplicaLogDirs(
        env=env, log_manager=manager, table=unused, progress=unused, checkpoints=unused, high_watermarks={}
    )


def test_damage_is_not_forgotten_before_the_cut_is_durable() -> None:
    """Else a power cut brings the hole back, and nothing tells of it: the replica would be in sync, and could lead."""
    disk = FakeDisk()
    log = damaged(disk)
    log.truncate_to(1)
    partition: Any = SimpleNamespace(log=log)
    log_dirs_in(None).healed(partition)
    assert not log.is_damaged
    disk.crash(lose_all=True)
    log = opened(disk)
    assert log.is_damaged or [header.base_offset for _, header in log.active_segment.scan(0)] == [0]


async def test_the_cut_is_made_durable_beside_the_event_loop(autojump_clock: MockClock) -> None:
    disk, is_beside, flushes = FakeDisk(), False, list[bool]()
    log = damaged(disk)
    fetcher: LeaderFetcher

    async def run_blocking(run: Callable[[], None]) -> None:
        nonlocal is_beside
        is_beside = True
        run()
        is_beside = False

    def operate(operation: str, path: str) -> None:
        if operation == "sync":
            flushes.append(is_beside)

    async def ask(request_class: type[Any], make: Any) -> Any:
        make(17)
        if disk.on_operation is not None:
            fetcher.remove(TP)
            raise OSError("there is nothing new")
        disk.on_operation = operate
        data = PartitionData(partition_index=0, high_watermark=1)
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])], session_id=1), 17

    writer = SimpleNamespace(drop_damaged=lambda partition: log.truncate_to(1), append=lambda *_: True)
    log_dirs = log_dirs_in(SimpleNamespace(run_blocking=run_blocking))
    async with fetching() as (fetchers, _):
        fetcher = with_one_out_of_range(fetchers, ask, writer=writer, log_dirs=log_dirs)
        state = SimpleNamespace(leader_epoch=1, high_watermark=1)
        partition: Any = SimpleNamespace(topic_partition=TP, topic_id=Uuid(bytes(16)), state=state, log=log)
        fetcher.add(partition)
        with trio.fail_after(SHORT):
            await fetcher.run()
    assert flushes and all(flushes)
    assert not log.is_damaged
