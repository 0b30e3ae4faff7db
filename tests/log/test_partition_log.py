from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kbroker.errors import ApiError, ErrorCode
from kbroker.log import opening
from kbroker.log.disk import OsDisk
from kbroker.log.fake_disk import FakeDisk
from kbroker.log.log_config import LogConfig
from kbroker.log.segments.transaction_index import AbortedTxn
from kbroker.log.validation import AppendOrigin
from kbroker.types import FileRegion, random_uuid
from kbroker.wire.batch_header import BatchHeader, parse_header, patch_in_place, walk_headers
from kbroker.wire.compression import CompressionType, compress
from kbroker.wire.control_batch import build_end_txn_marker
from kbroker.wire.record_batch import Record, assemble, build_batch
from tests.log.large_batches import large_batch
from tests.log.log_helpers import DIRECTORY, NOW, TP, append, batch, looked_up, open_log, read_all, remove_expired
from tests.patience import SHORT

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=200)


def test_appends_get_consecutive_offsets_and_are_read_back() -> None:
    log = open_log()
    assert append(log, [b"a", b"b"]) == 0
    assert append(log, [b"c"]) == 2
    assert log.log_end_offset == 3
    assert read_all(log) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_a_read_inside_a_batch_returns_the_whole_batch() -> None:
    log = open_log()
    append(log, [b"a", b"b", b"c"])
    info = log.read(2, 1 << 20)
    assert info.first_batch_base_offset == 0
    assert len(info.records) == log.size


def test_reads_outside_are_refused_and_at_the_end_are_empty() -> None:
    log = open_log()
    append(log, [b"a"])
    assert len(log.read(1, 100).records) == 0
    for offset in (-1, 2):
        with pytest.raises(ApiError) as caught:
            log.read(offset, 100)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_batch_larger_than_the_limit_comes_whole_or_not_at_all() -> None:
    log = open_log()
    append(log, [b"x" * 500])
    append(log, [b"y"])
    first = len(batch([b"x" * 500]))
    assert len(log.read(0, 10).records) == first
    assert len(log.read(0, 10, min_one_message=False).records) == 0


def test_reads_end_at_a_batch_boundary_when_one_is_known() -> None:
    log = open_log()
    for index in range(300):
        append(log, [b"%d" % index])
    size = len(batch([b"299"]))
    assert len(log.read(295, 3 * size + 5).records) == 3 * size


def test_a_read_that_the_limit_ends_tells_that_there_was_enough_for_it() -> None:
    log = open_log()
    for index in range(300):
        append(log, [b"%d" % index])
    size = len(batch([b"299"]))
    cut = log.read(295, 3 * size + 5)
    assert (len(cut.records), cut.readable) == (3 * size, 3 * size + 5)
    whole = log.read(295, 100 * size)
    assert (len(whole.records), whole.readable) == (5 * size, 5 * size)
    first = log.read(295, 5)
    assert (len(first.records), first.readable) == (size, size)
    later = log.read(295, 5, min_one_message=False)
    assert (len(later.records), later.readable) == (0, 5)
    assert log.read(300, 5).readable == 0


