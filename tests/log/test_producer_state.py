"""Idempotence, open transactions and Kafka's ``.snapshot`` files."""

from __future__ import annotations

import base64
import os
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.errors import ApiError, ErrorCode
from kbroker.log.disk import OsDisk
from kbroker.log.fake_disk import FakeDisk
from kbroker.log.producer_entry import VerificationGuard
from kbroker.log.producer_state import (
    BatchMetadata,
    CompletedTxn,
    CorruptSnapshot,
    ProducerStateEntry,
    ProducerStateManager,
    decode_snapshot,
    encode_snapshot,
)
from kbroker.log.segments.transaction_index import AbortedTxn, TransactionIndex
from kbroker.log.validation import AppendOrigin
from kbroker.types import TopicPartition
from kbroker.wire import batch_header, control_batch
from kbroker.wire import record_batch as rb
from kbroker.wire.batch_header import BatchHeader
from kbroker.wire.control_batch import EndTxnMarker
from tests.with_each import examples

TP = TopicPartition("topic", 0)
DIRECTORY = "/data/topic-0"
MAX_INT32 = 2**31 - 1
PID = 42


def batch(
    sequence: int,
    *,
    count: int = 1,
    offset: int = 0,
    epoch: int = 0,
    producer_id: int = PID,
    transactional: bool = False,
    timestamp: int = 100,
) -> BatchHeader:
    return BatchHeader(
        offset,
        49,
        0,
        2,
        0,
        0x10 if transactional else 0,
        count - 1,
        timestamp,
        timestamp,
        producer_id,
        epoch,
        sequence,
        count,
    )


def control(
    *, offset: int, epoch: int = 0, producer_id: int = PID, commit: bool = True, coordinator_epoch: int = 0
) -> tuple[BatchHeader, EndTxnMarker]:
    header = BatchHeader(offset, 49, 0, 2, 0, 0x30, 0, 100, 100, producer_id, epoch, -1, 1)
    return header, EndTxnMarker(commit, coordinator_epoch, 100)


class Partition:
    """A log reduced to its producers: offsets go up as batches are appended."""

    def __init__(self, disk: FakeDisk | None = None, *, verification: bool = False) -> None:
        self.disk = disk or FakeDisk()
        self.disk.make_dirs(DIRECTORY)
        self.state = ProducerStateManager(TP, DIRECTORY, self.disk, transaction_verification=verification)
        self.end = 0

    def append(
        self,
        sequence: int,
        *,
        count: int = 1,
        epoch: int = 0,
        producer_id: int = PID,
        transactional: bool = False,
        timestamp: int = 100,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: VerificationGuard | None = None,
    ) -> BatchMetadata | None:
        header = batch(
            sequence,
            count=count,
            offset=self.end,
            epoch=epoch,
            producer_id=producer_id,
            transactional=transactional,
            timestamp=timestamp,
        )
        duplicate = self.state.check(header, origin=origin, verification_guard=guard)
        if duplicate is None:
            self.state.update(header)
            self.end = header.next_offset
            self.state.update_map_end_offset(self.end)
        return duplicate

    def end_txn(
        self,
        *,
        epoch: int = 0,
        producer_id: int = PID,
        commit: bool = True,
        coordinator_epoch: int = 0,
        version: int = 0,
    ) -> tuple[CompletedTxn | None, int]:
        header, marker = control(
            offset=self.end, epoch=epoch, producer_id=producer_id, commit=commit, coordinator_epoch=coordinator_epoch
        )
        self.state.check(header, origin=AppendOrigin.COORDINATOR, marker=marker, transaction_version=version)
        completed = self.state.update(header, marker)
        self.end = header.next_offset
        last_stable = -1
        if completed is not None:
            last_stable = self.state.last_stable_offset(completed)
            self.state.complete_txn(completed)
        self.state.update_map_end_offset(self.end)
        return completed, last_stable


def refused(code: ErrorCode, partition: Partition, *args: int, **options: object) -> None:
    before = repr(dict(partition.state.active_producers))
    with pytest.raises(ApiError) as caught:
        partition.append(*args, **options)  # type: ignore[arg-type]
    assert caught.value.code is code, caught.value
    assert repr(dict(partition.state.active_producers)) == before


# Idempotence


