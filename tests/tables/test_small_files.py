"""Small files are merged while a table is followed, versions expire, files of nobody go; rows stay as they are."""

from __future__ import annotations

import json
import os
import struct
import time
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake")

import pyarrow.parquet
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction

from kbroker.tables.follower import Follower, Settings
from kbroker.tables.layout import Layout
from kbroker.tables.target import DEAD_LETTERS, ROW_GROUP, Merging, size_to_merge
from tests.tables.model_topic import Killed, ModelSource, ModelTopic, check_once, follow, rows_in, target_of
from tests.tables.test_exactly_once import FORMATS, kill_at, needs_iceberg

EAGER = Settings(batch_records=1, max_bytes=1, merging=Merging(fewest=4))
"""A commit for seven records; four files are many."""
WEEKS_AGO = time.time() - 30 * 24 * 3600


def numbers(count: int) -> ModelTopic:
    topic = ModelTopic()
    topic.append(0, *(b"%d" % number for number in range(count)))
    return topic


def files_of(path: Path) -> int:
    target = target_of(path)
    target.load([0])
    return target.facts().files


def age(directory: Path) -> None:
    """Make all files of a directory old."""
    for each in directory.rglob("*"):
        os.utime(each, (WEEKS_AGO, WEEKS_AGO))


def iceberg_table(path: Path) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    uri, warehouse = f"sqlite:///{path.parent / 'catalog.db'}", f"file://{path.parent}"
    return SqlCatalog("kbroker", uri=uri, warehouse=warehouse).load_table(f"lake.{path.name}")


def test_what_is_merged() -> None:
    chosen = Merging(fewest=3, size=64, budget=100)
    assert size_to_merge([1, 2], chosen) == 0, "few"
    assert size_to_merge([64, 50, 80, 1, 2], chosen) == 0, "few are small"
    assert size_to_merge([50, 40, 1, 2], chosen) == 64
    assert size_to_merge([60, 60, 1, 2, 3], chosen) == 16, "all are too much at once"
    assert size_to_merge([40, 40, 40], chosen) == 0, "too much at once, none is smaller"


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("upsert", [False, True])
def test_groups_of_rows_are_small(tmp_path: Path, kind: str, upsert: bool) -> None:
    """Each is in memory once more while it is written; it is compressed as without that."""
    topic = ModelTopic()
    topic.append(0, *([b"x" * 100] * 2 * ROW_GROUP))
    Follower(ModelSource(topic, 2 * ROW_GROUP), target_of(tmp_path / kind), Settings("text", upsert=upsert)).run(
        once=True
    )
    paths = [each for each in tmp_path.rglob("*.parquet") if DEAD_LETTERS not in str(each)]  # which has no key
    [file] = [pyarrow.parquet.read_metadata(each) for each in paths]
    assert file.num_rows > ROW_GROUP and file.num_row_groups == 2
    assert file.row_group(0).column(file.num_columns - 1).compression != "UNCOMPRESSED"


@pytest.mark.parametrize("kind", FORMATS)
def test_merged_while_it_follows(tmp_path: Path, kind: str) -> None:
    """With the rows, the offsets and the topic as they were; killed and conflicting followers go on."""
    topic, path = numbers(7 * 8), tmp_path / kind
    found = follow(topic, path, EAGER)
    assert found.progress.merged_files >= 4 and files_of(path) < 8
    check_once(topic, path)
    topic.append(1, b"added")
    assert follow(topic, path, EAGER).progress.conflicts == 0
    check_once(topic, path)
    assert follow(numbers(7 * 8), tmp_path / f"{kind}-not", Settings(batch_records=1, max_bytes=1, merging=None))
    assert files_of(tmp_path / f"{kind}-not") == 8


@pytest.mark.parametrize("kind", FORMATS)
def test_dead_letters_are_merged_and_expire_too(tmp_path: Path, kind: str) -> None:
    """A topic may have them for ever."""
    topic, path = ModelTopic(), tmp_path / kind
    dead = path.with_name(kind + DEAD_LETTERS)
    topic.append(0, *[b"\xff"] * 7 * 8)

    def files() -> int:
        if kind == "delta":
            return len(DeltaTable(str(dead)).file_uris())
        return len(list(iceberg_table(dead).scan().plan_files()))

    follow(topic, path, replace(EAGER, value_format="text"))
    assert files() < 8
    check_once(topic, path)
    target_of(path).maintain(0)
    assert files() == 1
    assert kind == "delta" or len(iceberg_table(dead).snapshots()) == 1
    topic.append(0, b"\xff", b"good")
    follow(topic, path, Settings())
    check_once(topic, path)


@pytest.mark.parametrize("kind", FORMATS)
def test_another_merges_and_another_is_merged(tmp_path: Path, kind: str) -> None:
    """Between any two commits of a follower somebody else merges all files, and expires what was."""
    topic, path = numbers(7 * 6), tmp_path / kind

    def other(moment: int) -> None:
        if moment > 2:
            target_of(path).maintain(0)

    follow(topic, path, EAGER, other)
    follow(topic, path, EAGER)
    check_once(topic, path)
    assert files_of(path) == 1


