"""The registry's API, as clients meet it: what it answers, and what it refuses with which code."""

from __future__ import annotations

import base64
import importlib.util
import json
import socket
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from kbroker.registry.server import RegistryServer
from kbroker.testing import RunningBroker
from tests.patience import LONG
from tests.registry.registry_client import Asked, record, schema_body

for package in ("fastavro", "h11", "google.protobuf", "jsonschema"):
    pytest.importorskip(package, reason=f"{package} is not installed")

CUSTOMER = record("shop.Customer", name="string")
ORDER = record("shop.Order", customer="shop.Customer")


@pytest.fixture
def ask(kafka_broker: RunningBroker) -> Iterator[Asked]:
    yield Asked(kafka_broker.registry_url)


@pytest.fixture
def subject() -> str:
    return f"s_{uuid.uuid4().hex[:8]}"


def test_a_schema_is_registered_once(ask: Asked, subject: str) -> None:
    order = record(subject, a="int")
    told = ask("POST", f"/subjects/{subject}/versions", schema_body(order))
    first, version = told["id"], told["version"]
    assert version == 1
    spaced = json.dumps(dict(reversed(order.items())), indent=2).replace('"int"', '{"type": "int"}')
    assert ask.register(subject, spaced) == first and ask.register(f"{subject}-2", order) == first
    wider = record(subject, a="int", b=("long", 0))
    assert ask.register(subject, wider) > first
    assert ask("GET", f"/subjects/{subject}/versions") == [1, 2]
    latest = ask("GET", f"/subjects/{subject}/versions/latest")
    assert (latest["subject"], latest["version"], json.loads(latest["schema"])) == (subject, 2, wider)
    assert "schemaType" not in latest and "references" not in latest
    assert ask("GET", f"/subjects/{subject}/versions/-1")["version"] == 2
    assert json.loads(ask.raw("GET", f"/subjects/{subject}/versions/1/schema")[1]) == order
    assert json.loads(ask("GET", f"/schemas/ids/{first}")["schema"]) == order
    assert json.loads(ask.raw("GET", f"/schemas/ids/{first}/schema")[1]) == order
    assert ask("GET", f"/schemas/ids/{first}/subjects") == sorted([subject, f"{subject}-2"])
    assert ask("GET", f"/schemas/ids/{first}/versions") == [
        {"subject": subject, "version": 1},
        {"subject": f"{subject}-2", "version": 1},
    ]
    assert ask("GET", f"/schemas/ids/{first}?fetchMaxId=true")["maxId"] >= latest["id"]
    assert ask("GET", f"/schemas/guids/{latest['guid']}")["schema"] == latest["schema"]
    assert subject in ask("GET", "/subjects") and ask("GET", "/schemas/types") == ["AVRO", "JSON", "PROTOBUF"]
    assert ask("GET", f"/subjects?subjectPrefix={subject}&offset=1&limit=1") == [f"{subject}-2"]
    found = ask("GET", f"/schemas?subjectPrefix={subject}&latestOnly=true")
    assert [(each["subject"], each["version"]) for each in found] == [(subject, 2), (f"{subject}-2", 1)]
    assert ask("GET", "/contexts") == ["."] and ask("GET", "/") == {}


def test_a_schema_in_another_layout_has_its_id_in_other_subjects(ask: Asked, subject: str) -> None:
    """And the text of that id: a topic in which an id has two texts has two schemas, one of which is set aside."""
    first = ask.register(subject, record(subject, x={"type": "int"}))
    imported = schema_body(record(subject, x="int")) | {"id": first}
    ask("PUT", f"/mode/{subject}-3", {"mode": "IMPORT"})
    assert ask.register(f"{subject}-2", record(subject, x="int")) == first
    assert ask("POST", f"/subjects/{subject}-3/versions", imported)["id"] == first
    for other in (f"{subject}-2", f"{subject}-3"):
        assert ask("GET", f"/subjects/{other}/versions") == [1]
        assert ask("POST", f"/subjects/{other}", schema_body(record(subject, x="int")))["id"] == first
    assert ask.error("POST", f"/subjects/{subject}-2/versions", schema_body(record(subject, x="string")))[0] == 409


