"""A damaged replica that was cut back, and has the rest from its leader."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kbroker.log import opening
from kbroker.log.fake_disk import FakeDisk
from kbroker.log.log_config import LogConfig
from kbroker.log.partition_log import PartitionLog
from kbroker.node.replicas.replica_log_dirs import ReplicaLogDirs
from kbroker.types import TopicPartition
from kbroker.wire.record_batch import Record, build_batch


def test_damage_is_not_forgotten_before_the_cut_is_durable() -> None:
    """Else a power cut brings the hole back, and nothing tells of it: the replica would be in sync, and could lead."""
    disk, tp, path = FakeDisk(), TopicPartition("t", 0), "/data/t-0"
    disk.make_dirs("/data")
    disk.sync_dir("/")
    log = opening.open_log(path, tp, None, LogConfig(), disk, now_ms=0)
    for _ in range(4):
        log.append_as_leader(build_batch([Record(0, 1, None, b"value")]), 0, now_ms=1)
    log.flush()
    file = disk.open(log.active_segment.path)
    file.write_at(log.size // 4 + 30, [b"damage"])
    file.sync()

    def reopened() -> PartitionLog:
        return opening.open_log(path, tp, None, LogConfig(), disk, now_ms=0, high_watermark=4, leaves_holes=True)

    disk.kill()
    log = reopened()
    assert log.is_damaged
    log.truncate_to(1)
    unused: Any = None
    manager: Any = SimpleNamespace(on_offline=[])
    log_dirs = ReplicaLogDirs(
        env=unused, log_manager=manager, table=unused, progress=unused, checkpoints=unused, high_watermarks={}
    )
    partition: Any = SimpleNamespace(log=log)
    log_dirs.healed(partition)
    assert not log.is_damaged
    disk.crash(lose_all=True)
    log = reopened()
    assert log.is_damaged or [header.base_offset for _, header in log.active_segment.scan(0)] == [0]
