"""The bytes of a batch with their names: each field is where it says, and together they are all of the batch."""

from __future__ import annotations

import pytest

from kbroker.tools.console.batch_fields import MAX_HEADERS, MAX_RECORDS, ByteField, batch_fields
from kbroker.wire.batch_header import HEADER_SIZE, parse_header
from kbroker.wire.compression import CompressionType
from kbroker.wire.record_batch import Record, build_batch

RECORDS = [
    Record(0, 1000, b"k", b"v" * 100, (("trace", b"abc"), ("none", None))),
    Record(0, 1005, None, None),
    Record(0, 999, b"\xff", "ü".encode()),
]


def fields_of(data: bytes) -> list[ByteField]:
    return list(batch_fields(parse_header(data), data))


def test_each_byte_of_a_batch_has_a_name() -> None:
    data = build_batch(RECORDS, base_offset=7, producer_id=3, producer_epoch=1, base_sequence=5)
    fields = fields_of(data)
    leaves = [each for each in fields if each.depth == (1 if each.stop <= HEADER_SIZE else 2) and each.data]
    reached = 0
    for each in leaves:
        assert each.start == reached and data[each.start : each.stop].startswith(each.data), each
        reached = each.stop
    assert reached == len(data)
    named = {each.name: each for each in fields}
    assert (named["base offset"].value, named["producer id"].value, named["base sequence"].value) == ("7", "3", "5")
    assert named["record 2"].value == "offset 9"
    values = [each.value for each in fields if each.name == "value"]
    assert values == [f"{'v' * 64} … (100 bytes)", "ü"]
    assert [each.note for each in fields if each.name == "timestamp delta"][2] == "999 ms since 1970"


@pytest.mark.parametrize("codec", [CompressionType.GZIP, CompressionType.ZSTD])
def test_compressed_records_are_decompressed(codec: CompressionType) -> None:
    fields = fields_of(build_batch(RECORDS, compression=codec))
    assert any(each.note == f"compressed with {codec.name.lower()}" for each in fields)
    first = next(each for each in fields if each.name == "record 0")
    assert first.start == 0, "positions begin anew in the decompressed block"


def test_of_many_records_the_first_are_told() -> None:
    fields = fields_of(build_batch([Record(0, 0, None, b"x")] * (MAX_RECORDS + 5)))
    assert fields[-1].value == "5 records"


def test_a_marker_is_named() -> None:
    data = build_batch(
        [Record(0, 0, b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x00")],
        producer_id=1,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )
    assert any(each.note == "a marker: COMMIT" for each in fields_of(data))


@pytest.mark.parametrize("cut", range(HEADER_SIZE, HEADER_SIZE + 40, 3))
def test_damaged_records_end_the_list_with_a_reason(cut: int) -> None:
    data = bytearray(build_batch(RECORDS))
    data[cut] = 0xFF
    fields = fields_of(bytes(data))
    assert fields[0].name == "header"
    assert len(fields) < 60


def test_of_many_headers_the_first_are_told() -> None:
    headers = tuple(("", b"") for _ in range(MAX_HEADERS + 1000))
    data = build_batch([Record(0, 0, None, b"x", headers), Record(0, 0, None, b"y")], compression=CompressionType.GZIP)
    fields = fields_of(data)
    assert sum(each.name == "header's name" for each in fields) == MAX_HEADERS
    [rest] = [each for each in fields if each.name == "and more"]
    assert (rest.value, rest.stop - rest.start) == ("1000 headers", 2000)
    assert [each.value for each in fields if each.name == "value"] == ["x", "y"]