def test_a_schema_is_looked_up(ask: Asked, subject: str) -> None:
    order = record(subject, a="int")
    assert ask.error("POST", f"/subjects/{subject}", schema_body(order))[1] == 40401
    known = ask.register(subject, order)
    found = ask("POST", f"/subjects/{subject}", schema_body(json.dumps(order, indent=1)))
    assert (found["id"], found["version"], found["subject"]) == (known, 1, subject)
    assert ask.error("POST", f"/subjects/{subject}", schema_body('"int"'))[:2] == (404, 40403)


def test_normalize(ask: Asked, subject: str) -> None:
    text = '{"type":"record","name":"B","namespace":"a","fields":[{"type":{"type":"int"},"name":"x"}]}'
    normal = '{"fields":[{"name":"x","type":"int"}],"name":"a.B","type":"record"}'
    ask("PUT", f"/config/{subject}", {"normalize": True, "compatibility": "NONE"})
    ask.register(subject, text)
    assert ask("GET", f"/subjects/{subject}/versions/1")["schema"] == normal
    other = text.replace('"x"', '"y"')
    ask("POST", f"/subjects/{subject}-2/versions?normalize=true", schema_body(other))
    assert ask("GET", f"/subjects/{subject}-2/versions/1")["schema"] == normal.replace('"x"', '"y"')


def test_levels_decide_what_may_be_registered(ask: Asked, subject: str) -> None:
    place = f"/subjects/{subject}/versions"
    v1, v2, v3 = record("R", a="int"), record("R", a="int", b=("int", 0)), record("R", a="int", b="int")
    ask.register(subject, v1)
    assert ask("POST", f"/compatibility{place}/latest", schema_body(v3)) == {"is_compatible": False}
    told = ask("POST", f"/compatibility{place}?verbose=true", schema_body(v3))
    assert not told["is_compatible"] and "READER_FIELD_MISSING_DEFAULT_VALUE at /fields/b" in told["messages"][0]
    status, code, text = ask.error("POST", place, schema_body(v3))
    assert (status, code) == (409, 409) and "incompatible" in text and "/fields/b" in text
    ask.register(subject, v2)
    ask.register(subject, v3)  # reads the second, but not the first
    ask("PUT", f"/config/{subject}", {"compatibility": "BACKWARD_TRANSITIVE"})
    v4 = record("R", a="int", b="int", c=("int", 0))
    assert ask("POST", f"/compatibility{place}/latest", schema_body(v4)) == {"is_compatible": True}
    assert ask("POST", f"/compatibility{place}/1", schema_body(v4)) == {"is_compatible": False}
    assert ask.error("POST", place, schema_body(v4))[0] == 409
    ask("PUT", f"/config/{subject}", {"compatibility": "FORWARD"})
    ask.register(subject, record("R", a="int", b="int", c="int"))
    assert ask.error("POST", place, schema_body(record("R", b="int", c="int")))[0] == 409
    ask("PUT", f"/config/{subject}", {"compatibility": "FULL"})
    assert ask.error("POST", place, schema_body(record("R", a="int", b="int", c="int", d="int")))[0] == 409
    ask("PUT", f"/config/{subject}", {"compatibility": "NONE"})
    ask.register(subject, '"string"')
    assert ask("POST", f"/compatibility{place}/1", schema_body('"int"')) == {"is_compatible": True}
    assert ask("POST", f"/compatibility/subjects/{subject}-new/versions/latest", schema_body('"int"'))["is_compatible"]


