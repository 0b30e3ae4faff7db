"""The Go module beside this file, by its own test."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_go_module(tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("Go is not installed")
    folder = tmp_path / "go_control"
    shutil.copytree(Path(__file__).parent, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    environment = os.environ | {"PYTHONPATH": str(ROOT), "KBROKER_COMMAND": f"{sys.executable} -m kbroker"}
    done = subprocess.run(
        ["go", "test", "-mod=mod", "-v", "./..."],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
