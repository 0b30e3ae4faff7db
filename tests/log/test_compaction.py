"""Compaction of one log on a fake disk: what stays, what goes, and that everything reads as before."""

from __future__ import annotations

import random
import tracemalloc
from dataclasses import replace

import pytest

from kbroker.errors import ErrorCode
from kbroker.log.compaction.cleanable import LogToClean, filthiest, log_to_clean, make_job
from kbroker.log.compaction.compactor import compact, group_segments
from kbroker.log.compaction.job import CompactionResult, SegmentToClean
from kbroker.log.fake_disk import FakeDisk
from kbroker.log.log_config import LogConfig
from kbroker.log.partition_log import PartitionLog
from kbroker.log.segments.indexed_file import CorruptSegment
from kbroker.log.validation import AppendOrigin
from kbroker.wire.batch_header import BatchHeader, TimestampType, check_crc, walk_headers
from kbroker.wire.compression import CompressionType
from kbroker.wire.control_batch import build_end_txn_marker
from kbroker.wire.record_batch import Record, build_batch, iter_records
from kbroker.wire.record_windows import run_steps
from tests.log.large_batches import large_batch
from tests.log.log_helpers import NOW, TP, open_log, read_all, remove_expired

DAY = 24 * 3600 * 1000
CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact"}), segment_bytes=4096, min_cleanable_dirty_ratio=0.0, index_interval_bytes=200
)


def put(
    log: PartitionLog,
    records: list[tuple[bytes | None, bytes | None]],
    *,
    timestamp: int = NOW,
    codec: CompressionType = CompressionType.NONE,
    producer_id: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    leader_epoch: int = 0,
) -> int:
    """Append one batch of (key, value); its first offset."""
    data = build_batch(
        [Record(0, timestamp + i, key, value) for i, (key, value) in enumerate(records)],
        compression=codec,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
        is_transactional=transactional,
    )
    client = not transactional and all(key is not None for key, _ in records)
    origin = AppendOrigin.CLIENT if client else AppendOrigin.COORDINATOR
    if transactional:
        guard = log.producers.maybe_start_verification(producer_id, sequence, 0, False, timestamp)
        info = log.append_as_leader(bytearray(data), 0, now_ms=timestamp, origin=origin, verification_guard=guard)
    else:
        info = log.append_as_leader(bytearray(data), leader_epoch, now_ms=timestamp, origin=origin)
    return info.first_offset


def end_txn(log: PartitionLog, producer_id: int, *, commit: bool, timestamp: int = NOW) -> int:
    marker = build_end_txn_marker(
        commit=commit, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=timestamp
    )
    info = log.append_as_leader(
        bytearray(marker), 0, now_ms=timestamp, origin=AppendOrigin.COORDINATOR, transaction_version=0
    )
    log.on_high_watermark_updated(log.log_end_offset)
    return info.first_offset


def to_clean(log: PartitionLog, checkpoint: int | None = None, now_ms: int = NOW) -> LogToClean | None:
    unstable = log.first_unstable_offset
    stable = log.log_end_offset if unstable is None else unstable
    return log_to_clean(log, checkpoint, last_stable_offset=stable, now_ms=now_ms)


def clean(
    log: PartitionLog,
    checkpoint: int | None = None,
    *,
    now_ms: int = NOW,
    map_bytes: int = 1 << 30,
    read_bytes: int = 512,
) -> CompactionResult:
    """Compact a log once and swap the new segments in. It fails if there is nothing to clean."""
    log.flush()
    found = to_clean(log, checkpoint, now_ms)
    assert found is not None
    job = make_job(found, now_ms=now_ms, map_bytes=map_bytes, read_bytes=read_bytes)
    result = compact(job, log.disk)
    for segment in result.segments:
        assert log.replace_segments(segment, now_ms)
    log.disk.sync_dir(log.directory)
    return result


def seal(log: PartitionLog) -> None:
    log.roll(NOW)


def records(log: PartitionLog) -> list[Record]:
    """All data records, read as a consumer does, with small fetches; checksums and offsets are verified."""
    found: list[Record] = []
    for header, batch_records in batches(log):
        if not header.is_control:
            found += batch_records
    return found


