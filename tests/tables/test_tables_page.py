"""The blocks of docs/tables.md run as they stand, one after the other."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from kbroker.testing import RunningBroker
from tests.cli_command import Run
from tests.page_node import ROOT, page
from tests.patience import LONG

pytest.importorskip("deltalake")
pytest.importorskip("pandas")
for package in ("confluent_kafka.schema_registry", "fastavro", "h11", "jsonschema", "pyiceberg"):
    pytest.importorskip(package, reason=f"{package} is not installed")

_, BLOCKS = page("tables.md")


def test_the_blocks(kb: Run, broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGISTRY", broker.registry_url)
    ran = 0
    for language, text in BLOCKS:
        if language == "json":
            Path("orders.jsonl").write_text(text)
        elif language == "toml":
            Path("tables.toml").write_text(text.replace("http://127.0.0.1:8081", broker.registry_url))
        elif language == "text":
            Path("schema.json").write_text(text)
            kb("topic", "create", "declared")
            kb("table", "follow", "declared", "--to", "delta:lake/declared", "--schema", "schema.json", "--once")
        elif language == "sh":
            for command in text.splitlines():
                program, *words = shlex.split(os.path.expandvars(command))
                assert program == "kbroker"
                kb(*words)
                ran += 1
        else:
            assert language == "python"
            needs = re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE)
            if "spark" not in text and all(map(importlib.util.find_spec, needs)):
                exec(compile(text, "docs/tables.md", "exec"), {})
                ran += 1
    assert ran >= 9 + 6


@pytest.mark.spark
def test_the_blocks_of_spark(kb: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark", reason="the `spark` extra is not installed")
    monkeypatch.chdir(tmp_path)
    [orders] = [text for language, text in BLOCKS if language == "json"]
    Path("orders.jsonl").write_text(orders)
    kb("topic", "create", "for-spark")
    kb("produce", "for-spark", "orders.jsonl", "--key-column", "customer")
    kb("table", "follow", "for-spark", "--to", "delta:lake/orders", "--value", "json", "--once")
    texts = [
        text.replace('"orders", bootstrap', '"for-spark", bootstrap') for _, text in BLOCKS if "delta_session" in text
    ]
    assert len(texts) == 2
    environment = os.environ | {"PYTHONPATH": str(ROOT)}  # a JVM of this process may be there without Delta's jars
    subprocess.run([sys.executable, "-c", "\n".join(texts)], env=environment, timeout=2 * LONG, check=True)
