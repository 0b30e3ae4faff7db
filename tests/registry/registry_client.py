"""A client of a registry: HTTP and JSON, nothing else."""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from tests.patience import LONG


class Asked:
    """Asks one registry."""

    def __init__(self, url: str, headers: dict[str, str] | None = None) -> None:
        self.url = url
        self.headers = headers or {}

    def raw(self, method: str, target: str, body: Any = None) -> tuple[int, bytes]:
        """The status and the bytes of an answer."""
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url + quote(target, safe="/?&=:"), data, self.headers, method=method)
        try:
            with urlopen(request, timeout=LONG) as answer:
                return answer.status, answer.read()
        except HTTPError as error:
            return error.code, error.read()

    def __call__(self, method: str, target: str, body: Any = None) -> Any:
        """The JSON of what can be done."""
        status, answer = self.raw(method, target, body)
        assert status == 200, answer
        return json.loads(answer)

    def error(self, method: str, target: str, body: Any = None) -> tuple[int, int, str]:
        """The status of a refusal, and its code and its one line."""
        status, answer = self.raw(method, target, body)
        told = json.loads(answer)
        assert status >= 400 and "\n" not in told["message"], answer
        return status, told["error_code"], told["message"]

    def register(self, subject: str, schema: Any, kind: str | None = None, *references: tuple[str, str, int]) -> int:
        """Register a schema; its id."""
        return int(self("POST", f"/subjects/{subject}/versions", schema_body(schema, kind, *references))["id"])


def schema_body(schema: Any, kind: str | None = None, *references: tuple[str, str, int]) -> dict[str, Any]:
    """A schema as it is sent."""
    body: dict[str, Any] = {"schema": schema if isinstance(schema, str) else json.dumps(schema)}
    if kind is not None:
        body["schemaType"] = kind
    if references:
        body["references"] = [{"name": name, "subject": subject, "version": each} for name, subject, each in references]
    return body


def record(name: str, /, **fields: Any) -> dict[str, Any]:
    """A record of Avro; a field's type is a type, or a pair of a type and a default."""
    made = []
    for field, kind in fields.items():
        made.append(
            {"name": field} | ({"type": kind[0], "default": kind[1]} if isinstance(kind, tuple) else {"type": kind})
        )
    return {"type": "record", "name": name, "fields": made}