@pytest.mark.parametrize("limit", [3_000, 5_000, 8_192, 9_000, 20_000, 70_000])
def test_a_small_limit_is_not_left_half_empty(limit: int) -> None:
    log = open_log()
    for _ in range(2_000):
        append(log, [b"x" * 30])
    size = len(batch([b"x" * 30]))
    offset = 0
    while offset + limit // size < 2_000:
        data = log.read_bytes(offset, limit)
        whole = sum(1 for _ in walk_headers(data[: len(data) // size * size]))
        assert whole >= limit // size * 15 // 16
        offset += whole


@pytest.mark.parametrize("bound", range(7))
def test_nothing_at_or_above_the_bound_is_read(bound: int) -> None:
    log = open_log()
    for _ in range(3):
        append(log, [b"a", b"b"])
    data = log.read_bytes(0, 1 << 20, max_offset=bound)
    ends = [header.next_offset for _, header in walk_headers(data)]
    assert ends == [end for end in (2, 4, 6) if end <= bound]


def test_segments_roll_by_size_and_reads_cross_them() -> None:
    log = open_log(config=SMALL)
    values = [b"%04d" % index * 20 for index in range(50)]
    for value in values:
        append(log, [value])
    assert len(log.segments) > 3
    assert all(segment.size <= 1000 for segment in log.segments)
    for max_bytes in (1, 300, 1 << 20):
        assert read_all(log, max_bytes=max_bytes) == list(enumerate(values))
    for start in range(50):
        assert read_all(log, start=start)[0] == (start, values[start])


def test_segments_roll_by_record_time() -> None:
    log = open_log(config=LogConfig(segment_ms=1000))
    append(log, [b"a"], timestamp=NOW)
    append(log, [b"b"], timestamp=NOW + 1000)
    assert len(log.segments) == 1
    append(log, [b"c"], timestamp=NOW + 1001)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_segments_without_timestamps_roll_by_the_clock() -> None:
    log = open_log(config=LogConfig(segment_ms=1000))
    for now, segments in ((NOW, 1), (NOW + 1000, 1), (NOW + 1001, 2)):
        log.append_as_leader(batch([b"a"], timestamp=-1), 0, now_ms=now)
        assert len(log.segments) == segments


def test_jitter_rolls_earlier_and_differs_between_partitions() -> None:
    disk, waited = FakeDisk(), set()
    disk.make_dirs("/data")
    config = LogConfig(segment_ms=1000, segment_jitter_ms=500)
    for partition in range(20):
        tp = TP._replace(partition=partition)
        log, ms = opening.open_log(f"/data/{tp}", tp, None, config, disk, now_ms=NOW), 0
        while len(log.segments) == 1:
            append(log, [b"a"], timestamp=NOW + ms)
            ms += 1
        waited.add(ms - 1)
    assert len(waited) > 10
    assert all(500 < ms <= 1001 for ms in waited)


def test_segments_roll_when_an_index_is_full() -> None:
    log = open_log(config=LogConfig(segment_index_bytes=12 * 6, index_interval_bytes=1))
    for index in range(30):
        append(log, [b"%d" % index], timestamp=NOW + index)
    assert len(log.segments) > 2
    assert read_all(log) == [(index, b"%d" % index) for index in range(30)]


def test_a_batch_that_an_index_cannot_express_begins_a_segment() -> None:
    log = open_log()
    append(log, [b"a"])
    far = build_batch([Record(0, NOW, None, b"b")], base_offset=1 << 32, partition_leader_epoch=3)
    assert log.append_as_follower(bytearray(far), now_ms=NOW) is not None
    assert [segment.base_offset for segment in log.segments] == [0, 1 << 32]
    assert read_all(log) == [(0, b"a"), (1 << 32, b"b")]
    assert log.leader_epochs.entries == [(0, 0), (3, 1 << 32)]


def test_a_follower_keeps_offsets_gaps_and_epochs() -> None:
    log = open_log()
    for base in (0, 10, 20):
        data = build_batch([Record(0, NOW, None, b"v")], base_offset=base, partition_leader_epoch=base // 10)
        log.append_as_follower(bytearray(data), now_ms=NOW)
    assert log.log_end_offset == 21
    assert log.read(5, 1000).first_batch_base_offset == 10
    assert log.leader_epochs.entries == [(0, 0), (1, 10), (2, 20)]
    assert log.leader_epochs.end_offset_for(1, log.log_end_offset) == (20, 1)


def test_a_follower_takes_what_is_larger_than_a_segment_may_be_by_now() -> None:
    """Its leader took the batches before ``segment.bytes`` was made smaller."""
    log = open_log(config=LogConfig(segment_bytes=300))
    values = [b"a", b"b" * 1000, b"c"]
    for base, value in enumerate(values):
        data = build_batch([Record(0, NOW, None, value)], base_offset=base, partition_leader_epoch=0)
        assert log.append_as_follower(bytearray(data), now_ms=NOW) is not None
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2]
    assert read_all(log) == list(enumerate(values))
    with pytest.raises(ApiError) as refused:
        append(log, [b"d" * 1000])
    assert refused.value.code == ErrorCode.RECORD_LIST_TOO_LARGE


@pytest.mark.parametrize("index_interval", [0, 100, 4096])
def test_offsets_by_timestamp(index_interval: int) -> None:
    log = open_log(config=LogConfig(segment_bytes=2000, index_interval_bytes=index_interval))
    stamps = [(index * 7919) % 1000 for index in range(200)]
    for stamp in stamps:
        append(log, [b"v" * 10], timestamp=stamp)
    for target in range(0, 1010, 3):
        expected = next((offset for offset, stamp in enumerate(stamps) if stamp >= target), None)
        found = looked_up(log.offset_for_timestamp(target))
        assert (found.offset if found is not None else None) == expected
        if found is not None:
            assert found.timestamp == stamps[found.offset]
            assert found.leader_epoch == 0
    best = looked_up(log.offset_of_max_timestamp())
    assert best is not None
    assert (best.timestamp, best.offset) == (max(stamps), stamps.index(max(stamps)))


def test_a_timestamp_below_the_log_start_is_found_above_it() -> None:
    log = open_log(config=LogConfig(segment_bytes=300))
    for index in range(6):
        append(log, [b"x" * 100], timestamp=NOW + index)
    assert len(log.segments) > 2
    log.maybe_increment_log_start_offset(log.segments[1].base_offset + 1)
    found = looked_up(log.offset_for_timestamp(NOW))
    assert found is not None
    assert found.offset == log.log_start_offset


def test_timestamps_inside_a_compressed_batch() -> None:
    log = open_log()
    records = [Record(0, stamp, None, b"v") for stamp in (5, 3, 9, 9, 1)]
    log.append_as_leader(bytearray(build_batch(records, compression=CompressionType.ZSTD)), 0, now_ms=NOW)
    found = looked_up(log.offset_for_timestamp(4))
    assert found is not None
    assert (found.timestamp, found.offset) == (5, 0)
    found = looked_up(log.offset_for_timestamp(6))
    assert found is not None
    assert (found.timestamp, found.offset) == (9, 2)
    assert looked_up(log.offset_for_timestamp(10)) is None
    best = looked_up(log.offset_of_max_timestamp())
    assert best is not None
    assert (best.timestamp, best.offset) == (9, 2)


def opaque(header: BatchHeader, payload: bytes, codec: CompressionType = CompressionType.NONE) -> bytearray:
    """A batch as a client may send it: its checksum right, its records whatever they are."""
    return bytearray(assemble(header._replace(attributes=int(codec)), payload))


def test_timestamps_of_a_batch_that_holds_garbage() -> None:
    """It was stored unread. Who looks into it hears that it is corrupt, and where."""
    log = open_log()
    header = parse_header(batch([b"x"]))
    log.append_as_leader(opaque(header, b"no records at all"), 0, now_ms=NOW)
    look_ups: tuple[Callable[[], object], ...] = (
        lambda: looked_up(log.offset_for_timestamp(NOW)),
        lambda: looked_up(log.offset_of_max_timestamp()),
    )
    for look_up in look_ups:
        with pytest.raises(ApiError, match=r"00000000000000000000\.log") as caught:
            look_up()
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_timestamps_that_headers_claim_and_no_record_has() -> None:
    """Each look-up would read all of them: it gives up after so many records."""
    log = open_log()
    count = 70_000
    header = parse_header(batch([b"x"]))._replace(
        base_timestamp=0, max_timestamp=NOW, records_count=count, last_offset_delta=count - 1
    )
    lie = opaque(header, compress(CompressionType.ZSTD, bytes((12, 0, 0, 0, 1, 1, 0)) * count), CompressionType.ZSTD)
    log.append_as_leader(bytearray(lie), 0, now_ms=NOW)
    append(log, [b"found"])
    found = looked_up(log.offset_for_timestamp(NOW))
    assert found is not None and found.offset == count
    log.maybe_increment_log_start_offset(count + 1)
    for _ in range(3):
        log.append_as_leader(bytearray(lie), 0, now_ms=NOW)
    with pytest.raises(ApiError, match="bears out") as caught:
        looked_up(log.offset_for_timestamp(NOW))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    log.maybe_increment_log_start_offset(2 * count + 2)  # within a batch: it need not have the record any more
    assert looked_up(log.offset_for_timestamp(NOW)) is None


@pytest.mark.parametrize("count", [325, 1])
@pytest.mark.parametrize("codec", list(CompressionType)[1:])
def test_timestamps_inside_a_batch_that_unpacks_to_more_than_there_is_memory_for(
    codec: CompressionType, count: int
) -> None:
    """Records of one letter are a few kB with zstd, from the stock Java producer."""
    log = open_log(config=LogConfig(segment_bytes=1 << 25, max_message_bytes=1 << 25))
    value = b"x" * (40_000_000 // count)
    for _ in range(2):
        entries = (Record(index, NOW + index, b"k", value) for index in range(count))
        log.append_as_leader(large_batch(entries, codec), 0, now_ms=NOW)
    steps = 0
    for target, expected in ((NOW + count // 2, count // 2), (NOW + count - 1, count - 1), (NOW + count, None)):
        lookup = log.offset_for_timestamp(target)
        found = None
        while True:
            try:
                next(lookup)
                steps += 1
            except StopIteration as end:
                found = end.value
                break
        assert (found and found.offset) == expected
    assert steps > (30 if count > 1 else 1)
    best = looked_up(log.offset_of_max_timestamp())
    assert best is not None and (best.timestamp, best.offset) == (NOW + count - 1, count - 1)


@pytest.mark.parametrize("count", [30, 6000])
def test_an_offset_is_found_with_two_reads_however_long_the_log_is(count: int) -> None:
    disk = FakeDisk()
    log = open_log(disk, LogConfig(segment_bytes=1 << 30))
    data = [batch([b"%d" % number + b"x" * 200], timestamp=NOW + number) for number in range(count)]
    for one in data:
        log.append_as_leader(one, 0, now_ms=NOW)
    log.roll(NOW)
    read = [0, 0]

    def note(operation: str, path: str) -> None:
        if operation == "read":
            read[path.endswith("index")] += 1

    rng = random.Random(1)
    for _ in range(3000):
        log.read(rng.randrange(count), 100)  # until what is remembered of the index is complete
    disk.on_operation = note
    for _ in range(500):
        log.read(rng.randrange(count), 100)
    # Of the log the headers from the index entry on, and the bytes themselves, which this disk cannot lend.
    assert read[0] <= 500 * 2
    assert read[1] <= 500


def test_an_empty_log_has_no_timestamps() -> None:
    log = open_log()
    assert looked_up(log.offset_for_timestamp(0)) is None
    assert looked_up(log.offset_of_max_timestamp()) is None


def test_a_producer_whose_batch_is_half_below_the_log_start_stays_known() -> None:
    log = open_log()
    append(log, [b"a", b"b"], producer_id=7, sequence=0)
    append(log, [b"c"])
    log.maybe_increment_log_start_offset(1)
    log.truncate_to(2)
    assert log.producers.active_producers[7].last_sequence == 1
    assert log.append_as_leader(batch([b"a", b"b"], producer_id=7, sequence=0), 0, now_ms=NOW).duplicate


def test_truncation_goes_by_whole_batches_and_across_segments() -> None:
    log = open_log(config=SMALL)
    for index in range(30):
        append(log, [b"%04d" % index * 20, b"x"], leader_epoch=index // 10)
    assert log.truncate_to(31)
    assert log.log_end_offset == 30  # 31 is the second record of the batch at 30
    assert [value for _, value in read_all(log)][::2] == [b"%04d" % index * 20 for index in range(15)]
    assert log.leader_epochs.entries == [(0, 0), (1, 20)]
    assert append(log, [b"new"], leader_epoch=5) == 30
    assert not log.truncate_to(1000)
    assert read_all(log)[-1] == (30, b"new")


@pytest.mark.parametrize("offset", [7, 10])
def test_a_log_that_is_cut_in_a_gap_ends_where_its_last_batch_does(offset: int) -> None:
    """Else the next start would miss what lay in the gap, which was compacted where the log was fetched from."""
    disk = FakeDisk()
    log = open_log(disk)
    append(log, [b"0", b"1", b"2"])
    sent = batch([b"10"])
    patch_in_place(sent, 0, 10, 0)
    log.append_as_follower(sent, now_ms=NOW)
    log.truncate_to(offset)
    assert log.log_end_offset == 3
    log.close()
    again = open_log(disk, clean=True, recovery_point=log.recovery_point, leaves_holes=True)
    assert (again.log_end_offset, again.damage) == (3, ())


def test_truncation_below_the_start_begins_anew() -> None:
    log = open_log()
    log.truncate_fully_and_start_at(100)
    append(log, [b"a"])
    assert read_all(log) == [(100, b"a")]
    log.truncate_to(50)
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    append(log, [b"b"])
    assert read_all(log) == [(50, b"b")]


def test_a_log_that_is_cut_back_into_its_first_batch_still_begins_where_it_did() -> None:
    """Of the batch, which goes whole, the records from there on are to come back."""
    log = open_log()
    append(log, [b"deleted", b"kept", b"cut off"])
    append(log, [b"cut off"])
    log.maybe_increment_log_start_offset(1)
    assert log.truncate_to(2)
    assert (log.log_start_offset, log.log_end_offset) == (1, 1)


def test_an_emptied_log_remembers_its_offset() -> None:
    disk = FakeDisk()
    log = open_log(disk)
    log.truncate_fully_and_start_at(100)
    log.close()
    assert open_log(disk, clean=True).log_end_offset == 100


def test_the_log_start_moves_up_only() -> None:
    log = open_log()
    append(log, [b"a", b"b", b"c"])
    assert log.maybe_increment_log_start_offset(2)
    assert not log.maybe_increment_log_start_offset(1)
    assert log.log_start_offset == 2
    assert read_all(log) == [(2, b"c")]
    with pytest.raises(ApiError):
        log.read(1, 100)
    with pytest.raises(ApiError):
        log.maybe_increment_log_start_offset(4)


def test_duplicates_are_known_after_a_clean_stop() -> None:
    """Producers may not have heard of any of their last five batches, and a snapshot has one of each."""
    disk = FakeDisk()
    log = open_log(disk)
    for sequence in range(6):
        append(log, [b"%d" % sequence], producer_id=7, sequence=sequence)
    log.close()
    log = open_log(disk, clean=True, recovery_point=6)
    for sequence in (9, 0):
        with pytest.raises(ApiError) as caught:
            append(log, [b"%d" % sequence], producer_id=7, sequence=sequence)
        assert caught.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    for sequence in range(1, 6):
        again = log.append_as_leader(batch([b"again"], producer_id=7, sequence=sequence), 0, now_ms=NOW)
        assert (again.first_offset, again.duplicate) == (sequence, True)
    assert append(log, [b"6"], producer_id=7, sequence=6) == 6


def test_duplicates_are_answered_with_the_first_offsets() -> None:
    log = open_log()
    append(log, [b"a"])
    first = log.append_as_leader(batch([b"b", b"c"], producer_id=7, sequence=0), 0, now_ms=NOW)
    again = log.append_as_leader(batch([b"b", b"c"], producer_id=7, sequence=0), 0, now_ms=NOW)
    assert (first.first_offset, first.last_offset, first.duplicate) == (1, 2, False)
    assert (again.first_offset, again.last_offset, again.duplicate) == (1, 2, True)
    assert log.log_end_offset == 3
    with pytest.raises(ApiError) as caught:
        log.append_as_leader(batch([b"d"], producer_id=7, sequence=9), 0, now_ms=NOW)
    assert caught.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("clean", [True, False])
def test_producers_survive_a_restart(clean: bool) -> None:
    disk = FakeDisk()
    log = open_log(disk, SMALL)
    for sequence in range(40):
        append(log, [b"v" * 50], producer_id=7, sequence=sequence)
    assert len(log.segments) > 2
    if clean:
        log.close()
    else:
        disk.kill()
    log = open_log(disk, SMALL, clean=clean)
    again = log.append_as_leader(batch([b"v" * 50], producer_id=7, sequence=39), 0, now_ms=NOW)
    assert again.duplicate
    assert append(log, [b"next"], producer_id=7, sequence=40) == 40


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: b"\x30" + data[1:], lambda data: b"\xff" * 500]
)
@pytest.mark.parametrize("number", range(3))
def test_a_damaged_transaction_index_is_built_anew(number: int, damage: Callable[[bytes], bytes]) -> None:
    disk = FakeDisk()
    log = open_log(disk, SMALL)
    log.producers.transaction_verification = False
    options: dict[str, Any] = {"producer_id": 5, "producer_epoch": 1}
    for sequence in range(12):
        data = build_batch([Record(0, NOW, None, b"t" * 50)], base_sequence=sequence, is_transactional=True, **options)
        log.append_as_leader(bytearray(data), 0, now_ms=NOW)
        marker = build_end_txn_marker(commit=sequence % 4 == 0, coordinator_epoch=0, timestamp_ms=NOW, **options)
        log.append_as_leader(bytearray(marker), 0, now_ms=NOW, origin=AppendOrigin.COORDINATOR, transaction_version=1)

    def known() -> list[list[AbortedTxn]]:
        return [list(segment.txn_index) for segment in log.segments]

    expected = known()
    assert sum(map(len, expected)) == 9
    log.close()
    path = [segment.txn_index.path for segment in log.segments if len(segment.txn_index)][number]
    disk.write_bytes(path, damage(disk.read_bytes(path)))
    log = open_log(disk, SMALL, clean=True)
    assert known() == expected


@pytest.mark.parametrize("clean", [True, False])
def test_what_is_gone_of_an_open_transaction_holds_nothing_back(clean: bool) -> None:
    disk = FakeDisk()
    log = open_log(disk)
    log.producers.transaction_verification = False
    for sequence in range(3):
        data = build_batch(
            [Record(0, NOW, None, b"t")], producer_id=5, producer_epoch=1, base_sequence=sequence, is_transactional=True
        )
        log.append_as_leader(bytearray(data), 0, now_ms=NOW)
    for start in (1, 2):
        log.maybe_increment_log_start_offset(start)
        assert log.first_unstable_offset == start
        if clean:
            log.close()
        log = open_log(disk, clean=clean, recovery_point=3 if clean else 0, log_start_offset=start)
        assert log.first_unstable_offset == start


@pytest.mark.parametrize("clean", [True, False])
def test_aborted_transactions_are_told_also_after_a_restart(clean: bool) -> None:
    disk = FakeDisk()
    log = open_log(disk)
    log.producers.transaction_verification = False
    data = build_batch(
        [Record(0, NOW, None, b"t")], producer_id=5, producer_epoch=1, base_sequence=0, is_transactional=True
    )
    log.append_as_leader(bytearray(data), 0, now_ms=NOW)
    assert log.first_unstable_offset == 0
    marker = build_end_txn_marker(commit=False, producer_id=5, producer_epoch=1, coordinator_epoch=0, timestamp_ms=NOW)
    log.append_as_leader(bytearray(marker), 0, now_ms=NOW, origin=AppendOrigin.COORDINATOR, transaction_version=1)
    log.on_high_watermark_updated(2)
    assert log.first_unstable_offset is None
    for _ in range(2):
        info = log.read(0, 1000)
        assert [(txn.producer_id, txn.first_offset) for txn in log.aborted_transactions(0, info)] == [(5, 0)]
        if clean:
            log.close()
        else:
            disk.kill()
        log = open_log(disk, clean=clean)


def test_another_topic_of_the_same_name_is_refused(tmp_path: object) -> None:
    import random

    rng = random.Random(1)
    disk = FakeDisk()
    disk.make_dirs(os.path.dirname(DIRECTORY))
    log = opening.open_log(DIRECTORY, TP, random_uuid(rng), LogConfig(), disk, now_ms=NOW)
    append(log, [b"a"])
    log.close()
    with pytest.raises(ApiError) as caught:
        opening.open_log(DIRECTORY, TP, random_uuid(rng), LogConfig(), disk, now_ms=NOW)
    assert caught.value.code == ErrorCode.INCONSISTENT_TOPIC_ID


def test_a_full_disk_leaves_the_log_as_it_was() -> None:
    disk = FakeDisk()
    log = open_log(disk)
    append(log, [b"a"])
    disk.capacity = disk.used() + 50
    with pytest.raises(OSError, match="No space"):
        append(log, [b"b" * 100])
    assert log.log_end_offset == 1
    assert disk.size(f"{DIRECTORY}/{0:020d}.log") == log.size
    disk.capacity = None
    assert append(log, [b"c"]) == 1
    assert read_all(log) == [(0, b"a"), (1, b"c")]


def test_regions_of_a_real_file_outlive_the_segment(tmp_path: object) -> None:
    disk = OsDisk()
    config = LogConfig(segment_bytes=20_000, retention_ms=0, file_delete_delay_ms=0)
    log = opening.open_log(f"{tmp_path}/t-0", TP, None, config, disk, now_ms=NOW)
    for index in range(10):
        append(log, [b"%d" % index * 10_000])
    info = log.read(0, 100_000)
    assert isinstance(info.records, FileRegion)
    expected = os.pread(info.records.fd, info.records.length, info.records.position)
    assert log.delete_old_segments(NOW + 10) > 1
    remove_expired(log, NOW + 10)
    assert not os.path.exists(f"{tmp_path}/t-0/{0:020d}.log")
    log.release()
    assert os.pread(info.records.fd, info.records.length, info.records.position) == expected


def test_the_name_of_a_segment_that_began_during_a_flush_is_made_durable_by_the_next() -> None:
    disk = FakeDisk()
    log = open_log(disk)
    disk.sync_dir("/")
    append(log, [b"a"])
    log.flush()
    append(log, [b"b"])
    task = log.begin_flush()
    assert task is not None
    log.roll(NOW)
    task.run()
    task.end()
    append(log, [b"c"])
    log.flush()
    disk.crash(lose_all=True)
    again = open_log(disk, recovery_point=log.recovery_point)
    assert [value for _, value in read_all(again)] == [b"a", b"b", b"c"]


def test_a_cut_waits_for_a_flush_that_is_writing_the_leader_epochs() -> None:
    """Both write the same file, under one temporary name."""
    disk = FakeDisk()
    log = open_log(disk)
    for epoch in (1, 2):
        append(log, [b"%d" % epoch], leader_epoch=epoch)
    flush = log.begin_flush()
    assert flush is not None
    flusher, is_writing, is_cutting = threading.Thread(target=flush.run), threading.Event(), threading.Event()

    def operate(operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(".tmp"):
            if threading.current_thread() is flusher:
                is_writing.set()
                is_cutting.wait(0.1)  # in vain
            else:
                is_cutting.set()
                flusher.join()

    disk.on_operation = operate
    flusher.start()
    assert is_writing.wait(SHORT)
    log.truncate_to(1)
    flusher.join()
    flush.end()
    log.close()
    log = open_log(disk, clean=True, recovery_point=1)
    assert (log.leader_epochs.entries, read_all(log)) == ([(1, 0)], [(0, b"1")])


def test_leader_epochs_wait_for_no_flush_of_another_log_dir() -> None:
    """Where one disk hangs, a cut on another must not: it holds up the event loop."""
    disk = FakeDisk()
    log = open_log(disk)
    append(log, [b"1"], leader_epoch=1)
    flush = log.begin_flush()
    assert flush is not None
    hangs, goes_on = threading.Event(), threading.Event()

    def operate(operation: str, path: str) -> None:
        if operation == "sync" and path.startswith(DIRECTORY) and path.endswith(".tmp"):
            hangs.set()
            goes_on.wait()

    def write_others() -> None:
        for number in range(1000):
            directory = f"/other/topic-{number}"
            disk.make_dirs(directory)
            log.leader_epochs.write(disk, directory, sync=True)

    disk.on_operation = operate
    flusher, others = threading.Thread(target=flush.run), threading.Thread(target=write_others)
    flusher.start()
    assert hangs.wait(SHORT)
    others.start()
    others.join(SHORT)
    is_held_up = others.is_alive()
    goes_on.set()
    flusher.join()
    others.join()
    assert not is_held_up


def test_flush_moves_the_recovery_point_and_a_truncation_moves_it_back() -> None:
    log = open_log()
    append(log, [b"a"])
    append(log, [b"b"])
    task = log.begin_flush()
    assert task is not None
    append(log, [b"c"])
    task.run()
    task.end()
    assert log.recovery_point == 2
    lowered = []
    log.before_truncation = lambda log, offset, is_lower: lowered.append(log.recovery_point) if is_lower else None
    task = log.begin_flush()
    assert task is not None
    task.run()
    log.truncate_to(1)
    append(log, [b"d"])
    append(log, [b"e"])
    task.end()  # what it made durable is not what the log holds now
    assert log.recovery_point == 1
    assert lowered == [1]


def test_the_next_flush_keeps_a_segment_that_began_while_one_was_under_way() -> None:
    disk = FakeDisk()
    disk.make_dirs("/data")
    disk.sync_dir("/")
    log = open_log(disk)
    append(log, [b"a"])
    log.flush()
    append(log, [b"b"])
    task = log.begin_flush()
    assert task is not None
    task.run()
    log.roll(NOW)
    append(log, [b"c"])
    task.end()
    log.flush()
    disk.crash(lose_all=True)
    assert open_log(disk).log_end_offset == 3


def test_sealed_segments_ask_to_be_flushed() -> None:
    rolled: list[object] = []
    log = open_log(config=SMALL)
    log.on_rolled = rolled.append
    for _ in range(30):
        append(log, [b"v" * 100])
    assert rolled
    assert log.needs_flush(NOW)
    task = log.begin_flush(sealed_only=True)
    assert task is not None
    task.run()
    task.end()
    assert log.recovery_point == log.active_segment.base_offset
    assert not log.needs_flush(NOW)


def test_flush_by_count_and_by_time() -> None:
    log = open_log(config=LogConfig(flush_messages=2))
    append(log, [b"a"])
    assert not log.needs_flush(NOW)
    append(log, [b"b"])
    assert log.needs_flush(NOW)
    log = open_log(config=LogConfig(flush_ms=10))
    append(log, [b"a"])
    assert not log.needs_flush(NOW + 9)
    assert log.needs_flush(NOW + 10)


def test_a_flush_by_time_that_met_a_full_disk_is_done_again_after_that_time() -> None:
    log = open_log(config=LogConfig(flush_ms=10))
    append(log, [b"a"])
    assert log.begin_flush() is not None
    log.flush_again(NOW + 10)
    assert not log.needs_flush(NOW + 19) and log.needs_flush(NOW + 20)


def test_many_open_logs_share_few_descriptors(tmp_path: object) -> None:
    from kbroker.log.segments.open_files import OpenFiles

    disk = OsDisk()
    files = OpenFiles(disk, 8)
    logs = []
    for partition in range(50):
        tp = TP._replace(partition=partition)
        log = opening.open_log(f"{tmp_path}/{tp}", tp, None, LogConfig(), disk, now_ms=NOW, files=files)
        append(log, [b"%d" % partition])
        logs.append(log)
    assert len(files) == 8
    for partition, log in enumerate(logs):
        append(log, [b"more"])
        assert read_all(log) == [(0, b"%d" % partition), (1, b"more")]
