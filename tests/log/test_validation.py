"""Every rule by which a produced batch is judged."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.errors import ApiError, ErrorCode
from kbroker.log.log_config import LogConfig
from kbroker.log.record_validation import ExaminedRecords, TakesLong, examine
from kbroker.log.validated_batches import InvalidRecordsError, UnexpectedAppendOffset, ValidatedBatches
from kbroker.log.validation import AppendOrigin, check_produce_version, validate_and_assign_offsets
from kbroker.types import TopicPartition
from kbroker.wire import batch_header, control_batch
from kbroker.wire import record_batch as rb
from kbroker.wire.batch_header import Buffer, TimestampType
from kbroker.wire.compression import CompressionType, compress
from kbroker.wire.record_batch import Record
from tests.log.large_batches import in_raw_snappy, large_batch
from tests.with_each import examples

NOW = 1_700_000_000_000
TP = TopicPartition("topic", 3)
RECORDS = [Record(0, NOW + 5, b"a", b"1"), Record(0, NOW + 9, b"b", b"2"), Record(0, NOW, None, None)]
KEYED = [Record(0, NOW + index, b"k", b"v" * 50) for index in range(4)]
CODECS = list(CompressionType)


def validate(
    batch: bytes | bytearray | memoryview,
    *,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    next_offset: int = 1000,
    leader_epoch: int = 7,
    in_steps: bool = False,
    **config: Any,
) -> ValidatedBatches:
    records = memoryview(bytearray(batch)) if isinstance(batch, bytes) else batch
    log_config = LogConfig(**config)
    judge = partial(
        validate_and_assign_offsets,
        next_offset=next_offset,
        leader_epoch=leader_epoch,
        now_ms=NOW,
        config=log_config,
        topic_partition=TP,
        origin=origin,
    )
    try:
        return judge(examined(records, log_config)[0] if in_steps else records)
    except TakesLong:
        return judge(examined(records, log_config)[0])


def examined(records: Buffer, config: LogConfig) -> tuple[ExaminedRecords, int]:
    """Examine records in steps; return the result and the number of steps."""
    steps = examine(memoryview(records), NOW, config, TP)
    result, count = None, 0
    try:
        while True:
            work = steps.send(result)
            result = None if work is None else work()
            count += 1
    except StopIteration as end:
        return end.value, count


def refused(code: ErrorCode, batch: bytes | bytearray, **options: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        validate(batch, **options)
    assert caught.value.code is code, caught.value
    return caught.value


def rebuilt(batch: bytes, change: Callable[[bytearray], object]) -> bytes:
    """The batch with a change and, for that, the right checksum."""
    new = bytearray(batch)
    change(new)
    new[17:21] = batch_header.crc32c(new[21:]).to_bytes(4, "big")
    return bytes(new)


def put(position: int, size: int, value: int) -> Callable[[bytearray], object]:
    def change(batch: bytearray) -> None:
        batch[position : position + size] = value.to_bytes(size, "big", signed=True)

    return change


@pytest.mark.parametrize("codec", CODECS)
def test_usual_case_is_patched_in_place(codec: CompressionType) -> None:
    buffer = bytearray(rb.build_batch(RECORDS, compression=codec, producer_id=4, base_sequence=0))
    result = validate(memoryview(buffer))
    assert isinstance(result.records, memoryview) and result.records.obj is buffer
    assert (result.first_offset, result.last_offset) == (1000, 1002)
    assert (result.max_timestamp, result.offset_of_max_timestamp, result.log_append_time_ms) == (NOW + 9, 1002, -1)
    header = batch_header.parse_header(buffer)
    assert list(result.batches) == [header]
    batch_header.check_crc(buffer, 0, header)
    assert (header.base_offset, header.partition_leader_epoch) == (1000, 7)
    assert [r.offset for r in rb.iter_records(buffer)] == [1000, 1001, 1002]


def test_bytes_that_cannot_be_changed_are_copied() -> None:
    batch = rb.build_batch(RECORDS)
    result = validate(memoryview(batch))
    assert batch_header.parse_header(result.records).base_offset == 1000
    assert batch_header.parse_header(batch).base_offset == 0


def test_no_timestamps() -> None:
    result = validate(rb.build_batch([Record(0, -1, None, b"v")]))
    assert (result.max_timestamp, result.offset_of_max_timestamp) == (-1, -1)


# Shape


def test_exactly_one_batch() -> None:
    batch = rb.build_batch(RECORDS)
    refused(ErrorCode.INVALID_RECORD, b"")
    refused(ErrorCode.INVALID_RECORD, batch + batch)
    for end in range(len(batch)):
        refused(ErrorCode.INVALID_RECORD, batch[:end])


def test_the_beginning_of_another_batch_is_cut_off() -> None:
    batch = rb.build_batch(RECORDS)
    for extra in (1, 11, 12, 16, 17, 60, len(batch) - 1):
        result = validate(batch + batch[:extra])
        assert len(result.records) == len(batch)
        assert batch_header.parse_header(result.records).base_offset == 1000


def test_rubbish_after_the_batch() -> None:
    refused(ErrorCode.CORRUPT_MESSAGE, rb.build_batch(RECORDS) + bytes(40))


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats(magic: int) -> None:
    batch = bytearray(rb.build_batch(RECORDS))
    batch[16] = magic
    assert "format v" in str(refused(ErrorCode.INVALID_RECORD, batch))
    old = bytes(8) + (20).to_bytes(4, "big") + bytes(4) + bytes([magic]) + bytes(15)
    assert "format v" in str(refused(ErrorCode.INVALID_RECORD, old))


@pytest.mark.parametrize("magic", [3, 128, 255])
def test_unknown_magic(magic: int) -> None:
    batch = bytearray(rb.build_batch(RECORDS))
    batch[16] = magic
    refused(ErrorCode.CORRUPT_MESSAGE, batch)
    refused(ErrorCode.CORRUPT_MESSAGE, batch[:30])


@pytest.mark.parametrize("length", [-1, 0, 13, -(2**31)])
def test_impossible_length(length: int) -> None:
    batch = bytearray(rb.build_batch(RECORDS))
    put(8, 4, length)(batch)
    refused(ErrorCode.CORRUPT_MESSAGE, batch)
    refused(ErrorCode.CORRUPT_MESSAGE, batch[:20])


@pytest.mark.parametrize("length", [14, 30, 48])
def test_a_length_below_the_headers(length: int) -> None:
    batch = bytearray(rb.build_batch(RECORDS))[: length + 12]
    put(8, 4, length)(batch)
    refused(ErrorCode.CORRUPT_MESSAGE, batch)


def test_every_flipped_bit_below_the_checksum() -> None:
    batch = rb.build_batch(RECORDS, compression=CompressionType.ZSTD)
    for bit in range(17 * 8, len(batch) * 8):
        damaged = bytearray(batch)
        damaged[bit // 8] ^= 1 << bit % 8
        refused(ErrorCode.CORRUPT_MESSAGE, damaged)


def test_base_offset_must_be_zero() -> None:
    refused(ErrorCode.INVALID_RECORD, rb.build_batch(RECORDS, base_offset=1))


def test_size_limits() -> None:
    batch = rb.build_batch(RECORDS)
    validate(batch, max_message_bytes=len(batch))
    refused(ErrorCode.MESSAGE_TOO_LARGE, batch, max_message_bytes=len(batch) - 1)
    refused(ErrorCode.RECORD_LIST_TOO_LARGE, batch, segment_bytes=len(batch) - 1)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("topic", [{}, {"compression_type": "zstd"}, {"cleanup_policy": frozenset({"compact"})}])
def test_the_size_of_a_record_that_was_compressed(codec: CompressionType, topic: dict[str, Any]) -> None:
    """``max.decompressed.message.bytes`` (4.4): the body of one record, without the varint of its size before it."""
    records = [Record(0, NOW, b"k", b"v" * size) for size in (10, 1000, 10)]
    batch = rb.build_batch(records, compression=codec)
    body = len(rb.build_batch([Record(1, NOW, b"k", b"v" * 1000)])) - batch_header.HEADER_SIZE - 2
    stored = validate(batch, max_decompressed_message_bytes=body, **topic)
    assert [record.value for record in rb.iter_records(stored.records)] == [record.value for record in records]
    if codec is CompressionType.NONE:  # what was not compressed is no larger than max.message.bytes anyway
        validate(batch, max_decompressed_message_bytes=1, **topic)
        return
    error = refused(ErrorCode.INVALID_RECORD, batch, max_decompressed_message_bytes=body - 1, **topic)
    assert f"a record of {body} bytes" in str(error)
    many = rb.build_batch(records + [Record(0, NOW, b"k", b"")] * 5000, compression=codec)  # in steps
    assert validate(many, max_decompressed_message_bytes=body, **topic).last_offset == 1000 + 5002
    refused(ErrorCode.INVALID_RECORD, many, max_decompressed_message_bytes=body - 1, **topic)


# Header


@pytest.mark.parametrize(("count", "delta"), [(0, -1), (-1, -2), (3, 3), (2, 2), (2**31 - 1, 2), (3, -1)])
def test_count_and_offsets_must_agree(count: int, delta: int) -> None:
    batch = rebuilt(rb.build_batch(RECORDS), lambda b: (put(57, 4, count)(b), put(23, 4, delta)(b)))
    refused(ErrorCode.INVALID_RECORD, batch)


def test_more_records_claimed_than_fit() -> None:
    batch = rebuilt(rb.build_batch(RECORDS), lambda b: (put(57, 4, 100)(b), put(23, 4, 99)(b)))
    assert "100 records in" in str(refused(ErrorCode.INVALID_RECORD, batch))


def test_control_batches_are_not_for_clients() -> None:
    marker = control_batch.build_end_txn_marker(
        commit=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW
    )
    assert "control" in str(refused(ErrorCode.INVALID_RECORD, marker))
    validate(marker, origin=AppendOrigin.COORDINATOR)


def test_a_producer_needs_a_sequence() -> None:
    refused(ErrorCode.INVALID_RECORD, rb.build_batch(RECORDS, producer_id=1, producer_epoch=0))


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec(codec: int) -> None:
    batch = rebuilt(rb.build_batch(RECORDS), put(21, 2, codec))
    refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, batch)


def test_lz4_with_blocks_that_depend_on_each_other() -> None:
    """Apache Kafka's reader of lz4 takes none, so neither a lookup nor compaction could read them."""
    batch = rb.build_batch(RECORDS, compression=CompressionType.LZ4)
    validate(batch)
    flags_without_independence = put(batch_header.HEADER_SIZE + 4, 1, 0x40)
    assert "independent" in str(
        refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, rebuilt(batch, flags_without_independence))
    )


