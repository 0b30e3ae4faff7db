"""Record batches: round trips, damage, and kafka-python and librdkafka's view of the same bytes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.wire import batch_header, control_batch
from kbroker.wire import record_batch as rb
from kbroker.wire.batch_header import TimestampType
from kbroker.wire.compression import CompressionType, CorruptRecord
from kbroker.wire.errors import WireError
from kbroker.wire.record_batch import Record
from tests.with_each import examples

CODECS = list(CompressionType)

optional_bytes = st.none() | st.binary(max_size=200)
header_names = st.text(max_size=12)
records_strategy = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(0, 2**42),
        optional_bytes,
        optional_bytes,
        st.lists(st.tuples(header_names, optional_bytes), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=12,
)

SAMPLE = [
    Record(0, 1_700_000_000_000, b"key", b"value" * 10, (("h", b"x"), ("none", None))),
    Record(1, 1_700_000_000_500, None, b"", ()),
    Record(2, 1_699_999_999_000, b"", None, (("", b""),)),
]


@given(records_strategy, st.sampled_from(CODECS), st.integers(0, 2**62))
@settings(max_examples=examples(150), deadline=None)
def test_round_trip(records: list[Record], codec: CompressionType, base_offset: int) -> None:
    batch = rb.build_batch(
        records,
        base_offset=base_offset,
        compression=codec,
        producer_id=7,
        producer_epoch=2,
        base_sequence=2**31 - 2,
        partition_leader_epoch=5,
        is_transactional=True,
    )
    header = batch_header.parse_header(batch)
    batch_header.check_crc(batch, 0, header)
    assert header.size == len(batch)
    assert header.compression_type is codec
    assert header.last_offset == base_offset + len(records) - 1
    assert header.next_offset == base_offset + len(records)
    assert header.last_sequence == (2**31 - 2 + len(records) - 1) % 2**31
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert header.is_transactional and not header.is_control
    assert list(rb.iter_records(batch)) == [
        record._replace(offset=base_offset + index) for index, record in enumerate(records)
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_every_cut_is_a_wire_error_or_no_batch(codec: CompressionType) -> None:
    batch = rb.build_batch(SAMPLE, compression=codec)
    for end in range(len(batch)):
        cut = batch[:end]
        try:
            assert list(batch_header.walk_headers(cut)) == []
        except WireError:
            pytest.fail("a cut-off batch is not damage")
        with pytest.raises(CorruptRecord):
            list(rb.iter_records(cut))
        if end >= batch_header.HEADER_SIZE:
            with pytest.raises(CorruptRecord):
                batch_header.check_crc(cut, 0, batch_header.parse_header(cut))


@pytest.mark.parametrize("codec", CODECS)
def test_payload_cut_under_a_right_length_is_corrupt(codec: CompressionType) -> None:
    batch = rb.build_batch(SAMPLE, compression=codec)
    for end in range(batch_header.HEADER_SIZE, len(batch)):
        cut = bytearray(batch[:end])
        cut[8:12] = (end - 12).to_bytes(4, "big")
        try:
            found = list(rb.iter_records(cut))
        except CorruptRecord:
            continue
        # A codec's checksum or end mark after the last record may be missing without loss.
        assert [r[1:] for r in found] == [r[1:] for r in SAMPLE]


@pytest.mark.parametrize("codec", CODECS)
def test_every_flipped_bit_is_found_by_the_checksum(codec: CompressionType) -> None:
    batch = rb.build_batch(SAMPLE, compression=codec)
    for bit in range(batch_header.CRC_AT * 8, len(batch) * 8):
        damaged = bytearray(batch)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptRecord):
            batch_header.check_crc(damaged, 0, batch_header.parse_header(damaged))
        try:
            list(rb.iter_records(damaged))
        except CorruptRecord:
            pass


@given(st.binary(max_size=300), st.sampled_from(CODECS), st.integers(-5, 400))
@settings(max_examples=examples(300), deadline=None)
def test_garbage_payload_is_corrupt_or_records(payload: bytes, codec: CompressionType, count: int) -> None:
    header = batch_header.parse_header(rb.build_batch(SAMPLE))._replace(attributes=int(codec), records_count=count)
    batch = bytes(batch_header.HEADER_SIZE) + payload
    batch = batch_header.HEADER.pack(header[0], len(batch) - 12, *header[2:]) + payload
    try:
        assert len(list(rb.iter_records(batch))) == count
    except CorruptRecord:
        pass


@given(st.binary(max_size=400))
def test_any_bytes_walk(data: bytes) -> None:
    try:
        for position, header in batch_header.walk_headers(data):
            batch_header.check_crc(data, position, header)
    except CorruptRecord:
        pass


def test_walk_stops_at_a_cut_off_batch() -> None:
    first = rb.build_batch(SAMPLE, base_offset=10)
    second = rb.build_batch(SAMPLE, base_offset=13, compression=CompressionType.GZIP)
    both = memoryview(first + second)
    assert [p for p, _ in batch_header.walk_headers(both)] == [0, len(first)]
    for end in range(len(first), len(both)):
        assert [h.base_offset for _, h in batch_header.walk_headers(both[:end])] == [10]


@pytest.mark.parametrize("magic", [0, 1, 3, 127, 255])
def test_other_formats_are_refused(magic: int) -> None:
    batch = bytearray(rb.build_batch(SAMPLE))
    batch[batch_header.MAGIC_AT] = magic
    with pytest.raises(CorruptRecord, match="magic"):
        batch_header.parse_header(batch)
    with pytest.raises(CorruptRecord, match="magic"):
        list(batch_header.walk_headers(batch))


@pytest.mark.parametrize("length", [-1, 0, 13, 48, -(2**31)])
def test_impossible_length(length: int) -> None:
    batch = bytearray(rb.build_batch(SAMPLE))
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptRecord, match="length"):
        list(batch_header.walk_headers(batch))


def test_a_claimed_record_count_is_not_believed() -> None:
    batch = bytearray(rb.build_batch(SAMPLE))
    batch[57:61] = (2**31 - 1).to_bytes(4, "big")
    with pytest.raises(CorruptRecord, match="cannot be in"):
        list(rb.iter_records(batch))


def test_patch_keeps_the_checksum_right() -> None:
    buffer = bytearray(b"xx" + rb.build_batch(SAMPLE, compression=CompressionType.LZ4))
    batch_header.patch_in_place(buffer, 2, 2**40, 77)
    header = batch_header.parse_header(buffer, 2)
    batch_header.check_crc(buffer, 2, header)
    assert (header.base_offset, header.partition_leader_epoch) == (2**40, 77)
    assert [r.offset for r in rb.iter_records(buffer, 2)] == [2**40, 2**40 + 1, 2**40 + 2]


@pytest.mark.parametrize("codec", CODECS)
def test_log_append_time(codec: CompressionType) -> None:
    buffer = bytearray(rb.build_batch(SAMPLE, compression=codec))
    before = batch_header.parse_header(buffer)
    returned = batch_header.set_timestamp(buffer, 0, before, TimestampType.LOG_APPEND_TIME, 42)
    header = batch_header.parse_header(buffer)
    assert returned == header
    batch_header.check_crc(buffer, 0, header)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert {r.timestamp for r in rb.iter_records(buffer)} == {42}
    assert batch_header.set_timestamp(buffer, 0, header, TimestampType.LOG_APPEND_TIME, 42) is header


def test_header_keys_that_are_not_utf8_survive() -> None:
    batch = rb.build_batch([Record(0, 1, None, None, (("ab", b"v"),))])
    damaged = bytes(batch).replace(b"ab", b"\xff\xfe")
    (record,) = rb.iter_records(damaged)
    assert rb.build_batch([record])[61:] == damaged[61:]


def test_compaction_keeps_offsets() -> None:
    kept = [Record(12, 5, b"a", None), Record(17, 6, b"b", b"v")]
    batch = rb.build_batch(kept, base_offset=10, keep_offsets=True, last_offset_delta=9, delete_horizon_ms=1000)
    header = batch_header.parse_header(batch)
    assert (header.last_offset, header.records_count, header.delete_horizon_ms) == (19, 2, 1000)
    assert list(rb.iter_records(batch)) == kept


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_emptied_by_compaction(codec: CompressionType) -> None:
    batch = rb.build_batch([], base_offset=10, keep_offsets=True, last_offset_delta=9, compression=codec)
    header = batch_header.parse_header(batch)
    batch_header.check_crc(batch, 0, header)
    assert header.last_offset == 19
    assert list(rb.iter_records(batch)) == []


@pytest.mark.parametrize("commit", [True, False])
def test_end_txn_marker(commit: bool) -> None:
    batch = control_batch.build_end_txn_marker(
        commit=commit, producer_id=5, producer_epoch=3, coordinator_epoch=8, timestamp_ms=99, base_offset=4
    )
    header = batch_header.parse_header(batch)
    assert header.is_control and header.is_transactional and header.base_sequence == -1
    assert control_batch.parse_end_txn_marker(batch) == control_batch.EndTxnMarker(commit, 8, 99)
    # Bytes that Apache Kafka's EndTransactionMarker has: key version 0 and type, value version 0 and epoch.
    (record,) = rb.iter_records(batch)
    assert record.key == bytes([0, 0, 0, int(commit)])
    assert record.value == bytes([0, 0, 0, 0, 0, 8])


def test_other_control_records_are_no_marker() -> None:
    leader_change = control_batch.ControlRecordType.LEADER_CHANGE
    batch = control_batch.build_control_batch(leader_change, b"\0\0\0\0\0\0", timestamp_ms=1)
    with pytest.raises(CorruptRecord, match="control type 2"):
        control_batch.parse_end_txn_marker(batch)
    empty = rb.build_batch([], is_control=True, last_offset_delta=0)
    assert control_batch.parse_end_txn_marker(empty) is None


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0"])
def test_control_key_too_short(key: bytes | None) -> None:
    with pytest.raises(CorruptRecord, match="too short"):
        control_batch.parse_control_record(Record(0, 0, key, b""))


# Other people's codecs


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_reads_what_is_built(codec: CompressionType) -> None:
    records = pytest.importorskip("kafka.record.default_records")
    batch = rb.build_batch(SAMPLE, base_offset=100, compression=codec, producer_id=3, base_sequence=0)
    theirs = records.DefaultRecordBatch(bytearray(batch))
    assert theirs.validate_crc()
    assert theirs.base_offset == 100 and theirs.producer_id == 3
    found = [(r.offset, r.timestamp, r.key, r.value, [tuple(h) for h in r.headers]) for r in theirs]
    assert found == [(100 + index, r.timestamp, r.key, r.value, list(r.headers)) for index, r in enumerate(SAMPLE)]


@given(records_strategy, st.sampled_from(CODECS))
@settings(max_examples=examples(60), deadline=None)
def test_what_kafka_python_builds_is_read(records: list[Record], codec: CompressionType) -> None:
    theirs = pytest.importorskip("kafka.record.default_records")
    builder = theirs.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=False,
        producer_id=11,
        producer_epoch=1,
        base_sequence=6,
        batch_size=1 << 20,
    )
    for index, record in enumerate(records):
        builder.append(index, record.timestamp, record.key, record.value, list(record.headers))
    batch = bytes(builder.build())
    header = batch_header.parse_header(batch)
    batch_header.check_crc(batch, 0, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (11, 1, 6)
    assert [r[1:] for r in rb.iter_records(batch)] == [r[1:] for r in records]


@pytest.mark.kafka
def test_apache_kafkas_tool_reads_what_is_built(tmp_path: Path) -> None:
    home = os.environ.get("KAFKA_HOME")
    if not home:
        pytest.skip("KAFKA_HOME is not set")
    many = [Record(0, 1000 + index, b"key-%d" % index, b"value " * 2000, (("h", b"x"),)) for index in range(20)]
    log = b""
    for number, codec in enumerate(CODECS):
        log += rb.build_batch(many, base_offset=number * 20, compression=codec, partition_leader_epoch=0)
    log += control_batch.build_end_txn_marker(
        commit=False, producer_id=1, producer_epoch=0, coordinator_epoch=9, timestamp_ms=5, base_offset=100
    )
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(log)
    tool = Path(home) / "bin" / "kafka-dump-log.sh"
    output = subprocess.run(
        [tool, "--files", path, "--deep-iteration", "--print-data-log"], capture_output=True, text=True, check=True
    ).stdout
    for codec in CODECS:
        assert f"compresscodec: {codec.name.lower()} " in output
    assert output.count("isvalid: true") == 6
    assert output.count("payload: " + "value " * 2000) == 100
    assert output.count("headerKeys: [h] key: key-19 ") == 5
    assert "endTxnMarker: ABORT coordinatorEpoch: 9" in output


def test_checksum_is_castagnoli() -> None:
    assert batch_header.crc32c(b"123456789") == 0xE3069283
    assert batch_header.crc32c(memoryview(b"6789"), batch_header.crc32c(b"12345")) == 0xE3069283