def test_sequences_follow_one_another() -> None:
    log = Partition()
    for sequence in (0, 3, 6):
        assert log.append(sequence, count=3) is None
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 10)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 8)
    assert log.append(9) is None


def test_the_last_five_batches_are_known_again() -> None:
    log = Partition()
    for sequence in range(0, 12, 2):
        log.append(sequence, count=2, timestamp=1000 + sequence)
    for sequence in range(2, 12, 2):
        duplicate = log.append(sequence, count=2)
        assert duplicate == BatchMetadata(sequence + 1, sequence + 1, 1, 1000 + sequence)
        assert (duplicate.first_offset, duplicate.first_sequence) == (sequence, sequence)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 0, count=2)  # the sixth is forgotten
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 10, count=1)  # other bounds: no repetition
    assert log.end == 12


def test_unknown_producer_begins_anywhere() -> None:
    log = Partition()
    assert log.append(17) is None
    assert log.append(18) is None


def test_sequences_wrap() -> None:
    log = Partition()
    log.append(MAX_INT32 - 1, count=2)
    assert log.state.active_producers[PID].last_sequence == MAX_INT32
    assert log.append(0, count=3) is None
    other = Partition()
    other.append(MAX_INT32 - 1, count=4)
    assert other.state.active_producers[PID].last_sequence == 1
    duplicate = other.append(MAX_INT32 - 1, count=4)
    assert duplicate is not None and duplicate.first_sequence == MAX_INT32 - 1
    assert other.append(2) is None


def test_epochs() -> None:
    log = Partition()
    log.append(5, epoch=3)
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, log, 6, epoch=2)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 6, epoch=4)
    assert log.append(0, epoch=4) is None
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, log, 5, epoch=3)
    assert [b.last_sequence for b in log.state.active_producers[PID].batches] == [0]
    assert log.append(0, epoch=4) is not None


def test_coordinators_have_no_sequences() -> None:
    log = Partition()
    log.append(-1, transactional=True, epoch=2, origin=AppendOrigin.COORDINATOR)
    log.append(-1, transactional=True, epoch=2, origin=AppendOrigin.COORDINATOR)
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, log, -1, transactional=True, epoch=1, origin=AppendOrigin.COORDINATOR)


def test_replicated_batches_are_taken_as_they_are() -> None:
    log = Partition()
    log.append(0, epoch=5)
    assert log.append(99, epoch=4, origin=AppendOrigin.REPLICATION) is None
    assert log.state.active_producers[PID].producer_epoch == 4


def test_batches_without_producer_leave_no_trace() -> None:
    log = Partition()
    assert log.append(-1, producer_id=-1, epoch=-1) is None
    assert log.state.is_empty


def test_expiry() -> None:
    log = Partition()
    log.append(0, timestamp=1000)
    log.append(0, producer_id=7, timestamp=5000)
    log.append(0, producer_id=8, timestamp=1000, transactional=True)
    day = log.state.producer_id_expiration_ms
    assert log.state.remove_expired_producers(1000 + day - 1) == 0
    assert log.state.remove_expired_producers(1000 + day) == 1
    assert sorted(log.state.active_producers) == [7, 8]  # an open transaction keeps its producer
    assert log.append(50) is None


# Transactions


def test_first_unstable_offset() -> None:
    log = Partition()
    state = log.state
    log.append(0)
    assert state.first_unstable_offset is None
    log.append(0, producer_id=1, transactional=True)  # offset 1
    log.append(0, producer_id=2, transactional=True)  # offset 2
    log.append(1, producer_id=1, transactional=True)
    assert state.first_unstable_offset == state.first_undecided_offset == 1
    assert state.has_ongoing_transaction(1, 0) and not state.has_ongoing_transaction(1, 1)
    completed, last_stable = log.end_txn(producer_id=2, commit=False)  # offset 4
    assert completed == CompletedTxn(2, 2, 4, True)
    assert last_stable == 1
    completed, last_stable = log.end_txn(producer_id=1)  # offset 5
    assert completed == CompletedTxn(1, 1, 5, False)
    assert last_stable == 6
    assert state.first_undecided_offset is None
    assert state.first_unstable_offset == 1  # decided, but not replicated
    state.on_high_watermark_updated(5)
    assert state.first_unstable_offset == 1
    state.on_high_watermark_updated(6)
    assert state.first_unstable_offset is None


