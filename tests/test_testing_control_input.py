"""Refuses what is wrong, and tells its table to programs: the control's input and its OpenAPI document."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.errors import FatalError
from kbroker.testing import running_broker
from kbroker.testing.control.openapi import document
from kbroker.testing.control.routes import Verb, verbs
from kbroker.testing.control.server import ControlServer
from tests.control_client import Control, Place, conforms
from tests.patience import LONG

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def one() -> Iterator[Place]:
    with running_broker() as broker, ControlServer(broker, ("127.0.0.1", 0)) as server:
        yield Place(broker, Control(server.url))


def problems_of(place: Place, method: str, path: str, body: bytes | None) -> int:
    """The status of what is wrong, which is told in one line."""
    status, told = place.control.raw(method, path, body)
    assert 400 <= status < 500, (method, path, body, told)
    assert told is None or ("\n" not in told["error"] and 0 < len(told["error"]) < 500), told
    return status


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/nowhere", None, 404),
        ("GET", "/faults/0", None, 405),
        ("POST", "/faults/dorp", b"{}", 404),
        ("PUT", "/faults", b"{}", 405),
        ("DELETE", "/faults/-1", None, 400),
        ("DELETE", "/faults/x", None, 400),
        ("DELETE", "/faults/7", None, 404),
        ("GET", "/injections?from=1", None, 400),
        ("GET", "/injections?after=x", None, 400),
        ("GET", "/requests?client_id=(", None, 400),
        ("POST", "/faults/drop?api=Fetch", b"{}", 400),
        ("POST", "/faults/drop", None, 400),
        ("POST", "/faults/drop", b"[]", 400),
        ("POST", "/faults/drop", b"{", 400),
        ("POST", "/faults/drop", b"\xff", 400),
        ("POST", "/faults/drop", b"[" * 60_000, 400),
        ("POST", "/faults/drop", b" " * 10_000_000, 413),
        ("POST", "/faults/drop", b'{"api": "Fetsch"}', 400),
        ("POST", "/faults/drop", b'{"api": "BrokerHeartbeat"}', 400),
        ("POST", "/faults/drop", b'{"api": "Fetch", "when": "during"}', 400),
        ("POST", "/faults/drop", b'{"api": "Fetch", "times": true}', 400),
        ("POST", "/faults/drop", b'{"api": "Fetch", "times": 1.5}', 400),
        ("POST", "/faults/drop", b'{"api": "Fetch", "probability": NaN}', 400),
        ("POST", "/faults/drop", b'{"api": "Fetch", "probability": 1e999}', 400),
        ("POST", "/faults/drop", b'{"api": "Produce", "followers": true}', 400),
        ("POST", "/faults/drop", b'{"api": "Fetch", "client_id": "("}', 400),
        ("POST", "/faults/delay", b'{"api": "Fetch", "seconds": -1}', 400),
        ("POST", "/faults/error", b'{"api": "Fetch", "code": "NONE"}', 400),
        ("POST", "/topics/a%2Fb/expire", None, 400),
        ("POST", "/topics/%ff/expire", None, 400),
        ("POST", "/topics/a/expire", b'{"topic": "b"}', 400),
        ("POST", "/topics/a/recreate", b'{"partitions": 100000000}', 400),
        ("POST", "/wait/group", b'{"group": ""}', 400),
        ("POST", "/wait/group", b'{"group": "g", "state": "Nonsense"}', 400),
        ("POST", "/wait/group", b'{"group": "\\ud800", "timeout": 0}', 400),
        ("POST", "/nodes/1/dance", None, 400),
        ("POST", "/faults/0/take", b"{}", 404),
        ("POST", "/faults/0/decide", b'{"request": 0, "action": "pass"}', 404),
        ("POST", "/faults/0/decide", b'{"request": 0, "action": "answer", "body": "="}', 400),
        ("POST", "/clock/advance", b'{"seconds": "1"}', 400),
        ("POST", "/clock/advance", b'{"seconds": -1}', 400),
    ],
)
def test_what_is_wrong_changes_nothing(one: Place, method: str, path: str, body: bytes | None, status: int) -> None:
    before = one.do("GET", "/")
    assert problems_of(one, method, path, body) == status
    assert one.do("GET", "/") == before


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
names = sorted({each.name for verb in verbs() for each in verb.parameters})


objects = st.dictionaries(st.sampled_from(names), values, min_size=1)


@given(verb=st.sampled_from(verbs()), arguments=objects, nonsense=values)
def test_nonsense_is_refused(one: Place, verb: Verb, arguments: dict[str, Any], nonsense: Any) -> None:
    path = verb.path
    for name in verb.in_path:
        path = path.replace(f"{{{name}}}", "nothing")
    arguments = {**arguments, "nonsense": nonsense}
    if verb.method == "GET":
        path += "?nonsense=1"
    body = json.dumps(arguments).encode()
    assert problems_of(one, verb.method, path, body) == 400


def allowed(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that a schema of an argument allows."""
    if "anyOf" in schema:
        return st.one_of(*map(allowed, schema["anyOf"]))
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("format") == "regex":
        return st.sampled_from(["", "^mine$", "a|b"])
    match schema["type"]:
        case "string" if schema.get("contentEncoding") == "base64":
            return st.binary(max_size=20).map(lambda data: base64.b64encode(data).decode())
        case "string":
            return st.from_regex(schema["pattern"], fullmatch=True) if "pattern" in schema else st.text(max_size=20)
        case "integer":
            return st.integers(schema.get("minimum"), schema.get("maximum"))
        case "number":
            return st.floats(schema["minimum"], schema["maximum"], allow_nan=False)
        case "boolean":
            return st.booleans()
    return st.none()


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    return [(method, path, each) for path, found in document()["paths"].items() for method, each in found.items()]


