"""Every field of every message against the definitions inside Kafka's published jars."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest

from kbroker.log.segments.transaction_index import AbortedTxn
from kbroker.raft_metadata.raft.election_state import ElectionState, encode_election_state
from kbroker.types import ZERO_UUID
from kbroker.wire.registry import API_KEYS, api_named
from kbroker.wire.schema import (
    FIRST_OWN_TAG,
    MISSING,
    NO_VERSIONS,
    FieldSpec,
    TypeSpec,
    is_own,
    parse_versions,
    struct_spec,
)
from tests.wire.wire_support import NoDefinitions, kafka_definitions, message_classes, snake_case

TYPES = {
    "int8": "Int8",
    "int16": "Int16",
    "int32": "Int32",
    "int64": "Int64",
    "uint16": "UInt16",
    "uint32": "UInt32",
    "float64": "Float64",
    "bool": "Bool",
    "string": "Str",
    "bytes": "Bytes",
    "uuid": "UuidField",
}

ZERO: dict[str, Any] = {
    "Float64": 0.0,
    "Bool": False,
    "Str": "",
    "Bytes": b"",
    "UuidField": ZERO_UUID,
    "Records": None,
    "ResponseRecords": None,
}

LISTENERS = {"broker", "controller"}


@pytest.fixture(scope="session")
def definitions() -> dict[str, dict[str, Any]]:
    try:
        return {definition["name"]: definition for definition in kafka_definitions()}
    except NoDefinitions as reason:
        pytest.skip(f"Kafka's definitions are not to be had: {reason}")


ROW_OF_TRANSACTION_INDEX = "AbortedTxn"
"""The definition of a file's rows (4.4 has it first): no message, and written by ``kbroker.log``."""

QUORUM_STATE = "QuorumStateData"
"""The definition of a file of JSON, written by ``kbroker.raft_metadata.raft.election_state``."""


def test_the_same_messages(definitions: dict[str, dict[str, Any]]) -> None:
    assert {cls.__name__ for cls in message_classes()} == set(definitions) - {ROW_OF_TRANSACTION_INDEX, QUORUM_STATE}


def test_the_rows_of_a_transaction_index(definitions: dict[str, dict[str, Any]]) -> None:
    row = definitions[ROW_OF_TRANSACTION_INDEX]
    assert row["validVersions"] == "0" and {field["type"] for field in row["fields"]} == {"int64"}
    assert AbortedTxn._fields == tuple(snake_case(field["name"]) for field in row["fields"])


@pytest.mark.parametrize("version", [0, 1])
def test_the_fields_of_the_file_of_a_nodes_vote(definitions: dict[str, dict[str, Any]], version: int) -> None:
    written = json.loads(encode_election_state(ElectionState(), version, [1]))
    assert written.pop("data_version") == version
    fields = [each for each in definitions[QUORUM_STATE]["fields"] if version in parse_versions(each["versions"])]
    assert set(written) == {each["name"][0].lower() + each["name"][1:] for each in fields}  # as Kafka's JSON has them


def test_every_field(definitions: dict[str, dict[str, Any]]) -> None:
    checked = 0
    for cls in message_classes():
        definition = definitions[cls.__name__]
        spec = struct_spec(cls)
        assert spec.versions == parse_versions(definition["validVersions"]), cls
        assert spec.flexible == parse_versions(definition.get("flexibleVersions", "none")), cls
        assert spec.api_key == definition.get("apiKey"), cls
        assert spec.unstable_last == definition.get("latestVersionUnstable", False), cls
        common = {part["name"]: part["fields"] for part in definition.get("commonStructs", ())}
        records = "Records" if definition["type"] == "request" else "ResponseRecords"
        checked += compare(cls, definition["fields"], common, records)
    assert checked > 1500


