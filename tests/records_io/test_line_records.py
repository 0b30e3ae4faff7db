"""Records out of lines: the input formats of kbroker produce."""

from __future__ import annotations

import base64
import csv
import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.client.records_io.items import BadLine, Item
from kbroker.client.records_io.json_records import json_formatter
from kbroker.client.records_io.line_records import InputOptions, read_items
from kbroker.wire.batch_header import TimestampType
from kbroker.wire.record_batch import Record


def options(**changes: Any) -> InputOptions:
    return InputOptions(**{"clock": lambda: 5, **changes})


def read(kind: str, text: str | bytes, **changes: Any) -> list[Item | BadLine]:
    data = text.encode() if isinstance(text, str) else text
    lines = data.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return list(read_items(kind, lines, options(**changes)))


def contents(items: list[Item | BadLine]) -> list[tuple[bytes | None, bytes | None]]:
    return [(item.record.key, item.record.value) for item in items if isinstance(item, Item)]


def test_lines() -> None:
    assert contents(read("lines", "a\n\nb c\r\n")) == [(None, b"a"), (None, b""), (None, b"b c\r")]
    assert contents(read("lines", b"\xff\x00", key=b"k")) == [(b"k", b"\xff\x00")]
    [item] = read("lines", "x", headers=(("h", b"v"),))
    assert item == Item(Record(0, 5, None, b"x", (("h", b"v"),)), 1)


def test_lines_with_keys_and_tombstones() -> None:
    found = read("lines", "a:1:2\nb\n:3\nc:NULL", key_separator=b":", null_value=b"NULL")
    assert contents(found) == [(b"a", b"1:2"), (b"", b"3"), (b"c", None)]
    assert found[1] == BadLine(2, "no ':' between key and value")


def test_csv() -> None:
    text = '\ufeffcity,note,when\nOslo,"cold, ""very""\nsnow",2026-01-31T00:00:00Z\n\nRome,,1700000000000\n'
    found = read("csv", text, key_column="city", timestamp_column="when")
    assert [item.line for item in found] == [2, 5]
    assert [item.record.timestamp for item in found if isinstance(item, Item)] == [1769817600000, 1700000000000]
    assert [(key, json.loads(value or b"")) for key, value in contents(found)] == [
        (b"Oslo", {"city": "Oslo", "note": 'cold, "very"\nsnow', "when": "2026-01-31T00:00:00Z"}),
        (b"Rome", {"city": "Rome", "note": "", "when": "1700000000000"}),
    ]


def test_csv_with_types() -> None:
    found = read("csv", "a;b;c;d;e;f\n1;-2.5;true;;007;1e5\n", typed=True, delimiter=";")
    assert [json.loads(value or b"") for _, value in contents(found)] == [
        {"a": 1, "b": -2.5, "c": True, "d": None, "e": "007", "f": "1e5"}
    ]


@pytest.mark.parametrize(
    ("text", "changes", "problems"),
    [
        ("a,b\n1\n1,2\n1,2,3\n", {}, [(2, "1 fields where the first row has 2"), (4, "3 fields")]),
        ("a,a\n1,2\n", {}, [(1, "the first row has a name twice")]),
        ("a\n1\n", {"key_column": "b"}, [(1, "the first row has no column b, only a")]),
        ("a\nx\n", {"timestamp_column": "a"}, [(2, "'x' is not a time")]),
        ('a\n"x"y\n3\n', {}, [(2, "expected after")]),
        (b"a\n\xff\n", {}, [(2, "not UTF-8")]),
        ('a\n"x', {}, [(2, "a quote that begins here is not closed")]),
    ],
)
def test_rows_that_are_none(text: str | bytes, changes: dict[str, Any], problems: list[tuple[int, str]]) -> None:
    bad = [item for item in read("csv", text, **changes) if isinstance(item, BadLine)]
    assert [item.line for item in bad] == [line for line, _ in problems]
    assert all(problem in item.problem for item, (_, problem) in zip(bad, problems, strict=True))


