"""``kbroker console`` as a process, and raw requests to it."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from tests.patience import LONG


@dataclass
class Answer:
    """An answer of HTTP."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return str(self.json["error"])


class ConsoleClient:
    """A browser's session with a console: the cookie and the token."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.cookie = ""
        self.csrf = ""

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str | None] | None = None
    ) -> Answer:
        """A request with exactly these headers and Host; None leaves one of those out that is sent otherwise."""
        sent: dict[str, str | None] = {"Host": self.host, **(headers or {})}
        connection = http.client.HTTPConnection(self.host, timeout=LONG)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in sent.items():
                if value is not None:
                    connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            connection.close()

    def enter(self) -> Any:
        """Begin a session, as the page does when it is loaded."""
        answer = self.request("GET", "/api/session", headers={"Cookie": self.cookie} if self.cookie else {})
        self._take(answer)
        return answer.json

    def _take(self, answer: Answer) -> None:
        if cookie := answer.headers.get("Set-Cookie"):
            self.cookie = cookie.split(";")[0]
        if answer.status == 200 and isinstance(answer.json, dict) and "csrf" in answer.json:
            self.csrf = answer.json["csrf"]

    def get(self, path: str, **params: object) -> Answer:
        """Ask as the page does."""
        if not self.cookie:
            self.enter()
        query = f"?{urlencode(params)}" if params else ""
        return self.request("GET", f"/api/{path}{query}", headers={"Cookie": self.cookie})

    def post(self, path: str, document: object, headers: Mapping[str, str | None] | None = None) -> Answer:
        """Change something as the page does."""
        if not self.cookie:
            self.enter()
        own = {
            "Cookie": self.cookie,
            "Origin": f"http://{self.host}",
            "Content-Type": "application/json",
            "X-CSRF-Token": self.csrf,
        }
        answer = self.request("POST", f"/api/{path}", json.dumps(document).encode(), {**own, **(headers or {})})
        self._take(answer)
        return answer

    @contextmanager
    def events(self, path: str) -> Iterator[Iterator[tuple[str, Any]]]:
        """Server-sent events as they come: (name, document)."""
        if not self.cookie:
            self.enter()
        connection = http.client.HTTPConnection(self.host, timeout=LONG)
        try:
            connection.request("GET", f"/api/{path}", headers={"Cookie": self.cookie})
            response = connection.getresponse()
            assert response.status == 200, response.read()
            yield _events(response)
        finally:
            connection.close()


def _events(response: http.client.HTTPResponse) -> Iterator[tuple[str, Any]]:
    name = ""
    while line := response.readline().decode():
        if line.startswith("event: "):
            name = line.removeprefix("event: ").strip()
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


class ConsoleProcess(ConsoleClient):
    """A console as a process, and a session with it."""

    def __init__(self, *words: str) -> None:
        command = [sys.executable, "-m", "kbroker", "console", "--listen", "127.0.0.1:0", *words]
        # A file, not a pipe: what was logged before an answer can be read when the answer has come.
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by `stop`
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._errors, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"http://(\S+?)/", line)
        assert found is not None, self.log
        super().__init__(found[1])

    @property
    def log(self) -> list[str]:
        """The lines of standard error so far."""
        size = os.fstat(self._errors.fileno()).st_size
        # Read beside the position, which is the process's own, too: it writes there.
        return os.pread(self._errors.fileno(), size, 0).decode().splitlines(keepends=True)

    def audit(self) -> list[dict[str, Any]]:
        """The audit log so far: the line of a request is there before its answer."""
        return [json.loads(line.removeprefix("audit ")) for line in self.log if line.startswith("audit ")]

    def stop(self) -> None:
        """End it by SIGTERM: it goes at once, and has logged nothing but its audit."""
        self.process.terminate()
        code = self.process.wait(LONG)
        assert self.process.stdout is not None
        self.process.stdout.close()
        log = self.log
        self._errors.close()
        assert code == 0, log
        assert [line for line in log if not line.startswith("audit ")] == []


@contextmanager
def console_process(*words: str) -> Iterator[ConsoleProcess]:
    """A console for the length of a block."""
    console = ConsoleProcess(*words)
    try:
        yield console
    finally:
        console.stop()
