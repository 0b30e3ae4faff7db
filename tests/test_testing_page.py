"""Each block of docs/testing.md and of the page for tests in Python is run, as it stands, by a pytest of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = ("testing", "how_to/test_in_python")


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / f"{page}.md").read_text("utf-8"), re.M | re.S)


def run(text: str, directory: Path, timeout: float) -> None:
    path = directory / "test_page.py"
    path.write_text(text)
    plugins = ["-p", "kbroker.pytest_plugin", "-p", "no:cacheprovider"]
    # A test that hangs tells where, before it is ended.
    stacks = ["-o", f"faulthandler_timeout={timeout / 2:g}"]
    with (directory / "output").open("w+") as output:
        try:
            code = subprocess.run(
                [sys.executable, "-m", "pytest", "-v", *plugins, *stacks, "--rootdir", str(directory), str(path)],
                cwd=directory,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=timeout,
            ).returncode
        except subprocess.TimeoutExpired:
            code = -1
        output.seek(0)
        told = output.read()
    assert code == 0, told
    assert f"{text.count('def test_')} passed" in told


@pytest.mark.everything
@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_without_spark(page: str, tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    run("\n\n".join(block for block in blocks(page) if "pyspark" not in block), tmp_path, 600)


@pytest.mark.spark
def test_the_blocks_with_spark(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="the `spark` extra is not installed")
    run("\n\n".join(block for block in blocks("testing") if "pyspark" in block), tmp_path, 600)