def test_zstd_needs_produce_v7() -> None:
    zstd = rb.build_batch(RECORDS, compression=CompressionType.ZSTD)
    with pytest.raises(ApiError) as caught:
        check_produce_version(zstd, 6)
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    check_produce_version(zstd, 7)
    check_produce_version(b"", 3)
    for codec in (CompressionType.NONE, CompressionType.LZ4):
        check_produce_version(rb.build_batch(RECORDS, compression=codec), 3)


# Timestamps


@pytest.mark.parametrize("codec", CODECS)
def test_timestamp_too_far_ahead(codec: CompressionType) -> None:
    late = [RECORDS[0], Record(0, NOW + 3_600_001, b"k", b"v"), RECORDS[2]]
    error = refused(ErrorCode.INVALID_TIMESTAMP, rb.build_batch(late, compression=codec))
    assert isinstance(error, InvalidRecordsError)
    assert [index for index, _ in error.record_errors] == [1]
    validate(rb.build_batch(late, compression=codec), message_timestamp_after_max_ms=3_600_001)


def test_timestamp_too_old() -> None:
    old = [RECORDS[0], Record(0, NOW - 101, b"k", b"v"), Record(0, -1, b"k", b"v")]
    validate(rb.build_batch(old))
    error = refused(ErrorCode.INVALID_TIMESTAMP, rb.build_batch(old), message_timestamp_before_max_ms=100)
    assert isinstance(error, InvalidRecordsError)
    assert [index for index, _ in error.record_errors] == [1]  # -1 is "no timestamp"
    validate(rb.build_batch(old), message_timestamp_before_max_ms=101)


