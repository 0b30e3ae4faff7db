"""Values by the schemas of a registry, and where they lie: what is read from the table is what was written."""

from __future__ import annotations

import importlib.util
import io
import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("deltalake")
pytest.importorskip("fastavro")

import fastavro

from kbroker.client.schemas.registry import SchemaRegistry
from kbroker.client.schemas.settings import registry_settings
from kbroker.client.schemas.wire_format import RegistryAway, RegistryError
from kbroker.tables.follower import Settings
from kbroker.tables.layout import Layout
from kbroker.tables.plan import NotYet, Refused
from tests.schemas.registry_server import Registry, running_registry
from tests.tables.model_topic import ModelTopic, check_once, dead_in, follow, rows_in, target_of
from tests.with_each import examples

KINDS = ["delta", *(["iceberg"] if importlib.util.find_spec("pyiceberg") else [])]
needs_transforms = pytest.mark.skipif(
    importlib.util.find_spec("pyiceberg_core") is None, reason="pyiceberg-core is not installed"
)


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with running_registry() as running:
        yield running


def asking(registry: Registry) -> SchemaRegistry:
    found = registry_settings(registry.url, None)
    assert found is not None
    return SchemaRegistry(found)


def record(*fields: tuple[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": each, "type": kind} for each, kind in fields]}


def avro(registry: Registry, schema: Any, *values: Any) -> list[bytes]:
    """Values in the form of a registry's serializers."""
    schema_id = registry.add("t-value", json.dumps(schema))
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    found = []
    for value in values:
        out = io.BytesIO(b"\0" + schema_id.to_bytes(4))
        out.seek(0, io.SEEK_END)
        fastavro.schemaless_writer(out, parsed, value)
        found.append(out.getvalue())
    return found


def fields_in(path: Path) -> list[dict[str, Any]]:
    return [{name: each for name, each in row.items() if name[0] != "_"} for row in rows_in(path)]


EVERYTHING = record(
    ("n", "int"),
    ("maybe", ["null", "string"]),
    ("tags", {"type": "array", "items": ["null", "string"]}),
    ("counts", {"type": "map", "values": "long"}),
    (
        "address",
        record(("city", "string"), ("lines", {"type": "array", "items": record(("t", "string"), name="L")}), name="A"),
    ),
    ("colour", {"type": "enum", "name": "C", "symbols": ["RED", "BLUE"]}),
    ("raw", {"type": "fixed", "name": "F", "size": 2}),
    ("day", {"type": "int", "logicalType": "date"}),
    ("at", {"type": "long", "logicalType": "timestamp-millis"}),
    ("here", {"type": "long", "logicalType": "local-timestamp-micros"}),
    ("clock", {"type": "int", "logicalType": "time-millis"}),
    ("price", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}),
    ("id", {"type": "string", "logicalType": "uuid"}),
    ("number", ["null", "int", "long"]),
)
VALUE = {
    "n": 1,
    "maybe": None,
    "tags": ["a", None],
    "counts": {"x": 1},
    "address": {"city": "Oslo", "lines": [{"t": "1"}, {"t": "2"}]},
    "colour": "BLUE",
    "raw": b"ab",
    "day": date(2026, 11, 30),
    "at": datetime(2026, 11, 30, 12, 0, 0, 123000, UTC),
    "here": datetime(2026, 11, 30, 12, 0, 0, 123456),
    "clock": time(12, 0, 1),
    "price": Decimal("12.50"),
    "id": UUID(int=7),
    "number": 1 << 40,
}


@pytest.mark.parametrize("kind", KINDS)
def test_avro_has_all_its_types(tmp_path: Path, registry: Registry, kind: str) -> None:
    topic, path = ModelTopic(), tmp_path / kind
    topic.append(0, *avro(registry, EVERYTHING, VALUE), None, b"plain", b"\0\0\0\x99\0" + b"x")
    topic.append(
        0,
        *avro(
            registry, {"type": "record", "name": "U", "fields": [{"name": "u", "type": ["int", "string"]}]}, {"u": 1}
        ),
    )
    follow(topic, path, Settings("avro", registry=asking(registry)))
    check_once(topic, path)
    first, tombstone = fields_in(path)
    wanted = VALUE | {"id": str(UUID(int=7)), "counts": [("x", 1)]}
    wanted["clock"] = "12:00:01.000000" if kind == "delta" else time(12, 0, 1)
    assert first == wanted and not any(tombstone.values())
    assert [each["reason"] for each in dead_in(path)] == [
        "it names no schema of a registry",
        "the registry has no schema 39168",
        "u: a union of int and string, for which there is no column",
    ]


def test_schemas_without_columns(tmp_path: Path, registry: Registry) -> None:
    """A type that has no end, or very many fields by few words, is told at once."""
    itself = record(("next", ["null", "R"]))
    doubling: Any = record(("x", "int"), name="R0")
    for level in range(1, 40):
        doubling = record(("a", doubling), ("b", f"R{level - 1}"), name=f"R{level}")
    decimal = record(("d", {"type": "bytes", "logicalType": "decimal", "precision": 50}))
    defs = {f"d{n}": {"properties": {each: {"$ref": f"#/$defs/d{n + 1}"} for each in "ab"}} for n in range(40)}
    ids = [registry.add("t-value", json.dumps(each)) for each in (itself, doubling, decimal)]
    ids.append(registry.add("t-value", json.dumps({"$ref": "#/$defs/d0", "$defs": defs}), "JSON"))
    topic, path = ModelTopic(), tmp_path / "t"
    topic.append(0, *(b"\0" + each.to_bytes(4) + b"\0" for each in ids))
    follow(topic, path, Settings("avro", registry=asking(registry)))
    assert [each["reason"] for each in dead_in(path)] == [
        "next: R within itself, which has no end",
        "a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a: more than 1,000 fields",
        "d: a decimal of 50 digits, 0 of them behind the point",
        f"its schema, {ids[3]}, is JSON where the table has avro",
    ]
    follow(topic, tmp_path / "j", Settings("json-schema", registry=asking(registry)))
    assert len(dead_in(tmp_path / "j")) == 4


@pytest.mark.parametrize("kind", KINDS)
def test_a_later_schema_widens_the_table(tmp_path: Path, registry: Registry, kind: str) -> None:
    """Iceberg's int becomes long; Delta's stays, and what it does not hold is a dead letter."""
    topic, path = ModelTopic(), tmp_path / kind
    inner = record(("x", "int"), name="I")
    wider = record(("x", "int"), ("y", ["null", "string"]), name="I")
    topic.append(
        0, *avro(registry, record(("a", "int"), ("f", "float"), ("s", inner)), {"a": 1, "f": 0.5, "s": {"x": 1}})
    )
    new = record(("f", "double"), ("s", wider), ("a", "long"), ("t", "string"))
    topic.append(0, *avro(registry, new, {"a": 2, "f": 1.5, "s": {"x": 2, "y": "y"}, "t": "t"}))
    topic.append(0, *avro(registry, new, {"a": 1 << 40, "f": 0.1, "s": {"x": 2, "y": None}, "t": "t"}))
    topic.append(0, *avro(registry, record(("a", "string")), {"a": "text"}))
    for _ in range(2):
        follow(topic, path, Settings("avro", registry=asking(registry), batch_records=1, max_bytes=1))
    check_once(topic, path)
    rows, reasons = fields_in(path), [each["reason"] for each in dead_in(path)]
    assert rows[0] == {"a": 1, "f": 0.5, "s": {"x": 1, "y": None}, "t": None}
    assert rows[1] == {"a": 2, "f": 1.5, "s": {"x": 2, "y": "y"}, "t": "t"}
    assert reasons[-1] == f"a: string where the table has {'int' if kind == 'delta' else 'long'}"
    if kind == "iceberg":
        assert rows[2:] == [{"a": 1 << 40, "f": 0.1, "s": {"x": 2, "y": None}, "t": "t"}] and len(reasons) == 1
    else:
        assert len(rows) == 2 and "1099511627776 not in range" in reasons[0]


def test_a_registry_that_is_away_is_waited_for(tmp_path: Path, registry: Registry) -> None:
    """Neither refusals, nor an answer of what stands before it, make a dead letter; a new follower goes on."""
    topic, path = ModelTopic(), tmp_path / "t"
    topic.append(0, *avro(registry, record(("a", "int")), {"a": 1}))
    for status in (500, 503, 429):
        registry.fails_with = status
        with pytest.raises(RegistryAway, match=str(status)):
            follow(topic, path, Settings("avro", registry=asking(registry)))
    registry.fails_with = 401
    with pytest.raises(RegistryError, match=r"401 \(who asks is said by basic.auth.user.info") as refused:
        follow(topic, path, Settings("avro", registry=asking(registry)))
    assert not isinstance(refused.value, RegistryAway)
    registry.fails_with = None
    follow(topic, path, Settings(registry=asking(registry)))
    assert fields_in(path) == [{"a": 1}] and not dead_in(path)
    with pytest.raises(Refused, match="need the registry of their schemas: give --registry"):
        follow(topic, path, Settings())


SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "at": {"type": "string", "format": "date-time"},
        "address": {"$ref": "#/$defs/address"},
        "open": {},
        "maybe": {"oneOf": [{"type": "null"}, {"type": "number"}]},
    },
    "$defs": {"address": {"type": "object", "properties": {"city": {"type": ["string", "null"]}}}},
}


