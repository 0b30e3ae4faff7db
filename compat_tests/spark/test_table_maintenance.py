"""The job of Spark that maintains large tables, while a follower goes on, and as spark-submit runs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from compat_tests.spark.iceberg import age, iceberg_environment, place_of, table_in, variables
from compat_tests.spark.records import create
from compat_tests.spark.test_tables import PARTITIONS, produce_values
from kbroker.client import Client
from kbroker.tables.follower import Follower, Settings
from kbroker.tables.iceberg import IcebergTarget
from kbroker.tables.sources import ClusterSource
from tests.patience import LONG

ROOT = Path(__file__).parents[2]
FEW = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
"""Tasks that look at a table's directory: 10,000 by itself, which one core works off one by one."""
JOB = """
from pathlib import Path
from kbroker.tables.follower import Settings
from kbroker.tables.spark_maintenance import maintain
from kbroker.testing.spark import delta_session
from tests.tables.model_topic import ModelTopic, check_once, follow

path = Path({path!r})
spark = delta_session("maintenance", {few}=2)
topic = ModelTopic()
topic.append(0, *(b"%d" % number for number in range(7 * 6)))
many = Settings(batch_records=1, max_bytes=1, merging=None)

def meanwhile(moment):
    if moment == 8:
        done.append(maintain(spark, f"delta:{{path}}"))

done = []
assert follow(topic, path, many, meanwhile).progress.conflicts == 0
assert done[0]["merged_files"] >= 3 and done[0]["new_files"] == 1
check_once(topic, path)
done = maintain(spark, f"delta:{{path}}", keep_hours=24, size=1 << 30)
assert done["new_files"] == 1, done
topic.append(0, b"more")
follow(topic, path, many)
check_once(topic, path)
assert spark.read.format("delta").load(str(path)).count() == 43

keys = Path({path!r} + "-keys")
for number in range(4):
    topic.append(1, b"again")
    topic.logs[1] = [each._replace(key=b"k") for each in topic.logs[1]]
    follow(ModelTopic(logs={{1: topic.logs[1]}}, starts={{1: 0}}, ends={{1: number + 1}}), keys, Settings(upsert=True))
    maintain(spark, f"delta:{{keys}}")
assert spark.read.format("delta").load(str(keys)).select("_offset").collect()[0][0] == 3
for wrong, hours in (("parquet:x", 24), ("delta:", 24), (f"delta:{{keys}}", 1)):
    try:
        maintain(spark, wrong, keep_hours=hours)
    except ValueError:
        continue
    raise AssertionError(wrong)
spark.stop()
"""


def test_delta_is_maintained_by_spark(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}  # a JVM of this process may be there without Delta's jars
    text = JOB.format(path=str(tmp_path / "t"), few=FEW.replace(".", "__"))
    subprocess.run([sys.executable, "-c", text], env=environment, timeout=6 * LONG, check=True)


