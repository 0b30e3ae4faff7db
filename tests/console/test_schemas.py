"""The schema registry in the console: subjects, versions, their change, and records produced by a schema."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kbroker.client import Client
from kbroker.client.topics import NewTopic, create_topics
from kbroker.registry.server import RegistryServer
from kbroker.testing import RunningBroker
from tests.console.console_process import ConsoleProcess, console_process

for package in ("fastavro", "h11", "google.protobuf", "jsonschema"):
    pytest.importorskip(package, reason=f"{package} is not installed")

FIRST = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
WIDER = {**FIRST, "fields": [*FIRST["fields"], {"name": "note", "type": "string", "default": ""}]}
NARROW = {**FIRST, "fields": [*FIRST["fields"], {"name": "must", "type": "string"}]}
JSON_KEY = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.fixture(scope="module")
def registry(broker: RunningBroker) -> Iterator[str]:
    with RegistryServer(broker.bootstrap_servers) as server:
        yield server.url


@pytest.fixture(scope="module")
def console(broker: RunningBroker, registry: str) -> Iterator[ConsoleProcess]:
    with Client(broker.bootstrap_servers) as client:
        create_topics(client, [NewTopic("orders", 1, 1)])
    with console_process("-b", broker.bootstrap_servers, "--writes", "--registry", registry) as running:
        yield running


def given(subject: str, schema: object, kind: str = "AVRO") -> dict[str, str]:
    return {"subject": subject, "text": json.dumps(schema), "kind": kind}


def test_a_version_is_judged_registered_shown_and_deleted(console: ConsoleProcess) -> None:
    assert console.enter()["registry"] is True
    assert console.post("schema/check", given("orders-value", FIRST)).json["compatible"]
    assert console.post("schema/register", given("orders-value", FIRST)).status == 200
    assert console.post("schema/check", given("orders-value", WIDER)).json["compatible"]
    judged = console.post("schema/check", given("orders-value", NARROW)).json
    assert judged["compatible"] is False and any("must" in text for text in judged["messages"])
    refused = console.post("schema/register", given("orders-value", NARROW))
    assert refused.status == 409 and refused.error.startswith("the schema registry: ")
    assert console.post("schema/register", given("orders-value", WIDER)).status == 200
    told = console.get("subject", subject="orders-value").json
    assert (told["versions"], told["level"], told["everywhere"], told["topics"]) == (
        [1, 2],
        None,
        "BACKWARD",
        ["orders"],
    )
    shown = console.get("schema", subject="orders-value", version=2).json
    assert json.loads(shown["text"]) == WIDER and (shown["version"], shown["kind"]) == (2, "AVRO")
    listed = console.get("subjects", filter="ORDERS").json
    assert [(row["subject"], row["version"], row["topics"]) for row in listed["rows"]] == [
        ("orders-value", 2, ["orders"])
    ]

    assert console.post("subject/compatibility", {"subject": "orders-value", "level": "NONE"}).status == 200
    assert console.get("subject", subject="orders-value").json["level"] == "NONE"
    assert console.post("schema/check", given("orders-value", NARROW)).json["compatible"]
    assert console.post("subject/compatibility", {"subject": "orders-value"}).status == 200

    assert console.post("schema/delete", {"subject": "orders-value", "version": "1", "confirm": "orders"}).status == 400
    ask = {"subject": "orders-value", "version": "1", "confirm": "orders-value"}
    assert console.post("schema/delete", ask).status == 200
    assert console.get("subject", subject="orders-value").json["versions"] == [2]
    actions = [(line["action"], line["target"], line["outcome"]) for line in console.audit()]
    assert ("register schema", "orders-value", "done") in actions and (
        "delete schema",
        "orders-value",
        "done",
    ) in actions
    assert console.get("subject", subject="nothing").status == 404


def test_records_are_produced_by_schemas(console: ConsoleProcess) -> None:
    console.post("schema/register", given("made-value", WIDER))
    console.post("schema/register", given("made-key", JSON_KEY, "JSON"))
    skeleton = console.get("schema/skeleton", subject="made-value").json
    assert json.loads(skeleton["text"]) == {"id": 0, "note": ""}
    by_schema = {"topic": "orders", "key_subject": "made-key", "value_subject": "made-value", "value_version": "1"}
    for key, value, told in (
        ('{"n": 1}', '{"id": "x"}', "the value does not fit its schema: $.id: a whole number is wanted"),
        ('{"n": "x"}', '{"id": 1}', "the key does not fit its schema: $.n: "),
        ('{"n": 1}', "{", "the value is no JSON"),
    ):
        refused = console.post("records/produce", {**by_schema, "key": key, "value": value})
        assert refused.status == 400 and refused.error.startswith(told)
    assert console.get("records", topic="orders", **{"from": "earliest"}).json["rows"] == []
    assert console.post("records/produce", {**by_schema, "key": '{"n": 1}', "value": '{"id": 7}'}).status == 200
    [row] = console.get("records", topic="orders", **{"from": "earliest"}).json["rows"]
    assert json.loads(row["value"]["text"]) == {"id": 7, "note": ""} and json.loads(row["key"]["text"]) == {"n": 1}
    assert (row["value"]["schema"]["type"], row["key"]["schema"]["type"]) == ("AVRO", "JSON")


def test_a_console_without_writes_or_a_registry_says_so(broker: RunningBroker, registry: str) -> None:
    with console_process("-b", broker.bootstrap_servers, "--registry", registry) as reading:
        assert reading.post("schema/register", given("x", FIRST)).status == 403
        assert reading.post("schema/check", given("x", FIRST)).status == 200
    with console_process("-b", broker.bootstrap_servers, "--registry", "http://127.0.0.1:9") as alone:
        assert alone.get("subjects").status == 502 and "127.0.0.1:9" in alone.get("subjects").error
    with console_process("-b", broker.bootstrap_servers) as without:
        assert without.enter()["registry"] is False and "--registry" in without.get("subjects").error