@pytest.mark.parametrize("flat", [False, True])
def test_json_schema(tmp_path: Path, registry: Registry, flat: bool) -> None:
    schema_id = registry.add("t-value", json.dumps(SCHEMA), "JSON").to_bytes(4)
    documents: list[dict[str, Any]] = [
        {"id": 1, "at": "2026-11-30T12:00:00.5+01:00", "address": {"city": "Oslo"}},
        {"id": 2, "open": [1]},
        {"id": "three"},
        {"id": 4, "at": "soon"},
    ]
    topic, path = ModelTopic(), tmp_path / "t"
    topic.append(0, *(b"\0" + schema_id + json.dumps(each).encode() for each in documents))
    follow(topic, path, Settings("json-schema", registry=asking(registry), layout=Layout(flatten=flat)))
    check_once(topic, path)
    rows = fields_in(path)
    at = datetime(2026, 11, 30, 11, 0, 0, 500000, UTC)
    assert (rows[0]["id"], rows[0]["at"], rows[1]["open"], rows[1]["maybe"]) == (1, at, [1], None)
    assert (rows[0]["address_city"] if flat else rows[0]["address"]["city"]) == "Oslo"
    assert [each["_offset"] for each in dead_in(path)] == [2, 3]


@pytest.mark.parametrize("value_format", ["avro", "json-schema"])
def test_a_schema_that_the_registry_has_later(value_format: str) -> None:
    """Its values are dead letters until then, as of a registry of which one node is behind, and not for ever."""
    from kbroker.tables.delta import DeltaTarget
    from kbroker.tables.formats import values_of
    from kbroker.tables.plan import Kept

    now = 0.0
    with running_registry() as registry:
        found = registry_settings(registry.url, None)
        assert found is not None
        asked = SchemaRegistry(found, clock=lambda: now)
        values = values_of(Kept("t", "id", value_format, {}), None, DeltaTarget("t"), asked)
        framed = b"\0" + (1).to_bytes(4) + (b"\x0a" if value_format == "avro" else b'{"a": 5}')
        assert values.columns([framed], [()])[1] == {0: "the registry has no schema 1"}
        if value_format == "avro":
            registry.add("t-value", json.dumps(record(("a", "long"))))
        else:
            registry.add("t-value", '{"properties": {"a": {"type": "integer"}}}', "JSON")
        now = 1000.0
        [column], bad = values.columns([framed], [()])
        assert (column.to_pylist(), bad) == ([5], {})


