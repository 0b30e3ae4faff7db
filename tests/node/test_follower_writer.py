"""A follower's changes to its log."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kbroker.cores.replication.partition_state import PartitionState
from kbroker.log import opening
from kbroker.log.fake_disk import FakeDisk
from kbroker.log.log_config import LogConfig
from kbroker.node.replicas.follower_writer import FollowerWriter
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
    parts: Any = {"progress": None, "checkpoints": checkpoints, "throttles": None}
    FollowerWriter(env, 2, **parts).truncate(partition, 2)  # type: ignore[arg-type]
    assert (log.log_end_offset, state.high_watermark) == (2, 2)
    assert log.first_unstable_offset is None