def test_what_nobody_checks_is_refused(ask: Asked, subject: str) -> None:
    place, body = f"/subjects/{subject}/versions", {"type": "object"}
    ask.register(subject, body, "JSON")
    assert ask.register(subject, {"type": "object"}, "JSON")
    other = schema_body({"type": "object", "title": "more"}, "JSON")
    for target in (place, f"/compatibility{place}/latest"):
        status, code, text = ask.error("POST", target, other)
        assert (status, code) == (422, 42205) and "set the level" in text and "NONE" in text
    ask("PUT", f"/config/{subject}", {"compatibility": "NONE"})
    assert ask("POST", place, other)["version"] == 2
    ask("PUT", f"/config/{subject}", {"compatibility": "BACKWARD"})
    assert "is of type JSON, not AVRO" in ask.error("POST", place, schema_body('"int"'))[2]


def test_references(ask: Asked, subject: str) -> None:
    reference = ("shop.Customer", subject, 1)
    assert ask.error("POST", "/subjects/x/versions", schema_body(ORDER, None, reference))[1] == 42201
    ask.register(subject, CUSTOMER)
    assert ask.error("POST", "/subjects/x/versions", schema_body(ORDER))[1] == 42201
    order = ask.register(f"{subject}-order", ORDER, None, reference)
    assert ask("GET", f"/schemas/ids/{order}")["references"] == [
        {"name": "shop.Customer", "subject": subject, "version": 1}
    ]
    assert ask("GET", f"/subjects/{subject}/versions/1/referencedby") == [order]
    for target in (f"/subjects/{subject}", f"/subjects/{subject}/versions/1"):
        assert ask.error("DELETE", target)[:2] == (422, 42206)
    wider = record("shop.Customer", name="string", age=("int", 0))
    ask.register(subject, wider)
    grown = record("shop.Order", customer="shop.Customer", number=("int", 0))
    ask.register(f"{subject}-order", grown, None, ("shop.Customer", subject, 2))
    odd = record("shop.Customer", other="string")
    ask("PUT", f"/config/{subject}", {"compatibility": "NONE"})
    ask.register(subject, odd)
    status, _, text = ask.error(
        "POST", f"/subjects/{subject}-order/versions", schema_body(grown, None, ("shop.Customer", subject, 3))
    )
    assert status == 409 and "/fields/customer/type/fields/other" in text
    json_customer = {"type": "object", "properties": {"name": {"type": "string"}}}
    ask.register(f"{subject}-json", json_customer, "JSON")
    using = {"type": "object", "properties": {"customer": {"$ref": "customer.json"}}}
    ask.register(f"{subject}-json-order", using, "JSON", ("customer.json", f"{subject}-json", 1))
    assert ask.error("POST", "/subjects/x/versions", schema_body(using, "JSON"))[1] == 42201


def test_json_schemas_as_other_registries_take_them(ask: Asked, subject: str) -> None:
    ask.register(subject, {"type": "object"}, "JSON")
    using = {"$id": "https://shop.example/order.json", "properties": {"customer": {"$ref": "customer.json"}}}
    ask.register(f"{subject}-order", using, "JSON", ("customer.json", subject, 1))
    ask.register(f"{subject}-name", {"type": "string", "pattern": r"^\p{L}+$"}, "JSON")


def test_what_a_deleted_schema_refers_to_is_not_deleted_for_good(ask: Asked, subject: str) -> None:
    """Records of the deleted one are read by it."""
    ask.register(subject, CUSTOMER)
    order = ask.register(f"{subject}-order", ORDER, None, ("shop.Customer", subject, 1))
    for each in (f"{subject}-order", subject):
        assert ask("DELETE", f"/subjects/{each}") == [1]
    for target in (f"/subjects/{subject}?permanent=true", f"/subjects/{subject}/versions/1?permanent=true"):
        assert ask.error("DELETE", target)[:2] == (422, 42206)
    assert ask("GET", f"/schemas/ids/{order}")
    for each in (f"{subject}-order", subject):
        assert ask("DELETE", f"/subjects/{each}?permanent=true") == [1]


