"""A follower's changes to its log."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio

from kbroker.cores.replication.follower_state import Append
from kbroker.cores.replication.partition_state import PartitionState
from kbroker.log import opening
from kbroker.log.fake_disk import FakeDisk
from kbroker.log.log_config import LogConfig
from kbroker.node.replicas.follower_writer import FollowerWriter, NotYet
from kbroker.types import TopicPartition
from kbroker.wire.control_batch import build_end_txn_marker
from kbroker.wire.record_batch import Record, build_batch


def test_what_is_stable_stays_so_when_the_end_of_the_log_is_cut_off() -> None:
    """The high watermark may never move again: readers of committed records would wait for good if this node led."""
    disk = FakeDisk()
    disk.make_dirs("/data")
    tp = TopicPartition("t", 0)
    log = opening.open_log("/data/t-0", tp, None, LogConfig(), disk, now_ms=0)
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
    env, checkpoints = SimpleNamespace(wall_clock_ms=lambda: 2), SimpleNamespace(request=lambda: None)
    partition = SimpleNamespace(state=state, topic_partition=tp, log=log)
    owner: Any = SimpleNamespace(env=env, progress=None, checkpoints=checkpoints, throttles=None, start_soon=None)
    FollowerWriter(owner, 2).truncate(partition, 2)  # type: ignore[arg-type]
    assert (log.log_end_offset, state.high_watermark) == (2, 2)
    assert log.first_unstable_offset is None


async def test_a_file_that_another_node_has_is_copied_while_others_are_served() -> None:
    """It may be a gigabyte. The log is cut back once the copy is there; until then it is asked for again."""
    disk = FakeDisk()
    disk.make_dirs("/data")
    tp = TopicPartition("t", 0)
    log = opening.open_log("/data/t-0", tp, None, LogConfig(), disk, now_ms=0)
    for offset in range(4):
        placed = bytearray(build_batch([Record(0, 1, None, b"value")]))
        placed[:8] = offset.to_bytes(8, "big")
        placed[12:16] = bytes(4)
        log.append_as_follower(placed, now_ms=1, leader_epoch=0)
        if offset == 2:
            log.roll(1)
    shared = log.segments[0].path
    disk.link(shared, "/data/other")
    before, tasks = disk.read_bytes(shared), []
    env: Any = SimpleNamespace(wall_clock_ms=lambda: 2, run_blocking=trio.to_thread.run_sync)
    owner: Any = SimpleNamespace(
        env=env,
        progress=None,
        checkpoints=SimpleNamespace(request=lambda: None),
        throttles=None,
        start_soon=lambda *task: tasks.append(task),
    )
    partition: Any = SimpleNamespace(state=PartitionState(1), topic_partition=tp, log=log, offline=False)
    writer = FollowerWriter(owner, 2)
    for _ in range(2):
        with pytest.raises(NotYet):
            writer.truncate(partition, 1)
    assert log.log_end_offset == 4
    [(task, *arguments)] = tasks
    await task(*arguments)
    writer.truncate(partition, 1)
    assert log.log_end_offset == 1 and disk.read_bytes("/data/other") == before


def test_the_start_of_a_log_is_written_down_though_nothing_else_is_new() -> None:
    """Or a follower that is killed long afterwards, and elected, would have the records that were deleted."""
    disk = FakeDisk()
    disk.make_dirs("/data")
    tp = TopicPartition("t", 0)
    log = opening.open_log("/data/t-0", tp, None, LogConfig(), disk, now_ms=0)
    placed = bytearray(build_batch([Record(number, 1, None, b"value") for number in range(3)]))
    placed[12:16] = bytes(4)
    log.append_as_follower(placed, now_ms=1, leader_epoch=0)
    partition: Any = SimpleNamespace(state=PartitionState(1, high_watermark=3), topic_partition=tp, log=log)
    requests: list[int] = []
    checkpoints = SimpleNamespace(request=lambda: requests.append(log.log_start_offset))
    owner: Any = SimpleNamespace(env=None, progress=None, checkpoints=checkpoints, throttles=None, start_soon=None)
    writer = FollowerWriter(owner, 2)
    for start in (0, 2, 2):
        assert writer.append(partition, 0, Append(3, start), b"")
    assert requests == [2]
