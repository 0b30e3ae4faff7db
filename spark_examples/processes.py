"""``kbroker`` as a process beside a script: started, waited for, and ended with the script."""

from __future__ import annotations

import contextlib
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

from kbroker.testing.spark import SetupError
from kbroker.tools.cli.child import running_kbroker

START_SECONDS = 120.0


@contextlib.contextmanager
def process(*words: str, log: Path, stop_seconds: float = 30) -> Iterator[subprocess.Popen[str]]:
    """``kbroker`` with these words until the block ends; what it logs goes to a file.

    With ``--until-eof`` among them it ends with the script, even if that is killed.
    """
    with log.open("wb") as errors, running_kbroker(*words, stop_seconds=stop_seconds, stderr=errors) as running:
        yield running


def first_match(running: subprocess.Popen[str], pattern: str, log: Path) -> str:
    """The group of the first line that matches. ``SetupError`` with what was logged if none comes."""
    assert running.stdout is not None
    limit = threading.Timer(START_SECONDS, running.kill)
    limit.start()
    try:
        for line in running.stdout:
            found = re.search(pattern, line)
            if found:
                return found[1]
    finally:
        limit.cancel()
    raise SetupError(f"kbroker did not start:\n{log.read_text(errors='replace')[-2000:]}")