@pytest.mark.parametrize("kind", FORMATS)
def test_files_of_nobody_go_when_they_are_old(tmp_path: Path, kind: str) -> None:
    topic, path = numbers(7), tmp_path / kind
    follow(topic, path, Settings())
    place = path if kind == "delta" else Path(iceberg_table(path).location().removeprefix("file://"))
    data = place if kind == "delta" else place / "data"
    [file] = data.glob("*.parquet")
    name = file.name.replace("-c000", "-c001") if kind == "delta" else file.name.replace("00000-0", "00000-7")
    orphan, notes = data / name, data / "notes.txt"
    orphan.write_bytes(b"of a follower that was killed")
    assert "kept_files_of_others" not in target_of(path).clean(0)
    assert orphan.exists(), "it may be committed yet"
    age(place)
    assert target_of(path).clean(24)["removed_files"] >= 1
    assert not orphan.exists()
    orphan.write_bytes(b"")
    notes.write_text("of somebody else")
    age(place)
    assert target_of(path).clean(24)["kept_files_of_others"] == 1
    assert notes.exists() and orphan.exists() == (kind == "delta")
    check_once(topic, path)
    topic.append(0, b"more")
    follow(topic, path, Settings())
    check_once(topic, path)


def delete_by_vector(path: Path, index: int) -> None:
    """Delete a row as Spark does where a table has deletion vectors: a file beside it says which row is gone."""
    table = DeltaTable(str(path))
    [file] = path.glob("*.parquet")
    # Delta's magic number, then one Roaring bitmap: its key, cookie, containers, (key, rows less one), place, row.
    vector = struct.pack("<IQIIIHHIH", 1681511377, 1, 0, 12346, 1, 0, 0, 16, index)
    name = path / "deletion_vector_00000000-0000-0000-0000-000000000000.bin"
    name.write_bytes(b"\1" + struct.pack(">I", len(vector)) + vector + struct.pack(">I", zlib.crc32(vector)))
    place = {"storageType": "p", "pathOrInlineDv": name.as_uri(), "offset": 1, "sizeInBytes": len(vector)}
    log = path / "_delta_log"
    actions = [json.loads(line) for each in sorted(log.glob("*.json")) for line in each.read_text().splitlines()]
    [added] = [each["add"] for each in actions if "add" in each]
    features = {
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors", "appendOnly", "invariants"],
    }
    lines: list[Any] = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
        {"remove": {"path": file.name, "deletionTimestamp": int(WEEKS_AGO * 1000), "dataChange": True}},
        {"add": added | {"deletionVector": {**place, "cardinality": 1}}},
    ]
    (log / f"{table.version() + 1:020}.json").write_text("\n".join(map(json.dumps, lines)))


def test_deletion_vectors_stay(tmp_path: Path) -> None:
    """`deltalake` takes their files for files of nobody: without them nobody could read the table."""
    topic, path = numbers(7), tmp_path / "t"
    follow(topic, path, Settings())
    delete_by_vector(path, 5)
    age(path)
    for keep in (0, 24):
        target_of(path).maintain(keep)
        found = QueryBuilder().register("t", DeltaTable(str(path))).execute("select _offset from t order by 1")
        assert pyarrow.table(found).column(0).to_pylist() == [0, 1, 2, 3, 4, 6]
    assert target_of(path).clean(24)["kept_files_of_others"] == 1
    target = target_of(path)
    target.load([0])
    assert target.facts().rows == 6


@needs_iceberg
def test_a_catalog_that_forbids_it_keeps_all_files(tmp_path: Path) -> None:
    """Another branch of the catalog may name them."""
    topic, path = numbers(7), tmp_path / "iceberg"
    follow(topic, path, Settings())
    table = iceberg_table(path)
    table.transaction().set_properties({"gc.enabled": "false"}).commit_transaction()
    place = Path(table.location().removeprefix("file://"))
    [file] = (place / "data").glob("*.parquet")
    other = file.with_name(file.name.replace("00000-0", "00000-7"))
    other.write_bytes(b"of a branch")
    age(place)
    assert target_of(path).clean(0) == {"expired": 0, "removed_files": 0}
    assert target_of(path).drop() == 0
    assert other.exists() and file.exists()


