"""Tables to which several followers, Spark's maintenance and a person's own commands commit at the same time.

Afterwards all rows are compared with the topic's records, as Spark, deltalake, Polars and DuckDB read them.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

pytest.importorskip("deltalake")

import pyarrow
from deltalake import DeltaTable, QueryBuilder

from compat_tests.spark.records import create
from compat_tests.spark.test_table_maintenance import FEW
from compat_tests.spark.test_tables import PARTITIONS, follow, produce_values
from compat_tests.spark.test_tables_page import table_readers
from kbroker.tables.delta import DeltaTarget
from kbroker.tables.spark_maintenance import maintain
from kbroker.tables.target import DEAD_LETTERS
from tests.patience import LONG
from tests.tables.model_topic import dead_in, rows_in

KEYS = 20
READERS = """
import json, sys
import duckdb, polars
from duckdb_extensions import import_extension
import_extension("delta")
path = sys.argv[1]
by_polars = polars.scan_delta(path).select("_partition", "_offset").collect().rows()
by_duckdb = duckdb.sql(f"select _partition, _offset from delta_scan('{path}')").fetchall()
print(json.dumps([sorted(by_polars), sorted(by_duckdb)]))
"""


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """A session that knows tables of Delta, too."""
    from kbroker.testing.spark import delta_session

    session = delta_session("attack", **{FEW.replace(".", "__"): 2})
    yield session
    session.stop()


def produce_changes(bootstrap: str, topic: str, numbers: range, latest: dict[str, tuple[int, int]]) -> None:
    """Envelopes: n writes or, each seventh, deletes a key; ``latest`` has the partition and offset of each key."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in numbers:
        key, envelope = f"k{n % KEYS}", {"op": "d"} if n % 7 == 6 else {"op": "u", "after": {"id": n}}
        producer.produce(topic, json.dumps(envelope), key, partition=n % 2)
        latest.pop(key, None)
        if n % 7 != 6:
            latest[key] = (n % 2, n // 2)
    assert producer.flush(LONG) == 0


def places(rows: Any) -> list[tuple[int, int]]:
    """Partition and offset of rows, sorted."""
    return sorted((row["_partition"], row["_offset"]) for row in rows)


def as_a_person(spark: Any, command: str) -> None:
    """Run a command; again, if somebody's commit came before it."""
    for _ in range(5):
        try:
            spark.sql(command)
            return
        except Exception as error:
            if "DELTA_CONCURRENT_" not in str(error):
                raise
    raise AssertionError(command)


def age(path: Path, days: int) -> None:
    """Make files look older."""
    then = time.time() - days * 86_400
    for each in path.rglob("*"):
        os.utime(each, (then, then))


@pytest.mark.slow
def test_followers_a_job_and_a_person_at_the_same_time(
    spark: Any, bootstrap: str, new_name: Callable[[], str], tmp_path: Path
) -> None:
    plain, keyed = create(bootstrap, new_name(), PARTITIONS), create(bootstrap, new_name(), 2)
    every, by_key = tmp_path / "every", tmp_path / "by-key"
    latest: dict[str, tuple[int, int]] = {}
    produce_values(bootstrap, plain, range(300))
    produce_changes(bootstrap, keyed, range(140), latest)
    follow(bootstrap, plain, every, value_format="json")
    follow(bootstrap, keyed, by_key, changes="debezium")
    before, first = DeltaTable(str(by_key)).version(), sorted(latest.values())
    end, changes, done = 300, 140, threading.Event()

    def produce_more() -> None:
        nonlocal end, changes
        for _ in range(100):
            if done.wait(2.0):
                return
            produce_values(bootstrap, plain, range(end, end + 60))
            produce_changes(bootstrap, keyed, range(changes, changes + 60), latest)
            end, changes = end + 60, changes + 60

    with ThreadPoolExecutor() as threads:
        going = [
            threads.submit(produce_more),
            threads.submit(follow, bootstrap, plain, every, done.is_set, interval=3.0, merging=None),
            threads.submit(follow, bootstrap, plain, every, done.is_set, interval=4.0),
            threads.submit(follow, bootstrap, keyed, by_key, done.is_set, interval=12.0),
        ]
        try:
            merged = maintain(spark, f"delta:{every}")["merged_files"]
            as_a_person(spark, f"OPTIMIZE delta.`{by_key}`")
            as_a_person(spark, f"VACUUM delta.`{by_key}`")
        finally:
            done.set()
        for each in going:
            each.result(LONG)
    assert merged > 1
    follow(bootstrap, plain, every)
    follow(bootstrap, keyed, by_key)

    def read(path: Path, **options: Any) -> list[tuple[int, int]]:
        rows = spark.read.format("delta").options(**options).load(str(path))
        return places(rows.select("_partition", "_offset").collect())

    def check(path: Path, wanted: Iterable[tuple[int, int]]) -> None:
        query = QueryBuilder().register("t", DeltaTable(str(path))).execute("select _partition, _offset from t")
        words = [str(table_readers()), "-c", READERS, str(path)]
        others = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
        found = [read(path), places(pyarrow.table(query).to_pylist())]
        assert [*found, *([tuple(each) for each in other] for other in others)] == [sorted(wanted)] * 4

    records = sorted((n % PARTITIONS, n // PARTITIONS) for n in range(end))
    dead = places(dead_in(every))
    assert places(rows_in(every) + dead_in(every)) == records
    assert read(by_key, versionAsOf=before) == first
    for path in (every, tmp_path / f"every{DEAD_LETTERS}", by_key):  # files of commits that were refused are nobody's
        age(path, days=3)
        assert "kept_files_of_others" not in DeltaTarget(str(path)).maintain(24)
    check(every, {*records} - {*dead})
    check(by_key, latest.values())

    spark.sql(f"ALTER TABLE delta.`{by_key}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    gone = next(iter(latest))
    spark.sql(f"DELETE FROM delta.`{by_key}` WHERE _key = CAST('{gone}' AS BINARY)")
    del latest[gone]
    assert list(by_key.glob("deletion_vector_*.bin"))
    age(by_key, days=3)
    assert DeltaTarget(str(by_key)).maintain(24)["kept_files_of_others"] == 1
    check(by_key, latest.values())
    produce_changes(bootstrap, keyed, range(changes, changes + 60), latest)
    follow(bootstrap, keyed, by_key)
    check(by_key, latest.values())
    for path in (every, by_key):
        assert DeltaTarget(str(path)).drop() == 0
        assert not path.exists()