@given(operation=st.sampled_from(operations()), data=st.data())
def test_what_the_document_allows_is_understood(
    one: Place, operation: tuple[str, str, dict[str, Any]], data: st.DataObject
) -> None:
    method, path, told = operation
    query = {}
    for each in told["parameters"]:
        value = data.draw(allowed(each["schema"]))
        if each["in"] == "path":
            path = path.replace(f"{{{each['name']}}}", quote(str(value), safe=""))
        elif value is not None:
            query[each["name"]] = str(value).lower() if isinstance(value, bool) else str(value)
    body = None
    if "requestBody" in told:
        schema = told["requestBody"]["content"]["application/json"]["schema"]
        needed = {name: allowed(schema["properties"][name]) for name in schema["required"]}
        others = {name: allowed(each) for name, each in schema["properties"].items() if name not in needed}
        arguments = data.draw(st.fixed_dictionaries(needed, optional=others))
        if "timeout" in schema["properties"]:
            arguments["timeout"] = 0
        if arguments.get("followers"):
            arguments["followers"] = False  # for three APIs alone
        body = json.dumps(arguments).encode()
    status, answer = one.control.raw(method.upper(), f"{path}?{urlencode(query)}" if query else path, body)
    too_busy = status == 503 and "in time" in answer["error"]  # who waits for 0 seconds gives a node one to answer
    assert status in (200, 404, 409, 504) or too_busy, (operation[:2], body, answer)
    schema = told["responses"][str(status)]["content"]["application/json"]["schema"]
    named = document()["components"]["schemas"]
    assert conforms(answer, schema, named) if status == 200 else answer["error"], answer
    one.do("POST", "/clock/start")
    one.do("DELETE", "/faults")


@given(st.binary(max_size=300))
def test_bytes_that_are_no_request_end_their_connection(one: Place, nonsense: bytes) -> None:
    address = one.control.host, one.control.port
    with socket.create_connection(address, timeout=LONG) as stream, contextlib.suppress(OSError):
        stream.sendall(nonsense)
        stream.shutdown(socket.SHUT_WR)
        while stream.recv(4096):
            pass
    one.do("GET", "/clock")


def test_the_document_is_the_table(one: Place) -> None:
    told = one.do("GET", "/openapi.json")
    assert told == json.loads(json.dumps(document()))
    operations = {(method.upper(), path) for path, each in told["paths"].items() for method in each}
    assert operations == {(verb.method, verb.path) for verb in verbs()}
    assert len({each["operationId"] for path in told["paths"].values() for each in path.values()}) == len(verbs())
    for path in told["paths"].values():
        for operation in path.values():
            assert operation["summary"].endswith(".") and "``" not in operation["summary"]
    text = json.dumps(told)
    for name in told["components"]["schemas"]:
        assert f"#/components/schemas/{name}" in text


def test_pages_of_other_sites_are_refused(one: Place) -> None:
    for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert one.control.raw("POST", "/reset", None, **headers)[0] == 403


def test_a_token_is_asked_for(one: Place) -> None:
    with ControlServer(one.target, ("127.0.0.1", 0), "s3cret") as server:
        assert Control(server.url).ask("GET", "/")[0] == 401
        assert Control(server.url).ask("GET", "/openapi.json")[0] == 401
        assert Control(server.url, "s3cre").ask("POST", "/reset")[0] == 401
        assert Control(server.url, "s3cret").ask("GET", "/")[0] == 200


def test_an_address_that_is_taken(one: Place) -> None:
    assert one.control.port is not None
    with pytest.raises(FatalError, match="control: "):
        ControlServer(one.target, ("127.0.0.1", one.control.port)).start()
