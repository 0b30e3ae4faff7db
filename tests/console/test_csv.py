"""Rows of an export as CSV."""

from __future__ import annotations

import csv

import pytest

from kbroker.console.api.records import csv_writer
from kbroker.console.scan import Found
from kbroker.wire.batch_header import TimestampType
from kbroker.wire.record_batch import Record


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (b"=cmd()", "'=cmd()"),
        (b"+1", "'+1"),
        (b"-1", "'-1"),
        (b"@x", "'@x"),
        (b"\t=x", "'\t=x"),
        (b"a=b", "a=b"),
        (None, ""),
        (b"\xff", "0xff"),
    ],
)
def test_no_cell_is_a_formula(value: bytes | None, cell: str) -> None:
    written = csv_writer()(Found(0, Record(7, 5, value, value), TimestampType.CREATE_TIME)).decode()
    _, row = csv.reader(written.splitlines())
    assert row == ["0", "7", "5", cell, cell, ""]
