"""docs/console.md says what the command takes, and the page is as its server promises."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest

from kbroker.client.records_io.record_filter import parse_filter
from kbroker.tools.cli import build_parser
from kbroker.tools.cli.console import add_arguments
from kbroker.tools.console.api.records import spark_code
from kbroker.tools.console.application import STATIC

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "console.md").read_text("utf-8")
SOURCES = sorted(path for path in STATIC.rglob("*") if path.suffix in (".js", ".html", ".css"))


@pytest.mark.parametrize("line", re.findall(r"^\$ kbroker (console .*)$", TEXT, re.MULTILINE))
def test_each_command_of_the_page_is_understood(line: str) -> None:
    parser, words = build_parser(shlex.split(line))
    parser.parse_args(words)


def test_each_option_is_described() -> None:
    parser = argparse.ArgumentParser()
    add_arguments("console", parser)
    options = {option for action in parser._actions for option in action.option_strings if option.startswith("--")}
    described = set(re.findall(r"(--[a-z-]+)", TEXT))
    assert options - described == {"--help", "--timeout", "--bootstrap-server"}


def test_each_filter_of_the_page_is_one() -> None:
    section = TEXT[TEXT.index("## The filter") : TEXT.index("## Live")]
    found = [
        text for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for text in re.findall(r"`([^`]+)`", row)
    ]
    assert len(found) > 10
    for text in found:
        assert parse_filter(text) is not None, text


def test_the_page_loads_nothing_from_elsewhere() -> None:
    assert len(SOURCES) > 15
    for path in SOURCES:
        text = path.read_text("utf-8")
        assert not re.search(r"""(src|href|from|import|url)\s*[=(]?\s*["']?(https?:)?//""", text), path
        for banned in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
            assert banned not in text, (path, banned)


def test_the_page_is_in_the_wheel() -> None:
    """Hatchling takes whatever is below the package and not ignored."""
    ignored = (ROOT / ".gitignore").read_text("utf-8").split()
    assert not any(path.suffix in entry or path.name == entry for path in SOURCES for entry in ignored)


def test_code_for_spark_is_python_whatever_the_names() -> None:
    for partitions in (1, 2):
        code = spark_code("host:1,\"x'", "a'b", {0: 1}, {0: 9}, partitions=partitions, secured=True)
        compile(code, "spark.py", "exec")
        assert ('"subscribe"' in code, '"assign"' in code) == (partitions == 1, partitions == 2)
