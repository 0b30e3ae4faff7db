"""A schema registry on loopback, for tests: as much of Confluent's API as serializers and readers use."""

from __future__ import annotations

import json
import ssl
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Answer = tuple[int, Any]

NOT_FOUND: Answer = (404, {"error_code": 40403, "message": "Schema not found"})


@dataclass
class Registry:
    """Schemas by id; ``asked`` has the path of each request."""

    url: str = ""
    authorization: str | None = None
    """Other requests are refused."""
    knows_serialized: bool = True
    fails_with: int | None = None
    """A status that answers everything."""
    schemas: list[dict[str, Any]] = field(default_factory=list)
    versions: dict[str, list[int]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def add(
        self, subject: str, schema: str, kind: str = "AVRO", references: tuple[tuple[str, str, int], ...] = ()
    ) -> int:
        """Register a schema; its id. A Protobuf schema is its file descriptor in base64."""
        named = [{"name": name, "subject": other, "version": version} for name, other, version in references]
        return int(self._register(subject, {"schema": schema, "schemaType": kind, "references": named})["id"])

    def _register(self, subject: str, given: Mapping[str, Any]) -> dict[str, Any]:
        kind, references = given.get("schemaType") or "AVRO", given.get("references") or []
        document = {"schema": given["schema"], "schemaType": kind, "references": references}
        if document not in self.schemas:
            self.schemas.append(document)
        schema_id = self.schemas.index(document) + 1
        versions = self.versions.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return self._described(subject, schema_id)

    def _described(self, subject: str, schema_id: int) -> dict[str, Any]:
        version = self.versions[subject].index(schema_id) + 1
        guid = str(uuid.UUID(int=schema_id))
        return {"subject": subject, "id": schema_id, "guid": guid, "version": version, **self.schemas[schema_id - 1]}

    def answer(self, method: str, target: str, body: bytes, authorization: str | None) -> Answer:
        """The status and document of an answer."""
        self.asked.append(target)
        if self.fails_with is not None:
            return self.fails_with, {"error_code": self.fails_with, "message": "broken"}
        if self.authorization is not None and authorization != self.authorization:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        parts = urlsplit(target)
        serialized = parse_qs(parts.query).get("format") == ["serialized"]
        match (method, *[unquote(part) for part in parts.path.strip("/").split("/")]):
            case ("GET", "schemas", "ids", number):
                return self._schema(int(number), serialized)
            case ("GET", "schemas", "guids", guid):
                return self._schema(uuid.UUID(guid).int, serialized)
            case ("GET", "subjects"):
                return 200, sorted(self.versions)
            case ("POST", "subjects", subject, "versions"):
                return 200, self._register(subject, json.loads(body))
            case ("POST", "subjects", subject):
                return 200, self._register(subject, json.loads(body))
            case ("GET", "subjects", subject, "versions", version):
                known = self.versions.get(subject, [])
                if not 0 < int(version) <= len(known):
                    return NOT_FOUND
                return 200, self._shown(self._described(subject, known[int(version) - 1]), serialized)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _schema(self, schema_id: int, serialized: bool) -> Answer:
        if not 0 < schema_id <= len(self.schemas):
            return NOT_FOUND
        return 200, self._shown(self.schemas[schema_id - 1], serialized)

    def _shown(self, document: Mapping[str, Any], serialized: bool) -> dict[str, Any]:
        shown = dict(document)
        if shown["schemaType"] == "PROTOBUF" and not (serialized and self.knows_serialized):
            shown["schema"] = 'syntax = "proto3"; // the text'
        if shown["schemaType"] == "AVRO":
            del shown["schemaType"]  # as the real one does
        return shown


@contextmanager
def running_registry(context: ssl.SSLContext | None = None) -> Iterator[Registry]:
    """A registry that serves in a thread."""
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, document = registry.answer(self.command, self.path, body, self.headers.get("Authorization"))
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _answer

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that goes away, or does not trust the certificate."""

    server = Server(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    registry.url = f"{'http' if context is None else 'https'}://localhost:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
