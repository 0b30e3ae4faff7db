"""Leaders that seem to be dead: who asks who leads is made to wait. (How partitions are followed: test_replication.)"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace

import trio
import trio.testing

from kbroker.log.fake_disk import FakeDisk
from kbroker.log.log_config import LogConfig
from kbroker.log.partition_log import PartitionLog
from kbroker.node.replica_fetcher import LeaderFetcher
from kbroker.node.replica_fetchers import SUSPICION_SECONDS, ReplicaFetchers
from kbroker.replication.partition_state import PartitionState
from kbroker.types import TopicPartition
from kbroker.wire.control_batch import build_end_txn_marker
from kbroker.wire.record_batch import Record, build_batch


def run(test: Callable[[ReplicaFetchers, dict[int, SimpleNamespace]], Awaitable[None]]) -> None:
    brokers = {2: SimpleNamespace(fenced=False), 3: SimpleNamespace(fenced=False)}

    async def main() -> None:
        fetchers = ReplicaFetchers(
            env=SimpleNamespace(now=trio.current_time),  # type: ignore[arg-type]
            config=SimpleNamespace(),  # type: ignore[arg-type]
            manager=SimpleNamespace(image=SimpleNamespace(brokers=brokers)),  # type: ignore[arg-type]
            broker_epoch=lambda: 1,
            address=lambda broker_id: None,
        )
        await test(fetchers, brokers)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_nobody_waits_while_no_leader_is_suspected() -> None:
    async def test(fetchers: ReplicaFetchers, brokers: dict[int, SimpleNamespace]) -> None:
        began = trio.current_time()
        await fetchers.until_clear()
        fetchers.suspect(2)
        fetchers.clear(2)
        await fetchers.until_clear()
        assert trio.current_time() == began

    run(test)


def test_who_asks_waits_until_the_suspect_is_fenced() -> None:
    async def test(fetchers: ReplicaFetchers, brokers: dict[int, SimpleNamespace]) -> None:
        began = trio.current_time()
        fetchers.suspect(2)
        waited_for = []

        async def ask() -> None:
            waited_for.append(await fetchers.until_clear())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            nursery.start_soon(ask)
            await trio.sleep(0.1)
            fetchers.brokers_changed()  # another one's registration
            await trio.sleep(0.1)
            brokers[2].fenced = True
            fetchers.brokers_changed()
        assert abs(trio.current_time() - began - 0.2) < 1e-6
        assert waited_for == [{2}, {2}]
        assert await fetchers.until_clear() == frozenset()

    run(test)


def test_a_suspicion_that_does_not_come_true_is_forgotten() -> None:
    async def test(fetchers: ReplicaFetchers, brokers: dict[int, SimpleNamespace]) -> None:
        began = trio.current_time()
        fetchers.suspect(2)
        await trio.sleep(0.1)
        fetchers.suspect(3)
        await fetchers.until_clear()
        assert abs(trio.current_time() - began - SUSPICION_SECONDS - 0.1) < 1e-6
        await fetchers.until_clear()
        assert abs(trio.current_time() - began - SUSPICION_SECONDS - 0.1) < 1e-6

    run(test)


def test_what_is_stable_stays_so_when_the_end_of_the_log_is_cut_off() -> None:
    """The high watermark may never move again: readers of committed records would wait for good if this node led."""
    disk = FakeDisk()
    tp = TopicPartition("t", 0)
    log = PartitionLog.open("/data/t-0", tp, None, LogConfig(), disk, now_ms=0)
    marker = build_end_txn_marker(commit=True, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1)
    records = [Record(0, 1, None, b"value")]
    first = build_batch(records, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    for offset, batch in enumerate((first, marker, build_batch(records))):
        placed = bytearray(batch)
        placed[:8] = offset.to_bytes(8, "big")
        placed[12:16] = bytes(4)
        log.append_as_follower(placed, now_ms=1, leader_epoch=0)
    state = PartitionState(1, high_watermark=2)
    log.on_high_watermark_updated(2)
    assert log.first_unstable_offset is None
    fetcher = SimpleNamespace(
        _env=SimpleNamespace(wall_clock_ms=lambda: 2), _manager=SimpleNamespace(mark_dirty=lambda: None), leader=2
    )
    partition = SimpleNamespace(state=state, topic_partition=tp)
    LeaderFetcher._truncate(fetcher, partition, log, 2)  # type: ignore[arg-type]
    assert (log.log_end_offset, state.high_watermark) == (2, 2)
    assert log.first_unstable_offset is None
