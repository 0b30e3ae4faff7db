"""Whether a log has a transaction's marker is looked up in steps: what is passed may be gigabytes."""

from __future__ import annotations

from collections.abc import Generator

from kbroker.log.fake_disk import FakeDisk
from kbroker.log.log_config import LogConfig
from kbroker.log.opening import open_log
from kbroker.log.partition_log import PartitionLog
from kbroker.log.validation import AppendOrigin
from kbroker.wire.control_batch import build_end_txn_marker
from kbroker.wire.record_batch import Record, build_batch
from tests.log.log_helpers import TP, append

ID, EPOCH = 9, 1


def in_transaction(log: PartitionLog, sequence: int, time_ms: int) -> None:
    data = build_batch(
        [Record(0, time_ms, None, b"t")], producer_id=ID, producer_epoch=EPOCH, base_sequence=sequence,
        is_transactional=True,
    )  # fmt: skip
    log.append_as_leader(bytearray(data), 0, now_ms=time_ms)


def end_transaction(log: PartitionLog, time_ms: int) -> None:
    end = build_end_txn_marker(
        commit=True, producer_id=ID, producer_epoch=EPOCH, coordinator_epoch=0, timestamp_ms=time_ms
    )
    log.append_as_leader(bytearray(end), 0, now_ms=time_ms, origin=AppendOrigin.COORDINATOR, transaction_version=1)


def steps_and_answer(search: Generator[None, None, bool]) -> tuple[int, bool]:
    steps = 0
    while True:
        try:
            next(search)
        except StopIteration as stop:
            return steps, stop.value
        steps += 1


def test_the_marker_is_looked_for_in_steps() -> None:
    disk = FakeDisk()
    disk.make_dirs("/data")
    log = open_log("/data/t-0", TP, None, LogConfig(segment_bytes=20_000), disk, now_ms=0)
    log.producers.transaction_verification = False
    in_transaction(log, 0, 1000)
    for number in range(1000):
        append(log, [b"x"], timestamp=1000 + number)
    end_transaction(log, 3000)
    in_transaction(log, 1, 3001)
    append(log, [b"x"], timestamp=3002)
    steps, found = steps_and_answer(log.has_marker(ID, 1000))
    assert found and steps >= 5
    assert steps_and_answer(log.has_marker(ID, 3001)) == (0, False)
