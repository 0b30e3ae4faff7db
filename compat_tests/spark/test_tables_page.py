"""The blocks of docs/tables.md for programs that need an environment of their own: Iceberg's Spark, DuckDB, Polars."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from compat_tests.spark.iceberg import JARS, SPARK, iceberg_environment, iceberg_jars
from compat_tests.spark.older import made, requirements
from kbroker.testing.spark import java_home
from spark_examples import ROOT
from tests.patience import LONG

TEXT = (ROOT / "docs" / "tables.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def block(*words: str) -> str:
    """The one block of Python that has these words."""
    [found] = [text for language, text in BLOCKS if language == "python" and all(word in text for word in words)]
    return str(found)


def table_readers() -> Path:
    """The Python that has DuckDB with its extensions, and Polars, as the page names them."""
    told = [
        set(re.findall(r"[a-z-]+==[0-9.]+", line))
        for line in TEXT.splitlines()
        if "duckdb==" in line or "duckdb-extension-iceberg==" in line
    ]
    packages = sorted(set.union(*told))
    assert len(packages) == 5
    return made("table-readers", ("polars", "pandas", *packages, *requirements("delta", "iceberg")))


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
    python, jars = iceberg_environment(), iceberg_jars()
    text = block("iceberg-spark-runtime")
    for jar in JARS[:3]:
        assert f'"{jar.group}:{jar.artifact}:{jar.version}",' in text
    assert f"pip install pyspark=={SPARK} " in TEXT
    text = text.replace('config("spark.jars.packages", ",".join(packages))', f'config("spark.jars", "{jars}")')
    assert jars in text
    run(python, text, tables | {"PYSPARK_PYTHON": str(python)}, tmp_path)


@pytest.mark.slow
def test_duckdb_polars_and_pandas(tables: dict[str, str], tmp_path: Path) -> None:
    python = table_readers()
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