DECLARED = '{"id": "long", "at": "timestamp", "day": "date", "price": "decimal(6,2)", "in": {"days": ["date"]}}'


@pytest.mark.parametrize("kind", KINDS)
def test_times_and_decimals_that_are_declared(tmp_path: Path, kind: str) -> None:
    topic, path = ModelTopic(), tmp_path / kind
    good = [
        ('{"id": 1, "at": "2026-11-30T12:00:00Z", "price": 12.5}', datetime(2026, 11, 30, 12, tzinfo=UTC), "12.50"),
        (
            '{"id": 2, "at": "2026-11-30 12:00:00.1234567", "price": "7"}',
            datetime(2026, 11, 30, 12, 0, 0, 123456, UTC),
            "7.00",
        ),
        ('{"id": 3, "at": "2026-11-30", "price": 1e1}', datetime(2026, 11, 30, tzinfo=UTC), "10.00"),
        ('{"id": 4, "day": "2026-11-30", "in": {"days": ["2026-11-30", null]}, "price": 9999.990}', None, "9999.99"),
    ]
    bad = [
        '{"at": "yesterday"}',
        '{"at": 5}',
        '{"day": "2026-13-01"}',
        '{"price": 0.001}',
        '{"price": 10000}',
        '{"price": true}',
    ]
    topic.append(0, *(text.encode() for text, _, _ in good), *map(str.encode, bad))
    for batch in (1, 100):
        each = path.with_name(f"{path.name}{batch}")
        follow(topic, each, Settings("json", DECLARED, batch_records=batch, max_bytes=1))
        check_once(topic, each)
        rows = fields_in(each)
        assert [(row["at"], row["price"]) for row in rows] == [(at, Decimal(price)) for _, at, price in good]
        assert rows[3]["day"] == date(2026, 11, 30) and rows[3]["in"] == {"days": [date(2026, 11, 30), None]}
        assert len(dead_in(each)) == len(bad)