def test_as_spark_submit_runs_it(tmp_path: Path) -> None:
    """The file alone, without kbroker on the path."""
    import pyarrow
    import pyspark
    from deltalake import DeltaTable, write_deltalake

    from kbroker.testing.spark import CONNECTOR, DELTA, connector_jars, java_home

    for number in range(3):
        for name in ("t", "t_dead_letters"):
            write_deltalake(str(tmp_path / name), pyarrow.table({"a": [number]}), mode="append")
    where = [sys.executable, "-m", "kbroker", "table", "maintain", "--spark-job"]
    job = subprocess.run(where, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    extensions = "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension"
    catalog = "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog"
    words = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[1]", "--conf", extensions]
    words += ["--conf", catalog, "--conf", "spark.ui.enabled=false", "--conf", f"{FEW}=2"]
    words += ["--conf", "spark.databricks.delta.snapshotPartitions=2", "--conf", "spark.sql.shuffle.partitions=2"]
    words += ["--jars", ",".join(map(str, connector_jars(jars=(*CONNECTOR, *DELTA))))]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"JAVA_HOME": java_home(), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    told = subprocess.run(
        [*words, job, f"delta:{tmp_path / 't'}", "--keep", "2d"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=6 * LONG,
    )
    assert told.returncode == 0, told.stderr[-3000:]
    assert "6 merged files, 2 new files, 0 removed files" in told.stdout
    assert DeltaTable(str(tmp_path / "t")).count() == 3


def follow(
    bootstrap: str, topic: str, directory: Path, stop: Callable[[], bool] | None = None, **settings: Any
) -> None:
    """Bring an Iceberg table up to the topic's end; with ``stop``, follow until then."""
    with Client(bootstrap) as client:
        target = IcebergTarget(f"lake.{topic}", f"sqlite:{directory}/catalog.db")
        Follower(ClusterSource(client, topic), target, Settings(**settings)).run(
            once=stop is None, stop=stop or (lambda: False)
        )


def check(table: Any, count: int) -> None:
    """Assert that a table has each of so many records once."""
    rows = table.scan(selected_fields=("_topic_partition", "_offset")).to_arrow().to_pylist()
    found = sorted(row["_offset"] * PARTITIONS + row["_topic_partition"] for row in rows)
    assert found == list(range(count))


TWICE = """
import sys
from kbroker.tables import spark_maintenance
for name in sys.argv[1:]:
    sys.argv = ["maintain", f"iceberg:kbroker.lake.{name}", "--keep", "2d"]
    spark_maintenance.main()
"""


@pytest.mark.slow
def test_iceberg_is_maintained_by_spark(bootstrap: str, new_name: Callable[[], str], tmp_path: Path) -> None:
    """Two tables, to one of which a follower commits meanwhile; of the other no snapshot stays that has offsets."""
    many: dict[str, Any] = {"value_format": "text", "merging": None}
    quiet, busy = (create(bootstrap, new_name(), PARTITIONS) for _ in range(2))
    orphans, snapshots = [], {}
    for topic in (quiet, busy):
        for end in range(30, 240, 30):
            produce_values(bootstrap, topic, range(end - 30, end))
            follow(bootstrap, topic, tmp_path, **many)
        table = table_in(tmp_path, topic)
        [file, *_] = place_of(table).glob("data/*.parquet")
        orphans.append(file.with_name(file.name.replace("00000-0", "00000-7")))
        shutil.copy(file, orphans[-1])
        age(table, days=3)
        snapshots[topic] = {each.snapshot_id for each in table.snapshots()}
    end, done = 210, threading.Event()

    def produce_more() -> None:
        nonlocal end
        while not done.wait(0.5):
            produce_values(bootstrap, busy, range(end, end + 30))
            end += 30

    with ThreadPoolExecutor() as threads:
        going = [
            threads.submit(produce_more),
            threads.submit(follow, bootstrap, busy, tmp_path, done.is_set, interval=3.0, **many),
        ]
        try:
            words = [str(iceberg_environment()), "-c", TWICE, quiet, busy]
            told = subprocess.run(words, env=variables(tmp_path), capture_output=True, text=True, timeout=12 * LONG)
        finally:
            done.set()
        for each in going:
            each.result(LONG)
    assert told.returncode == 0, told.stderr[-5000:]
    assert "7 merged files, 1 new file, " in told.stdout
    assert not any(each.exists() for each in orphans)
    assert not any(each.summary["kbroker.next.0"] for each in table_in(tmp_path, quiet).snapshots() if each.summary)
    for topic, count in ((quiet, 210), (busy, end)):
        produce_values(bootstrap, topic, range(count, count + 30))
        follow(bootstrap, topic, tmp_path, **many)
        table = table_in(tmp_path, topic)
        assert not snapshots[topic] & {each.snapshot_id for each in table.snapshots()}
        check(table, count + 30)
        age(table, days=3)  # what Spark has written is known to kbroker as a writer's files
        cleaned = IcebergTarget(f"lake.{topic}", f"sqlite:{tmp_path}/catalog.db").maintain(24)
        assert cleaned["removed_files"] > 7 and "kept_files_of_others" not in cleaned
        check(table_in(tmp_path, topic), count + 30)
