"""``kbroker watch --web``: a page in the browser that shows what the command would."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Final
from urllib.parse import parse_qs, urlsplit

from kbroker.client.connected import connected_clients
from kbroker.client.explorer import ExplorerClient
from kbroker.errors import FatalError
from kbroker.observe.explorer.feed import Feed
from kbroker.observe.explorer.guard import may_ask
from kbroker.tools.cli.common import complain
from kbroker.version import __version__

FILES: Final = {
    "/": ("explorer.html", "text/html; charset=utf-8"),
    "/explorer.css": ("explorer.css", "text/css; charset=utf-8"),
    "/clients.js": ("clients.js", "text/javascript; charset=utf-8"),
    "/elements.js": ("elements.js", "text/javascript; charset=utf-8"),
    "/explorer.js": ("explorer.js", "text/javascript; charset=utf-8"),
    "/main.js": ("main.js", "text/javascript; charset=utf-8"),
}
PULSE_SECONDS: Final = 5.0
MAX_READERS: Final = 16
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'"
)


def serve_page(nodes: Sequence[ExplorerClient], port: int) -> None:
    """Serve the page on the loopback interface until all nodes have ended. ``FatalError`` if the port cannot be had."""
    feed = Feed()
    try:
        server = _Server(nodes, feed, port)
    except OSError as error:
        raise FatalError(f"cannot listen on 127.0.0.1:{port}: {error.strerror}") from None
    print(f"the explorer's page is on http://127.0.0.1:{server.server_port}/", flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        threads = [threading.Thread(target=_follow, args=(node, feed), daemon=True) for node in nodes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        server.shutdown()
        server.server_close()
    complain("the explorer has ended")


def _follow(node: ExplorerClient, feed: Feed) -> None:
    try:
        for item in node.items():
            if item is not None:
                feed.add(item, node.known_names)
    except Exception as error:
        complain(f"{node.address}: {error}")


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, nodes: Sequence[ExplorerClient], feed: Feed, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.nodes = nodes
        self.feed = feed
        self.readers = threading.BoundedSemaphore(MAX_READERS)

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that has gone is no news."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = f"kbroker/{__version__}"
    sys_version = ""
    timeout = 30

    def do_GET(self) -> None:
        """Answer a request."""
        try:
            url = urlsplit(self.path)
        except ValueError:
            self._send(400, "text/plain", b"this is no address\n")
            return
        feed = self.server.feed
        if not may_ask({name.lower(): value for name, value in self.headers.items()}, "127.0.0.1"):
            self._send(403, "text/plain", b"this address is not for pages of other sites, nor under other names\n")
        elif url.path in FILES:
            name, content_type = FILES[url.path]
            self._send(200, content_type, (files("kbroker.observe.explorer") / "static" / name).read_bytes())
        elif url.path == "/events":
            self._events()
        elif url.path == "/exchange":
            query = parse_qs(url.query)
            try:
                run = query.get("run", [""])[0]
                details = feed.details(int(query["node"][0]), run, int(query["number"][0]))
            except (KeyError, ValueError):
                details = None
            self._send_json(200 if details is not None else 404, details)
        elif url.path == "/clients":
            query = parse_qs(url.query)
            words, with_nodes = query.get("words", [""])[0], query.get("nodes") == ["1"]
            self._send_json(200, connected_clients(self.server.nodes, feed, words, with_nodes=with_nodes))
        elif url.path == "/saved.exchanges":
            self._send(200, "application/x-ndjson", "".join(feed.saved()).encode())
        else:
            self._send(404, "text/plain", b"there is no such page\n")

    def _events(self) -> None:
        if not self.server.readers.acquire(blocking=False):
            self._send(503, "text/plain", b"too many pages are open\n")
            return
        reader = self.server.feed.read()
        try:
            self._begin(200, "text/event-stream")
            self.end_headers()
            while True:
                self.wfile.write(reader.take(PULSE_SECONDS).encode())
                self.wfile.flush()
        except OSError:
            pass  # the page was closed
        finally:
            reader.close()
            self.server.readers.release()

    def _send_json(self, status: int, document: object) -> None:
        self._send(status, "application/json", json.dumps(document).encode())

    def _send(self, status: int, content_type: str, body: bytes) -> None:
        self._begin(status, content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _begin(self, status: int, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", _POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Referrer-Policy", "no-referrer")

    def log_message(self, format: str, *args: object) -> None:
        """Requests of the page are no news."""