def test_a_transaction_that_wrote_nothing_here() -> None:
    log = Partition()
    completed, _ = log.end_txn(epoch=3)
    assert completed is None
    assert log.state.active_producers[PID].producer_epoch == 3
    assert log.append(0, epoch=3) is None


def test_markers_of_old_epochs_and_coordinators() -> None:
    log = Partition()
    log.append(0, epoch=4, transactional=True)
    with pytest.raises(ApiError) as caught:
        log.end_txn(epoch=3)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    log.end_txn(epoch=4, coordinator_epoch=6)
    with pytest.raises(ApiError) as caught:
        log.end_txn(epoch=4, coordinator_epoch=5)
    assert caught.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_markers_of_transaction_version_2_bump_the_epoch() -> None:
    log = Partition()
    log.append(0, epoch=4, transactional=True)
    with pytest.raises(ApiError) as caught:
        log.end_txn(epoch=4, version=2)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    completed, _ = log.end_txn(epoch=5, version=2)
    assert completed is not None
    assert log.end_txn(epoch=5, version=2)[0] is None  # a retry of the marker
    assert log.append(0, epoch=5, transactional=True) is None


def test_markers_need_their_transaction_version() -> None:
    log = Partition()
    header, marker = control(offset=0)
    with pytest.raises(ValueError, match="transaction version"):
        log.state.check(header, origin=AppendOrigin.COORDINATOR, marker=marker)


def test_plain_batch_within_a_transaction() -> None:
    log = Partition()
    log.append(0, transactional=True)
    refused(ErrorCode.INVALID_TXN_STATE, log, 1)


def test_completing_what_was_not_begun() -> None:
    with pytest.raises(ValueError, match="not begun"):
        Partition().state.complete_txn(CompletedTxn(1, 2, 3, True))


# Verification


def test_a_transaction_begins_with_its_guard() -> None:
    log = Partition(verification=True)
    refused(ErrorCode.INVALID_TXN_STATE, log, 0, transactional=True)
    guard = log.state.maybe_start_verification(PID, 0, 0, False, 0)
    assert guard is not None
    assert log.state.maybe_start_verification(PID, 0, 0, False, 0) is guard
    refused(ErrorCode.INVALID_TXN_STATE, log, 0, transactional=True, guard=VerificationGuard())
    assert log.append(0, transactional=True, guard=guard) is None
    assert log.state.maybe_start_verification(PID, 1, 0, False, 0) is None
    assert log.append(1, transactional=True) is None
    log.end_txn()
    refused(ErrorCode.INVALID_TXN_STATE, log, 2, transactional=True, guard=guard)  # of the last transaction


def test_a_marker_takes_the_guard_away() -> None:
    log = Partition(verification=True)
    guard = log.state.maybe_start_verification(PID, 0, 0, False, 0)
    log.end_txn()
    refused(ErrorCode.INVALID_TXN_STATE, log, 0, transactional=True, guard=guard)


def test_guard_of_the_next_transaction_outlives_a_version_2_marker() -> None:
    log = Partition(verification=True)
    guard = log.state.maybe_start_verification(PID, 0, 1, True, 0)
    log.end_txn(epoch=1, version=2)
    assert log.append(0, epoch=1, transactional=True, guard=guard) is None


def test_lower_sequences_come_first() -> None:
    log = Partition(verification=True)
    guard = log.state.maybe_start_verification(PID, 5, 0, False, 0)
    log.state.maybe_start_verification(PID, 3, 0, False, 0)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 5, transactional=True, guard=guard)
    assert log.append(3, transactional=True, guard=guard) is None


def test_version_2_begins_with_zero() -> None:
    log = Partition(verification=True)
    guard = log.state.maybe_start_verification(PID, 5, 0, True, 0)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 5, transactional=True, guard=guard)


def test_fenced_producers_are_not_verified() -> None:
    log = Partition(verification=True)
    log.append(0, epoch=4)
    with pytest.raises(ApiError) as caught:
        log.state.maybe_start_verification(PID, 0, 3, False, 0)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_verification_expires() -> None:
    log = Partition(verification=True)
    guard = log.state.maybe_start_verification(PID, 0, 0, False, 0)
    log.state.remove_expired_producers(log.state.producer_id_expiration_ms)
    refused(ErrorCode.INVALID_TXN_STATE, log, 0, transactional=True, guard=guard)