def test_a_header_that_lies_about_its_latest_timestamp_is_put_right() -> None:
    for lie in (NOW - 50, NOW + 10**9):
        result = validate(rb.build_batch(RECORDS, max_timestamp=lie))
        assert result.max_timestamp == NOW + 9
        header = batch_header.parse_header(result.records)
        assert header.max_timestamp == NOW + 9
        batch_header.check_crc(result.records, 0, header)


@pytest.mark.parametrize("codec", CODECS)
def test_log_append_time(codec: CompressionType) -> None:
    far = [Record(0, 10**15, b"k", b"v"), Record(0, 5, b"k", b"v")]
    result = validate(rb.build_batch(far, compression=codec), message_timestamp_type="LogAppendTime")
    assert (result.max_timestamp, result.log_append_time_ms) == (NOW, NOW)
    assert result.offset_of_max_timestamp == result.last_offset == 1001
    header = batch_header.parse_header(result.records)
    batch_header.check_crc(result.records, 0, header)
    assert list(result.batches) == [header]
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [r.timestamp for r in rb.iter_records(result.records)] == [NOW, NOW]


def test_producers_may_not_claim_log_append_time() -> None:
    batch = rb.build_batch(RECORDS, timestamp_type=TimestampType.LOG_APPEND_TIME)
    error = refused(ErrorCode.INVALID_TIMESTAMP, batch, message_timestamp_type="LogAppendTime")
    assert isinstance(error, InvalidRecordsError)
    assert [index for index, _ in error.record_errors] == [0, 1, 2]
    # On a CreateTime topic Kafka takes such a batch and clears the flag.
    header = batch_header.parse_header(validate(batch).records)
    assert header.timestamp_type is TimestampType.CREATE_TIME


