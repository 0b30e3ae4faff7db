"""The module for tests in JavaScript beside this file, by a project's tests that use it, and its types."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from compat_tests.kafkajs.client import installed_modules
from tests.patience import LONG, eventually

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TYPES = "kbroker.d.mts"
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "KBROKER_COMMAND": f"{sys.executable} -m kbroker"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    if any(shutil.which(each) is None for each in ("node", "npm")):
        pytest.skip("Node is not installed")
    folder = tmp_path / "node_control"
    shutil.copytree(HERE, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    (folder / "node_modules").symlink_to(installed_modules(HERE))
    return folder


def run(project: Path, *words: str) -> None:
    done = subprocess.run(words, cwd=project, env=ENVIRONMENT, capture_output=True, text=True, timeout=6 * LONG)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-8000:]


def test_the_projects_tests(project: Path) -> None:
    run(project, "npm", "test")


def test_the_types_are_those_of_the_code(project: Path) -> None:
    """When this fails: `npm run types`."""
    (project / TYPES).unlink()
    run(project, "npm", "run", "types")
    assert (project / TYPES).read_text() == (HERE / TYPES).read_text()


def test_a_broker_ends_with_a_process_that_is_killed(project: Path) -> None:
    script = "import { Kbroker } from './kbroker.mjs'\nconsole.log((await new Kbroker().start()).bootstrapServers)"
    command = ["node", "--input-type=module", "-e", script]
    environment = ENVIRONMENT | {"TMPDIR": str(project)}  # its data stays
    with subprocess.Popen(command, cwd=project, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        host, port = process.stdout.readline().strip().rsplit(":", 1)
        socket.create_connection((host, int(port))).close()
        process.kill()

    def refuses() -> bool:
        with socket.socket() as connection:
            return connection.connect_ex((host, int(port))) != 0

    eventually(refuses)
