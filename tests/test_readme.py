"""Every fenced block of the README is run, against a node started as the README says."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FAST_START, find_kafka_home
from tests.page_node import ROOT, with_command
from tests.patience import LONG

INSTALLED = os.environ.get("KBROKER_RECIPES_PYTHON")
"""A Python with kbroker installed, for `make dist`: the recipes run there."""
PYTHON = INSTALLED or sys.executable
TEXT = (ROOT / "README.md").read_text("utf-8")
RECIPES = re.findall(r"^### ([^\n]+)\n|^```(python|sh)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def cases() -> Iterator[Any]:
    """The recipes, those that start a JVM marked so."""
    for title, language, text in recipes():
        marks = [pytest.mark.spark] if needs_spark(text) else [pytest.mark.kafka] if "kafka-topics.sh" in text else []
        yield pytest.param(title, language, text, marks=marks)


def needs_spark(text: str) -> bool:
    """Whether a recipe starts a JVM with Spark, by itself or by what it imports."""
    return "pyspark" in text or "spark_examples" in text or "kbroker.testing.spark" in text


def recipes() -> Iterator[tuple[str, str, str]]:
    """(title of the section, language, text)."""
    title = ""
    for heading, language, text in RECIPES:
        title = heading or title
        if language:
            yield title, language, text


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str, dict[str, str]]]:
    """Directory of a node that was started in it, its address, and the environment of a user."""
    directory = tmp_path_factory.mktemp("readme")
    commands = directory / "bin"
    environment = with_command(commands, PYTHON) | ({"PYTHONPATH": ""} if INSTALLED else {})
    kafka = find_kafka_home()
    if kafka is not None:
        java = f'java -Xmx128M {" ".join(FAST_START)} -cp "{kafka}/libs/*"'
        topics = f'#!/bin/sh\nexec {java} org.apache.kafka.tools.TopicCommand "$@" 2>&1\n'
        (commands / "kafka-topics.sh").write_text(topics)
        (commands / "kafka-topics.sh").chmod(0o755)
    process = subprocess.Popen(
        [str(commands / "kbroker"), "start", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=directory,
        env=environment,
    )
    assert process.stdout is not None
    try:
        address = process.stdout.readline().split()[-1]
        yield directory, address, environment | {"KBROKER_BOOTSTRAP": address}
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(2 * LONG) == 0
        process.stdout.close()


@pytest.mark.parametrize(("title", "language", "text"), list(cases()), ids=lambda value: str(value)[:30].split("\n")[0])
def test_recipe(node: tuple[Path, str, dict[str, str]], title: str, language: str, text: str) -> None:
    directory, address, environment = node
    if language == "python" and needs_spark(text):
        pytest.importorskip("pyspark", reason="the `spark` extra is not installed")
    for module in re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE) if language == "python" else ():
        # What is installed for `make dist` is to be enough for each recipe.
        if not INSTALLED and importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    for program in re.findall(r"^(?:.*\| )?([a-z-]+(?:\.sh)?) ", text, re.MULTILINE) if language == "sh" else ():
        if shutil.which(program, path=environment["PATH"]) is None:
            pytest.skip(f"{program} is not installed")
    text = text.replace("127.0.0.1:9092", address)
    path = directory / ("test_recipe.py" if language == "python" else "recipe.sh")
    path.write_text(text)
    if language == "sh":
        command = ["sh", "-eu", str(path)]
    elif "def test_" in text:
        command = [PYTHON, "-m", "pytest", "-q", "-p", "kbroker.pytest_plugin", "--rootdir", str(directory)]
        command.append(str(path))
    else:
        command = [PYTHON, "-W", "error::DeprecationWarning:__main__", str(path)]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=2 * LONG)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_command_and_property_that_the_readme_names_exists() -> None:
    from kbroker.config import BROKER_CONFIGS, TOPIC_CONFIGS
    from kbroker.tools.cli import build_parser

    lines = [line for _, language, text in recipes() if language == "sh" for line in text.splitlines()]
    lines += re.findall(r"^ {4}(kbroker .*)", TEXT, re.MULTILINE) + re.findall(r"`(kbroker [^`\n]*[^`:])`", TEXT)
    pieces = [piece.strip() for line in lines for piece in re.split(r"\||&&|[^-]#", line)]
    commands = [shlex.split(piece)[1:] for piece in pieces if piece.startswith("kbroker ")]
    assert len(commands) > 8
    for words in commands:
        if words[0] == "ready:":
            continue
        parser, rest = build_parser(words)
        parser.parse_args(rest)  # exits with what is wrong
    for name in re.findall(r"^([a-z]+(?:\.[a-z]+)+)=|-o ([a-z]+(?:\.[a-z]+)+)=", TEXT, re.MULTILINE):
        assert (name[0] or name[1]) in BROKER_CONFIGS or (name[0] or name[1]) in TOPIC_CONFIGS


def test_every_make_target_that_the_readme_names_exists() -> None:
    targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"(?:^ {4}|`)make ([a-z0-9-]+)", TEXT, re.MULTILINE)) <= set(targets)


def test_every_page_that_the_readme_names_exists() -> None:
    named = re.findall(r"\]\(([a-zA-Z_/]+\.md)\)", TEXT)
    assert len(named) > 15
    for name in named:
        assert (ROOT / name).is_file(), name
    # The generator's own page and those of releases to come aside, every page is named.
    assert {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")} <= set(named)


def test_the_readme_counts_the_apis_that_are_served() -> None:
    from kbroker.handlers.registration import BOTH, registrations

    assert f"lists the {len(registrations(BOTH))} APIs that are served" in " ".join(TEXT.split())