# Snapshots

entries_strategy = st.lists(
    st.builds(
        lambda pid, epoch, coordinator, timestamp, txn, last: (pid, epoch, coordinator, timestamp, txn, last),
        st.integers(0, 2**63 - 1),
        st.integers(-1, 2**15 - 1),
        st.integers(-1, MAX_INT32),
        st.integers(-1, 2**62),
        st.none() | st.integers(0, 2**62),
        st.none() | st.tuples(st.integers(0, MAX_INT32), st.integers(0, 2**62), st.integers(0, 1000)),
    ),
    max_size=8,
    unique_by=lambda entry: entry[0],
)


@given(entries_strategy)
@settings(max_examples=examples(100), deadline=None)
def test_snapshot_round_trip(values: list[tuple[int, int, int, int, int | None, tuple[int, int, int] | None]]) -> None:
    entries = []
    for pid, epoch, coordinator, timestamp, txn, last in values:
        entry = ProducerStateEntry(pid, epoch, coordinator, timestamp, txn)
        if last is not None:
            entry.batches.append(BatchMetadata(*last, timestamp))
        entries.append(entry)
    data = encode_snapshot(entries)
    assert repr(decode_snapshot(data)) == repr(entries)


def test_snapshot_damage() -> None:
    log = Partition()
    for producer_id in range(3):
        log.append(0, producer_id=producer_id)
    data = encode_snapshot(log.state.active_producers.values())
    for end in range(len(data)):
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(data[:end])
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(bytes(damaged))


def test_a_snapshot_from_apache_kafka() -> None:
    """Apache Kafka 4.3.1's log of a committed, two aborted and an open transaction, and what it made of it."""
    disk = FakeDisk()
    disk.make_dirs(DIRECTORY)
    state = ProducerStateManager(TP, DIRECTORY, disk)
    index = TransactionIndex(0, f"{DIRECTORY}/00000000000000000000.txnindex", disk)
    # librdkafka compressed the records with lz4
    assert [r.value for r in rb.iter_records(KAFKA_LOG)] == [b"v" * 20] * 3
    for position, header in batch_header.walk_headers(KAFKA_LOG):
        batch_header.check_crc(KAFKA_LOG, position, header)
        marker = control_batch.parse_end_txn_marker(KAFKA_LOG, position) if header.is_control else None
        completed = state.update(header, marker)
        if completed is not None:
            if completed.is_aborted:
                index.append(AbortedTxn.of(completed, state.last_stable_offset(completed)))
            state.complete_txn(completed)
        state.update_map_end_offset(header.next_offset)
    path = state.take_snapshot()
    assert path == f"{DIRECTORY}/00000000000000000015.snapshot"
    assert disk.read_bytes(path) == KAFKA_SNAPSHOT
    assert disk.read_bytes(index.path) == KAFKA_TXNINDEX
    (entry,) = decode_snapshot(KAFKA_SNAPSHOT)
    assert entry.current_txn_first_offset == 12
    assert entry.batches == [BatchMetadata(11, 14, 2, 1700000000002)]


def reopened(log: Partition) -> ProducerStateManager:
    return ProducerStateManager(TP, DIRECTORY, log.disk)


def test_state_survives_in_snapshots() -> None:
    log = Partition()
    log.append(0, count=5)
    log.append(0, producer_id=9, transactional=True)
    path = log.state.take_snapshot()
    assert path == f"{DIRECTORY}/00000000000000000006.snapshot"
    assert log.state.take_snapshot() is None  # nothing new
    state = reopened(log)
    assert list(state.snapshots.offsets) == [6]
    state.truncate_and_reload(0, 6, 200)
    assert state.map_end_offset == 6
    assert state.first_unstable_offset == 5
    assert state.check(batch(0, count=5, offset=6)) == BatchMetadata(4, 4, 4, 100)
    assert state.check(batch(5, offset=6)) is None
    assert state.take_snapshot() is None


