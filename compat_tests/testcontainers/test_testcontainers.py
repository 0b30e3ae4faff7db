"""The stock Kafka modules of Testcontainers start kbroker's image as they start Apache Kafka's and Confluent's.

With ``--containers``, and podman or docker. Each recipe is a test of its language, and run by that language's runner.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.testcontainers.engine import IMAGE, Engine, running_engine
from tests.patience import LONG

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """The engine, in which the image is."""
    if not request.config.getoption("--containers"):
        pytest.skip("only with --containers")
    with running_engine() as engine:
        engine.run("build", "--network=host", "-t", IMAGE, ".", timeout=6 * LONG)
        try:
            yield engine
        finally:
            engine.remove_left()


def _run(engine: Engine, directory: Path, *command: str) -> None:
    """A language's test runner in a copy of the recipe: they write beside it."""
    done = subprocess.run(
        command, cwd=directory, env=engine.environment, capture_output=True, text=True, timeout=6 * LONG
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-8000:]


def _copied(recipe: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(HERE / recipe, tmp_path / recipe))


def test_python(engine: Engine, tmp_path: Path) -> None:
    pytest.importorskip("testcontainers")
    directory = _copied("python", tmp_path)
    _run(engine, directory, sys.executable, "-m", "pytest", "-q", "--rootdir", str(directory), "recipe.py")


def test_java(engine: Engine, tmp_path: Path) -> None:
    if any(shutil.which(each) is None for each in ("javac", "mvn")):
        pytest.skip("needs a JDK and Maven")
    _run(engine, _copied("java", tmp_path), "mvn", "-q", "-B", "test")


def test_go(engine: Engine, tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("needs Go")
    _run(engine, _copied("go", tmp_path), "go", "test", "./...")


def test_kafkas_tools(engine: Engine) -> None:
    """The tools in a container that runs by default, as health checks and set-up scripts call them."""
    container = engine.run("run", "-d", IMAGE)
    try:
        topics = ("exec", container, "/opt/kafka/bin/kafka-topics.sh", "--bootstrap-server", "localhost:9092")
        deadline = time.monotonic() + LONG
        while engine.attempt(*topics, "--list").returncode:
            assert time.monotonic() < deadline, engine.run("logs", container)
        assert engine.run(*topics, "--create", "--topic", "orders") == "Created topic orders."
        assert engine.run(*topics, "--list") == "orders"
        assert "Produce(0)" in engine.run(
            "exec", container, "kafka-broker-api-versions", "--bootstrap-server", "localhost:9092"
        )
    finally:
        engine.run("rm", "-f", container)
