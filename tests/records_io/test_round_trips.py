"""Records that are written into a file and read again are the same, in each format."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbroker.client.records_io.csv_records import COLUMNS, CsvWriter, read_csv_records
from kbroker.client.records_io.items import BadLine, Item
from kbroker.client.records_io.json_records import json_formatter
from kbroker.client.records_io.line_records import InputOptions, read_records
from kbroker.errors import FatalError
from kbroker.wire.batch_header import TimestampType
from kbroker.wire.record_batch import Record
from tests.records_io.record_strategies import DATA, PLACED
from tests.with_each import examples

Placed = list[tuple[int, Record]]


def clock() -> int:
    return 5


def lines_of(data: bytes) -> list[bytes]:
    """Lines as `LineSource` gives them."""
    lines = data.split(b"\n")
    return lines[:-1] if lines[-1] == b"" else lines


def placed(items: Iterable[Item | BadLine]) -> Iterator[tuple[int | None, Record]]:
    for item in items:
        assert isinstance(item, Item), item
        yield item.partition, item.record


def without_offsets(records: Placed) -> Placed:
    return [(partition, record._replace(offset=0)) for partition, record in records]


@given(PLACED)
def test_csv(records: Placed) -> None:
    writer = CsvWriter()
    data = b"".join([writer.row(partition, record) for partition, record in records]) + writer.rest()
    assert list(placed(read_csv_records(lines_of(data), clock))) == without_offsets(records)
    rows = list(csv.reader(io.StringIO(data.decode(), newline="")))
    assert tuple(rows[0]) == COLUMNS
    assert [row[:3] for row in rows[1:]] == [[str(p), str(r.offset), str(r.timestamp)] for p, r in records]


@given(PLACED)
def test_json_lines(records: Placed) -> None:
    show = json_formatter()
    data = b"".join([show("t", partition, record, TimestampType.CREATE_TIME) for partition, record in records])
    options = InputOptions(keep_partitions=True, clock=clock)
    assert list(placed(read_records(lines_of(data), options))) == without_offsets(records)


def test_names_of_headers_that_are_not_utf_8() -> None:
    [(_, record)] = placed_record = [
        (3, Record(0, 5, None, b"v", ((b"\xff\x00".decode("utf-8", "surrogateescape"), b"x"),)))
    ]
    assert list(placed(read_csv_records(lines_of(CsvWriter().row(3, record)), clock))) == placed_record
    line = json_formatter()("t", 3, record, TimestampType.CREATE_TIME)
    options = InputOptions(keep_partitions=True, clock=clock)
    assert list(placed(read_records(lines_of(line), options))) == placed_record


@pytest.mark.parametrize("headers", ['[["\\ud800", "x"]]', '{"\\ud800": null}'])
def test_a_name_of_a_header_that_no_bytes_have(headers: str) -> None:
    [told] = read_records([f'{{"headers": {headers}}}'.encode()], InputOptions(clock=clock))
    assert isinstance(told, BadLine) and told.problem == "a header has half a surrogate pair in its name"


def test_parquet_has_no_names_that_are_not_utf_8(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from kbroker.client.records_io.parquet_records import ParquetWriter

    with (
        (tmp_path / "records.parquet").open("wb") as file,
        pytest.raises(FatalError, match=r"^partition 3, offset 7: "),
    ):
        ParquetWriter(file, "t").add(3, Record(7, 5, None, b"v", (("\udcff", b"x"),)))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=examples(20))
@given(PLACED)
def test_parquet(tmp_path: Path, records: Placed) -> None:
    pytest.importorskip("pyarrow")
    from kbroker.client.records_io.parquet_records import ParquetRecords, ParquetWriter

    path = tmp_path / "records.parquet"
    with path.open("wb") as file:
        writer = ParquetWriter(file, "t")
        for partition, record in records:
            writer.add(partition, record)
        writer.close()
    found = ParquetRecords(path, clock)
    assert list(placed(found)) == without_offsets(records)
    assert found.done == found.count == len(records)


@given(DATA)
def test_no_cell_is_a_formula(value: bytes | None) -> None:
    [_, row] = csv.reader(io.StringIO(CsvWriter().row(0, Record(7, 5, value, value)).decode(), newline=""))
    assert not row[3].startswith(("=", "+", "-", "@", "\t", "\r")) and row[3] == row[4]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("value,value\n", "the first row has a name twice"),
        ("city,value\n", "the first row has a column city: records have partition, offset, "),
        ("key\n", "the first row has no column value: "),
        ("value\na,b\n", "2 fields where the first row has 1"),
        ("value,value_encoding\nx,base64\n", "value is not base64"),
        ("value,value_encoding\nx,utf-16\n", "value_encoding is 'utf-16', not text, base64, null or apostrophe"),
        ("value,partition\nx,-1\n", "partition is -1, which cannot be"),
        ("value,timestamp\nx,now\n", "timestamp is 'now', which is no number"),
        ("value,timestamp\nx,9223372036854775808\n", "timestamp is 9223372036854775808, which cannot be"),
        ("value,headers\nx,{\n", "not JSON: "),
        ("value,headers\nx,[1]\n", "headers are neither an object nor a list of [name, value]"),
        ('value\n"x\n', "a quote that begins here is not closed before the end of the input"),
        (b"value\n\xff\n", "not UTF-8"),
    ],
)
def test_a_row_that_is_no_record(text: str | bytes, problem: str) -> None:
    data = text.encode() if isinstance(text, str) else text
    *_, bad = read_csv_records(lines_of(data), clock)
    assert isinstance(bad, BadLine) and bad.problem.startswith(problem)


def test_a_table_from_elsewhere() -> None:
    data = b'\xef\xbb\xbfvalue,headers,timestamp\n"a\nb","{""x"": ""y""}",\nc,,7\n'
    assert list(read_csv_records(lines_of(data), clock)) == [
        Item(Record(0, 5, None, b"a\nb", (("x", b"y"),)), 2),
        Item(Record(0, 7, None, b"c"), 4),
    ]


@given(st.binary(max_size=60))
def test_any_bytes_are_rows_or_told(data: bytes) -> None:
    for item in read_csv_records(lines_of(b"value,key,headers\n" + data), clock):
        assert isinstance(item, Item | BadLine)


def test_a_field_as_large_as_a_record() -> None:
    writer = CsvWriter()
    record = Record(0, 5, None, b"x" * 2_000_000)
    assert list(placed(read_csv_records(lines_of(writer.row(0, record)), clock))) == [(0, record)]


def test_parquet_from_elsewhere(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    from kbroker.client.records_io.parquet_records import ParquetRecords

    path = tmp_path / "x.parquet"
    times = arrow.array([1_700_000_000_000_123, None], arrow.timestamp("us"))
    columns = {"value": ["text", None], "timestamp": times, "partition": [None, -1], "city": [1, 2]}
    pyarrow.parquet.write_table(arrow.table(columns), path)
    assert list(ParquetRecords(path, clock)) == [
        Item(Record(0, 1_700_000_000_000, None, b"text"), 1),
        BadLine(2, "this is no record: partition is -1, which cannot be"),
    ]
    times = [float("nan"), 2.5, -2.0]
    pyarrow.parquet.write_table(arrow.table({"value": ["a"] * 3, "timestamp": times}), path)
    assert [found.problem for found in ParquetRecords(path, clock) if isinstance(found, BadLine)] == [
        f"this is no record: timestamp is {time}, which cannot be: milliseconds are a whole number" for time in times
    ]
    pyarrow.parquet.write_table(
        arrow.Table.from_arrays([arrow.array(["a"]), arrow.array(["b"])], names=["value", "value"]), path
    )
    with pytest.raises(FatalError, match="2 times"):
        list(ParquetRecords(path, clock))
    pyarrow.parquet.write_table(arrow.table({"value": [1]}), path)
    assert list(ParquetRecords(path, clock)) == [BadLine(1, "this is no record: 1 is neither text nor bytes")]
    pyarrow.parquet.write_table(arrow.table({"city": [1]}), path)
    with pytest.raises(FatalError, match="has no column value, only city"):
        ParquetRecords(path, clock)
    path.write_bytes(b"PAR1")
    with pytest.raises(FatalError, match="as Parquet"):
        ParquetRecords(path, clock)