def test_a_subject_whose_versions_refer_to_one_another_is_deleted(ask: Asked, subject: str) -> None:
    ask("PUT", f"/config/{subject}", {"compatibility": "NONE"})
    ask.register(subject, CUSTOMER)
    ask.register(subject, ORDER, None, ("shop.Customer", subject, 1))
    assert ask.error("DELETE", f"/subjects/{subject}/versions/1")[:2] == (422, 42206)
    assert ask("DELETE", f"/subjects/{subject}") == [1, 2]
    assert ask("DELETE", f"/subjects/{subject}?permanent=true") == [1, 2]


def test_deleting_softly_and_for_good(ask: Asked, subject: str) -> None:
    place = f"/subjects/{subject}"
    first = ask.register(subject, record(subject, a="int"))
    ask.register(subject, record(subject, a="int", b=("int", 0)))
    ask("PUT", f"/config/{subject}", {"compatibility": "FULL"})
    assert ask.error("DELETE", f"{place}/versions/1?permanent=true")[:2] == (404, 40407)
    assert ask("DELETE", f"{place}/versions/1") == 1
    assert ask.error("DELETE", f"{place}/versions/1")[:2] == (404, 40406)
    assert ask("GET", f"{place}/versions") == [2] and ask("GET", f"{place}/versions?deleted=true") == [1, 2]
    assert ask("GET", f"{place}/versions?deletedOnly=true") == [1]
    assert ask.error("GET", f"{place}/versions/1")[:2] == (404, 40402)
    assert ask("GET", f"{place}/versions/1?deleted=true")["deleted"]
    assert ask("GET", f"/schemas/ids/{first}")["schema"], "records with it are still there"
    assert ask("GET", f"/schemas/ids/{first}/subjects") == []
    assert ask("GET", f"/schemas/ids/{first}/subjects?deleted=true") == [subject]
    assert ask.error("DELETE", f"{place}?permanent=true")[:2] == (404, 40405)
    assert ask("DELETE", place) == [2]
    assert ask.error("DELETE", place)[:2] == (404, 40404)
    assert ask.error("GET", f"{place}/versions")[:2] == (404, 40401)
    assert ask.error("GET", f"/config/{subject}")[1] == 40408, "its level has gone with it"
    assert subject not in ask("GET", "/subjects") and subject in ask("GET", "/subjects?deleted=true")
    assert subject in ask("GET", "/subjects?deletedOnly=true")
    told = ask("POST", f"{place}/versions", schema_body(record(subject, a="int")))
    assert (told["id"], told["version"]) == (first, 3), "the same id again, and a version of its own"
    assert ask("DELETE", place) == [3] and ask("DELETE", f"{place}?permanent=true") == [1, 2, 3]
    assert ask.error("GET", f"/schemas/ids/{first}")[:2] == (404, 40403)
    assert ask.error("DELETE", f"{place}?permanent=true")[:2] == (404, 40401)
    other = ask("POST", f"{place}/versions", schema_body(record(subject, a="int")))
    assert other["version"] == 1 and other["id"] > first, "no id is given twice"


def test_levels(ask: Asked, subject: str) -> None:
    assert ask("GET", "/config") == {"compatibilityLevel": "BACKWARD"}
    assert ask.error("GET", f"/config/{subject}")[:2] == (404, 40408)
    assert ask("GET", f"/config/{subject}?defaultToGlobal=true") == {"compatibilityLevel": "BACKWARD"}
    assert ask("PUT", f"/config/{subject}", {"compatibility": "FULL"}) == {"compatibility": "FULL"}
    assert ask("GET", f"/config/{subject}") == {"compatibilityLevel": "FULL"}
    assert ask("DELETE", f"/config/{subject}") == {"compatibilityLevel": "FULL"}
    assert ask.error("DELETE", f"/config/{subject}")[:2] == (404, 40401)
    wrongs: list[Any] = [{"compatibility": "WIDE"}, {}, {"compatibility": "FULL", "alias": "x"}, {"normalize": 3}, []]
    for wrong in wrongs:
        assert ask.error("PUT", f"/config/{subject}", wrong)[:2] == (422, 42203)
    assert ask.error("PUT", "/config/:.context:a", {"compatibility": "FULL"})[:2] == (422, 42208)
    assert ask("PUT", "/config", {"compatibility": "FULL"}) and ask("GET", "/config")["compatibilityLevel"] == "FULL"
    ask("DELETE", "/config")
    assert ask("GET", "/config") == {"compatibilityLevel": "BACKWARD"}


