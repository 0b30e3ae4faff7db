"""An archive of Spark's classes (class data sharing): the JVMs of Spark that tests start need half the processor time.

    python -m compat_tests.spark_class_archive     make it, unless it is there

A session works for a moment, and its JVM writes down what it has loaded when it ends. Without the archive everything
works as well, and takes more processor time.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from compat_tests.apache_kafka import cache_dir, locked

_SECONDS = 600
_FAST_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xlog:disable")
"""Options of a JVM that lives for some minutes, and whose code is new all the time; it is silent about archives."""


def spark_class_archive() -> Path | None:
    """The file that holds the classes of the installed Spark as this machine's Java loads them.

    None where PySpark is not installed.
    """
    spark = importlib.util.find_spec("pyspark")
    if spark is None or spark.origin is None:
        return None
    java = Path(os.environ.get("JAVA_HOME") or shutil.which("java") or "java").resolve()
    jars = Path(spark.origin).parent / "jars"
    known = [f"{path} {path.exists() and path.stat().st_mtime}" for path in (java, jars)]
    return cache_dir() / f"spark-classes-{hashlib.sha256(' '.join(known).encode()).hexdigest()[:12]}.jsa"


def submit_options() -> str:
    """The value of SPARK_SUBMIT_OPTS for tests: a fast start, from the archive if it is there."""
    archive = spark_class_archive()
    sharing = (f'"-XX:SharedArchiveFile={archive}"',) if archive is not None and archive.exists() else ()
    return " ".join((*_FAST_START, *sharing))


def make() -> Path | None:
    """The archive, made unless it is there; None where PySpark is not installed.

    Raises OSError or subprocess.SubprocessError where it cannot be made.
    """
    archive = spark_class_archive()
    if archive is None:
        return None
    with locked("spark-class-archive"), tempfile.TemporaryDirectory(prefix="spark-classes-") as scratch:
        if not archive.exists():
            partial = archive.with_suffix(".partial")
            partial.unlink(missing_ok=True)
            options = " ".join((*_FAST_START, f'"-XX:ArchiveClassesAtExit={partial}"'))
            command = [sys.executable, "-m", "compat_tests.spark_class_archive", scratch]
            subprocess.run(command, env=os.environ | {"SPARK_SUBMIT_OPTS": options}, check=True, timeout=_SECONDS)
            partial.rename(archive)
    return archive


def _load_classes(directory: Path) -> None:
    """Have a session do what most tests do: a table, a query over it, a stream, a group."""
    from pyspark import SparkContext

    from spark_examples.connector import spark_session

    spark = spark_session("classes")
    rows = spark.range(100).selectExpr("id % 7 AS key", "CAST(id AS STRING) AS value")
    table = str(directory / "table")
    rows.write.parquet(table)
    counts = spark.readStream.schema(rows.schema).parquet(table).groupBy("key").count()
    writer = counts.writeStream.format("memory").queryName("counts").outputMode("complete")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination(_SECONDS)
    spark.sql("SELECT * FROM counts").collect()
    gateway = SparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # it ends, and writes the archive
    gateway.proc.wait(_SECONDS)


if __name__ == "__main__":
    if sys.argv[1:]:
        _load_classes(Path(sys.argv[1]))
    else:
        try:
            print(make() or "PySpark is not installed")
        except (OSError, subprocess.SubprocessError) as error:
            sys.exit(f"error: {error}")
