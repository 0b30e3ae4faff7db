"""Files of an export that broke off: nothing more is given to the browser."""

from __future__ import annotations

import gc

import pytest

from kbroker.tools.console.export_files import FORMATS, export_file
from kbroker.tools.console.scan import Found
from kbroker.wire.batch_header import TimestampType
from kbroker.wire.record_batch import Record


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_that_is_given_up_gives_nothing_more(kind: str) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    given: list[bytes] = []
    file = export_file(kind, "orders", given.append)
    file.add(Found(0, Record(0, 1, b"k", b"v"), TimestampType.CREATE_TIME))
    before = list(given)
    file.give_up()
    del file
    gc.collect()
    assert given == before


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_whose_reader_has_gone_is_given_up_without_an_error(kind: str) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow")

    def give(piece: bytes) -> None:
        raise RuntimeError("the browser has gone")

    file = export_file(kind, "orders", give)
    with pytest.raises(RuntimeError):
        for _ in range(3):
            file.add(Found(0, Record(0, 1, b"k", bytes(70_000)), TimestampType.CREATE_TIME))
        file.finish()
    file.give_up()
