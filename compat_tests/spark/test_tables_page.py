"""The blocks of docs/tables.md for programs that need an environment of their own: Iceberg's Spark, DuckDB, Polars."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from compat_tests.apache_kafka import cache_dir
from compat_tests.spark.older import environment, made
from kbroker.testing.spark import CONNECTOR, Jar, connector_jars, java_home
from spark_examples import ROOT
from tests.patience import LONG

TEXT = (ROOT / "docs" / "tables.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
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


def block(*words: str) -> str:
    """The one block of Python that has these words."""
    [found] = [text for language, text in BLOCKS if language == "python" and all(word in text for word in words)]
    return str(found)


def requirements(*extras: str) -> list[str]:
    """The requirements of kbroker with extras, from its project's file."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *(each for extra in extras for each in project["optional-dependencies"][extra])]


@pytest.fixture
def tables(bootstrap: str, tmp_path: Path) -> dict[str, str]:
    """The tables that the page makes, in the directory of the test; the environment in which its blocks run."""
    [orders] = [text for language, text in BLOCKS if language == "json"]
    (tmp_path / "orders.jsonl").write_text(orders)
    variables = os.environ | {"KBROKER_BOOTSTRAP": bootstrap, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    variables |= {"PYSPARK_SUBMIT_ARGS": "pyspark-shell", "JAVA_HOME": java_home(), "SPARK_LOCAL_IP": "127.0.0.1"}
    for words in (
        "topic delete orders --yes --if-exists",
        "topic create orders -p 3",
        "produce orders orders.jsonl --key-column customer",
        "table follow orders --to delta:lake/orders --value json --once",
        "table follow orders --to iceberg:lake.orders --catalog sqlite:iceberg/catalog.db --value json --once",
    ):
        subprocess.run([sys.executable, "-m", "kbroker", *words.split()], env=variables, cwd=tmp_path, check=True)
    return variables


@pytest.mark.slow
def test_iceberg_in_the_newest_spark_that_it_has(tables: dict[str, str], tmp_path: Path) -> None:
    """Some 450 MB are downloaded once. The jars are named in place of the packages that Ivy would resolve each time."""
    python = environment(SPARK, "pandas", *requirements("iceberg"))
    jars = ",".join(map(str, connector_jars(cache_dir() / f"spark-kafka-{SPARK}", JARS)))
    text = block("iceberg-spark-runtime")
    for jar in JARS[:3]:
        assert f'"{jar.group}:{jar.artifact}:{jar.version}",' in text
    assert f"pip install pyspark=={SPARK} " in TEXT
    text = text.replace('config("spark.jars.packages", ",".join(packages))', f'config("spark.jars", "{jars}")')
    assert jars in text
    run(python, text, tables | {"PYSPARK_PYTHON": str(python)}, tmp_path)


@pytest.mark.slow
def test_duckdb_polars_and_pandas(tables: dict[str, str], tmp_path: Path) -> None:
    told = [
        set(re.findall(r"[a-z-]+==[0-9.]+", line))
        for line in TEXT.splitlines()
        if "duckdb==" in line or "duckdb-extension-iceberg==" in line
    ]
    packages = sorted(set.union(*told))
    assert len(packages) == 5
    wanted = ["polars", "pandas", *packages, *requirements("delta", "iceberg")]
    python = made("table-readers", tuple(wanted))
    texts = [
        text
        for language, text in BLOCKS
        if language == "python" and "spark" not in text and re.search(r"""lake[./]orders["']""", text)
    ]
    assert len(texts) >= 8
    run(python, "\n".join(texts), tables, tmp_path)


def run(python: Path, text: str, variables: dict[str, str], directory: Path) -> None:
    """Run blocks of the page in another Python."""
    done = subprocess.run(
        [str(python), "-c", text], env=variables, cwd=directory, capture_output=True, text=True, timeout=2 * LONG
    )
    assert done.returncode == 0, done.stderr[-5000:]
