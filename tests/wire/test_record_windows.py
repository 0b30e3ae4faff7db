"""The windows of a batch, of any size: together they are its records."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.wire import record_windows
from kbroker.wire.batch_header import HEADER_SIZE, LOG_OVERHEAD, parse_header
from kbroker.wire.compression import CompressionType, Compressor, CorruptRecord, compress, decompress, unpack
from kbroker.wire.record_batch import (
    Record,
    assemble,
    build_batch,
    iter_payload,
    iter_records,
    iter_windows,
    records_of,
)
from kbroker.wire.record_windows import RecordWindows, inline, run_steps
from tests.with_each import examples

CODECS = list(CompressionType)
keys = st.none() | st.binary(max_size=3) | st.binary(min_size=60, max_size=300)
values = st.none() | st.binary(max_size=5) | st.binary(min_size=100, max_size=5000)
headers = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=200)), max_size=2).map(tuple)
records = st.builds(Record, st.just(0), st.integers(0, 2**60), keys, values, headers)
batches = st.lists(records, min_size=1, max_size=40)


@given(batches, st.sampled_from(CODECS), st.integers(1, 4000), st.booleans())
@settings(max_examples=examples(300), deadline=None)
def test_windows_are_the_batch(content: list[Record], codec: CompressionType, most: int, takes_rest: bool) -> None:
    batch = build_batch(content, compression=codec, base_offset=7)
    header = parse_header(batch)
    expected = list(iter_records(batch))
    windows = RecordWindows(batch, 0, header, most)
    for _ in range(2):
        seen: list[Record] = []
        total = 0
        while (window := run_steps(windows.next())) is not None:
            assert window.first == len(seen)
            found = list(records_of(window, header))
            assert len(found) == window.records_count
            data = window.data
            if window.stop > len(data):
                [beginning], whole = found, expected[len(seen)]
                assert beginning[:3] == whole[:3]
                assert (beginning.value is None) == (whole.value is None)
                if takes_rest:
                    while (piece := run_steps(windows.rest())) is not None:
                        data += piece
                    found = list(iter_payload(data, header._replace(records_count=1)))
                else:
                    found = [whole]
            total += window.stop
            seen += found
        assert seen == expected
        assert total == len(decompress(codec, batch[61:], 1 << 30))
        assert run_steps(windows.next()) is None
        windows.rewind()


@given(batches, st.sampled_from(CODECS[1:]), st.integers(1, 500), st.data())
@settings(max_examples=examples(300), deadline=None)
def test_damage_is_told_and_never_breaks(
    content: list[Record], codec: CompressionType, most: int, data: st.DataObject
) -> None:
    batch = build_batch(content)
    payload = bytearray(batch[61:])
    for _ in range(data.draw(st.integers(0, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    count = data.draw(st.sampled_from([len(content), len(content) - 1, len(content) + 1, 2**31 - 1]))
    header = parse_header(batch)._replace(attributes=int(codec), records_count=count)
    damaged = assemble(header, compress(codec, payload))
    windows = RecordWindows(damaged, 0, parse_header(damaged), most)
    seen = 0
    try:
        while (window := run_steps(windows.next())) is not None:
            seen += len(list(records_of(window, header)))
    except CorruptRecord:
        return
    assert seen == count


def test_a_record_larger_than_a_reader_wants_is_refused() -> None:
    large = bytes(5_000_000)
    batch = build_batch([Record(0, 5, b"a", b"1"), Record(0, 6, b"b", large)], compression=CompressionType.ZSTD)
    assert [len(record.value or b"") for record in iter_records(batch)] == [1, 5_000_000]
    found = iter_records(batch, max_record=4_000_000)
    assert next(found).key == b"a"
    with pytest.raises(CorruptRecord, match="limit"):
        next(found)
    assert [size > 4_000_000 for _, size in iter_windows(batch)] == [False, True]


def test_a_batch_of_no_records() -> None:
    empty = build_batch([], compression=CompressionType.GZIP, last_offset_delta=3)
    assert list(iter_records(empty)) == []


@given(st.lists(st.binary(max_size=100_000), max_size=5), st.sampled_from(CODECS), st.integers(1, 200_000))
@settings(max_examples=examples(60), deadline=None)
def test_pieces_are_compressed_and_unpacked(pieces: list[bytes], codec: CompressionType, most: int) -> None:
    compressor = Compressor(codec)
    packed = b"".join([compressor.add(memoryview(piece)) for piece in pieces]) + compressor.finish()
    data = b"".join(pieces)
    unpacked = list(unpack(codec, packed, most))
    assert b"".join(unpacked) == data
    if codec not in (CompressionType.NONE, CompressionType.SNAPPY):
        assert max(map(len, unpacked), default=0) <= most


def test_a_key_has_a_limit() -> None:
    batch = build_batch([Record(0, 5, bytes(5000), bytes(5000))] * 2, compression=CompressionType.ZSTD)
    windows = RecordWindows(batch, 0, parse_header(batch), 1000)
    window = run_steps(windows.next())
    assert window is not None and 5000 < len(window.data) < window.stop
    assert window.stop < record_windows.MAX_KEY


@pytest.mark.parametrize(
    ("codec", "empty"),
    [
        (CompressionType.GZIP, compress(CompressionType.GZIP, b"")),
        (CompressionType.SNAPPY, compress(CompressionType.SNAPPY, b"") + b"\0\0\0\1\0"),
        (CompressionType.LZ4, compress(CompressionType.LZ4, b"")),
    ],
    ids=["gzip", "snappy", "lz4"],
)
def test_many_parts_without_content_are_unpacked_in_steps(codec: CompressionType, empty: bytes) -> None:
    """Each takes time: a megabyte of them would have others wait for most of a second."""
    plain = build_batch([Record(0, 5, b"k", b"v")])
    header = parse_header(plain)._replace(attributes=codec)
    batch = assemble(header, empty * 5000 + compress(codec, plain[HEADER_SIZE:]))
    steps = inline(RecordWindows(batch, 0, header._replace(batch_length=len(batch) - LOG_OVERHEAD)).next())
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            window = end.value
            break
        count += 1
    assert count >= 4
    assert list(records_of(window, header)) == list(iter_records(batch)) == [Record(0, 5, b"k", b"v")]