def test_modes(ask: Asked, subject: str) -> None:
    place = f"/subjects/{subject}/versions"
    assert ask("GET", "/mode") == {"mode": "READWRITE"}
    assert ask.error("GET", f"/mode/{subject}")[:2] == (404, 40409)
    assert ask("GET", f"/mode/{subject}?defaultToGlobal=true") == {"mode": "READWRITE"}
    assert ask.error("PUT", "/mode/:.context:a", {"mode": "READONLY"})[:2] == (422, 42208)
    assert ask.error("PUT", f"/mode/{subject}", {"mode": "ODD"})[:2] == (422, 42204)
    assert ask.error("POST", place, schema_body('"int"') | {"id": 90_001})[:2] == (422, 42205)
    ask.register(subject, '"int"')
    assert ask("PUT", f"/mode/{subject}", {"mode": "READONLY"}) == {"mode": "READONLY"}
    assert ask.error("POST", place, schema_body('"long"'))[:2] == (422, 42205)
    assert ask.error("DELETE", f"/subjects/{subject}")[1] == 42205
    assert ask.error("PUT", f"/config/{subject}", {"compatibility": "FULL"})[1] == 42205
    assert ask.register(subject, '"int"'), "what is there already may be registered again"
    assert ask("DELETE", f"/mode/{subject}") == {"mode": "READONLY"}
    assert ask.error("PUT", f"/mode/{subject}", {"mode": "IMPORT"})[:2] == (422, 42205)
    assert ask("PUT", f"/mode/{subject}?force=true", {"mode": "IMPORT"}) == {"mode": "IMPORT"}


def test_schemas_are_imported_with_their_ids(ask: Asked, subject: str) -> None:
    place = f"/subjects/{subject}/versions"
    taken = ask.register(f"{subject}-other", record(subject, a="int"))
    ask("PUT", f"/mode/{subject}", {"mode": "IMPORT"})
    assert ask.error("POST", place, schema_body('"int"'))[:2] == (422, 42205)
    wanted = max(taken, ask("GET", f"/schemas/ids/{taken}?fetchMaxId=true")["maxId"]) + 100
    imported = schema_body(record(subject, z="int")) | {"id": wanted, "version": 7}
    assert ask("POST", place, imported)["version"] == 7
    assert ask("POST", place, imported)["id"] == wanted
    for wrong in ({"id": taken}, {"id": wanted + 1, "version": 7}):
        assert ask.error("POST", place, schema_body('{"type":"string","x":1}') | wrong)[:2] == (422, 42205)
    assert ask("GET", place) == [7]
    ask("DELETE", f"/mode/{subject}")
    assert ask.register(subject, record(subject, z="int", y=("int", 0))) > wanted
    assert ask("GET", place) == [7, 8]


def test_what_clients_keep_with_a_schema(ask: Asked, subject: str) -> None:
    kept = {
        "metadata": {"properties": {"owner": "shop"}},
        "ruleSet": {"domainRules": [{"name": "r", "kind": "TRANSFORM"}]},
    }
    plain = ask.register(subject, '"int"')
    told = ask("POST", f"/subjects/{subject}/versions", schema_body('"int"') | kept)
    assert told["id"] != plain and told["version"] == 2
    found = ask("GET", f"/subjects/{subject}/versions/2")
    assert {name: found[name] for name in kept} == kept