@pytest.mark.parametrize("kind", KINDS)
def test_a_decimal_of_too_many_digits_is_found_alone(tmp_path: Path, kind: str) -> None:
    """Where nothing else is wrong: the digits before the point are few enough only without those behind it."""
    topic, path = ModelTopic(), tmp_path / kind
    topic.append(0, b'{"price": 12.5}', b'{"price": 123456}', b'{"in": [{"price": 99999}]}', b'{"price": 9999}')
    follow(topic, path, Settings("json", '{"price": "decimal(6,2)", "in": [{"price": "decimal(6,2)"}]}'))
    check_once(topic, path)
    assert [row["price"] for row in rows_in(path)] == [Decimal("12.50"), Decimal("9999.00")]
    assert [each["reason"] for each in dead_in(path)] == [
        "price: 123456 is too large for decimal(6,2)",
        "in[].price: 99999 is too large for decimal(6,2)",
    ]


def test_nan_is_no_json_where_nothing_else_is_wrong(tmp_path: Path) -> None:
    topic, path = ModelTopic(), tmp_path / "t"
    topic.append(0, b'{"a": 1.5}', b'{"a": NaN}', b'{"a": null}')
    follow(topic, path, Settings("json", '{"a": "double"}'))
    assert [row["a"] for row in rows_in(path)] == [1.5, None]
    assert [each["reason"] for each in dead_in(path)] == ["not JSON: NaN is no number of JSON"]


def test_readers_find_decimals_of_many_digits(tmp_path: Path) -> None:
    """By the bounds of a file they pass over it; those of a decimal as a double are not its own."""
    import pyarrow
    from deltalake import DeltaTable, QueryBuilder

    topic, path = ModelTopic(), tmp_path / "t"
    numbers = {"a": ("decimal(20,0)", "12345678901234567891"), "b": ("decimal(18,2)", "1234567890123456.79")}
    declared = {name: kind for name, (kind, _) in numbers.items()}
    text = ", ".join(f'"{name}": {number}' for name, (_, number) in numbers.items())
    settings = Settings("json", json.dumps({**declared, "in": declared}))

    def check() -> None:
        query = QueryBuilder().register("t", DeltaTable(str(path)))
        for name, (kind, number) in numbers.items():
            digits = kind.removeprefix("decimal").replace(",", ", ")
            exact = f"arrow_cast('{number}', 'Decimal128{digits}')"
            for column in (name, f"t.\"in\"['{name}']"):
                found = pyarrow.table(query.execute(f"select count(*) from t where {column} = {exact}"))
                assert found.column(0).to_pylist() == [len(topic.logs[0])], column

    for upsert in (False, True):
        path, topic = tmp_path / str(upsert), ModelTopic()
        for _ in range(2):
            topic.append(0, f'{{{text}, "in": {{{text}}}}}'.encode())
            topic.logs[0] = [each._replace(key=b"k%d" % each.offset) for each in topic.logs[0]]
            follow(topic, path, replace(settings, upsert=upsert))
            check()
        target_of(path).maintain()
        check()


def test_flat_json_and_a_collision(tmp_path: Path) -> None:
    """The columns are those of the nested fields, also for a later follower, and whole numbers fit a double."""
    topic, path = ModelTopic(), tmp_path / "t"
    flat = Settings("json", layout=Layout(flatten=True))
    topic.append(0, b'{"a": {"b": {"c": 1.5}, "d": "x"}}', b'{"a": {"d": "y"}, "a_d": "z"}', b'{"e": 1}')
    follow(topic, path, flat)
    topic.append(0, b'{"a": {"b": {"c": 2}, "new": true}}')
    follow(topic, path, Settings())
    check_once(topic, path)
    assert [(row["a_b_c"], row["a_d"], row["e"], row["a_new"]) for row in rows_in(path)] == [
        (1.5, "x", None, None),
        (None, None, 1, None),
        (2.0, None, None, True),
    ]
    [dead] = dead_in(path)
    assert dead["reason"] == "a_d: two fields have this name when they are flat"
    topic.append(0, b'{"A_d": 1}')
    follow(topic, path, Settings())
    assert dead_in(path)[-1]["reason"] == "A_d: there is a column of this name, or it differs in capitals alone"
    with pytest.raises(Refused, match="--flatten: a_d: two fields"):
        follow(
            topic, tmp_path / "u", Settings("json", '{"a": {"d": "long"}, "a_d": "long"}', layout=Layout(flatten=True))
        )


