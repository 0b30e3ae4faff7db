"""Columns of Iceberg tables have no name that Iceberg keeps for itself: Spark would not read them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyiceberg")

import pyarrow
from pyiceberg.catalog.sql import SqlCatalog

from kbroker.errors import FatalError
from kbroker.tables.iceberg import IcebergTarget
from kbroker.tables.plan import Kept
from kbroker.tables.rows import RECORD_FIELDS, TextValues, rows_of
from kbroker.wire.record_batch import Record

KEPT = Kept("orders", "topic-id", "text", {0: 0})
SCHEMA = pyarrow.schema([*RECORD_FIELDS, *TextValues().fields()])
# Those of its specification, and `_partition`, which Spark's integration adds.
RESERVED = {"_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"}


def catalog(tmp_path: Path) -> SqlCatalog:
    return SqlCatalog("kbroker", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")


def target(tmp_path: Path) -> IcebergTarget:
    return IcebergTarget("lake.orders", f"sqlite:{tmp_path / 'catalog.db'}")


def add(table: IcebergTarget, first: int) -> None:
    """A row and a dead letter."""
    kept = table.load([0])
    assert kept is not None and kept.positions == {0: first}
    records = [Record(first, 1, b"k", b"text", ()), Record(first + 1, 1, b"k", b"\xff", ())]
    rows, dead = rows_of(0, records, TextValues())
    assert dead is not None
    table.add_dead([dead], {0: first + 2})
    assert table.load([0]) is not None
    assert table.dead_offsets({0: first}) == {(0, first + 1)}
    table.add([rows], {0: first + 2})
    assert table.schema() == SCHEMA


def test_no_name_is_one_that_iceberg_keeps(tmp_path: Path) -> None:
    table = target(tmp_path)
    table.create(KEPT, SCHEMA)
    add(table, 0)
    add(target(tmp_path), 2)
    for name in ("lake.orders", "lake.orders_dead_letters"):
        written = catalog(tmp_path).load_table(name)
        assert not RESERVED & {*written.schema().column_names}
        assert written.scan().to_arrow()["_topic_partition"].to_pylist() == [0, 0]


def test_a_table_of_the_first_release_keeps_its_names(tmp_path: Path) -> None:
    opened = catalog(tmp_path)
    opened.create_namespace("lake")
    told = {"kbroker.topic": "orders", "kbroker.topic.id": "topic-id", "kbroker.value": "text", "kbroker.next.0": "0"}
    opened.create_table("lake.orders", SCHEMA, properties=told)
    add(target(tmp_path), 0)
    add(target(tmp_path), 2)
    written = opened.load_table("lake.orders")
    assert [each.name for each in written.schema().fields] == SCHEMA.names
    assert written.scan().to_arrow()["_partition"].to_pylist() == [0, 0]


def test_names_that_are_one_when_they_are_joined(tmp_path: Path) -> None:
    """Iceberg knows the field b of a as a.b, and the elements of a list l as l.element."""
    pytest.importorskip("deltalake")
    from kbroker.tables.follower import Settings
    from tests.tables.model_topic import ModelTopic, check_once, dead_in, follow, rows_in

    topic, path = ModelTopic(), tmp_path / "iceberg"
    good = [b'{"a": {"b": 1}, "l": [1]}', b'{"a": {"c.d": 2}, "e": 3, "e.f": 4}', b'{"a": {"b": 5}}']
    bad = {b'{"a.b": 1}': "a.b", b'{"l.element": 1}': "l.element", b'{"a": {"c": {"d": 1}}}': "a.c.d"}
    topic.append(0, *good[:2])
    follow(topic, path, Settings("json"))
    topic.append(0, *bad, good[2])
    follow(topic, path, Settings())
    check_once(topic, path)
    assert {row["value"]: row["reason"] for row in dead_in(path)} == {
        value: f"{name}: two fields have this name when names are joined" for value, name in bad.items()
    }
    assert [row["a"]["b"] for row in rows_in(path)] == [1, None, 5]


def test_a_text_that_has_no_short_upper_bound(tmp_path: Path) -> None:
    """The character behind its sixteenth is half a surrogate pair."""
    table = target(tmp_path)
    table.create(KEPT, SCHEMA)
    text = "a" * 15 + "\ud7ff" + "b"
    rows, _ = rows_of(0, [Record(0, 1, b"k", text.encode(), ())], TextValues())
    table.add([rows], {0: 1})
    found = catalog(tmp_path).load_table("lake.orders").scan(f"value = '{text}'").to_arrow()
    assert found["value"].to_pylist() == [text]


@pytest.mark.parametrize("name", ["notes#1", "notes?1"])
def test_a_directory_that_pyiceberg_would_cut_is_refused(tmp_path: Path, name: str) -> None:
    """All files of the table would be one, and that may be somebody else's."""
    (tmp_path / "notes").write_text("mine")
    table = IcebergTarget("lake.orders", f"sqlite:{tmp_path / name / 'catalog.db'}")
    with pytest.raises(FatalError, match=r"no path may have # or \?"):
        table.create(KEPT, SCHEMA)
    assert (tmp_path / "notes").read_text() == "mine"