def test_what_clients_keep_holds_on_in_the_next_version(ask: Asked, subject: str) -> None:
    """A serializer that registers by itself sends a schema alone: rules, of encryption say, are not lost by that."""
    place, kept = f"/subjects/{subject}/versions", {"ruleSet": {"domainRules": [{"name": "r", "kind": "TRANSFORM"}]}}
    plain, wider = schema_body(record(subject, a="int")), schema_body(record(subject, a="int", b=("int", 0)))
    ask("POST", place, plain | kept)
    assert ask("POST", place, plain)["version"] == 1 and ask("POST", f"/subjects/{subject}", plain)["version"] == 1
    assert ask("POST", place, wider)["version"] == 2
    assert ask("GET", f"{place}/2")["ruleSet"] == kept["ruleSet"]
    assert ask("POST", place, wider | {"ruleSet": {}})["version"] == 3
    assert "ruleSet" not in ask("GET", f"{place}/3")


WRONG: dict[str, dict[str, Any]] = {
    "no JSON": schema_body("{"),
    "no type": schema_body('{"type": "recor"}'),
    "no such name": schema_body(record("R", a="Missing")),
    "a default of another type": schema_body(record("R", a=("int", "x"))),
    "a name that is none": schema_body(record("1R")),
    "a field twice": schema_body(
        '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}'
    ),
    "a field's name with a dot": schema_body(record("R", **{"a.b": "int"})),
    "a negative size": schema_body('{"type":"fixed","name":"F","size":-1}'),
    "a union in a union": schema_body('["int",["null"]]'),
    "a type twice in a union": schema_body('["int",{"type":"int"}]'),
    "nested without end": schema_body('{"type":' * 3000 + '"int"' + "}" * 3000),
    "no JSON Schema": schema_body({"type": "objec"}, "JSON"),
    "values that are compared each with each": schema_body(
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "enum": [each for n in range(40_000) for each in (n, str(n))],
        },
        "JSON",
    ),
    "a reference into nothing": schema_body({"$ref": "#/definitions/x"}, "JSON"),
    "no Protobuf": schema_body(base64.b64encode(b"what?").decode(), "PROTOBUF"),
    "a number that no JSON has": schema_body(
        '{"type":"record","name":"R","fields":[{"name":"a","type":"double","default":1e400}]}'
    ),
    "half of a character": schema_body(r'{"type":"record","name":"R","doc":"\ud800","fields":[]}'),
    "half of a character as it is": schema_body('{"type":"record","name":"R","doc":"\ud800","fields":[]}'),
    "aliases that are none": schema_body(record("R") | {"aliases": 5}),
    "a field's aliases that are none": schema_body(
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int", "aliases": [[1]]}]}
    ),
    "symbols in a text": schema_body({"type": "enum", "name": "E", "symbols": "ABC"}),
    "a type of schema": schema_body("x", "XML"),
    "a type of schema that is no text": schema_body('"int"') | {"schemaType": ["AVRO"]},
    "a mark of a parser": schema_body('{"type":"nonsense","__fastavro_parsed":true,"__named_schemas":{}}'),
    "a type that two branches define": schema_body(
        [record(name, a={"type": "fixed", "name": "F", "size": size}) for name, size in (("A", 1), ("B", 2))]
    ),
    "no schema": {"schemaType": "AVRO"},
    "a number": {"schema": 3},
    "a field nobody knows": schema_body('"int"') | {"schemaTyp": "AVRO"},
    "a reference without a version": schema_body('"int"') | {"references": [{"name": "a", "subject": "b"}]},
    "a reference to a version without end": schema_body('"int"')
    | {"references": [{"name": "a", "subject": "b", "version": float("inf")}]},
    "metadata that are none": schema_body('"int"') | {"metadata": "mine"},
    "metadata that no JSON has": schema_body('"int"') | {"metadata": {"properties": {"a": float("nan")}}},
    "another version than the next": schema_body('"int"') | {"version": 5},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_schemas_that_are_none(ask: Asked, subject: str, wrong: str) -> None:
    status, code, text = ask.error("POST", f"/subjects/{subject}/versions", WRONG[wrong])
    assert (status, code) == (422, 42201) and text
    assert ask.error("GET", f"/subjects/{subject}/versions")[1] == 40401


