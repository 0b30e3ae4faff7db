"""A node in a process of its own, as the pages of docs/ tell their readers to start it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.patience import LONG


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
