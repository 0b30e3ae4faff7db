"""The recipes of docs/share_groups.md run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kbroker.config.properties import parse_properties
from tests.node.node_harness import configuration

TEXT = (Path(__file__).parents[1] / "docs" / "share_groups.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
RECIPES = [text for language, text in BLOCKS if language == "python"]


def test_the_properties_are_those_of_a_node(tmp_path: Path) -> None:
    (properties,) = (parse_properties(text) for language, text in BLOCKS if language == "properties")
    assert configuration(tmp_path).with_properties(properties).unstable_api_versions_enable


@pytest.mark.parametrize("recipe", RECIPES, ids=["competing workers", "a bad job"])
def test_a_recipe(tmp_path: Path, recipe: str) -> None:
    pytest.importorskip("confluent_kafka")
    script = tmp_path / "recipe.py"
    script.write_text(recipe)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