@pytest.mark.parametrize(
    ("method", "target", "status", "code"),
    [
        ("GET", "/subjects/none/versions/x", 422, 42202),
        ("GET", "/subjects/none/versions/0", 422, 42202),
        ("GET", f"/subjects/none/versions/00000000001{'9' * 5000}", 422, 42202),
        ("GET", f"/subjects/none/versions/{'9' * 5000}", 422, 42202),
        ("GET", "/subjects/none/versions/1", 404, 40401),
        ("GET", "/schemas/ids/999999", 404, 40403),
        ("GET", "/schemas/ids/x", 404, 404),
        ("GET", "/schemas/guids/none", 404, 40403),
        ("GET", "/nothing", 404, 404),
        ("GET", "/subjects?deleted=maybe", 400, 400),
        ("GET", "/subjects?limit=x", 400, 400),
        ("GET", "/subjects?something=else", 400, 400),
        ("POST", "/subjects/:.context:a/versions", 422, 42208),
        ("PATCH", "/subjects", 405, 400),
    ],
)
def test_addresses_that_are_none(ask: Asked, method: str, target: str, status: int, code: int) -> None:
    body = schema_body('"int"') if method == "POST" else None
    assert ask.error(method, target, body)[:2] == (status, code)


@pytest.mark.skipif(importlib.util.find_spec("grpc_tools") is None, reason="grpcio-tools is not installed")
def test_protobuf_as_text(ask: Asked, subject: str) -> None:
    customer = 'syntax = "proto3"; package shop; message Customer { string name = 1; }'
    order = (
        'syntax = "proto3"; package shop; import "shop/customer.proto"; import "google/protobuf/timestamp.proto";'
        " message Order { Customer customer = 1; google.protobuf.Timestamp at = 2; }"
    )
    ask.register(subject, customer, "PROTOBUF")
    reference = ("shop/customer.proto", subject, 1)
    number = ask.register(f"{subject}-order", order, "PROTOBUF", reference)
    assert ask("GET", f"/schemas/ids/{number}")["schema"] == order
    serialized = ask("GET", f"/schemas/ids/{number}?format=serialized")["schema"]
    assert base64.b64decode(serialized).count(b"shop/customer.proto") == 1
    assert ask.register(f"{subject}-order", serialized, "PROTOBUF", reference) == number
    spaced = order.replace("; ", ";\n\n// a comment\n")
    assert ask.register(f"{subject}-order", spaced, "PROTOBUF", reference) == number
    assert ask.register(f"{subject}-spaced", spaced, "PROTOBUF", reference) == number
    assert ask("GET", f"/subjects/{subject}-spaced/versions") == [1]
    for name in ("-customer.proto", "@customer.proto"):  # protoc has options and files of arguments that begin so
        odd = order.replace("shop/customer.proto", name)
        ask.register(f"{subject}{name}", odd, "PROTOBUF", (name, subject, 1))
    assert "customer.proto" in ask.error("POST", "/subjects/x/versions", schema_body(order, "PROTOBUF"))[2]
    wrong = schema_body("message {", "PROTOBUF")
    assert "default.proto:1:9" in ask.error("POST", "/subjects/x/versions", wrong)[2]


