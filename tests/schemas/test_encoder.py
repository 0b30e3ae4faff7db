"""Values become bytes by a schema, which decoders and fastavro read; what does not fit is told by its place."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.client.schemas.avro_writer import AvroWriter
from kbroker.client.schemas.decoder import RecordDecoder
from kbroker.client.schemas.encoder import framed, writer_of
from kbroker.client.schemas.registry import SchemaRegistry
from kbroker.client.schemas.settings import registry_settings
from kbroker.client.schemas.wire_format import UndecodableRecord, UnfitValue
from kbroker.wire.record_batch import Record
from tests.schemas.protobuf_files import BYTES, DOUBLE, INT64, STRING, encoded, file_of, message_of
from tests.schemas.registry_server import Registry
from tests.schemas.test_avro import ORDER

fastavro = pytest.importorskip("fastavro")
pytest.importorskip("google.protobuf")
pytest.importorskip("jsonschema")

GOOD: dict[str, Any] = {
    "id": 2**62,
    "note": None,
    "lines": ["ä", "b"],
    "counts": {"x": "Infinity", "y": 0.5},
    "state": "PAID",
    "hash": "AP8=",
    "raw": "/g==",
    "price": "-12.50",
    "at": "2026-01-31T12:00:00.250000+00:00",
    "day": "2026-01-31",
    "ref": "6f1e5a52-0b6b-4b43-8a4d-0d3c5a4f7b01",
}


def both(registry: Registry) -> tuple[SchemaRegistry, RecordDecoder]:
    settings = registry_settings(registry.url, None)
    assert settings is not None
    asked = SchemaRegistry(settings)
    return asked, RecordDecoder(asked)


def round_trip(registry: Registry, schema_id: int, value: Any, message: str = "") -> Any:
    asked, decoder = both(registry)
    data = framed(schema_id, writer_of(asked, schema_id, message).encode(value))
    found = decoder.decode(Record(0, 0, None, data))
    assert found.value is not None and found.value.error is None and found.record.value is not None
    return json.loads(found.record.value)


def test_what_avro_encodes_is_decoded_to_the_same(registry: Registry) -> None:
    schema = registry.add("orders-value", json.dumps(ORDER))
    assert round_trip(registry, schema, GOOD) == GOOD
    skeleton = writer_of(both(registry)[0], schema).skeleton()
    assert round_trip(registry, schema, skeleton).keys() == GOOD.keys()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"id": "7"}, "$.id: a whole number is wanted, and this is the text '7'"),
        ({"id": 2**63}, "$.id: it is no long"),
        ({"id": True}, "$.id: "),
        ({"lines": ["a", 1]}, "$.lines[1]: text is wanted, and this is 1"),
        ({"counts": {"x": None}}, "$.counts.x: a number is wanted, and this is null"),
        ({"state": "SENT"}, "$.state: one of NEW, PAID is wanted"),
        ({"hash": "AA=="}, "$.hash: 2 bytes are wanted, and these are 1"),
        ({"raw": "?"}, "$.raw: bytes in base64"),
        ({"price": 1.005}, "$.price: it has more than 2 digits after the point"),
        ({"price": "12345678901"}, "$.price: it has more than 9 digits"),
        ({"at": "2026-01-31T12:00:00"}, "$.at: 2026-01-31T12:00:00+00:00, or a number, is wanted, with its zone"),
        ({"day": "31.1.2026"}, "$.day: 2026-01-31, or a number, is wanted"),
        ({"ref": "x"}, "$.ref: a UUID"),
        ({"note": 5}, "$.note: one of null, string is wanted, and this is 5"),
        ({"nope": 5}, "$.nope: shop.Order has no such field; it has id, note"),
        ({"id": ...}, "$.id: it is missing"),
    ],
)
def test_avro_tells_which_field_is_wrong(change: dict[str, Any], told: str) -> None:
    value = {name: each for name, each in (GOOD | change).items() if each is not ...}
    with pytest.raises(UnfitValue) as caught:
        AvroWriter(json.dumps(ORDER), []).encode(value)
    assert str(caught.value).startswith(told)


LEAF = {
    "type": "record",
    "name": "Leaf",
    "fields": [{"name": "n", "type": "int"}, {"name": "b", "type": "bytes", "default": "\u00ff"}],
}
TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [
        {"name": "leaf", "type": [LEAF, {"type": "array", "items": "Leaf"}]},
        {"name": "next", "type": ["null", "Tree"], "default": None},
        {"name": "t", "type": {"type": "int", "logicalType": "time-millis"}, "default": 5},
    ],
}
LEAVES = st.fixed_dictionaries({"n": st.integers(-(2**31), 2**31 - 1)})
TREES = st.recursive(
    st.fixed_dictionaries({"leaf": LEAVES}),
    lambda inner: st.fixed_dictionaries({"leaf": LEAVES | st.lists(LEAVES, max_size=3), "next": st.none() | inner}),
    max_leaves=4,
)


@given(TREES)
def test_fastavro_reads_what_is_written(value: Any) -> None:
    data = AvroWriter(json.dumps(TREE), []).encode(value)
    found: Any = fastavro.schemaless_reader(io.BytesIO(data), fastavro.parse_schema(TREE), None)

    def told(tree: Any) -> Any:
        leaf = tree["leaf"]
        shown = [{"n": each["n"]} for each in leaf] if isinstance(leaf, list) else {"n": leaf["n"]}
        return {"leaf": shown, "next": told(tree["next"]) if tree.get("next") else None}

    assert told(found) == told(value)


def test_avro_uses_references_and_defaults() -> None:
    writer = AvroWriter(
        '{"type": "record", "name": "Holder", "fields": [{"name": "leaf", "type": "Leaf"}]}', [json.dumps(LEAF)]
    )
    assert writer.skeleton() == {"leaf": {"n": 0, "b": "/w=="}}
    assert writer.encode({"leaf": {"n": -1}}) == writer.encode({"leaf": {"n": -1, "b": "/w=="}}) == b"\x01\x02\xff"
    with pytest.raises(UnfitValue, match=r"^\$\.leaf\.n: a whole number"):
        writer.encode({"leaf": {"n": "x"}})
    with pytest.raises(UndecodableRecord, match="no value of Loop has an end"):
        AvroWriter('{"type": "record", "name": "Loop", "fields": [{"name": "next", "type": "Loop"}]}', []).skeleton()


def test_protobuf(registry: Registry) -> None:
    line = message_of("Line", {"price": DOUBLE, "raw": BYTES})
    order = message_of(
        "Order", {"number": INT64, "buyer": STRING, "line": "shop.Line", "at": ".google.protobuf.Timestamp"}
    )
    file = file_of("orders.proto", "shop", line, order, imports=("google/protobuf/timestamp.proto",))
    schema = registry.add("orders-value", encoded(file), "PROTOBUF")
    value = {"number": "7", "buyer": "Ann", "line": {"price": 2.5, "raw": "/g=="}, "at": "2026-01-31T12:00:00Z"}
    assert round_trip(registry, schema, value, "Order") == value
    assert round_trip(registry, schema, {"price": 1.0}) == {"price": 1.0, "raw": ""}
    writer = writer_of(both(registry)[0], schema, "Order")
    assert writer.skeleton() == {"number": "0", "buyer": "", "line": {"price": 0.0, "raw": ""}, "at": None}
    writer.encode(writer.skeleton())
    for wrong in ({"line": {"price": "x"}}, {"line": {"prise": 1}}):
        with pytest.raises(UnfitValue, match=r"pri[cs]e"):
            writer.encode(wrong)
    with pytest.raises(UnfitValue):
        writer.encode([])
    with pytest.raises(UndecodableRecord, match="no message Other; it has Line, Order"):
        writer_of(both(registry)[0], schema, "Other")


def test_json_schema(registry: Registry) -> None:
    document = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "state": {"enum": ["new", "paid"]},
            "lines": {"type": "array", "items": {"$ref": "#/definitions/line"}},
            "first": {"$ref": "#/definitions/line"},
        },
        "required": ["id"],
        "additionalProperties": False,
        "definitions": {"line": {"type": "object", "properties": {"price": {"type": "number", "default": 1.5}}}},
    }
    schema = registry.add("orders-value", json.dumps(document), "JSON")
    writer = writer_of(both(registry)[0], schema)
    skeleton = writer.skeleton()
    assert skeleton == {"id": 0, "state": "new", "lines": [], "first": {"price": 1.5}}
    assert round_trip(registry, schema, skeleton) == skeleton
    for wrong, told in (
        ({}, "$: 'id' is a required property"),
        ({"id": 1, "lines": [{"price": "x"}]}, "$.lines[0].price: 'x' is not of type 'number'"),
        ({"id": 1, "state": "gone"}, "$.state: 'gone' is not one of ['new', 'paid']"),
    ):
        with pytest.raises(UnfitValue) as caught:
            writer.encode(wrong)
        assert str(caught.value) == told
