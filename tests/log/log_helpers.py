"""Helpers for tests of the log: batches, a log on a fake disk, and reading all of it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Protocol

from kbroker.log import opening
from kbroker.log.checkpoint_files import OFFSET_CHECKPOINTS
from kbroker.log.disk import Disk
from kbroker.log.fake_disk import FakeDisk
from kbroker.log.log_config import LogConfig
from kbroker.log.manager import LogManager
from kbroker.log.partition_log import PartitionLog
from kbroker.log.segments.timestamp_lookup import TimestampOffset
from kbroker.types import TopicPartition
from kbroker.wire.batch_header import check_crc, walk_headers
from kbroker.wire.record_batch import Record, build_batch, iter_records

TP = TopicPartition("topic", 0)
DIRECTORY = "/data/topic-0"
NOW = 1_700_000_000_000


def batch(
    values: list[bytes], *, timestamp: int = NOW, producer_id: int = -1, sequence: int = -1, epoch: int = 0
) -> bytearray:
    records = [Record(0, timestamp, None, value) for value in values]
    if producer_id < 0:
        return bytearray(build_batch(records))
    return bytearray(build_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))


def open_log(
    disk: Disk | None = None,
    config: LogConfig | None = None,
    *,
    clean: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    clean_offset: int = 0,
    high_watermark: int = 0,
    leaves_holes: bool = False,
    segments_left: Callable[[int], None] = lambda count: None,
) -> PartitionLog:
    disk = disk if disk is not None else FakeDisk()
    disk.make_dirs("/data")
    return opening.open_log(
        DIRECTORY,
        TP,
        None,
        config or LogConfig(),
        disk,
        now_ms=NOW,
        clean_shutdown=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        clean_offset=clean_offset,
        high_watermark=high_watermark,
        leaves_holes=leaves_holes,
        segments_left=segments_left,
    )


def spoil_checkpoints(disk: FakeDisk, log_dir: str = "/data") -> list[str]:
    """Empty, cut or remove some of a log dir's checkpoint files, as the disk's chance has it."""
    return [disk.spoil(f"{log_dir}/{name}") for name in OFFSET_CHECKPOINTS if disk.rng.random() < 0.7]


def at_every_point(disk: FakeDisk, life: Callable[[], None], check: Callable[[FakeDisk, int], None]) -> int:
    """Carry out a life, and check in each of its operations a disk whose machine has stopped there; their number."""
    checked = 0

    def on_crash_point(stopped: FakeDisk) -> None:
        nonlocal checked
        check(stopped, disk.operations)
        checked += 1

    disk.on_crash_point = on_crash_point
    life()
    assert checked == disk.operations, "what a check has found was taken for a fault of the disk"
    return checked


def append(log: PartitionLog, values: list[bytes], *, leader_epoch: int = 0, **options: int) -> int:
    """Append one batch; its first offset."""
    return log.append_as_leader(batch(values, **options), leader_epoch, now_ms=NOW).first_offset


def read_all(log: PartitionLog, *, max_bytes: int = 1 << 20, start: int | None = None) -> list[tuple[int, bytes]]:
    """Offset and value of every record, as a consumer would read them; every checksum is verified."""
    found: list[tuple[int, bytes]] = []
    offset = log.log_start_offset if start is None else start
    while offset < log.log_end_offset:
        data = log.read_bytes(offset, max_bytes)
        if not data:
            break
        before = offset
        for position, header in walk_headers(data):
            check_crc(data, position, header)
            found += [
                (record.offset, record.value or b"")
                for record in iter_records(data, position)
                if record.offset >= offset
            ]
            offset = header.next_offset
        assert offset > before
    return found


def missing(log: PartitionLog) -> set[int]:
    """The offsets that damage took."""
    return {offset for each in log.damage for offset in range(each.start_offset, each.end_offset)}


class Task(Protocol):
    """A task of a log, which its owner runs, in any thread, and ends."""

    def run(self) -> None: ...

    def end(self) -> None: ...


def finish(task: Task) -> None:
    """Run a task, and end it."""
    task.run()
    task.end()


def make_holes(log: PartitionLog) -> None:
    """Take the damage that was met out of a log, as its node does when no other replica has what is missing."""
    task = log.begin_holes(NOW)
    assert task is not None
    finish(task)


def remove_expired(log: PartitionLog, now_ms: int) -> None:
    """Remove the files of one log that are due."""
    for path in log.take_expired_files(now_ms)[0]:
        log.disk.remove(path)


def delete_expired(manager: LogManager, now_ms: int) -> None:
    """Apply retention to all logs, as the manager's owner does from time to time."""
    task = manager.removal_task(now_ms)
    if task is not None:
        while task.step():
            pass
        task.end()


def looked_up(steps: Generator[None, None, TimestampOffset | None]) -> TimestampOffset | None:
    """The outcome of a look-up by timestamp, which is work in steps."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        found: TimestampOffset | None = end.value
        return found