def batches(log: PartitionLog) -> list[tuple[BatchHeader, list[Record]]]:
    found: list[tuple[BatchHeader, list[Record]]] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read_bytes(offset, 300)
        if not data:
            break
        for position, header in walk_headers(data):
            check_crc(data, position, header)
            if header.last_offset < offset:
                continue
            found.append((header, list(iter_records(data, position))))
            assert header.next_offset > offset
            offset = header.next_offset
    return found


def pairs(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in records(log)]


def test_keeps_the_last_value_of_each_key_at_its_offset() -> None:
    log = open_log(config=CONFIG)
    put(log, [(b"a", b"1"), (b"b", b"1"), (b"c", b"1")])
    put(log, [(b"a", b"2")])
    put(log, [(b"b", b"2"), (b"d", b"1")])
    seal(log)
    put(log, [(b"a", b"active")])
    result = clean(log)
    assert pairs(log) == [
        (2, b"c", b"1"), (3, b"a", b"2"), (4, b"b", b"2"), (5, b"d", b"1"), (6, b"a", b"active"),
    ]  # fmt: skip
    assert result.end_offset == 6
    assert log.log_end_offset == 7
    assert result.bytes_written < result.bytes_read


def test_a_second_round_looks_the_clean_part_up() -> None:
    log = open_log(config=CONFIG)
    put(log, [(b"a", b"1"), (b"b", b"1")])
    seal(log)
    first = clean(log)
    put(log, [(b"b", b"2")])
    seal(log)
    clean(log, first.end_offset)
    assert pairs(log) == [(0, b"a", b"1"), (2, b"b", b"2")]
    assert len(log.segments) == 2, "both small segments became one"


@pytest.mark.parametrize("codec", list(CompressionType))
@pytest.mark.parametrize("seed", range(4))
def test_agrees_with_a_dictionary(codec: CompressionType, seed: int) -> None:
    rng = random.Random(seed)
    log = open_log(config=replace(CONFIG, segment_bytes=70_000))
    kept: dict[bytes, tuple[int, bytes | None]] = {}
    checkpoint: int | None = None
    for _ in range(4):
        for _ in range(rng.randrange(5, 60)):
            size = rng.choice([1, 1, 3, 70, 200])
            chosen = [
                (b"k%d" % rng.randrange(40), b"v" * rng.choice([1, 10, 300]) + b"%d" % rng.randrange(99))
                for _ in range(size)
            ]
            first = put(log, [(key, value) for key, value in chosen], codec=codec, timestamp=NOW + rng.randrange(9))
            for i, (key, value) in enumerate(chosen):
                kept[key] = first + i, value
        seal(log)
        end = log.log_end_offset
        while checkpoint is None or checkpoint < end:
            checkpoint = clean(log, checkpoint, map_bytes=rng.choice([600, 5000, 1 << 30])).end_offset
        found = pairs(log)
        assert found == sorted((offset, key, value) for key, (offset, value) in kept.items())
        stamps = {record.offset: record.timestamp for record in records(log)}
        for header, inside in batches(log):
            if inside:
                assert header.max_timestamp == max(stamps[record.offset] for record in inside)
    for offset, *content in pairs(log):
        data = log.read_bytes(offset, 1)
        found_records = {record.offset: [record.key, record.value] for record in iter_records(data)}
        assert found_records[offset] == content, "found by its offset, through the index"


def test_timestamps_and_headers_survive_in_a_batch_that_loses_records() -> None:
    log = open_log(config=CONFIG)
    data = build_batch(
        [
            Record(0, NOW, b"a", b"1", (("h", b"x"), ("n", None))),
            Record(1, NOW + 10**7, b"b", b"1"),
            Record(2, NOW - 5, b"c", b"1" * 200, (("h", b"y"),)),
        ]
    )
    log.append_as_leader(bytearray(data), 7, now_ms=NOW, origin=AppendOrigin.COORDINATOR)
    put(log, [(b"b", b"2")], leader_epoch=7)
    seal(log)
    clean(log)
    (header, inside), *_ = batches(log)
    assert inside == [
        Record(0, NOW, b"a", b"1", (("h", b"x"), ("n", None))),
        Record(2, NOW - 5, b"c", b"1" * 200, (("h", b"y"),)),
    ]
    assert header.last_offset_delta == 2, "the gap at the end is kept"
    assert header.max_timestamp == NOW
    assert header.partition_leader_epoch == 7


