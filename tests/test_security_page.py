"""Each block of docs/security/README.md is run in turn, against the secure cluster that the page starts."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.config import BrokerConfig
from kbroker.config.properties import parse_properties

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "security" / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^( *)```(\w+)\n(.*?)^ *```$", TEXT, re.MULTILINE | re.DOTALL)
pytestmark = pytest.mark.slow


@pytest.fixture
def place(tmp_path: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """The directory in which the page's cluster runs, and the environment of a user in it."""
    pytest.importorskip("cryptography")
    pytest.importorskip("confluent_kafka")
    assert "kbroker up -n 3 --secure" in BLOCKS[0][2]
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "kbroker"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kbroker "$@"\n')
    command.chmod(0o755)
    path = os.pathsep.join([str(tmp_path / "bin"), os.environ["PATH"]])
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PATH": path}
    process = subprocess.Popen(
        [str(command), "up", "-n", "3", "--secure", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=environment,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith("kbroker ready: ")
        yield tmp_path, environment
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        process.stdout.close()


def test_the_blocks_in_their_order(place: tuple[Path, dict[str, str]]) -> None:
    directory, environment = place
    told = []
    for indent, language, block in BLOCKS[1:]:
        text = re.sub(f"^{indent}", "", block, flags=re.MULTILINE)
        if language not in ("sh", "python"):
            continue
        command = ["sh", "-eu", "-c", text] if language == "sh" else [sys.executable, "-c", text]
        done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
        told.append(done.stdout)
    assert "two pizzas" in told[0] and "User:billing" in told[1] and told[2] == "two pizzas\n"
    assert "removed: " in told[3] and "kafka2.pem" in told[4]


def test_the_properties_are_those_of_a_node() -> None:
    (text,) = (
        re.sub("^ +", "", block, flags=re.MULTILINE) for _, language, block in BLOCKS if language == "properties"
    )
    config = BrokerConfig.from_properties(parse_properties(text))
    assert not config.unknown and not config.absent
    assert config.is_controller and len(config.controller_quorum_voters) == 3


def test_nodes_on_machines_of_their_own_are_one_cluster() -> None:
    # With --standalone on each node, each would be a cluster of its own.
    (text,) = (block for _, language, block in BLOCKS if language == "text" and "kbroker format" in block)
    assert "--standalone" not in text


def test_client_properties_are_those_of_the_client() -> None:
    from kbroker.client.properties import CLIENT_CONFIGS

    table = TEXT[TEXT.index("## Client properties") :]
    named = set()
    for cell in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE):
        whole, stem = "", ""
        for name in re.findall(r"`([^`]+)`", cell):
            whole = f"{stem}{name}" if name.startswith(".") else name
            named.add(whole)
            stem = stem if name.startswith(".") else name.rpartition(".")[0]
    assert named == set(CLIENT_CONFIGS)
