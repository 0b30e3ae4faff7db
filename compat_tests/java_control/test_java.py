"""The JUnit extension beside this file, by a project's tests that use it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import LONG

ROOT = Path(__file__).parents[2]


def test_the_junit_extension(tmp_path: Path) -> None:
    if any(shutil.which(each) is None for each in ("javac", "mvn")):
        pytest.skip("needs a JDK and Maven")
    folder = tmp_path / "java_control"
    shutil.copytree(Path(__file__).parent, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    environment = os.environ | {"PYTHONPATH": str(ROOT), "KBROKER_COMMAND": f"{sys.executable} -m kbroker"}
    done = subprocess.run(
        ["mvn", "-q", "-B", "test"], cwd=folder, env=environment, capture_output=True, text=True, timeout=6 * LONG
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-8000:]
    suites = [path.name for path in (folder / "target" / "surefire-reports").glob("*.txt")]
    assert sorted(suites) == ["ClusterTest.txt", "OrdersTest.txt"]