def test_a_log_append_time_batch_keeps_its_time() -> None:
    log = open_log(config=replace(CONFIG, message_timestamp_type="LogAppendTime"))
    put(log, [(b"a", b"1"), (b"b", b"1"), (b"c", None)], timestamp=NOW)
    put(log, [(b"a", b"2")])
    seal(log)
    clean(log)
    (header, inside), *_ = batches(log)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [(record.key, record.timestamp) for record in inside] == [(b"b", NOW), (b"c", NOW)]


def test_tombstones_get_a_horizon_and_go_after_it() -> None:
    config = replace(CONFIG, delete_retention_ms=DAY)
    log = open_log(config=config)
    put(log, [(b"a", b"1"), (b"b", b"1")], timestamp=NOW - 3)
    put(log, [(b"a", None), (b"c", b"1")], timestamp=NOW - 2)
    seal(log)
    first = clean(log)
    assert pairs(log) == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1")]
    horizon_batch = batches(log)[1][0]
    assert horizon_batch.delete_horizon_ms == NOW + DAY
    assert [record.timestamp for record in records(log)] == [NOW - 2, NOW - 2, NOW - 1], "the times are as before"
    assert horizon_batch.max_timestamp == NOW - 1

    put(log, [(b"d", b"1")])
    seal(log)
    second = clean(log, first.end_offset, now_ms=NOW + DAY - 1)
    assert (2, b"a", None) in pairs(log)
    put(log, [(b"d", b"2")])
    seal(log)
    clean(log, second.end_offset, now_ms=NOW + DAY)
    assert pairs(log) == [(1, b"b", b"1"), (3, b"c", b"1"), (5, b"d", b"2")]
    assert batches(log)[1][1][0].timestamp == NOW - 1


def test_records_without_a_key_go() -> None:
    log = open_log(config=CONFIG)
    put(log, [(None, b"1"), (b"a", b"1"), (None, b"2")])
    put(log, [(None, b"3")])
    put(log, [(b"z", b"1")])
    seal(log)
    clean(log)
    assert pairs(log) == [(1, b"a", b"1"), (4, b"z", b"1")]


def test_the_last_batch_of_the_round_stays_even_when_empty() -> None:
    log = open_log(config=CONFIG)
    put(log, [(b"a", b"1")])
    put(log, [(None, b"no key")])
    seal(log)
    clean(log)
    assert [(header.base_offset, len(inside)) for header, inside in batches(log)] == [(0, 1), (1, 0)]


def test_the_batch_with_a_producers_last_sequence_stays_empty() -> None:
    log = open_log(config=CONFIG)
    put(log, [(b"a", b"1")], producer_id=5, sequence=0)
    put(log, [(b"a", b"2"), (b"b", b"2")], producer_id=5, sequence=1)
    put(log, [(b"a", b"3"), (b"b", b"3")])
    seal(log)
    clean(log)
    assert [(header.base_offset, header.records_count, header.base_sequence) for header, _ in batches(log)] == [
        (1, 0, 1), (3, 2, -1),
    ]  # fmt: skip
    log.close()
    for name in log.disk.list_dir(log.directory):
        if name.endswith(".snapshot"):
            log.disk.remove(f"{log.directory}/{name}")
    again = open_log(log.disk, CONFIG)
    assert again.producers.active_producers[5].last_sequence == 2
    assert put(again, [(b"a", b"4")], producer_id=5, sequence=3) == 5


def test_a_producer_that_expired_leaves_nothing() -> None:
    log = open_log(config=CONFIG)
    put(log, [(b"a", b"1")], producer_id=5, sequence=0)
    put(log, [(b"a", b"2")])
    seal(log)
    assert log.producers.remove_expired_producers(NOW + 2 * DAY) == 1
    clean(log)
    assert [header.base_offset for header, _ in batches(log)] == [1]


