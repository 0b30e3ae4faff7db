"""Iceberg beside Spark: the newest release of Spark that it has one for, in an environment of its own."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from compat_tests.apache_kafka import cache_dir
from compat_tests.spark.older import environment, requirements
from kbroker.testing.spark import CONNECTOR, Jar, connector_jars, java_home
from spark_examples import ROOT

SPARK, ICEBERG = "4.1.1", "1.12.0"
"""The newest Spark that Iceberg has a release for, and that release."""
JARS = (
    Jar(
        "org.apache.iceberg",
        "iceberg-spark-runtime-4.1_2.13",
        ICEBERG,
        "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
    ),
    Jar("org.xerial", "sqlite-jdbc", "3.50.3.0", "a3f53a2aa15ae9425a9e793bbe9c8e5288febeb4b65ef5c1a4e80d4c2045cf08"),
    Jar(
        "org.apache.spark",
        "spark-sql-kafka-0-10_2.13",
        SPARK,
        "9c1ce986f548e6b1dcb0e2dfe2f253a0bc58f2232a32a0c9c6c674dd25a8570c",
    ),
    Jar(
        "org.apache.spark",
        "spark-token-provider-kafka-0-10_2.13",
        SPARK,
        "e510adc37b03d01d0a190d0dab472b5538e05eaa77454f7e9477156d7a6820ae",
    ),
    Jar(
        "org.apache.kafka", "kafka-clients", "3.9.1", "7568b998572d256f0b7bc0afdc1b7a2588b8b08415c62ce314c864a6851ae9d9"
    ),
    next(jar for jar in CONNECTOR if jar.artifact == "commons-pool2"),
)
"""The jars that ``spark.jars.packages`` of the page resolves to, without those that Spark has itself."""


def iceberg_environment() -> Path:
    """The Python that has PySpark and pyiceberg. Some 450 MB are downloaded once."""
    return environment(SPARK, "pandas", *requirements("iceberg"))


def iceberg_jars() -> str:
    """The jars, as ``spark.jars`` names them."""
    return ",".join(map(str, connector_jars(cache_dir() / f"spark-kafka-{SPARK}", JARS)))


def variables(directory: Path) -> dict[str, str]:
    """The environment of a program whose Spark has the catalog ``kbroker`` that is in a directory."""
    catalog = "spark.sql.catalog.kbroker"
    settings = {
        "spark.master": "local[2]",
        "spark.jars": iceberg_jars(),
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": f"jdbc:sqlite:{directory}/catalog.db",
        f"{catalog}.warehouse": f"file://{directory}",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    words = [f"--conf {name}={value}" for name, value in settings.items()]
    return os.environ | {
        "PYTHONPATH": str(ROOT),
        "JAVA_HOME": java_home(),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": str(iceberg_environment()),
        "PYSPARK_SUBMIT_ARGS": " ".join([*words, "pyspark-shell"]),
    }


def table_in(directory: Path, name: str) -> Table:
    """The table ``lake.name`` of the catalog that is in a directory."""
    return SqlCatalog("kbroker", uri=f"sqlite:///{directory}/catalog.db").load_table(f"lake.{name}")


def place_of(table: Table) -> Path:
    """The directory of a table."""
    return Path(table.location().removeprefix("file://"))


def age(table: Table, days: int) -> None:
    """Make a table older that nobody writes to: what its metadata tell, and its files."""
    file = Path(table.metadata_location.removeprefix("file://"))
    times = ("timestamp-ms", "last-updated-ms")
    metadata = json.loads(
        file.read_text(),
        object_hook=lambda found: {
            name: value - days * 86_400_000 if name in times else value for name, value in found.items()
        },
    )
    file.write_text(json.dumps(metadata))
    then = time.time() - days * 86_400
    for each in place_of(table).rglob("*"):
        os.utime(each, (then, then))
