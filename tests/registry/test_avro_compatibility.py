"""Avro schemas that read what others have written, and that do not: the specification, as a table."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from kbroker.registry.avro_compatibility import AvroSchema, misfits

fastavro = pytest.importorskip("fastavro", reason="fastavro is not installed")


def parsed(schema: Any) -> AvroSchema:
    names: dict[str, Any] = {}
    return AvroSchema(fastavro.parse_schema(schema, names), names)


def record(*fields: dict[str, Any], name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any = "int", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


def fixed(size: int, name: str = "F", **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **more}


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


TREE = record(field("left", ["null", "R"], default=None), field("value"))
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
READABLE = {
    *((each, each) for each in PRIMITIVES),
    *(("long", "int"), ("float", "int"), ("double", "int"), ("float", "long"), ("double", "long")),
    *(("double", "float"), ("bytes", "string"), ("string", "bytes")),
}


@pytest.mark.parametrize("writer", PRIMITIVES)
@pytest.mark.parametrize("reader", PRIMITIVES)
def test_promotions(reader: str, writer: str) -> None:
    assert (not misfits(parsed(reader), parsed({"type": writer}))) == ((reader, writer) in READABLE)


FITS = {
    "a field more, with a default": (record(field("a"), field("b", default=1)), record(field("a"))),
    "a field less": (record(field("a")), record(field("a"), field("b"))),
    "other order": (record(field("a"), field("b", "string")), record(field("b", "string"), field("a"))),
    "a field under an alias": (record(field("b", aliases=["a"])), record(field("a"))),
    "another namespace": (record(field("a"), namespace="x"), record(field("a"), namespace="y")),
    "a record under an alias": (record(name="New", aliases=["R"]), record()),
    "a record under a full alias": (record(name="x.New", aliases=["y.Old"]), record(name="y.Old")),
    "a promoted field": (record(field("a", "double")), record(field("a", "float"))),
    "a union more": (["null", "int"], "int"),
    "branches by promotion": (["null", "long"], ["int", "null"]),
    "a union of what fits": ("long", ["int", "long"]),
    "a symbol more": (enum("A", "B", "C"), enum("A", "B")),
    "a symbol less, with a default": (enum("A", default="A"), enum("A", "B")),
    "arrays": ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}),
    "maps": ({"type": "map", "values": "string"}, {"type": "map", "values": "bytes"}),
    "fixed": (fixed(4, "x.F"), fixed(4, "y.F")),
    "decimals": (decimal(8, 2), decimal(8, 2)),
    "a decimal as bytes": ("bytes", decimal(8, 2)),
    "a type within itself": (TREE, record(field("left", ["null", "R"]), field("value"), field("more"))),
    "an error as an error": (
        {"type": "error", "name": "X", "fields": []},
        {"type": "error", "name": "X", "fields": []},
    ),
}
DOES_NOT = {
    "READER_FIELD_MISSING_DEFAULT_VALUE at /fields/b": (record(field("a"), field("b")), record(field("a"))),
    "TYPE_MISMATCH at /fields/a/type": (record(field("a", "int")), record(field("a", "string"))),
    "NAME_MISMATCH at /": (record(name="S"), record()),
    "MISSING_UNION_BRANCH at /": (["null", "string"], "int"),
    "TYPE_MISMATCH at /: int does not read null": ("int", ["null", "int"]),
    "MISSING_ENUM_SYMBOLS at /: enum E has no default and lacks B": (enum("A"), enum("A", "B")),
    "FIXED_SIZE_MISMATCH at /": (fixed(4), fixed(5)),
    "NAME_MISMATCH at /: fixed G": (fixed(4, "G"), fixed(4)),
    "TYPE_MISMATCH at /items": ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}),
    "TYPE_MISMATCH at /values": ({"type": "map", "values": "int"}, {"type": "map", "values": "long"}),
    "TYPE_MISMATCH at /: decimal(8, 2) does not read decimal(8, 3)": (decimal(8, 2), decimal(8, 3)),
    "TYPE_MISMATCH at /: record R does not read enum E": (record(), enum("A")),
    "TYPE_MISMATCH at /: map does not read array": (
        {"type": "map", "values": "int"},
        {"type": "array", "items": "int"},
    ),
    "TYPE_MISMATCH at /fields/value/type": (TREE, record(field("left", ["null", "R"]), field("value", "string"))),
}


@pytest.mark.parametrize("case", FITS)
def test_what_can_be_read(case: str) -> None:
    assert misfits(*map(parsed, FITS[case])) == []


@pytest.mark.parametrize("reason", DOES_NOT)
def test_what_cannot_be_read(reason: str) -> None:
    found = misfits(*map(parsed, DOES_NOT[reason]))
    assert any(str(each).startswith(reason) for each in found), found


def test_what_was_judged_by_a_pair_that_turns_out_not_to_fit_is_judged_again() -> None:
    """The reader's ``x.A`` reads ``A`` as long as ``x.B`` reads ``B``, and that it does not is seen after ``x.A``."""

    def tree(place: str, inner: str, kind: str) -> Any:
        a = record(field("b", ["null", f"{place}.B"]), name=inner)
        return record(field("a", a), field("wrong", kind), name=f"{place}.B")

    writer = [tree("w", "w.A", "string"), "w.A"]
    assert misfits(parsed([tree("x", "x.A", "string"), "x.A"]), parsed(writer)) == []
    readers = [tree("x", "x.A", "int"), tree("y", "y.A", "string"), "x.A"]
    assert [str(each) for each in misfits(parsed(readers), parsed(writer))] == [
        "MISSING_UNION_BRANCH at /: no branch reads record w.A"
    ]
    assert misfits(parsed([*readers[:2], "y.A"]), parsed(writer)) == []


def test_types_of_references_are_known_by_their_names() -> None:
    names: dict[str, Any] = {}
    fastavro.parse_schema(record(field("a"), name="shop.Customer"), names)
    using = record(field("customer", "shop.Customer"), name="shop.Order")
    old = AvroSchema(fastavro.parse_schema(using, names), names)
    wider = dict(names)
    wider["shop.Customer"] = record(field("a"), field("b"), name="shop.Customer")
    assert misfits(old, AvroSchema(old.schema, wider)) == []
    assert [each.kind for each in misfits(AvroSchema(old.schema, wider), old)] == ["READER_FIELD_MISSING_DEFAULT_VALUE"]


def test_what_is_wrong_with_a_type_is_told_once_and_not_wherever_it_is_used() -> None:
    """Types that use others in four places, ten levels of them, would have a million reasons."""

    def tree(inner: str) -> Any:
        kind = record(field("x", inner), name="R0")
        for level in range(1, 10):
            kind = record(field("a", kind), *(field(each, f"R{level - 1}") for each in "bcd"), name=f"R{level}")
        return kind

    found = [str(each) for each in misfits(parsed(tree("int")), parsed(tree("string")))]
    assert len(found) == 28 and all(each.endswith("x/type: int does not read string") for each in found)


def test_unions_of_many_types_take_little_time_and_memory() -> None:
    """The types of one that are not named as those of the other are nothing to keep."""
    reader, writer = ([record(field("a"), name=f"{place}{number}") for number in range(10_000)] for place in "RW")
    schemas = parsed(reader), parsed(writer)
    tracemalloc.start()
    try:
        assert len(misfits(*schemas)) == 10_000
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