def test_an_aborted_transaction_goes_and_then_its_marker() -> None:
    log = open_log(config=replace(CONFIG, delete_retention_ms=DAY))
    put(log, [(b"a", b"1")])
    put(log, [(b"a", b"aborted"), (b"b", b"aborted")], producer_id=9, sequence=0, transactional=True)
    end_txn(log, 9, commit=False)
    put(log, [(b"c", b"committed")], producer_id=9, sequence=2, transactional=True)
    end_txn(log, 9, commit=True)
    put(log, [(b"d", b"1")])
    seal(log)
    first = clean(log)
    # The aborted records are gone, but this round saw them, so the marker stays, and the index's entry with it.
    assert pairs(log) == [(0, b"a", b"1"), (4, b"c", b"committed"), (6, b"d", b"1")]
    assert [header.base_offset for header, _ in batches(log) if header.is_control] == [3, 5]
    assert [txn.first_offset for txn in log.segments[0].txn_index] == [1]

    put(log, [(b"d", b"2")])
    seal(log)
    second = clean(log, first.end_offset)
    # Nothing of the aborted one is left: its marker may go, after as long as a tombstone.
    markers = [header for header, _ in batches(log) if header.is_control]
    assert [(header.base_offset, header.delete_horizon_ms) for header in markers] == [(3, NOW + DAY), (5, None)]
    assert list(log.segments[0].txn_index) == []

    put(log, [(b"c", b"2")])
    seal(log)
    clean(log, second.end_offset, now_ms=NOW + DAY)
    # Likewise the marker of the committed one, once its only record was replaced.
    assert [header.base_offset for header, _ in batches(log) if header.is_control] == [5]
    assert pairs(log) == [(0, b"a", b"1"), (7, b"d", b"2"), (8, b"c", b"2")]


def test_a_marker_beyond_the_last_stable_offset_is_known_of() -> None:
    log = open_log(config=replace(CONFIG, segment_bytes=1 << 20))
    put(log, [(b"a", b"1")])
    put(log, [(b"a", b"aborted")], producer_id=9, sequence=0, transactional=True)
    seal(log)
    put(log, [(b"x", b"open")], producer_id=8, sequence=0, transactional=True)
    end_txn(log, 9, commit=False)
    seal(log)
    log.on_high_watermark_updated(log.log_end_offset)
    assert log.first_unstable_offset == 2
    result = clean(log)
    assert result.end_offset == 2
    assert pairs(log) == [(0, b"a", b"1"), (2, b"x", b"open")], "the marker lies in a segment that is not cleaned"


def test_an_open_transaction_is_not_touched() -> None:
    log = open_log(config=CONFIG)
    put(log, [(b"a", b"1")])
    put(log, [(b"a", b"2")])
    put(log, [(b"a", b"open")], producer_id=8, sequence=0, transactional=True)
    seal(log)
    assert to_clean(log) is None
    end_txn(log, 8, commit=True)
    clean(log)
    assert pairs(log) == [(2, b"a", b"open")]


def test_a_full_map_ends_the_round_and_the_next_goes_on() -> None:
    log = open_log(config=CONFIG)
    for i in range(60):
        put(log, [(b"key%d" % (i % 20), b"%d" % i)])
    seal(log)
    checkpoint, rounds = None, 0
    while checkpoint != 60:
        result = clean(log, checkpoint, map_bytes=800)
        assert checkpoint is None or result.end_offset > checkpoint
        assert result.map_full == (result.end_offset < 60)
        checkpoint, rounds = result.end_offset, rounds + 1
    assert rounds > 3
    assert pairs(log) == [(40 + i, b"key%d" % i, b"%d" % (40 + i)) for i in range(20)]