# Compacted topics


@pytest.mark.parametrize("codec", CODECS)
def test_compacted_topics_need_keys(codec: CompressionType) -> None:
    policy = frozenset({"compact"})
    validate(rb.build_batch(KEYED, compression=codec), cleanup_policy=policy)
    keyless = rb.build_batch([*KEYED, Record(0, NOW, None, b"v")], compression=codec)
    error = refused(ErrorCode.INVALID_RECORD, keyless, cleanup_policy=policy)
    assert isinstance(error, InvalidRecordsError)
    assert [index for index, _ in error.record_errors] == [4]
    refused(ErrorCode.INVALID_RECORD, keyless, cleanup_policy=frozenset({"compact", "delete"}))
    validate(keyless)


def test_the_named_bad_records_are_limited() -> None:
    many = rb.build_batch([Record(0, NOW, None, b"")] * 3000)
    error = refused(ErrorCode.INVALID_RECORD, many, cleanup_policy=frozenset({"compact"}))
    assert isinstance(error, InvalidRecordsError)
    assert len(error.record_errors) == 1000
    assert "3000 record errors" in str(error)


def test_garbage_below_a_right_checksum_where_records_are_read() -> None:
    for codec in CODECS:
        good = rb.build_batch(KEYED, compression=codec)
        random.seed(1)
        bad = bytearray(good[:61] + random.randbytes(80))
        put(8, 4, len(bad) - 12)(bad)
        bad_batch = rebuilt(bytes(bad), lambda b: None)
        validate(bad_batch)  # opaque where no rule needs the records
        code = ErrorCode.INVALID_RECORD if codec is CompressionType.NONE else ErrorCode.CORRUPT_MESSAGE
        refused(code, bad_batch, cleanup_policy=frozenset({"compact"}))


def test_compressed_records_are_numbered_anew() -> None:
    scattered = [r._replace(offset=index * 2) for index, r in enumerate(KEYED)]
    batch = rb.build_batch(
        scattered,
        keep_offsets=True,
        last_offset_delta=3,
        compression=CompressionType.LZ4,
        producer_id=3,
        producer_epoch=1,
        base_sequence=9,
    )
    result = validate(batch, cleanup_policy=frozenset({"compact"}))
    assert [r.offset for r in rb.iter_records(result.records)] == [1000, 1001, 1002, 1003]
    header = batch_header.parse_header(result.records)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (3, 1, 9)


# compression.type


@pytest.mark.parametrize("source", CODECS)
@pytest.mark.parametrize("target", CODECS)
def test_transcoding(source: CompressionType, target: CompressionType) -> None:
    batch = rb.build_batch(
        KEYED, compression=source, producer_id=3, producer_epoch=1, base_sequence=9, is_transactional=True
    )
    name = "uncompressed" if target is CompressionType.NONE else target.name.lower()
    buffer = bytearray(batch)
    result = validate(memoryview(buffer), compression_type=name)
    header = batch_header.parse_header(result.records)
    batch_header.check_crc(result.records, 0, header)
    assert list(result.batches) == [header]
    assert header.compression_type is target
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (3, 1, 9)
    assert header.is_transactional
    assert (header.base_offset, header.partition_leader_epoch) == (1000, 7)
    assert [r[1:] for r in rb.iter_records(result.records)] == [r[1:] for r in KEYED]
    assert result.converted == (0 if source is target else len(KEYED))
    if source is target:
        assert isinstance(result.records, memoryview) and result.records.obj is buffer