@pytest.mark.parametrize("kind", KINDS)
def test_partitions_by_a_field_of_the_first_values(tmp_path: Path, kind: str) -> None:
    topic, path = ModelTopic(), tmp_path / kind
    by_customer = Settings("json", layout=Layout(False, "customer", "id,customer"))
    topic.append(0)
    with pytest.raises(NotYet, match="has no value yet that tells what customer is"):
        follow(topic, path, by_customer)
    topic.append(0, b'{"id": 2, "customer": "ann"}', b'{"id": 1, "customer": "bob"}', b'{"id": 0}')
    follow(topic, path, by_customer)
    topic.append(0, b'{"id": 3, "customer": "ann", "new": 1}')
    follow(topic, path, Settings())
    check_once(topic, path)
    files = [str(each.parent.name) for each in tmp_path.rglob("*.parquet") if "customer=" in str(each)]
    assert {"customer=ann", "customer=bob"} <= {*files}
    for other, told in (
        ("_partition", "is partitioned by customer"),
        ("day(_timestamp)", "is partitioned by customer"),
    ):
        with pytest.raises(Refused, match=f"{told}: leave out --partition-by"):
            follow(topic, path, Settings(layout=Layout(False, other)))
    with pytest.raises(Refused, match="has nested values: leave out --flatten"):
        follow(topic, path, Settings(layout=Layout(True)))
    with pytest.raises(Refused, match=r"topic orders has no town in its first \d+ values?: name another field"):
        follow(topic, tmp_path / f"{kind}2", Settings("json", layout=Layout(False, "town")))
    with pytest.raises(Refused, match=r"hour\(id\): it is int64, and no time"):
        follow(topic, tmp_path / f"{kind}2", Settings("json", layout=Layout(False, "hour(id)")))


@pytest.mark.parametrize("kind", [KINDS[0], *(pytest.param(each, marks=needs_transforms) for each in KINDS[1:])])
def test_partitions_by_time(tmp_path: Path, kind: str) -> None:
    topic, path = ModelTopic(), tmp_path / kind
    layout = Layout(False, "day(_timestamp),hour(at),month(day)")
    declared = '{"id": "long", "at": "timestamp", "day": "date"}'
    topic.append(0, *(b'{"id": %d, "at": "2026-11-30T0%d:59:59Z", "day": "2026-1%d-30"}' % (n, n, n) for n in range(3)))
    topic.append(0, b'{"id": 9}')
    for _ in range(2):
        follow(topic, path, Settings("json", declared, layout=layout))
        topic.append(0, b'{"id": 5}')
    rows = rows_in(path)
    assert [row["id"] for row in rows] == [0, 1, 2, 9, 5]
    if kind == "delta":
        assert rows[1]["_timestamp_day"] == date(2023, 11, 14) and rows[1]["day_month"] == date(2026, 11, 1)
        assert rows[1]["at_hour"] == datetime(2026, 11, 30, 1, tzinfo=UTC)
    else:
        from pyiceberg.catalog.sql import SqlCatalog

        catalog = SqlCatalog("kbroker", uri=f"sqlite:///{tmp_path / 'catalog.db'}", warehouse=f"file://{tmp_path}")
        table = catalog.load_table(f"lake.{kind}")
        assert [str(each.transform) for each in table.spec().fields] == ["day", "hour", "month"]
        assert len(list(table.scan("at >= '2026-11-30T02:00:00+00:00'").plan_files())) == 1