@pytest.mark.skipif(importlib.util.find_spec("grpc_tools") is None, reason="grpcio-tools is not installed")
def test_files_that_all_clients_of_protobuf_have(ask: Asked, subject: str) -> None:
    """Confluent's serializers do not name these among the references; Connect's decimals are of the second."""
    text = (
        'syntax = "proto3"; package shop; import "confluent/meta.proto"; import "confluent/type/decimal.proto";'
        ' message Order { option (confluent.message_meta) = { doc: "an order" tags: "PII" };'
        ' confluent.type.Decimal price = 1 [(confluent.field_meta) = { params: [{ key: "p", value: "8" }] }]; }'
    )
    number = ask.register(subject, text, "PROTOBUF")
    serialized = ask("GET", f"/schemas/ids/{number}?format=serialized")["schema"]
    assert b"confluent/type/decimal.proto" in base64.b64decode(serialized)
    assert ask.register(subject, serialized, "PROTOBUF") == number


def test_schemas_that_are_too_much(ask: Asked, subject: str) -> None:
    place = f"/subjects/{subject}/versions"
    large = schema_body(record(subject) | {"doc": "x" * 1_200_000})
    assert ask.error("POST", place, large)[:2] == (422, 42209)

    def nested(inner: Any) -> Any:
        for number in range(240):
            inner = record(f"{subject}_{number}", a=inner)
        return inner

    ask.register(subject, nested("int"))
    assert ask.error("POST", place, schema_body(nested("string")))[:2] == (422, 42201)


def test_places_that_a_json_schema_names_are_not_looked_for_one_by_one(ask: Asked, subject: str) -> None:
    """These would take minutes, in which nobody else is served."""
    places = {f"d{number}": {"$id": f"#a{number}", "type": "string"} for number in range(5000)}
    named = {f"p{number}": {"$ref": f"#a{number}"} for number in range(5000)}
    assert ask.register(subject, {"definitions": places, "properties": named}, "JSON")


def test_a_token_protects_it(kafka_broker: RunningBroker) -> None:
    basic = base64.b64encode(b"anybody:s3cret").decode()
    with RegistryServer(kafka_broker.bootstrap_servers, token="s3cret") as server:
        assert Asked(server.url).error("GET", "/subjects")[:2] == (401, 401)
        for wrong in ("Bearer other", "Basic other", f"Bearer {basic}"):
            assert Asked(server.url, {"Authorization": wrong}).error("GET", "/subjects")[0] == 401
        for right in ("Bearer s3cret", f"Basic {basic}"):
            assert isinstance(Asked(server.url, {"Authorization": right})("GET", "/subjects"), list)
        assert Asked(server.url, {"Origin": "http://elsewhere"}).error("GET", "/subjects")[0] == 403


def test_clients_with_the_token_come_by_any_name(kafka_broker: RunningBroker) -> None:
    """In a network of containers, say, where it listens on all interfaces."""
    named = {"Host": "registry.example:8081"}
    with RegistryServer(kafka_broker.bootstrap_servers, token="s3cret") as server:
        right = named | {"Authorization": "Bearer s3cret"}
        assert isinstance(Asked(server.url, right)("GET", "/subjects"), list)
        assert Asked(server.url, right | {"Origin": "http://elsewhere"}).error("GET", "/subjects")[0] == 403
        assert Asked(server.url, named).error("GET", "/subjects")[0] == 401
    with RegistryServer(kafka_broker.bootstrap_servers) as server:
        assert Asked(server.url, named).error("GET", "/subjects")[0] == 403


def test_the_body_of_a_stranger_is_not_awaited(kafka_broker: RunningBroker) -> None:
    """Hundreds of them, of megabytes each, would fill the memory of a node."""
    with RegistryServer(kafka_broker.bootstrap_servers, token="s3cret") as server:
        address = urlsplit(server.url)
        with socket.create_connection((address.hostname, address.port), LONG) as stranger:
            stranger.sendall(
                b"POST /subjects/s/versions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000000\r\n\r\n{"
            )
            assert stranger.recv(100).startswith(b"HTTP/1.1 401 ")
