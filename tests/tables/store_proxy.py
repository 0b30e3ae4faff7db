"""An HTTP server before another one, which is slow, refuses, answers late, drops answers and repeats requests."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.patience import LONG


class Fault(Enum):
    """What happens to a request."""

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


Chooses = Callable[[str, str], Fault]
"""What happens to a method and a path."""


class Proxy:
    """The address of a proxy, and ``choose``, which says what happens to each request."""

    def __init__(self, upstream: tuple[str, int], slow_seconds: float, late_seconds: float) -> None:
        self.choose: Chooses = lambda method, path: Fault.NONE
        self.faults: list[Fault] = []
        """Those that have come, in order."""
        proxy, stopped = self, threading.Event()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _any(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                fault = proxy.choose(self.command, self.path)
                if fault is not Fault.NONE:
                    proxy.faults.append(fault)
                if fault is Fault.AWAY:
                    self.close_connection = True
                    return
                if fault in (Fault.REFUSE, Fault.UNKNOWN):
                    self._answer(*_REFUSALS[fault])
                    return
                if fault is Fault.SLOW:
                    stopped.wait(slow_seconds)
                for _ in range(2 if fault is Fault.REPEAT else 1):
                    answer = self._forward(body, fault)
                if fault is Fault.DROP:
                    self.close_connection = True
                    return
                if fault is Fault.LATE:
                    stopped.wait(late_seconds)
                self._answer(*answer)

            def _forward(self, body: bytes, fault: Fault) -> tuple[int, list[tuple[str, str]], bytes]:
                connection = http.client.HTTPConnection(*upstream, timeout=LONG)
                left_out = {"connection", "expect"} | ({"if-none-match"} if fault is Fault.UNCONDITIONAL else set())
                headers = {name: each for name, each in self.headers.items() if name.lower() not in left_out}
                try:
                    connection.request(self.command, self.path, body or None, headers)
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
                try:
                    self.wfile.write(body)
                except OSError:
                    self.close_connection = True

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _any

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Clients that have gone are no error."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._stopped = stopped

    @property
    def url(self) -> str:
        """The address for clients."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextmanager
    def serving(self) -> Iterator[Proxy]:
        """Serve until the block ends."""
        self._thread.start()
        try:
            yield self
        finally:
            self._stopped.set()
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()


def _refusal(code: str) -> tuple[list[tuple[str, str]], bytes]:
    text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>as a test wants it</Message></Error>"
    return [("Content-Type", "application/xml")], text.encode()


_REFUSALS = {Fault.REFUSE: (503, *_refusal("SlowDown")), Fault.UNKNOWN: (501, *_refusal("NotImplemented"))}


def proxy_before(upstream: str, *, slow_seconds: float = 0.05, late_seconds: float = 1.0) -> Proxy:
    """Returns a proxy before the server at an address ``HOST:PORT``."""
    host, _, port = upstream.rpartition(":")
    return Proxy((host, int(port)), slow_seconds, late_seconds)