@pytest.mark.parametrize("kind", [KINDS[0], *(pytest.param(each, marks=needs_transforms) for each in KINDS[1:])])
def test_names_that_the_table_keeps_for_itself(tmp_path: Path, registry: Registry, kind: str) -> None:
    """A field that comes later with the name of a day, or one of Iceberg's, stops nothing."""
    names = ["_timestamp_day", *(["_topic_partition", "_pos"] if kind == "iceberg" else [])]
    written = [{"id": 1}, *({"id": 2, name: 3} for name in names), {"id": 4}]
    values = [avro(registry, record(*((name, "long") for name in each)), each)[0] for each in written]
    documents = [json.dumps(each).encode() for each in written]
    layout = Layout(False, "day(_timestamp)")
    for chosen, content in ((Settings("json"), documents), (Settings("avro", registry=asking(registry)), values)):
        topic, path = ModelTopic(), tmp_path / f"{kind}_{chosen.value_format}"
        topic.append(0, content[0])
        follow(topic, path, replace(chosen, layout=layout))
        topic.append(0, *content[1:])
        follow(topic, path, chosen)
        check_once(topic, path)
        assert [row["id"] for row in rows_in(path)] == [1, 4]
        reason = "there is a column of this name, or it differs in capitals alone"
        assert [each["reason"] for each in dead_in(path)] == [f"{name}: {reason}" for name in names]


def test_clustered_when_it_is_maintained(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    from kbroker.tables.delta import DeltaTarget

    topic, path = ModelTopic(), tmp_path / "t"
    layout = Layout(cluster_by="id")
    for number in (3, 1, 2):
        topic.append(0, b'{"id": %d}' % number)
        follow(topic, path, Settings("json", layout=layout))
    assert DeltaTarget(str(path)).maintain()["merged_files"] == 3
    assert DeltaTable(str(path)).to_pyarrow_table().column("id").to_pylist() == [1, 2, 3]
    follow(topic, path, Settings())
    check_once(topic, path)


# --- Any schemas that widen -----------------------------------------------------------------------------------------

LEAVES: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "int": ("int", st.integers(-(2**31), 2**31 - 1)),
    "long": ("long", st.integers(-(2**63), 2**63 - 1)),
    "float": ("float", st.floats(width=32, allow_nan=False)),
    "double": ("double", st.floats(allow_nan=False)),
    "string": ("string", st.text(max_size=4)),
    "bytes": ("bytes", st.binary(max_size=4)),
    "boolean": ("boolean", st.booleans()),
    "maybe": (["null", "long"], st.none() | st.integers(-5, 5)),
    "list": ({"type": "array", "items": "int"}, st.lists(st.integers(-5, 5), max_size=3)),
    "map": ({"type": "map", "values": "string"}, st.dictionaries(st.text(max_size=2), st.text(max_size=2), max_size=2)),
    "at": (
        {"type": "long", "logicalType": "timestamp-micros"},
        st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).map(lambda each: each.replace(tzinfo=UTC)),
    ),
    "day": ({"type": "int", "logicalType": "date"}, st.dates()),
    "cents": (
        {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
        st.decimals(-999, 999, places=2),
    ),
    "more cents": (
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        st.decimals(-9_999_999, 9_999_999, places=2),
    ),
}
FIELDS = st.dictionaries(st.sampled_from("abcd"), st.sampled_from(sorted(LEAVES)), min_size=1, max_size=4)
SCHEMAS = st.lists(st.tuples(FIELDS, st.booleans()), min_size=1, max_size=4)


def same(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, Mapping):
        pairs = dict(found or []) if not isinstance(found, Mapping) else found
        return all(same(each, pairs.get(name)) for name, each in wanted.items())
    return bool(wanted == found or (wanted == {} and found is None))


@settings(max_examples=examples(20))
@given(schemas=SCHEMAS, data=st.data(), kind=st.sampled_from(KINDS))
def test_any_schemas(
    registry: Registry, schemas: list[tuple[dict[str, str], bool]], data: st.DataObject, kind: str
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        topic, path, written = ModelTopic(), Path(directory) / kind, []
        topic.append(0)
        for fields, nested in schemas:
            schema = record(*((name, LEAVES[leaf][0]) for name, leaf in fields.items()), name="In")
            values = st.fixed_dictionaries({name: LEAVES[leaf][1] for name, leaf in fields.items()})
            if nested:
                schema, values = record(("in", schema), name="Out"), values.map(lambda each: {"in": each})
            drawn = data.draw(st.lists(values, min_size=1, max_size=4))
            written += drawn
            topic.append(0, *avro(registry, schema, *drawn))
            if data.draw(st.booleans()):
                follow(topic, path, Settings("avro", registry=asking(registry), batch_records=3))
        follow(topic, path, Settings("avro", registry=asking(registry), batch_records=3))
        check_once(topic, path)
        for row in rows_in(path):
            assert same(written[row["_offset"]], row), (written[row["_offset"]], row)
