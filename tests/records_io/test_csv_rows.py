"""Rows of CSV with quotes that are not closed: what is told, what is stored, what is held in memory."""

from __future__ import annotations

import csv
import io
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.client.records_io.csv_records import csv_rows
from kbroker.client.records_io.items import BadLine

Rows = list[tuple[int, list[str]] | BadLine]


def rows(*lines: str, **options: Any) -> Rows:
    return list(csv_rows((line.encode() for line in lines), **options))


def test_a_quote_that_is_not_closed_is_told_by_its_line() -> None:
    told = "a quote that begins here is not closed before the end of the input; "
    assert rows("a,b", '1,"x', "2,y", '3,""') == [
        (1, ["a", "b"]),
        BadLine(2, told + "nothing of the row's 3 lines is stored"),
    ]
    assert rows('"whole', 'row","of several', 'lines","and', "more") == [
        BadLine(3, told + "nothing of the row's 4 lines is stored")
    ]
    assert rows("a", '"') == [(1, ["a"]), BadLine(2, told + "the line is not stored")]


def test_a_quote_that_ends_in_a_row_further_down() -> None:
    told = "',' expected after '\"', 2 lines further down, where a quote of this line ends"
    told += "; nothing of these lines is stored"
    assert rows('1,"x', "2,y", '3,"z"', "4,w") == [BadLine(1, told), (4, ["4", "w"])]
    assert rows('1,"x', "2,y", '"', "4,w") == [(1, ["1", "x\n2,y\n"]), (4, ["4", "w"])]


def test_a_long_row_is_given_up() -> None:
    [first, bad] = rows("a", '"b', *["c"] * 3000, max_row=1 << 10)
    assert first == (1, ["a"]) and isinstance(bad, BadLine) and bad.line == 2
    assert "is not closed within 0 MiB, the most that is read; nothing of the row's 514 lines is stored" in bad.problem


def test_a_row_without_an_end_takes_no_more_memory_than_its_bytes() -> None:
    def lines() -> Iterator[bytes]:
        yield b'"'
        for _ in range(200_000):
            yield b"0,1"

    tracemalloc.start()
    [found] = csv_rows(lines(), max_row=400_000)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(found, BadLine) and most < 600_000


CELLS = st.text(st.sampled_from('",;\r\na\u00e9'), max_size=6)


@given(st.lists(st.lists(CELLS, min_size=1, max_size=3), min_size=1, max_size=4), st.sampled_from(",;"))
def test_what_a_writer_quotes_comes_back(table: list[list[str]], delimiter: str) -> None:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows(table)
    lines = out.getvalue().encode().split(b"\n")[:-1]
    assert [row for _, row in csv_rows(lines, delimiter)] == table


@given(st.lists(st.text(st.sampled_from('",a\r'), max_size=6), max_size=6))
def test_any_lines_give_the_rows_of_a_plain_reader(lines: list[str]) -> None:
    """Up to the first row that is wrong."""
    plain: list[list[str]] = []
    try:
        plain.extend(row for row in csv.reader((f"{line}\n" for line in lines), strict=True) if row)
    except csv.Error:
        is_wrong = True
    else:
        is_wrong = False
    found = rows(*lines)
    good = [row[1] for row in found if not isinstance(row, BadLine)]
    assert good[: len(plain)] == plain
    assert is_wrong == any(isinstance(row, BadLine) for row in found)


@pytest.mark.parametrize("text", ['"a"', '"a""b"', "a", 'a"b'])
def test_a_row_of_one_line(text: str) -> None:
    [(line, row)] = rows(text, "")
    assert line == 1 and len(row) == 1