def test_transcoding_with_append_time_and_size_limit() -> None:
    records = [Record(0, NOW, b"k", b"v" * 1000)] * 20
    small = rb.build_batch(records, compression=CompressionType.ZSTD)
    result = validate(small, compression_type="gzip", message_timestamp_type="LogAppendTime")
    assert {r.timestamp for r in rb.iter_records(result.records)} == {NOW}
    refused(ErrorCode.MESSAGE_TOO_LARGE, small, compression_type="uncompressed", max_message_bytes=2000)


@pytest.mark.parametrize("level", ["gzip", "lz4", "zstd"])
def test_levels(level: str) -> None:
    records = [Record(0, NOW, b"k", bytes(range(100)) * 10)] * 20
    configs: list[dict[str, Any]] = [{}, {f"compression_{level}_level": 1}]
    for config in configs:
        result = validate(rb.build_batch(records), compression_type=level, **config)
        assert len(list(rb.iter_records(result.records))) == 20


def test_what_cannot_be_decompressed_is_corrupt_when_transcoded() -> None:
    good = rb.build_batch(KEYED, compression=CompressionType.GZIP)
    bad = rebuilt(good, lambda b: b.__setitem__(slice(70, 80), b"\xff" * 10))
    refused(ErrorCode.CORRUPT_MESSAGE, bad, compression_type="lz4")


MEGABYTES = 24
"""Of the large batches, decompressed."""