def test_damage_is_told_and_nothing_changes() -> None:
    log = open_log(config=CONFIG)
    assert isinstance(log.disk, FakeDisk)
    for i in range(50):
        put(log, [(b"a", b"%d" % i)])
    seal(log)
    log.flush()
    log.disk.flip_bit(log.segments[0].path, 8 * (log.segments[0].size // 2))
    found = to_clean(log)
    assert found is not None
    job = make_job(found, now_ms=NOW, map_bytes=1 << 20, read_bytes=4096)
    with pytest.raises(CorruptSegment, match=r"00000\.log: at byte"):
        compact(job, log.disk)
    assert not [name for name in log.disk.list_dir(log.directory) if name.endswith(".cleaned")]


@pytest.mark.parametrize("way", ["another segment", "and another segment", "another epoch"])
def test_batches_of_another_place_are_not_taken_for_compacted_ones(way: str) -> None:
    """Each has its checksum; what stood in their place would be gone, as if it had been compacted."""
    log = open_log(config=CONFIG)
    assert isinstance(log.disk, FakeDisk)
    for i in range(150):
        put(log, [(b"%d" % i, b"x")])
    seal(log)
    log.flush()
    first, second = log.segments[:2]
    other = log.disk.read_bytes(second.path)
    if way == "another epoch":
        log.disk.flip_bit(first.path, 15 * 8 + 2)
    else:
        first.append([other], [header for _, header in walk_headers(other)])
        if way == "another segment":
            log.disk.open(first.path).write_at(0, [other])
            first.set_size(len(other))
    found = to_clean(log)
    assert found is not None
    job = make_job(found, now_ms=NOW, map_bytes=1 << 20, read_bytes=4096)
    with pytest.raises(CorruptSegment) as error:
        compact(job, log.disk)
    assert log.damaged(error.value).code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert log.damage[0].segment == "00000000000000000000.log"


def test_what_changed_meanwhile_is_not_replaced() -> None:
    log = open_log(config=CONFIG)
    put(log, [(b"a", b"1")])
    seal(log)
    put(log, [(b"a", b"2")])
    seal(log)
    log.flush()
    found = to_clean(log)
    assert found is not None
    result = compact(make_job(found, now_ms=NOW, map_bytes=1 << 20, read_bytes=4096), log.disk)
    log.truncate_to(1)
    assert [log.replace_segments(segment, NOW) for segment in result.segments] == [False]
    assert pairs(log) == [(0, b"a", b"1")]


def test_groups_fit_into_a_segment_and_its_indexes() -> None:
    def segment(base: int, size: int, *, end: int | None = None, entries: int = 1) -> SegmentToClean:
        return SegmentToClean(base, base + 10 if end is None else end, size, entries, entries)

    def bases(segments: list[SegmentToClean], segment_bytes: int = 100, index_bytes: int = 1000) -> list[list[int]]:
        return [[s.base_offset for s in group] for group in group_segments(segments, segment_bytes, index_bytes)]

    assert bases([segment(0, 50), segment(10, 50), segment(20, 1)]) == [[0, 10], [20]]
    assert bases([segment(0, 200), segment(10, 50)]) == [[0], [10]], "one that is too large stays alone"
    assert bases([segment(0, 1, entries=60), segment(10, 1, entries=60)], index_bytes=1000) == [[0], [10]]
    far = 2**31
    assert bases([segment(0, 1), segment(10, 1, end=far + 1), segment(far + 1, 1)]) == [[0], [10], [far + 1]]
    assert bases([segment(0, 1), segment(10, 1, end=far)]) == [[0, 10]]
    assert bases([segment(0, 1, end=far * 2), segment(far * 2, 0)]) == [[0, far * 2]], "an empty one always fits"


# -- choosing


def test_what_is_due() -> None:
    config = replace(CONFIG, min_cleanable_dirty_ratio=0.5, segment_bytes=1 << 20)
    log = open_log(config=config)
    assert to_clean(log) is None
    put(log, [(b"a", b"1" * 100)])
    assert to_clean(log) is None, "the active segment is not cleaned"
    seal(log)
    assert to_clean(log) is None, "what is not durable is not cleaned"
    log.flush()
    found = to_clean(log)
    assert found is not None
    assert (found.first_dirty_offset, found.first_uncleanable_offset, found.cleanable_ratio) == (0, 1, 1.0)
    assert found.is_due
    assert filthiest([found]) is found

    put(log, [(b"b", b"1" * 99)])
    seal(log)
    log.flush()
    found = to_clean(log, 1)
    assert found is not None
    assert found.cleanable_ratio < 0.5
    assert filthiest([found]) is None
    for wrong in (5, -3):
        reset = to_clean(log, wrong)
        assert reset is not None
        assert reset.first_dirty_offset == 0


def test_lags() -> None:
    log = open_log(config=replace(CONFIG, min_compaction_lag_ms=1000, min_cleanable_dirty_ratio=1.0))
    put(log, [(b"a", b"1")], timestamp=NOW)
    seal(log)
    put(log, [(b"a", b"2")], timestamp=NOW + 500)
    seal(log)
    log.flush()
    assert to_clean(log, now_ms=NOW + 999) is None
    found = to_clean(log, now_ms=NOW + 1000)
    assert found is not None
    assert found.first_uncleanable_offset == 1
    assert not found.is_due, "not dirtier than the ratio of 1.0"
    log.update_config(replace(log.config, min_compaction_lag_ms=0, max_compaction_lag_ms=2000))
    on_time = to_clean(log, now_ms=NOW + 2000)
    late = to_clean(log, now_ms=NOW + 2001)
    assert on_time is not None
    assert late is not None
    assert (on_time.is_due, late.is_due) == (False, True)


def test_max_compaction_lag_rolls_the_active_segment() -> None:
    log = open_log(config=replace(CONFIG, max_compaction_lag_ms=1000))
    put(log, [(b"a", b"1")], timestamp=NOW)
    put(log, [(b"a", b"1")], timestamp=NOW + 1000)
    assert len(log.segments) == 1
    put(log, [(b"a", b"1")], timestamp=NOW + 1001)
    assert len(log.segments) == 2


def test_the_partitions_files_are_those_of_a_log() -> None:
    log = open_log(config=CONFIG)
    for i in range(200):
        put(log, [(b"key%d" % (i % 150), b"%d" % i)])
    seal(log)
    clean(log)
    remove_expired(log, NOW + DAY)
    names = log.disk.list_dir(log.directory)
    assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
    stems = {name.split(".")[0] for name in names if name.endswith(".log")}
    assert stems == {f"{segment.base_offset:020d}" for segment in log.segments}
    log.close()
    again = open_log(log.disk, CONFIG, clean=True, recovery_point=200)
    assert read_all(again) == [(offset, value) for offset, _, value in pairs(log)]
    assert again.topic_partition == TP


def test_a_segment_that_lost_everything_still_says_where_the_log_starts() -> None:
    log = open_log(config=replace(CONFIG, segment_bytes=100))
    put(log, [(b"a", b"1" * 20)])
    put(log, [(b"a", b"2" * 20)])
    put(log, [(b"a", b"3" * 20)])
    clean(log)
    assert [(segment.base_offset, segment.size > 0) for segment in log.segments] == [(0, False), (1, True), (2, True)]
    assert pairs(log) == [(1, b"a", b"2" * 20), (2, b"a", b"3" * 20)]
    expected = pairs(log)
    log.close()
    again = open_log(log.disk, CONFIG, clean=True, recovery_point=3, clean_offset=2)
    assert again.log_start_offset == 0
    assert pairs(again) == expected


def test_a_segment_that_lost_everything_is_as_old_as_the_next() -> None:
    log = open_log(config=replace(CONFIG, segment_bytes=100))
    for value in (b"1", b"2", b"3"):
        put(log, [(b"a", value * 20)])
    clean(log)
    log.update_config(replace(log.config, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=1000))
    assert log.delete_old_segments(NOW + 1000) == 0
    assert log.delete_old_segments(NOW + 1001) == 3
    assert log.log_start_offset == 3


LARGE = replace(CONFIG, segment_bytes=1 << 24, max_message_bytes=1 << 24)


def large_log(codec: CompressionType, contents: list[list[tuple[bytes, bytes | None]]]) -> PartitionLog:
    """A log with such batches, as a topic has them that was not compacted when they were produced."""
    log = open_log(config=replace(LARGE, cleanup_policy=frozenset({"delete"})))
    for content in contents:
        entries = (Record(index, NOW + index, key, value) for index, (key, value) in enumerate(content))
        log.append_as_leader(large_batch(entries, codec), 0, now_ms=NOW)
    log.update_config(LARGE)
    seal(log)
    return log


@pytest.mark.parametrize("codec", list(CompressionType)[1:])
def test_large_batches_are_compacted_in_little_memory(codec: CompressionType) -> None:
    value = bytes(250_000)
    first: list[tuple[bytes, bytes | None]] = [(b"k%d" % (index % 7), value) for index in range(120)]
    second: list[tuple[bytes, bytes | None]] = [
        (b"k%d" % (index % 3 + 5), value if index % 3 else None) for index in range(120)
    ]
    log = large_log(codec, [first, second])
    expected = {key: (offset, key, content) for offset, (key, content) in enumerate(first + second)}
    tracemalloc.start()
    try:
        clean(log)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < (20 << 20) + 4 * (1 << 20)
    assert pairs(log) == sorted(expected.values())
    stored = batches(log)
    assert [header.compression_type for header, _ in stored] == [codec, codec]
    assert stored[0][0].delete_horizon_ms is None
    assert stored[1][0].delete_horizon_ms == NOW + DAY  # a tombstone is in it
    for header, found in stored:
        assert header.max_timestamp == max(record.timestamp for record in found)
        assert [record.timestamp for record in found] == [NOW + record.offset % 120 for record in found]
    put(log, [(b"z", b"1")])
    seal(log)
    clean(log, 240, now_ms=NOW + DAY + 1)
    kept = [entry for entry in expected.values() if entry[2] is not None]
    assert pairs(log) == [*sorted(kept), (240, b"z", b"1")]


def test_a_record_larger_than_what_is_looked_at_at_once_is_compacted() -> None:
    huge = bytes(30_000_000)
    contents: list[list[tuple[bytes, bytes | None]]] = [
        [(b"a", b"1"), (b"a", huge), (b"b", huge), (b"c", None), (b"b", b"2")],
        [(b"d", huge), (b"c", huge), (b"c", b"3")],
    ]
    log = large_log(CompressionType.ZSTD, contents)
    clean(log)
    assert [(offset, key, len(value or b"")) for offset, key, value in pairs(log)] == [
        (1, b"a", len(huge)),
        (4, b"b", 1),
        (5, b"d", len(huge)),
        (7, b"c", 1),
    ]


def test_a_full_map_ends_the_round_within_a_large_batch() -> None:
    """The keys of one batch may be more than fit into memory."""
    value = bytes(100_000)
    content: list[tuple[bytes, bytes | None]] = [(b"key-%d" % (index % 150), value) for index in range(300)]
    log = large_log(CompressionType.ZSTD, [content])
    first = clean(log, map_bytes=5_000)
    assert first.map_full and 0 < first.end_offset < 150
    assert len(pairs(log)) == 300
    checkpoint = first.end_offset
    rounds = 0
    while checkpoint < 300:
        result = clean(log, checkpoint, map_bytes=5_000)
        assert result.end_offset > checkpoint
        checkpoint = result.end_offset
        rounds += 1
    assert rounds > 1
    assert [(offset, key) for offset, key, _ in pairs(log)] == [(150 + i, b"key-%d" % i) for i in range(150)]


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.ZSTD])
def test_a_timestamp_that_is_no_number_of_64_bits_is_compacted_and_found(codec: CompressionType) -> None:
    """The header says nothing of it, so the batch was taken."""
    log = open_log(config=CONFIG)
    content = [Record(0, NOW, b"a", b"1"), Record(1, NOW + 2**63 - 1, b"b", b"1")]
    log.append_as_leader(large_batch(content, codec, max_timestamp=NOW + 50), 0, now_ms=NOW)
    put(log, [(b"a", b"2")])
    seal(log)
    found = run_steps(log.offset_for_timestamp(NOW + 1))
    assert found is not None and (found.timestamp, found.offset) == (2**63 - 1, 1)
    clean(log)
    assert pairs(log) == [(1, b"b", b"1"), (2, b"a", b"2")]
