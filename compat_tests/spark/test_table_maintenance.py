"""The job of Spark that maintains large tables, with Delta: while a follower goes on, and as spark-submit runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import LONG

pytest.importorskip("deltalake")

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
        write_deltalake(str(tmp_path / "t"), pyarrow.table({"a": [number]}), mode="append")
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
    assert "3 merged files, 1 new files, 0 removed files" in told.stdout
    assert DeltaTable(str(tmp_path / "t")).count() == 3