def large_records(count: int = 140) -> Iterator[Record]:
    """Batches of a producer of very compressible values."""
    value = b"x" * (MEGABYTES * 1_000_000 // count)
    return (Record(offset, NOW + offset, b"k%d" % (offset % 7), value) for offset in range(count))


def peak_of(action: Callable[[], Any]) -> tuple[Any, int]:
    """The outcome, and the bytes of memory that it took, which makes each allocation take longer."""
    tracemalloc.start()
    try:
        return action(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("codec", "config"),
    [
        *((codec, {"cleanup_policy": ("compact",)}) for codec in CODECS[1:]),
        (CompressionType.SNAPPY, {"message_timestamp_before_max_ms": 5}),
        (CompressionType.LZ4, {"max_decompressed_message_bytes": MEGABYTES * 1_000_000 + 100}),
        (CompressionType.GZIP, {"compression_type": "zstd"}),
        (
            CompressionType.ZSTD,
            {"compression_type": "gzip", "cleanup_policy": ("compact",), "message_timestamp_type": "LogAppendTime"},
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("count", [140, 1])
def test_large_batches_are_looked_at_in_little_memory(
    codec: CompressionType, count: int, config: dict[str, Any]
) -> None:
    batch = large_batch(large_records(count), codec)
    result, peak = peak_of(lambda: validate(batch, max_message_bytes=1 << 30, **config))
    assert peak < (16 << 20) + 3 * len(batch), peak
    assert result.last_offset == 1000 + count - 1
    assert result.max_timestamp == (NOW if "message_timestamp_type" in config else NOW + count - 1)
    header = batch_header.parse_header(result.records)
    batch_header.check_crc(result.records, 0, header)
    name = config.get("compression_type")
    assert header.compression_type is (CompressionType.from_name(name) if name else codec)
    for record, expected in zip(rb.iter_records(result.records), large_records(count), strict=True):
        assert record.offset == 1000 + expected.offset
        assert (record.key, record.value) == (expected.key, expected.value)


def test_a_large_block_of_snappy_without_framing() -> None:
    batch = in_raw_snappy(large_records(60))
    result = validate(batch, max_message_bytes=1 << 30, cleanup_policy=("compact",), compression_type="zstd")
    expected = [record._replace(offset=1000 + record.offset) for record in large_records(60)]
    assert list(rb.iter_records(result.records)) == expected


def test_large_batches_are_looked_at_in_short_steps() -> None:
    batch = large_batch(large_records(), CompressionType.ZSTD)
    for config in (LogConfig(cleanup_policy=frozenset({"compact"})), LogConfig(compression_type="gzip")):
        with pytest.raises(TakesLong):
            validate_and_assign_offsets(
                batch, next_offset=0, leader_epoch=0, now_ms=NOW, config=config, topic_partition=TP
            )
        assert examined(batch, config)[1] >= MEGABYTES - 10


def test_rules_hold_in_every_part_of_a_large_batch() -> None:
    records = list(large_records(50))
    keyless = [*records[:49], records[49]._replace(key=None)]
    error = refused(
        ErrorCode.INVALID_RECORD, large_batch(keyless, CompressionType.ZSTD), cleanup_policy=frozenset({"compact"})
    )
    assert isinstance(error, InvalidRecordsError) and [index for index, _ in error.record_errors] == [49]
    old = [*records[:49], records[49]._replace(timestamp=NOW - 50)]
    error = refused(
        ErrorCode.INVALID_TIMESTAMP, large_batch(old, CompressionType.LZ4), message_timestamp_before_max_ms=5
    )
    assert isinstance(error, InvalidRecordsError) and [index for index, _ in error.record_errors] == [49]
    size = len(records[0].value or b"")
    limit: dict[str, Any] = {"max_decompressed_message_bytes": size + 100}
    validate(large_batch(records, CompressionType.GZIP), **limit)
    larger = [*records[:49], records[49]._replace(value=bytes(size + 200))]
    assert "max.decompressed" in str(
        refused(ErrorCode.INVALID_RECORD, large_batch(larger, CompressionType.GZIP), **limit)
    )
    assert "compression" not in str(
        refused(
            ErrorCode.MESSAGE_TOO_LARGE, large_batch(records, CompressionType.ZSTD), compression_type="uncompressed"
        )
    )
    short = large_batch(records, CompressionType.ZSTD, records_count=51, last_offset_delta=50)
    refused(ErrorCode.INVALID_RECORD, short, cleanup_policy=frozenset({"compact"}))
    long = large_batch(records, CompressionType.ZSTD, records_count=49, last_offset_delta=48)
    refused(ErrorCode.INVALID_RECORD, long, cleanup_policy=frozenset({"compact"}))


def test_a_large_batch_whose_records_are_not_numbered_is() -> None:
    gaps = [record._replace(offset=2 * record.offset) for record in large_records(50)]
    for records in (gaps, [gaps[0], *large_records(2)]):
        batch = large_batch(records, CompressionType.SNAPPY, last_offset_delta=len(records) - 1)
        result, peak = peak_of(
            partial(validate, batch, max_message_bytes=1 << 30, cleanup_policy=frozenset({"compact"}))
        )
        assert peak < (24 << 20) + 3 * len(batch)
        assert result.converted == len(records)
        found = list(rb.iter_records(result.records))
        assert [record.offset for record in found] == [1000 + index for index in range(len(records))]
        assert [record[1:] for record in found] == [record[1:] for record in records]


def test_a_key_has_a_limit_in_a_large_batch() -> None:
    huge = [Record(0, NOW, bytes(65 << 20), b"v")]
    batch = large_batch(huge, CompressionType.ZSTD)
    assert "key" in str(refused(ErrorCode.INVALID_RECORD, batch, cleanup_policy=frozenset({"compact"})))
    batch = large_batch([Record(0, NOW, bytes(20 << 20), b"v" * (20 << 20))], CompressionType.ZSTD)
    validate(batch, cleanup_policy=frozenset({"compact"}))


# Other origins


def test_own_batches_in_a_row() -> None:
    first, second = rb.build_batch(KEYED), rb.build_batch(RECORDS)
    result = validate(first + second, origin=AppendOrigin.COORDINATOR)
    assert [h.base_offset for h in result.batches] == [1000, 1004]
    assert (result.first_offset, result.last_offset) == (1000, 1006)
    assert (result.max_timestamp, result.offset_of_max_timestamp) == (NOW + 9, 1006)
    assert [h for _, h in batch_header.walk_headers(result.records)] == list(result.batches)
    refused(ErrorCode.INVALID_RECORD, (first + second)[:-1], origin=AppendOrigin.COORDINATOR)
    refused(ErrorCode.INVALID_RECORD, b"", origin=AppendOrigin.COORDINATOR)
    refused(ErrorCode.MESSAGE_TOO_LARGE, first, origin=AppendOrigin.COORDINATOR, max_message_bytes=100)


def test_own_batches_with_append_time() -> None:
    result = validate(rb.build_batch(KEYED), origin=AppendOrigin.COORDINATOR, message_timestamp_type="LogAppendTime")
    assert result.log_append_time_ms == result.max_timestamp == NOW
    batch_header.check_crc(result.records, 0, result.batches[0])


def test_raft_leader_batches_bear_its_epoch() -> None:
    batch = rb.build_batch(KEYED, partition_leader_epoch=7)
    result = validate(batch, origin=AppendOrigin.RAFT_LEADER, max_message_bytes=1)
    assert result.batches[0].partition_leader_epoch == 7
    refused(ErrorCode.INVALID_RECORD, batch, origin=AppendOrigin.RAFT_LEADER, leader_epoch=8)


def test_replicated_batches_keep_their_offsets() -> None:
    batches = [
        rb.build_batch(KEYED, base_offset=1000, partition_leader_epoch=5),
        rb.build_batch(RECORDS, base_offset=1010, partition_leader_epoch=6),
        rb.build_batch(RECORDS, base_offset=1013, partition_leader_epoch=8),
    ]
    data = b"".join(batches)
    result = validate(data[:-1], origin=AppendOrigin.REPLICATION)
    assert bytes(result.records) == b"".join(batches[:2])  # cut off, and of a later epoch besides
    assert (result.first_offset, result.last_offset) == (1000, 1012)
    assert (result.max_timestamp, result.offset_of_max_timestamp) == (NOW + 9, 1012)
    assert len(validate(data, origin=AppendOrigin.REPLICATION).batches) == 2
    assert len(validate(data, origin=AppendOrigin.REPLICATION, leader_epoch=8).batches) == 3


def test_replicated_nothing() -> None:
    result = validate(rb.build_batch(KEYED)[:50], origin=AppendOrigin.REPLICATION)
    assert not result.batches and not result.records


def test_replicated_out_of_order_or_behind() -> None:
    first, second = rb.build_batch(KEYED, base_offset=1000), rb.build_batch(KEYED, base_offset=1003)
    refused(ErrorCode.INVALID_RECORD, second + first, origin=AppendOrigin.REPLICATION)
    error = refused(ErrorCode.OFFSET_OUT_OF_RANGE, first + second, origin=AppendOrigin.REPLICATION, next_offset=1001)
    assert isinstance(error, UnexpectedAppendOffset)
    assert (error.first_offset, error.last_offset) == (1000, 1006)
    damaged = bytearray(first)
    damaged[70] ^= 1
    refused(ErrorCode.CORRUPT_MESSAGE, damaged, origin=AppendOrigin.REPLICATION)


# Anything


@given(st.binary(max_size=200), st.sampled_from(list(AppendOrigin)))
@settings(max_examples=examples(300), deadline=None)
def test_any_bytes(data: bytes, origin: AppendOrigin) -> None:
    try:
        validate(data, origin=origin)
    except ApiError:
        pass


@given(st.data(), st.sampled_from(CODECS))
@settings(max_examples=examples(300), deadline=None)
def test_any_header_under_a_right_checksum(data: st.DataObject, codec: CompressionType) -> None:
    batch = bytearray(rb.build_batch(KEYED, compression=codec))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(batch) - 1))
        batch[position] = data.draw(st.integers(0, 255))
    config: dict[str, Any] = data.draw(
        st.sampled_from(
            [
                {},
                {"cleanup_policy": frozenset({"compact"})},
                {"compression_type": "gzip"},
                {"message_timestamp_type": "LogAppendTime"},
            ]
        )
    )
    try:
        result = validate(rebuilt(bytes(batch), lambda b: None), **config)
    except ApiError:
        return
    header = batch_header.parse_header(result.records)
    batch_header.check_crc(result.records, 0, header)
    assert (result.first_offset, header.base_offset) == (1000, 1000)
    assert result.last_offset == header.last_offset


def empty_records(count: int) -> bytes:
    """A compressed batch of records that hold nothing, from the future, so that all must be looked at."""
    header = batch_header.parse_header(rb.build_batch([Record(0, NOW + 10**9, None, None, ())]))
    payload = compress(CompressionType.ZSTD, bytes((12, 0, 0, 0, 1, 1, 0)) * count)
    return rb.assemble(
        header._replace(attributes=CompressionType.ZSTD, last_offset_delta=count - 1, records_count=count), payload
    )


def test_many_records_are_taken_where_they_are_there() -> None:
    """`kafka-producer-perf-test --record-size 1` sends 1.4 million in one batch; a few bytes can claim two billion."""
    count = 1_100_000
    batch = rebuilt(empty_records(count), put(35, 8, NOW))
    with pytest.raises(TakesLong):
        validate_and_assign_offsets(
            batch, next_offset=0, leader_epoch=0, now_ms=NOW, config=LogConfig(), topic_partition=TP
        )
    plain = rebuilt(batch, put(27, 8, NOW))
    result = validate(plain)
    assert (result.first_offset, result.last_offset) == (1000, 1000 + count - 1)
    assert examined(plain, LogConfig())[1] > count // 4096
    for claimed in (count - 1, 2**31 - 1):
        lie = rebuilt(rebuilt(plain, put(23, 4, claimed - 1)), put(57, 4, claimed))
        assert "record" in str(refused(ErrorCode.INVALID_RECORD, lie))


def test_records_are_looked_at_one_after_another() -> None:
    batch = empty_records(20_000)
    tracemalloc.start()
    try:
        refused(ErrorCode.INVALID_TIMESTAMP, batch)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000, peak  # as objects they would take four times as much


LOOKED_AT: list[dict[str, Any]] = [
    {"cleanup_policy": ("compact",)},
    {"message_timestamp_before_max_ms": 5},
    {"compression_type": "lz4"},
    {"compression_type": "zstd", "message_timestamp_type": "LogAppendTime"},
    {"compression_type": "zstd", "message_timestamp_type": "LogAppendTime", "cleanup_policy": ("compact",)},
]


@pytest.mark.parametrize("config", LOOKED_AT, ids=str)
@pytest.mark.parametrize("codec", CODECS)
def test_in_steps_comes_to_the_same_as_at_once(codec: CompressionType, config: dict[str, Any]) -> None:
    batches = [rb.build_batch(content, compression=codec) for content in (RECORDS, KEYED)]
    gaps = [record._replace(offset=index * 3) for index, record in enumerate(KEYED)]
    batches.append(rebuilt(rb.build_batch(gaps, compression=codec, keep_offsets=True), put(23, 4, len(gaps) - 1)))
    batches.append(rebuilt(batches[1], put(35, 8, 1)))  # the latest timestamp is before the first

    def outcomes(*, in_steps: bool) -> list[Any]:
        told: list[Any] = []
        for batch in batches:
            try:
                told.append(validate(batch, in_steps=in_steps, **config))
            except ApiError as error:
                told.append((error.code, str(error), getattr(error, "record_errors", None)))
        return told

    assert outcomes(in_steps=True) == outcomes(in_steps=False)


def test_what_takes_long_is_looked_at_in_steps_only() -> None:
    config = LogConfig(cleanup_policy=frozenset({"compact"}))
    many = rb.build_batch([Record(0, NOW, b"k", None)] * 20_000, compression=CompressionType.ZSTD)
    assert len(many) < 60_000
    with pytest.raises(TakesLong):
        validate_and_assign_offsets(many, next_offset=0, leader_epoch=0, now_ms=NOW, config=config, topic_partition=TP)
    records, steps = examined(many, config)
    assert steps == 1 + 20_000 // 1024
    # Appended to a log that has been configured otherwise meanwhile, it has to be looked at again.
    with pytest.raises(TakesLong):
        validate_and_assign_offsets(
            records,
            next_offset=0,
            leader_epoch=0,
            now_ms=NOW,
            config=LogConfig(cleanup_policy=frozenset({"compact"}), segment_ms=1),
            topic_partition=TP,
        )


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_bomb_is_not_decompressed_while_others_wait(codec: CompressionType) -> None:
    bomb = rebuilt(
        rb.assemble(
            batch_header.parse_header(rb.build_batch(KEYED, compression=codec)), compress(codec, bytes(8 << 20))
        ),
        lambda _: None,
    )
    config = LogConfig(cleanup_policy=frozenset({"compact"}))
    with pytest.raises(TakesLong):
        validate_and_assign_offsets(bomb, next_offset=0, leader_epoch=0, now_ms=NOW, config=config, topic_partition=TP)
    refused(ErrorCode.INVALID_RECORD, bomb, cleanup_policy=frozenset({"compact"}))
