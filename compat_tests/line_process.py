"""A client in a process of its own that takes commands on standard input and answers, a line of JSON each."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.patience import SHORT

_ROOT = Path(__file__).resolve().parents[1]
_KEPT_LINES = 200


def command_of(client: str, java: Path, script: Path, module: str) -> tuple[list[str], dict[str, str]]:
    """The command of a client's program, and what it needs in its environment.

    `java` is the program's source for the Java client, `script` that for KafkaJS; `module` takes the name of any other
    client.
    """
    if client == "java":
        from compat_tests.java.client import program

        return program(java), {}
    if client == "kafkajs":
        from compat_tests.kafkajs.client import installed_modules

        return ["node", str(script)], {"NODE_PATH": str(installed_modules()), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    return [sys.executable, "-W", "ignore", "-m", module, client], {"PYTHONPATH": path}


class LineProcess:
    """The process of a client. The last lines of its standard error are kept for messages."""

    def __init__(self, client: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """`environment` is in addition to that of the tests."""
        self.client = client
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._said: list[str] = []
        threading.Thread(target=self._read_errors, daemon=True).start()

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._said.append(line)
            del self._said[:-_KEPT_LINES]

    @property
    def said(self) -> str:
        """The end of the client's standard error."""
        return "".join(self._said[-40:])

    def _send(self, command: Mapping[str, Any]) -> None:
        """Write a command. BrokenPipeError if the process has ended."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """End the process: it is asked to by the end of its input, and killed after ten seconds."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        try:
            self._process.wait(SHORT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