@given(st.lists(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0")), min_size=2,
                         max_size=2), max_size=10))  # fmt: skip
def test_csv_as_its_own_writer_writes_it(rows: list[list[str]]) -> None:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([["a", "b"], *rows])
    found = read("csv", out.getvalue())
    assert [list(json.loads(value or b"").values()) for _, value in contents(found)] == rows


def test_json() -> None:
    found = read("json", '{"id": 7, "at": 9}\n \n "text" \n[1]\n{"id": null}\n', key=b"k")
    assert contents(found) == [
        (b"k", b'{"id": 7, "at": 9}'), (b"k", b'"text"'), (b"k", b"[1]"), (b"k", b'{"id": null}')
    ]  # fmt: skip
    found = read("json", '{"id": 7, "at": 9}\n{"id": null, "at": "@1"}\n{"id": "x", "at": 0}', key_column="id",
                 timestamp_column="at")  # fmt: skip
    assert [key for key, _ in contents(found)] == [b"7", None, b"x"]
    assert [item.record.timestamp for item in found if isinstance(item, Item)] == [9, 1000, 0]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "not JSON: Expecting property name"),
        ("x", "not JSON"),
        ("[]", "no field id"),
        ('{"id": NaN}', "not JSON: NaN"),
        ('{"id": "\udcff"}', "not UTF-8"),
        ('{"x": 1}', "no field id"),
        ('{"id": 1, "at": -1}', "-1 is not a timestamp in milliseconds"),
        ('{"id": 1, "at": true}', "True is not a timestamp"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_lines_that_are_no_json(line: str, problem: str) -> None:
    [found] = read("json", line.encode("utf-8", "surrogateescape"), key_column="id", timestamp_column="at")
    assert isinstance(found, BadLine) and problem in found.problem and found.line == 1


def test_numbers_keep_their_digits() -> None:
    line = '{"key": 0.12345678901234567890, "value": {"a": [1.10, 1e400, 7, null, true, "ä\\n"], "b": {}}}'
    [item] = read("records", line)
    assert isinstance(item, Item) and item.record.key == b"0.12345678901234567890"
    assert item.record.value == '{"a": [1.10, 1e400, 7, null, true, "ä\\n"], "b": {}}'.encode()


def test_records() -> None:
    encoded = base64.b64encode(b"\xff").decode()
    found = read(
        "records",
        f'{{"key_base64": "{encoded}", "value": {{"a": 1}}, "headers": {{"h": "v", "n": null}}, "partition": 3}}\n{{}}',
        keep_partitions=True,
    )
    assert found == [
        Item(Record(0, 5, b"\xff", b'{"a": 1}', (("h", b"v"), ("n", None))), 1, 3),
        Item(Record(0, 5, None, None), 2),
    ]


@pytest.mark.parametrize(
    "line",
    ["[]", '{"key_base64": 3}', '{"key_base64": "*"}', '{"headers": 3}', '{"headers": [1]}', '{"headers": [[1, "x"]]}',
     '{"timestamp": []}', '{"partition": -1}', '{"partition": "x"}', "{"],
)  # fmt: skip
def test_lines_that_are_no_records(line: str) -> None:
    [found] = read("records", line, keep_partitions=True)
    assert isinstance(found, BadLine) and found.problem


binary = st.one_of(st.none(), st.binary(max_size=20), st.text(max_size=10).map(lambda text: text.encode()))


@given(st.builds(
    Record, st.just(0), st.integers(0, 2**62), binary, binary,
    st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), binary), max_size=3).map(tuple),
))  # fmt: skip
def test_what_consume_writes_comes_back_the_same(record: Record) -> None:
    line = json_formatter()("t", 4, record, TimestampType.CREATE_TIME)
    assert line.count(b"\n") == 1
    [item] = read("records", line, keep_partitions=True)
    assert item == Item(record, 1, 4)
