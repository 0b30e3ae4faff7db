"""A client of the control, as a test in another language would have one: HTTP and JSON, nothing else."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.patience import LONG

ROOT = Path(__file__).parents[1]


class Control:
    """Asks one control."""

    def __init__(self, url: str, token: str | None = None) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self.host, self.port = parts.hostname, parts.port
        self.headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def raw(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any]:
        """The status, and the answer's JSON."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=2 * LONG)
        try:
            connection.request(method, path, body, self.headers | headers)
            response = connection.getresponse()
            assert response.headers["Content-Type"] == "application/json"
            text = response.read()
            return response.status, json.loads(text) if text else None
        finally:
            connection.close()

    def ask(self, method: str, path: str, **arguments: Any) -> tuple[int, Any]:
        """The same of arguments as JSON."""
        return self.raw(method, path, json.dumps(arguments).encode() if arguments else None)

    def do(self, method: str, path: str, **arguments: Any) -> Any:
        """The answer to what can be done."""
        status, document = self.ask(method, path, **arguments)
        assert status == 200, document
        return document


@contextmanager
def command(*words: str, cwd: Path) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """``kbroker`` with a control: the process, the control's URL and where clients connect."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kbroker", *words],
        cwd=cwd,
        env={"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        url = ""
        for line in process.stdout:
            what, _, rest = line.strip().partition(": ")
            url = rest if what == "kbroker control" else url
            if what == "kbroker ready":
                yield process, url, rest
                break
        else:
            raise AssertionError(f"it ended with {process.wait()}")
    finally:
        process.terminate()
        assert process.wait(2 * LONG) == 0
        process.stdout.close()
