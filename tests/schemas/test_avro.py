"""Avro becomes JSON; what does not fit is refused."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.client.schemas.avro import compile_avro
from kbroker.client.schemas.wire_format import PackageMissing, UndecodableRecord

fastavro = pytest.importorskip("fastavro")


def written(schema: Any, value: Any, named: Any = None) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema, named), value)
    return out.getvalue()


def decoded(schema: Any, value: Any) -> Any:
    return json.loads(compile_avro(json.dumps(schema), [])(written(schema, value)))


ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "lines", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "double"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "raw", "type": "bytes"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "ref", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}


def test_a_record_with_everything() -> None:
    value = {
        "id": 2**62,
        "note": None,
        "lines": ["ä", "b"],
        "counts": {"x": float("inf"), "y": 0.5},
        "state": "PAID",
        "hash": b"\x00\xff",
        "raw": b"\xfe",
        "price": decimal.Decimal("-12.34"),
        "at": datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC),
        "day": datetime.date(2026, 1, 31),
        "ref": uuid.UUID(int=7),
    }
    assert decoded(ORDER, value) == {
        "id": 2**62,
        "note": None,
        "lines": ["ä", "b"],
        "counts": {"x": "Infinity", "y": 0.5},
        "state": "PAID",
        "hash": "AP8=",
        "raw": "/g==",
        "price": "-12.34",
        "at": "2026-01-31T12:00:00+00:00",
        "day": "2026-01-31",
        "ref": "00000000-0000-0000-0000-000000000007",
    }


@pytest.mark.parametrize(
    ("schema", "value"),
    [("string", "text"), (["null", "int"], 7), (["null", "int"], None), ({"type": "array", "items": "long"}, [1, 2])],
)
def test_schemas_that_are_no_records(schema: Any, value: Any) -> None:
    assert decoded(schema, value) == value


@given(
    st.recursive(st.text() | st.integers(-(2**63), 2**63 - 1), lambda each: st.lists(each, max_size=3), max_leaves=9)
)
def test_nested_values(value: Any) -> None:
    schema = {
        "type": "record",
        "name": "Node",
        "fields": [{"name": "of", "type": ["string", "long", {"type": "array", "items": "Node"}]}],
    }

    def node(each: Any) -> Any:
        return {"of": [node(inner) for inner in each] if isinstance(each, list) else each}

    assert decoded(schema, node(value)) == node(value)


@pytest.mark.parametrize(
    "top",
    [
        {"type": "record", "name": "Top", "fields": [{"name": "a", "type": "shop.Address"}]},
        ["shop.Address", {"type": "record", "name": "Other", "fields": []}],
        "shop.Address",
    ],
)
def test_names_of_other_schemas(top: Any) -> None:
    city = {"type": "record", "name": "City", "namespace": "shop", "fields": [{"name": "name", "type": "string"}]}
    address = {"type": "record", "name": "Address", "namespace": "shop", "fields": [{"name": "city", "type": "City"}]}
    decode = compile_avro(json.dumps(top), [json.dumps(city), json.dumps(address)])
    prefix = b"\0" if isinstance(top, list) else b""
    found = json.loads(decode(prefix + b"\x08Oslo"))
    expected = {"city": {"name": "Oslo"}}
    assert found == ({"a": expected} if isinstance(top, dict) else expected)


@pytest.mark.parametrize("schema", ["{}", "[", '{"type": "record"}', '"no.such.Type"', "no.such.Type", "{"])
def test_a_schema_that_is_none(schema: str) -> None:
    with pytest.raises(UndecodableRecord, match="its Avro schema cannot be used"):
        compile_avro(schema, [])


@pytest.mark.parametrize("items", ["null", {"type": "record", "name": "Empty", "fields": []}, "Nothing"])
def test_a_few_bytes_do_not_become_billions_of_values(items: Any) -> None:
    fields: list[dict[str, Any]] = [{"name": "nothing", "type": {"type": "fixed", "name": "Nothing", "size": 0}}]
    fields.append({"name": "many", "type": ["null", {"type": "array", "items": items}]})
    with pytest.raises(UndecodableRecord, match="arrays of what takes no bytes"):
        compile_avro(json.dumps({"type": "record", "name": "Bomb", "fields": fields}), [])


def test_records_of_records_do_not_become_billions_of_values() -> None:
    def doubled(depth: int) -> Any:
        if not depth:
            return "null"
        fields = [doubled(depth - 1), *[f"R{depth - 1}" if depth > 1 else "null"] * 9]
        named = [{"name": f"f{index}", "type": each} for index, each in enumerate(fields)]
        return {"type": "record", "name": f"R{depth}", "fields": named}

    with pytest.raises(UndecodableRecord, match="a record of more than 100 values that take no bytes"):
        compile_avro(json.dumps(["null", doubled(10)]), [])
    assert json.loads(compile_avro(json.dumps(doubled(1)), [])(b"")) == {f"f{index}": None for index in range(10)}


@pytest.mark.parametrize("base", ["bytes", {"type": "fixed", "name": "F", "size": 2000}])
def test_a_decimal_does_not_take_minutes(base: Any) -> None:
    schema = {**(base if isinstance(base, dict) else {"type": base}), "logicalType": "decimal", "precision": 9}
    decode = compile_avro(json.dumps(["null", schema]), [])
    with pytest.raises(UndecodableRecord, match="a decimal has 2000 bytes"):
        decode(b"\x02" + (b"" if isinstance(base, dict) else b"\xa0\x1f") + b"\x7f" * 2000)


def test_a_decimal_is_not_rounded_to_the_digits_of_its_schema() -> None:
    decode = compile_avro('{"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}', [])
    assert decode(b"\x06" + (123456).to_bytes(3)) == '"1234.56"'


def test_a_record_within_itself_is_decoded() -> None:
    fields = [{"name": "n", "type": "int"}, {"name": "next", "type": ["null", "Link"]}]
    link = {"type": "record", "name": "Link", "fields": fields}
    value = {"n": 1, "next": {"n": 2, "next": None}}
    assert decoded(link, value) == value


@given(st.binary(max_size=40))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    decode = compile_avro(json.dumps(ORDER), [])
    try:
        json.loads(decode(data))
    except UndecodableRecord as error:
        assert str(error).startswith("its bytes do not fit its Avro schema: ") and "\n" not in str(error)


def test_the_package_is_named_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fastavro", None)
    with pytest.raises(PackageMissing, match=r"Avro needs the package fastavro: pip install 'kbroker\[schemas\]'"):
        compile_avro('"int"', [])
