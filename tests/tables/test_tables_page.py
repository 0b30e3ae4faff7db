"""The blocks of docs/tables.md run as they stand, one after the other."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from tests.cli_command import Run

pytest.importorskip("deltalake")
pytest.importorskip("pandas")

TEXT = (Path(__file__).parents[2] / "docs" / "tables.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def test_the_blocks(kb: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = 0
    for language, text in BLOCKS:
        if language == "json":
            Path("orders.jsonl").write_text(text)
        elif language == "toml":
            Path("tables.toml").write_text(text)
        elif language == "text":
            Path("schema.json").write_text(text)
            kb("topic", "create", "declared")
            kb("table", "follow", "declared", "--to", "delta:lake/declared", "--schema", "schema.json", "--once")
        elif language == "sh":
            for command in text.splitlines():
                program, *words = shlex.split(command)
                assert program == "kbroker"
                kb(*words)
                ran += 1
        else:
            assert language == "python"
            needs = re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE)
            if all(map(importlib.util.find_spec, needs)):
                exec(compile(text, "docs/tables.md", "exec"), {})
                ran += 1
    assert ran >= 8 + 4
