"""The recipes of docs/containers.md are the files that compat_tests/testcontainers runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kbroker.tools.cli.kafka_tools import broker_api_versions, cluster, console_consumer, console_producer, topics
from kbroker.tools.cli.kafka_tools import consumer_groups as groups
from kbroker.tools.cli.kafka_tools.options import OF_ALL

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "containers.md").read_text("utf-8")
RECIPES = ROOT / "compat_tests" / "testcontainers"


@pytest.mark.parametrize(
    ("language", "name"),
    [("python", "python/recipe.py"), ("java", "java/src/test/java/KbrokerTest.java"), ("go", "go/kbroker_test.go")],
)
def test_a_recipe_is_the_file_that_is_run(language: str, name: str) -> None:
    [block] = re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert block == (RECIPES / name).read_text("utf-8")


def test_the_page_names_the_options_that_are_served() -> None:
    rows = dict(re.findall(r"^\| `(kafka-[a-z-]+)[^|]*\| (.*)\|$", TEXT, re.MULTILINE))
    modules = {
        "kafka-topics": topics,
        "kafka-broker-api-versions": broker_api_versions,
        "kafka-cluster": cluster,
        "kafka-consumer-groups": groups,
        "kafka-console-producer": console_producer,
        "kafka-console-consumer": console_consumer,
    }
    assert rows.keys() == modules.keys() | {"kafka-storage"}
    for tool, module in modules.items():
        assert set(re.findall(r"`--([a-z.-]+)`", rows[tool])) == module.OPTIONS.keys() - OF_ALL.keys(), tool
