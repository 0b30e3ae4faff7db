"""The fixtures of an installed kbroker in the tests of a Spark project."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from compat_tests.apache_kafka import cache_dir
from tests.patience import LONG

ROOT = Path(__file__).parents[2]
PROJECT = Path(__file__).with_name("project")


@pytest.mark.spark
def test_a_spark_project(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="the `spark` extra is not installed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--target", str(tmp_path / "installed"), str(ROOT)], check=True, timeout=2 * LONG)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "kbroker").symlink_to(cache_dir())  # the connector is fetched once
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "installed"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    project = shutil.copytree(PROJECT, tmp_path / "project", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "kbroker.pytest_plugin", "job_tests.py"],
        cwd=project,
        env=environment | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=4 * LONG,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-8000:]