@pytest.mark.parametrize("kind", FORMATS)
def test_what_is_null_is_not_empty_when_it_was_merged(tmp_path: Path, kind: str) -> None:
    """A list of structures, in rows from before and after its column came."""
    topic, path = ModelTopic(), tmp_path / kind
    topic.append(0, b"{}", b"{}", *(b'{"l": [{"x": %d}]}' % number for number in range(5)))
    topic.append(0, *[b'{"l": []}', b"{}"] * 7)
    follow(topic, path, Settings(value_format="json", batch_records=1, max_bytes=1, merging=None))
    lists = [row["l"] for row in rows_in(path)]
    assert lists[:3] == [None, None, [{"x": 0}]] and lists[-2:] == [[], None]
    assert target_of(path).maintain()["merged_files"] >= 3
    assert [row["l"] for row in rows_in(path)] == lists


def test_a_partitioned_delta_table(tmp_path: Path) -> None:
    """Those of its partitions that have many files are merged, also that of null."""
    topic, path = ModelTopic(), tmp_path / "t"
    topic.append(0)
    follow(topic, tmp_path / "plain", Settings(value_format="text"))
    plain = DeltaTable(str(tmp_path / "plain"))
    DeltaTable.create(
        str(path),
        plain.schema(),
        partition_by=["value"],
        configuration=plain.metadata().configuration,
        raise_if_key_not_exists=False,
        commit_properties=CommitProperties(app_transactions=[Transaction(f"kbroker/{topic.topic_id}/0", 0)]),
    )
    topic.append(0, *(each for number in range(8) for each in (b"a", b"a", b"a", None, None, None, b"%d" % number)))
    found = follow(topic, path, EAGER)
    assert found.progress.merged_files >= 8
    check_once(topic, path)
    by_value = pyarrow.table(DeltaTable(str(path)).get_add_actions(flatten=True))["partition.value"].to_pylist()
    assert by_value.count("a") < 8 and by_value.count(None) < 8 and by_value.count("3") == 1


def test_a_delta_table_in_partitions_of_any_type(tmp_path: Path) -> None:
    """Files of a partition are merged whatever tells the partition."""
    declared = {"d": "decimal(10,2)", "t": "timestamp", "b": "boolean", "y": "date", "l": "long", "s": "string"}
    value = b'{"d": 1.50, "t": "2026-11-30T12:00:01.5Z", "b": true, "y": "2026-11-30", "l": 5, "s": "x y"}'
    for part in (*declared, "hour(t)", "month(y)"):
        topic, path = ModelTopic(), tmp_path / part
        topic.append(0, *[value] * 7 * 5)
        layout = Layout(False, part)
        found = follow(topic, path, replace(EAGER, value_format="json", declared=json.dumps(declared), layout=layout))
        assert found.progress.merged_files >= 4, part
        check_once(topic, path)


@needs_iceberg
def test_iceberg_expires_while_it_follows_and_streams_pass_over_what_was_merged(tmp_path: Path) -> None:
    from pyiceberg.table.snapshots import Operation

    topic, path = numbers(7 * 8), tmp_path / "iceberg"
    follow(topic, path, EAGER)
    operations = [each.summary.operation for each in iceberg_table(path).snapshots()]
    assert Operation.REPLACE in operations and Operation.OVERWRITE not in operations
    assert {each.summary["kbroker.next.0"] for each in iceberg_table(path).snapshots()} >= {"7", "56"}
    assert target_of(path).clean(0)["expired"] == len(operations) - 1
    check_once(topic, path)


@pytest.mark.parametrize("kind", FORMATS)
def test_killed_and_merged_by_key(tmp_path: Path, kind: str) -> None:
    """Tables that are kept by key are merged, too, and have checkpoints that know how far they are."""
    path = tmp_path / kind
    chosen = Settings(batch_records=1, max_bytes=1, merging=Merging(fewest=2), upsert=True)
    topic = ModelTopic()
    for number in range(5):
        topic.append(0, *(b"%d" % number for _ in range(7)))
    topic.logs[0] = [each._replace(key=b"%d" % each.offset) for each in topic.logs[0]]
    with pytest.raises(Killed):
        follow(topic, path, chosen, kill_at(5))
    follow(topic, path, chosen)
    assert len(rows_in(path)) == 35 and files_of(path) <= 3


@pytest.mark.parametrize("upsert", [False, True])
def test_checkpoints_know_how_far_it_is(tmp_path: Path, upsert: bool) -> None:
    topic, path = numbers(7), tmp_path / "t"
    topic.logs[0] = [each._replace(key=b"k") for each in topic.logs[0]]
    follow(topic, path, Settings(upsert=upsert))
    often = {"delta.checkpointInterval": "3"}
    DeltaTable(str(path)).alter.set_table_properties(often, raise_if_not_exists=False)
    for _ in range(8):
        topic.append(0, b"more")
        topic.logs[0] = [each._replace(key=b"k") for each in topic.logs[0]]
        follow(topic, path, EAGER)
    assert (path / "_delta_log" / "_last_checkpoint").exists()
    for each in (path / "_delta_log").glob("*.json"):
        if int(each.stem) < 9:
            each.unlink()
    assert follow(topic, path, EAGER).progress.commits == 0
    assert len(rows_in(path)) == (1 if upsert else 15)
