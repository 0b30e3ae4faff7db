"""A receiver of OTLP over HTTP for tests: it decodes with OpenTelemetry's own messages, or behaves badly."""

from __future__ import annotations

import contextlib
import gzip
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

LIMIT = 120.0
"""Seconds that only a broken program needs."""

Key = tuple[str, tuple[tuple[str, Any], ...]]
"""Name and attributes of a value."""


class Receiver:
    """A receiver of OTLP on loopback; it keeps all metrics that came in, by node."""

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.behave: Callable[[BaseHTTPRequestHandler], None] | None = None
        """A callable that treats each request in place of the receiver."""
        self.requests = 0
        """All, those that were not received too."""
        self.paths: set[str] = set()
        self.headers: dict[str, str] = {}
        self.resources: dict[str, dict[str, Any]] = {}
        self.metrics: dict[str, dict[str, Any]] = {}
        """By node and name: the last message ``Metric`` of the name."""
        self.values: dict[str, dict[Key, Any]] = {}
        """By node: the last point of each series."""
        self.looks: dict[str, int] = {}
        """By node: the number of its last figures."""

    def receive(self, request: ExportMetricsServiceRequest) -> None:
        for of_resource in request.resource_metrics:
            resource = {each.key: _plain(each.value) for each in of_resource.resource.attributes}
            node = resource["service.instance.id"]
            self.resources[node] = resource
            for scope in of_resource.scope_metrics:
                for metric in scope.metrics:
                    self.metrics.setdefault(node, {})[metric.name] = metric
                    for point in getattr(metric, metric.WhichOneof("data")).data_points:
                        attributes = tuple(sorted((each.key, _plain(each.value)) for each in point.attributes))
                        self.values.setdefault(node, {})[metric.name, attributes] = point
                    if metric.name == "kbroker_client_metrics_dropped_total":
                        self.looks[node] = self.looks.get(node, 0) + 1

    def await_that(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds of what came in."""
        with self.condition:
            assert self.condition.wait_for(condition, LIMIT)

    def await_look(self, *nodes: str) -> dict[str, dict[Key, Any]]:
        """Wait for an export of each node whose every value is of a time after this call; the ``values`` then."""
        with self.condition:
            seen = {node: self.looks.get(node, 0) for node in nodes or ("1",)}
            assert self.condition.wait_for(
                lambda: all(self.looks.get(node, 0) >= looks + 2 for node, looks in seen.items()), LIMIT
            )
            return {node: dict(values) for node, values in self.values.items()}

    def value(self, name: str, node: str = "1", **attributes: Any) -> float:
        """The last value of a series."""
        with self.condition:
            point = self.values[node][name, tuple(sorted(attributes.items()))]
        return number(point)


def number(point: Any) -> float:
    """The value of a point that is one number."""
    value: float = getattr(point, point.WhichOneof("value"))
    return value


def _plain(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))


@contextlib.contextmanager
def running_receiver(receiver: Receiver, port: int = 0) -> Iterator[str]:
    """Serve on the loopback interface; gives the endpoint."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            with receiver.condition:
                receiver.requests += 1
                receiver.paths.add(self.path)
                receiver.headers = {name.lower(): text for name, text in self.headers.items()}
                behave = receiver.behave
                if behave is None:
                    receiver.receive(ExportMetricsServiceRequest.FromString(body))
                receiver.condition.notify_all()
            if behave is not None:
                self.close_connection = True
                with contextlib.suppress(OSError):
                    behave(self)
                return
            answer = ExportMetricsServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *values: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        allow_reuse_address = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # an exporter that gave up

    server = Server(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def refuse(handler: BaseHTTPRequestHandler) -> None:
    """An error, with a text that wants to be in the log."""
    handler.send_error(500, "broken\x1b[31m")


def talk_nonsense(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"\x00\xff" * 5000)


def hang(handler: BaseHTTPRequestHandler) -> None:
    """Say nothing until the exporter gives up."""
    handler.connection.settimeout(LIMIT)
    handler.rfile.read(1)
