"""The module for tests in JavaScript beside this file, by a project's tests that use it, and its types."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from compat_tests.kafkajs.client import installed_modules
from tests.patience import LONG

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TYPES = "kbroker.d.mts"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    if any(shutil.which(each) is None for each in ("node", "npm")):
        pytest.skip("Node is not installed")
    folder = tmp_path / "node_control"
    shutil.copytree(HERE, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    (folder / "node_modules").symlink_to(installed_modules(HERE))
    return folder


def run(project: Path, *words: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "KBROKER_COMMAND": f"{sys.executable} -m kbroker"}
    done = subprocess.run(words, cwd=project, env=environment, capture_output=True, text=True, timeout=6 * LONG)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-8000:]


def test_the_projects_tests(project: Path) -> None:
    run(project, "npm", "test")


def test_the_types_are_those_of_the_code(project: Path) -> None:
    """When this fails: `npm run types`."""
    (project / TYPES).unlink()
    run(project, "npm", "run", "types")
    assert (project / TYPES).read_text() == (HERE / TYPES).read_text()
