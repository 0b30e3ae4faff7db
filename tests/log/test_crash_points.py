"""The power fails in the middle of every single operation of a log's life."""

from __future__ import annotations

import random

from kbroker.log.fake_disk import FakeDisk
from kbroker.log.log_config import LogConfig
from kbroker.log.manager import LogManager
from kbroker.types import TopicPartition, Uuid
from tests.log.log_helpers import NOW, TP, at_every_point, batch, delete_expired, read_all, spoil_checkpoints

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150, file_delete_delay_ms=0, retention_ms=-1)
OTHER = TopicPartition("other", 3)


def start(disk: FakeDisk) -> LogManager:
    return LogManager.open(["/data"], disk, now_ms=NOW, log_config=lambda tp: CONFIG, rng=random.Random(1))


class Life:
    """A fixed story of one node. What was promised so far stands in the attributes."""

    def __init__(self, disk: FakeDisk) -> None:
        self.disk = disk
        self.values: dict[TopicPartition, dict[int, bytes]] = {TP: {}, OTHER: {}}
        self.durable: dict[TopicPartition, int] = {TP: 0, OTHER: 0}
        self.deleted = False

    def run(self) -> None:
        for round_ in range(3):
            manager = start(self.disk)
            for tp in (TP, OTHER):
                if self.deleted and tp == OTHER:
                    continue
                log = manager.create_log(tp, Uuid(bytes(15) + b"\x05"), CONFIG)
                for index in range(12):
                    value = b"%s/%d/%d" % (str(tp).encode(), round_, index) + b"v" * 60
                    offset = log.log_end_offset
                    self.values[tp][offset] = value
                    log.append_as_leader(batch([value], producer_id=9, sequence=offset), round_, now_ms=NOW)
                    if index % 5 == 4:
                        log.flush()
                        self.durable[tp] = log.recovery_point
                for task in manager.flush_tasks(NOW):
                    task.run()
                    task.end()
                manager.checkpoint({tp: log.log_end_offset})
            log = manager.create_log(TP, Uuid(bytes(15) + b"\x05"), CONFIG)
            log.maybe_increment_log_start_offset(log.log_start_offset + 8)
            manager.delete_old_segments(NOW)
            delete_expired(manager, NOW)
            if round_ == 1:
                self.deleted = True
                manager.delete_log(OTHER)
                delete_expired(manager, NOW)
            manager.close()
            for tp in self.durable:
                self.durable[tp] = max(self.values[tp], default=-1) + 1


def verify(life: Life, disk: FakeDisk, point: int, spoil: bool) -> None:
    manager = start(disk)
    assert not manager.failed, point
    for tp in (TP, OTHER):
        log = manager.get_log(tp)
        if log is None:
            assert life.durable[tp] == 0 or (tp == OTHER and life.deleted), point
            continue
        names = disk.list_dir(log.directory)
        for suffix in (".log", ".index", ".timeindex"):
            assert f"{log.active_segment.base_offset:020}{suffix}" in names, point
        assert log.log_end_offset >= life.durable[tp] or (tp == OTHER and life.deleted), point
        found = read_all(log)
        for offset, value in found:
            assert life.values[tp][offset] == value, point
        entry = log.producers.active_producers.get(9)
        # Without checkpoints the end of a segment that is lost is taken for a hole of compaction.
        if found and not spoil:  # of a log that was being deleted nothing may be left
            assert entry is not None, point
            assert entry.last_sequence == found[-1][0], point
    manager.close()


def test_every_point() -> None:
    disk = FakeDisk()
    life = Life(disk)

    def fail(stopped: FakeDisk, point: int) -> None:
        stopped.crash(lose_all=point % 3 == 0)
        spoilt = stopped.snapshot()
        spoil_checkpoints(spoilt)
        verify(life, stopped, point, spoil=False)
        verify(life, spoilt, point, spoil=True)

    assert at_every_point(disk, life.run, fail) > 300