def test_reload_takes_the_latest_snapshot_in_range() -> None:
    log = Partition()
    for sequence in range(4):
        log.append(sequence)
        log.state.take_snapshot()
    log.state.truncate_and_reload(1, 3, 200)
    assert list(log.state.snapshots.offsets) == [2, 3]
    assert log.state.map_end_offset == 3
    assert log.state.active_producers[PID].last_sequence == 2
    log.state.truncate_and_reload(1, 2, 200)
    assert log.state.active_producers[PID].last_sequence == 1
    log.state.truncate_and_reload(2, 2, 200)  # at the log end already: producers stay in memory
    assert log.state.active_producers[PID].last_sequence == 1
    assert list(log.state.snapshots.offsets) == []


def test_damaged_snapshots_are_left_out() -> None:
    log = Partition()
    for sequence in range(3):
        log.append(sequence)
        log.state.take_snapshot()
    log.disk.flip_bit(f"{DIRECTORY}/00000000000000000003.snapshot", 70)
    state = reopened(log)
    state.truncate_and_reload(0, 3, 200)
    assert state.map_end_offset == 2
    assert list(state.snapshots.offsets) == [1, 2]
    assert not log.disk.exists(f"{DIRECTORY}/00000000000000000003.snapshot")


def test_expired_producers_are_not_loaded() -> None:
    log = Partition()
    log.append(0, timestamp=0)
    log.append(0, producer_id=9, timestamp=0, transactional=True)
    log.state.take_snapshot()
    state = reopened(log)
    state.truncate_and_reload(0, 2, state.producer_id_expiration_ms)
    assert list(state.active_producers) == [9]


def test_nothing_to_reload_from() -> None:
    log = Partition()
    state = reopened(log)
    state.truncate_and_reload(10, 20, 200)
    assert (state.map_end_offset, state.is_empty) == (10, True)


def test_replay_is_the_same_as_living_through_it() -> None:
    log = Partition()
    history: list[tuple[BatchHeader, EndTxnMarker | None]] = []

    def feed(state: ProducerStateManager, header: BatchHeader, marker: EndTxnMarker | None) -> None:
        completed = state.update(header, marker)
        if completed is not None:
            state.complete_txn(completed)
        state.update_map_end_offset(header.next_offset)

    for index in range(40):
        producer_id = index % 3
        if index % 7 == 6:
            history.append(control(offset=index, producer_id=producer_id, commit=index % 2 == 0))
        else:
            history.append((batch(index, offset=index, producer_id=producer_id, transactional=index % 3 > 0), None))
    for index, item in enumerate(history):
        feed(log.state, *item)
        if index == 20:
            log.state.take_snapshot()
    state = reopened(log)
    state.truncate_and_reload(0, 40, 200)
    for header, marker in history[state.map_end_offset :]:
        feed(state, header, marker)
    state.on_high_watermark_updated(40)
    log.state.on_high_watermark_updated(40)
    assert state.first_unstable_offset == log.state.first_unstable_offset
    for producer_id, entry in log.state.active_producers.items():
        assert repr(state.active_producers[producer_id]) == repr(entry)


def test_stray_snapshots() -> None:
    log = Partition()
    for sequence in range(6):
        log.append(sequence)
        log.state.take_snapshot()
    log.disk.write_bytes(f"{DIRECTORY}/note.snapshot", b"")
    log.state.snapshots.remove_strays([0, 2, 4])
    assert list(log.state.snapshots.offsets) == [2, 4, 6]
    log.state.snapshots.remove_strays([2, 8])
    assert list(log.state.snapshots.offsets) == [2]


def test_snapshots_go_with_their_segments() -> None:
    log = Partition()
    for sequence in range(4):
        log.append(sequence)
        log.state.take_snapshot()
    marked = log.state.snapshots.mark_for_deletion(3)
    assert marked == f"{DIRECTORY}/00000000000000000003.snapshot.deleted"
    assert log.disk.exists(marked)
    assert log.state.snapshots.mark_for_deletion(3) is None
    assert log.state.snapshots.latest == 4
    assert reopened(log).snapshots.offsets == (1, 2, 4)
    log.state.truncate_fully_and_start_at(100)
    assert (list(log.state.snapshots.offsets), log.state.map_end_offset, log.state.is_empty) == ([], 100, True)


def test_log_start_offset_moves_on() -> None:
    log = Partition()
    log.append(0, transactional=True)
    log.end_txn()
    log.state.on_log_start_offset_incremented(2)
    assert log.state.first_unstable_offset is None
    log.state.on_log_start_offset_incremented(10)
    assert log.state.map_end_offset == 10
    assert PID in log.state.active_producers


