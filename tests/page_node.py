"""The pages of docs/: their blocks, the command as a reader has it, and a node as they tell to start it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.patience import LONG

ROOT = Path(__file__).parents[1]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}
FUNCTION = f'kbroker() {{ "{sys.executable}" -m kbroker "$@"; }}\n'
"""The command in a script of bash."""


def page(name: str) -> tuple[str, list[tuple[str, str]]]:
    """Returns the text of a page of docs/, and its blocks: the language and the content of each."""
    text = (ROOT / "docs" / name).read_text("utf-8")
    return text, re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def with_command(directory: Path, python: str = sys.executable) -> dict[str, str]:
    """Returns an environment with the command in its path, as pip would install it; it is written to a directory."""
    directory.mkdir()
    (directory / "kbroker").write_text(f'#!/bin/sh\nexec "{python}" -m kbroker "$@"\n')
    (directory / "kbroker").chmod(0o755)
    return ENVIRONMENT | {"PATH": os.pathsep.join([str(directory), os.environ["PATH"]])}


@contextlib.contextmanager
def started_node(directory: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    """A node of ``server.properties`` in the directory, from its ready line to its shutdown; gives its log's file."""
    path = directory / "log"
    with path.open("w") as log:
        node = subprocess.Popen(
            [sys.executable, "-m", "kbroker", "start", "-c", "server.properties"],
            cwd=directory,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            assert node.stdout is not None
            assert "kbroker ready" in node.stdout.readline(), path.read_text()
            yield path
        finally:
            node.send_signal(signal.SIGTERM)
            node.communicate(timeout=2 * LONG)
