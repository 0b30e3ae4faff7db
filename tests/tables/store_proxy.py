"""An HTTP server before another one, which is slow, refuses, answers late, drops answers and repeats requests.

It is a process of its own: ``deltalake`` lets no other thread run while it waits for some of its requests.
"""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.patience import LONG

_CONTROL = "/control-of-the-proxy"


class Fault(Enum):
    """The fate of a request."""

    NONE = auto()
    SLOW = auto()
    """It is passed on after a while."""
    REFUSE = auto()
    """It is answered 503, and not passed on."""
    LATE = auto()
    """It is done, and answered when its client has given up."""
    DROP = auto()
    """It is done, and its answer lost."""
    REPEAT = auto()
    """It is done twice; the second answer is the answer."""
    AWAY = auto()
    """The connection ends before anything is done."""
    UNCONDITIONAL = auto()
    """It is done without its If-None-Match, as by a store that does not know such requests."""
    UNKNOWN = auto()
    """It is answered as by a store that knows such requests and has not got them."""


class Proxy:
    """A proxy that runs; `plan` says what happens to the requests from now on."""

    def __init__(self, url: str) -> None:
        self.url = url

    def plan(self, match: str, *faults: Fault, every: int = 1, again: bool = False) -> None:
        """Give each of ``every`` requests whose method and path match the next fault; at the end none, or ``again``."""
        told = {"match": match, "faults": [each.name for each in faults], "every": every, "again": again}
        self._control("PUT", json.dumps(told).encode())

    def came(self) -> list[Fault]:
        """Returns the faults that there were since `plan`, in order."""
        return [Fault[name] for name in json.loads(self._control("GET"))]

    def _control(self, method: str, body: bytes | None = None) -> bytes:
        with urllib.request.urlopen(urllib.request.Request(self.url + _CONTROL, body, method=method)) as answer:
            content: bytes = answer.read()
        return content


@contextmanager
def proxy_before(upstream: str, late_seconds: float = 3.0) -> Iterator[Proxy]:
    """A proxy before the server at an address ``HOST:PORT``."""
    words = [sys.executable, "-m", "tests.tables.store_proxy", upstream, str(late_seconds)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Proxy(process.stdout.readline().strip())
        finally:
            process.kill()


# --- The process -----------------------------------------------------------------------------------------------------


class _Plan:
    def __init__(self, match: str = "$.", faults: tuple[str, ...] = (), every: int = 1, again: bool = False) -> None:
        self._match = re.compile(match)
        self._faults = faults
        self._every = every
        self._again = again
        self._requests = self._given = 0
        self._lock = threading.Lock()
        self.came: list[str] = []

    def next(self, method: str, path: str) -> Fault:
        with self._lock:
            if not self._match.search(f"{method} {path}"):
                return Fault.NONE
            self._requests += 1
            if self._requests % self._every or not (self._again or self._given < len(self._faults)):
                return Fault.NONE
            name = self._faults[self._given % len(self._faults)]
            self._given += 1
            if name != "NONE":
                self.came.append(name)
            return Fault[name]


def _refusal(status: int, code: str) -> tuple[int, list[tuple[str, str]], bytes]:
    text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>as a test wants it</Message></Error>"
    return status, [("Content-Type", "application/xml")], text.encode()


_REFUSALS = {Fault.REFUSE: _refusal(503, "SlowDown"), Fault.UNKNOWN: _refusal(501, "NotImplemented")}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    upstream = ("", 0)
    late_seconds = 0.0
    plan = _Plan()

    def _any(self) -> None:
        body = self._body()
        if self.path == _CONTROL:
            if self.command == "PUT":
                _Handler.plan = _Plan(**json.loads(body))
            self._answer(200, [], json.dumps(_Handler.plan.came).encode())
            return
        fault = _Handler.plan.next(self.command, self.path)
        if fault is Fault.AWAY:
            self.close_connection = True
            return
        if fault is Fault.UNKNOWN and "If-None-Match" not in self.headers:
            fault = Fault.NONE
        if fault in _REFUSALS:
            self._answer(*_REFUSALS[fault])
            return
        if fault is Fault.SLOW:
            time.sleep(0.05)
        for _ in range(2 if fault is Fault.REPEAT else 1):
            answer = self._forward(body, fault)
        if fault is Fault.DROP:
            self.close_connection = True
            return
        if fault is Fault.LATE:
            time.sleep(self.late_seconds)
        self._answer(*answer)

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        found = bytearray()
        while size := int(self.rfile.readline().split(b";")[0], 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return bytes(found)

    def _forward(self, body: bytes, fault: Fault) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(*self.upstream, timeout=LONG)
        left_out = {"connection", "expect"} | ({"if-none-match"} if fault is Fault.UNCONDITIONAL else set())
        headers = {name: each for name, each in self.headers.items() if name.lower() not in left_out}
        try:
            is_chunked = "chunked" in self.headers.get("Transfer-Encoding", "")
            sent = iter([body]) if is_chunked else body or None
            connection.request(self.command, self.path, sent, headers, encode_chunked=is_chunked)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        own = {"connection", "transfer-encoding"} | (set() if self.command == "HEAD" else {"content-length"})
        for name, value in headers:
            if name.lower() not in own:
                self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _any

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 100

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is no error."""


def _main(upstream: str, late_seconds: str) -> None:
    host, _, port = upstream.rpartition(":")
    _Handler.upstream, _Handler.late_seconds = (host, int(port)), float(late_seconds)
    server = _Server(("127.0.0.1", 0), _Handler)
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    _main(*sys.argv[1:])