KAFKA_LOG = base64.b64decode(
    "AAAAAAAAAAAAAABnAAAAAAL1HMPFABMAAAACAAABi8/laAAAAAGLz+VoAgAAAAAAAAAAAAAAAAAAAAAAAwQiTRhgQIInAAAA"
    "nzgAAAAEazAodgEAAI8AOAACAgRrMR0ABV0EBARrMh0AUHZ2dnYAAAAAAAAAAAAAAAADAAAAQgAAAAAC5pvIwQAwAAAAAAAA"
    "AaH+nlyfAAABof6eXJ8AAAAAAAAAAAAA/////wAAAAEgAAAACAAAAAEMAAAAAAAAAAAAAAAAAAAEAAAAZwAAAAACqd5VGQAT"
    "AAAAAgAAAYvP5WgAAAABi8/laAIAAAAAAAAAAAAAAAAAAwAAAAMEIk0YYECCJwAAAJ84AAAABGswKHYBAACPADgAAgIEazEd"
    "AAVdBAQEazIdAFB2dnZ2AAAAAAAAAAAAAAAABwAAAEIAAAAAAi44NcYAMAAAAAAAAAGh/p5dHAAAAaH+nl0cAAAAAAAAAAAA"
    "AP////8AAAABIAAAAAgAAAAADAAAAAAAAAAAAAAAAAAACAAAAGcAAAAAAkyZ7n0AEwAAAAIAAAGLz+VoAAAAAYvP5WgCAAAA"
    "AAAAAAAAAAAAAAYAAAADBCJNGGBAgicAAACfOAAAAARrMCh2AQAAjwA4AAICBGsxHQAFXQQEBGsyHQBQdnZ2dgAAAAAAAAAA"
    "AAAAAAsAAABCAAAAAALgNzwqADAAAAAAAAABof6eXUgAAAGh/p5dSAAAAAAAAAAAAAD/////AAAAASAAAAAIAAAAAAwAAAAA"
    "AAAAAAAAAAAAAAwAAABnAAAAAAJmvVUgABMAAAACAAABi8/laAAAAAGLz+VoAgAAAAAAAAAAAAAAAAAJAAAAAwQiTRhgQIIn"
    "AAAAnzgAAAAEazAodgEAAI8AOAACAgRrMR0ABV0EBARrMh0AUHZ2dnYAAAAAAA=="
)
KAFKA_SNAPSHOT = base64.b64decode("AAFfWi6ZAAAAAQAAAAAAAAAAAAAAAAALAAAAAAAAAA4AAAACAAABi8/laAIAAAAAAAAAAAAAAAw=")
KAFKA_TXNINDEX = base64.b64decode(
    "AAAAAAAAAAAAAAAAAAAAAAAEAAAAAAAAAAcAAAAAAAAACAAAAAAAAAAAAAAAAAAAAAAACAAAAAAAAAALAAAAAAAAAAw="
)


@pytest.mark.kafka
def test_apache_kafkas_tool_reads_a_snapshot(tmp_path: Path) -> None:
    home = os.environ.get("KAFKA_HOME")
    if not home:
        pytest.skip("KAFKA_HOME is not set")
    state = ProducerStateManager(TP, str(tmp_path), OsDisk())
    state.update(batch(3, count=4, offset=10, epoch=2, timestamp=1234))
    state.update(batch(0, offset=14, producer_id=99, epoch=1, transactional=True, timestamp=5678))
    state.update_map_end_offset(15)
    path = state.take_snapshot()
    assert path is not None
    tool = Path(home) / "bin" / "kafka-dump-log.sh"
    output = subprocess.run([tool, "--files", path], capture_output=True, text=True, check=True).stdout
    first, second = (dict(re.findall(r"(\w+): (\S+)", line)) for line in output.splitlines() if "producerId" in line)
    assert (first["producerId"], first["producerEpoch"]) == ("42", "2")
    assert (second["producerId"], second["currentTxnFirstOffset"]) == ("99", "OptionalLong[14]")
    assert "firstSequence: 3 lastSequence: 6" in output and "lastOffset: 13 offsetDelta: 3" in output