def compare(cls: type[Any], expected: list[dict[str, Any]], common: dict[str, Any], records: str) -> int:
    """Compare the fields of one class, and of the structs below it; returns how many."""
    fields = [field for field in struct_spec(cls).fields if not is_own(field)]
    assert [field.name for field in fields] == [snake_case(field["name"]) for field in expected], cls
    count = 0
    for field, theirs in zip(fields, expected, strict=True):
        where = f"{cls.__name__}.{field.name}"
        count += 1
        versions = theirs.get("versions", theirs.get("taggedVersions"))
        assert field.versions == parse_versions(versions), where
        assert field.nullable == parse_versions(theirs.get("nullableVersions", "none")), where
        assert field.tag == theirs.get("tag"), where
        assert field.tagged == parse_versions(theirs.get("taggedVersions", "none")), where
        assert field.ignorable == theirs.get("ignorable", False), where
        assert "flexibleVersions" not in theirs, where
        kind = theirs["type"]
        inner = field.type
        if kind.startswith("[]"):
            assert field.type.element is not None, where
            inner = field.type.element
            kind = kind[2:]
        else:
            assert field.type.element is None, where
        if kind[0].isupper():
            assert inner.struct is not None, where
            assert inner.struct.__name__.endswith(kind), where
            count += compare(inner.struct, theirs.get("fields") or common[kind], common, records)
        else:
            assert inner.name == (records if kind == "records" else TYPES[kind]), where
        check_default(field, inner, theirs.get("default"), where)
    return count


def test_fields_of_its_own_are_tagged_far_from_those_of_kafka(definitions: dict[str, dict[str, Any]]) -> None:
    """A stock client skips them, and is sent none: each is at its default unless the client asked for it by another."""
    taken = [tag for definition in definitions.values() for tag in tags(definition.get("fields", ()))]
    assert taken and max(taken) < FIRST_OWN_TAG // 100
    own = [field for cls in message_classes() for field in own_fields(cls)]
    assert sorted(field.name for field in own) == [
        "damage",
        "hand_over_to",
        "handed_over",
        "in_flight",
        "is_damaged",
        "is_doubted",
        "is_last",
        "load",
        "log_ends",
        "scrub",
        "wants_damage",
        "wants_in_flight",
        "wants_load",
        "wants_scrub",
    ]
    assert all(not field.default for field in own)


def tags(fields: Any) -> list[int]:
    found = [each["tag"] for each in fields if "tag" in each]
    return found + [tag for each in fields for tag in tags(each.get("fields") or ())]


def own_fields(cls: type[Any]) -> list[FieldSpec]:
    found = []
    for field in struct_spec(cls).fields:
        inner = field.type.element or field.type
        found += [field] if is_own(field) else own_fields(inner.struct) if inner.struct else []
    return found


def check_default(field: FieldSpec, inner: TypeSpec, theirs: Any, where: str) -> None:
    # A JSON null is "no default" in Kafka's generator; the string "null" is the value.
    if theirs == "null":
        assert field.default is None, where
    elif theirs is None or theirs == "":
        if field.type.element is not None:
            assert field.default == [], where
        elif inner.struct is not None:
            assert field.default is MISSING, where
        else:
            assert field.default == ZERO.get(inner.name, 0), where
    elif inner.name == "Bool":
        assert field.default is (str(theirs).lower() == "true"), where
    elif inner.name == "Str":
        assert field.default == theirs, where
    else:
        assert field.default == int(str(theirs), 0), where


def test_the_registry_is_the_declarations() -> None:
    for key, api in API_KEYS.items():
        assert api.key == key
        assert api_named(api.name) is api
        assert importlib.import_module(f"kbroker.wire.messages.{api.module}")
        for cls in (api.request, api.response):
            spec = struct_spec(cls)
            assert spec.api_key == key, cls
            assert spec.versions == api.valid_versions, cls
            assert spec.unstable_last == api.unstable_last or cls is api.response, cls
            flexible_from = None if spec.flexible == NO_VERSIONS else spec.flexible.lowest
            assert flexible_from == api.flexible_from, cls


def test_listeners(definitions: dict[str, dict[str, Any]]) -> None:
    requests = [definition for definition in definitions.values() if definition["type"] == "request"]
    assert len(requests) == len(API_KEYS)
    for definition in requests:
        assert API_KEYS[definition["apiKey"]].listeners == set(definition["listeners"]) & LISTENERS
