"""The releases of PySpark that people still have: a smoke subset, each in an environment of its own.

    python -m pytest compat_tests/spark/test_older_versions.py --older-spark

The first run downloads some 800 MB into `.cache`.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from compat_tests.spark.older import JARS, environment, jars
from compat_tests.spark.records import create, produce
from compat_tests.spark.test_transactions import Writer
from kbroker.testing.spark import java_home
from tests.patience import LONG


@pytest.mark.slow
@pytest.mark.parametrize("version", sorted(JARS))
def test_an_older_spark(
    request: pytest.FixtureRequest, bootstrap: str, new_name: Callable[[], str], tmp_path: Path, version: str
) -> None:
    if not request.config.getoption("--older-spark"):
        pytest.skip("asked for by --older-spark")
    source, target, transactional = (create(bootstrap, new_name(), 3) for _ in range(3))
    produce(bootstrap, source, 3, 300)
    writer = Writer(bootstrap, transactional, transactional)
    for number in range(6):
        writer.transact(range(number * 10, number * 10 + 10), commit=number % 2 == 0)
    python = environment(version)
    arguments = [bootstrap, source, target, transactional, ",".join(map(str, jars(version))), str(tmp_path)]
    done = subprocess.run(
        [str(python), str(Path(__file__).with_name("older_smoke.py")), *arguments],
        env={**os.environ, "JAVA_HOME": java_home(), "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LONG,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    found = json.loads(done.stdout.splitlines()[-1])
    everything = list(range(300))
    assert found == {
        "version": version,
        "row": ["k1", "v1", source, 1, 0, [["n", "1"], ["none", None]]],
        "batch": everything,
        "by offsets": sorted([*range(270, 300, 3), *range(1, 16, 3)]),
        "by admin": list(range(30, 60)),
        "by consumer": list(range(30, 60)),
        "assigned": [n for n in everything if n % 3 != 1],
        "pattern": everything,
        "committed": [n for n in range(60) if n // 10 % 2 == 0],
        "copied": [everything, everything],
        "written": list(range(310)),
    }
