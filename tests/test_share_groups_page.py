"""The recipes of docs/share_groups.md run as they stand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.page_node import page
from tests.patience import LONG

_, BLOCKS = page("share_groups.md")
RECIPES = [text for language, text in BLOCKS if language == "python"]


@pytest.mark.everything
@pytest.mark.parametrize("recipe", RECIPES, ids=["competing workers", "a bad job", "dead letters", "priorities"])
def test_a_recipe(tmp_path: Path, recipe: str) -> None:
    pytest.importorskip("confluent_kafka")
    script = tmp_path / "recipe.py"
    script.write_text(recipe)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=2 * LONG)
    assert done.returncode == 0, done.stderr
