"""A table that is kept by key has the latest row of each, wherever a follower is killed and however many there are."""

from __future__ import annotations

import itertools
import json
import tempfile
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("deltalake")

from kbroker.tables.follower import Settings
from kbroker.tables.layout import Layout
from kbroker.tables.plan import Refused
from kbroker.wire.record_batch import Record
from tests.tables.model_topic import TIME, Killed, ModelTopic, dead_in, follow, rows_in
from tests.tables.test_exactly_once import EITHER, FORMATS, kill_at, needs_iceberg
from tests.with_each import examples

UPSERT = Settings(value_format="json", batch_records=5, max_bytes=1, upsert=True)
"""Rows are committed as soon as there are some."""
CHANGES = Settings(batch_records=5, max_bytes=1, changes="debezium")
KINDS = ["delta", *(["iceberg"] if needs_iceberg.args[0] is False else [])]


def put(topic: ModelTopic, partition: int, key: bytes | None, value: bytes | None, time: int | None = None) -> None:
    """Add a record with a key."""
    topic.append(partition, value)
    last = topic.logs[partition][-1]
    topic.logs[partition][-1] = last._replace(key=key, timestamp=last.timestamp if time is None else TIME + time)


def latest_of(topic: ModelTopic) -> dict[bytes, Record]:
    """The model: each key's last record, of a topic whose keys are in one partition each."""
    rows: dict[bytes, Record] = {}
    for log in topic.logs.values():
        for record in log:
            assert record.key is not None
            rows.pop(record.key, None)
            if record.value is not None:
                rows[record.key] = record
    return rows


def check_latest(topic: ModelTopic, path: Path) -> None:
    """Assert that the table has the model's rows, and no others."""
    wanted, rows = latest_of(topic), rows_in(path)
    assert sorted(row["_key"] for row in rows) == sorted(wanted)
    for row in rows:
        record = wanted[row["_key"]]
        assert row["_offset"] == record.offset
        assert [(each["key"], each["value"]) for each in row["_headers"]] == list(record.headers)
        document = json.loads(record.value or b"null")
        assert {name: each for name, each in _plain(row).items() if not name.startswith("_")} == document


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items() if each is not None}
    return value


def orders() -> ModelTopic:
    """Two partitions: keys that come again, that go, that come back, and whose values widen the table."""
    topic = ModelTopic()
    for number in range(12):
        put(topic, number % 2, b"k%d" % (number % 6), b'{"id": %d, "in": {"a": 1}}' % number)
    put(topic, 0, b"k0", None)
    put(topic, 1, b"k1", b'{"id": 99, "in": {"a": 2, "b": 3}, "new": "x"}')
    put(topic, 1, b"k3", None)
    put(topic, 0, b"none", None)
    put(topic, 1, b"k3", b'{"id": 100}')
    return topic


@pytest.mark.parametrize("kind", EITHER)
def test_killed_at_every_step(tmp_path: Path, kind: str) -> None:
    topic = orders()
    for moment in itertools.count(1):
        path = tmp_path / f"{kind}{moment}"
        try:
            follow(topic, path, UPSERT, kill_at(moment))
        except Killed:
            follow(topic, path, UPSERT)
            check_latest(topic, path)
            continue
        break
    assert moment > 6


@pytest.mark.parametrize("kind", EITHER)
def test_another_follower_at_every_step(tmp_path: Path, kind: str) -> None:
    for moment in itertools.count(1):
        topic, path = orders(), tmp_path / f"{kind}{moment}"

        def other(now: int, at: int = moment, topic: ModelTopic = topic, path: Path = path) -> None:
            if now == at:
                put(topic, 0, b"k2", b'{"id": 77}')
                put(topic, 1, b"k5", None)
                follow(topic, path, UPSERT)

        found = follow(topic, path, UPSERT, other)
        check_latest(topic, path)
        if len(topic.logs[0]) == len(orders().logs[0]):
            break
    assert moment > 6 and found.progress.conflicts == 0


@settings(max_examples=examples(25))
@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.one_of(st.none(), st.fixed_dictionaries({"a": st.integers(0, 9)}))), max_size=40
    ),
    st.integers(1, 20),
    st.sampled_from([1, 500, 10_000]),
    st.lists(st.integers(0, 8), max_size=3),
    st.sampled_from(KINDS),
)
def test_any_topic_any_kills(
    changes: list[tuple[int, dict[str, int] | None]], batch: int, memory: int, kills: list[int], kind: str
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        topic, path = ModelTopic(), Path(directory) / kind
        topic.append(0)
        topic.append(1)
        chosen = Settings(value_format="json", batch_records=batch, max_bytes=memory, upsert=True)
        for part, kill in enumerate([*kills, 0]):
            for key, value in changes[part :: len(kills) + 1]:
                put(topic, key % 2, b"%d" % key, None if value is None else json.dumps(value).encode())
            try:
                follow(topic, path, chosen, kill_at(kill))
            except Killed:
                pass
        follow(topic, path, chosen)
        check_latest(topic, path)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("memory", [1, 1 << 20])
def test_a_key_in_two_partitions(tmp_path: Path, kind: str, memory: int) -> None:
    """The later timestamp wins, of equal ones the higher partition, whichever was read first; in one the offset."""
    topic, path = ModelTopic(), tmp_path / kind
    for key, (first, second) in {b"a": (5, 3), b"b": (3, 5), b"c": (4, 4), b"d": (5, 3), b"e": (3, 5)}.items():
        put(topic, 0, key, b'{"p": 0}', first)
        put(topic, 1, key, None if key in b"de" else b'{"p": 1}', second)
    put(topic, 0, b"f", b'{"p": 1}', 9)
    put(topic, 0, b"f", b'{"p": 2}', 1)
    follow(topic, path, Settings(value_format="json", upsert=True, batch_records=1, max_bytes=memory))
    assert {row["_key"]: row["p"] for row in rows_in(path)} == {b"a": 0, b"b": 1, b"c": 1, b"d": 0, b"f": 2}


@pytest.mark.parametrize("kind", FORMATS)
def test_records_without_a_key_and_a_new_topic(tmp_path: Path, kind: str) -> None:
    """A new topic's offsets begin again, and its rows replace the old ones all the same."""
    old, path = ModelTopic(), tmp_path / kind
    put(old, 0, b"a", b'{"p": 0}')
    put(old, 0, None, b'{"p": 1}')
    put(old, 0, b"b", b'{"p": 2}')
    follow(old, path, UPSERT)
    [dead] = dead_in(path)
    assert (dead["_offset"], dead["reason"]) == (1, "no key, by which its row would be known")
    new = ModelTopic(topic_id="AAAAAAAAAAAAAAAAAAAAAg")
    put(new, 0, b"b", b'{"p": 3}')
    follow(new, path, Settings(new_topic=True))
    assert {row["_key"]: row["p"] for row in rows_in(path)} == {b"a": 0, b"b": 3}


def test_a_table_keeps_its_way(tmp_path: Path) -> None:
    topic = orders()
    follow(topic, tmp_path / "rows", Settings(value_format="json"))
    with pytest.raises(Refused, match="has every record as a row: leave out --upsert and --changes"):
        follow(topic, tmp_path / "rows", Settings(upsert=True))
    follow(topic, tmp_path / "keys", UPSERT)
    with pytest.raises(Refused, match="is kept by upsert"):
        follow(topic, tmp_path / "keys", CHANGES)
    put(topic, 0, b"k4", None)
    follow(topic, tmp_path / "keys", Settings())
    check_latest(topic, tmp_path / "keys")
    with pytest.raises(ValueError, match="--changes debezium is of values that are json, avro, protobuf"):
        Settings(value_format="text", changes="debezium")


# --- Debezium --------------------------------------------------------------------------------------------------------


def envelope(op: str, row: dict[str, Any] | None = None, **more: Any) -> bytes:
    """An envelope as Debezium writes it with PostgreSQL."""
    source = {"connector": "postgresql", "name": "shop", "lsn": 1, "snapshot": "false", "table": "orders"}
    before, after = (row, None) if op == "d" else (None, row)
    return json.dumps({"before": before, "after": after, "source": source, "op": op, "ts_ms": 1, **more}).encode()


def with_schema(value: bytes) -> bytes:
    """The same from a converter with ``schemas.enable``."""
    fields = [{"type": "struct", "field": "after", "optional": True}, {"type": "string", "field": "op"}]
    return b'{"schema": %s, "payload": %s}' % (json.dumps({"type": "struct", "fields": fields}).encode(), value)


@pytest.mark.parametrize("kind", FORMATS)
def test_changes_of_debezium(tmp_path: Path, kind: str) -> None:
    topic, path = ModelTopic(), tmp_path / kind
    for number in range(4):
        put(topic, number % 2, b'{"id": %d}' % number, envelope("r", {"id": number, "name": "n"}))
    put(topic, 0, b'{"id": 0}', with_schema(envelope("u", {"id": 0, "name": "other"})))
    put(topic, 1, b'{"id": 1}', envelope("d", {"id": 1, "name": "n"}))
    put(topic, 1, b'{"id": 1}', None)
    put(topic, 0, b'{"id": 4}', envelope("c", {"id": 4, "name": "n", "more": {"x": 1.5}}))
    bad = {
        b"{": "not JSON: ",
        b"\xff": "not UTF-8",
        b"[1]": "no envelope of Debezium: it has no op",
        b'{"id": 1}': "no envelope of Debezium: it has no op",
        envelope("c"): "no envelope of Debezium: op c without after",
        envelope("m"): "op m of Debezium is no change of a row",
        envelope("c", {"id": "text"}): "id: string where the table has long",
    }
    for value in bad:
        put(topic, 0, b"bad", value)
    follow(topic, path, CHANGES)
    found = {row["_key"]: (row["id"], row["name"], row["more"]) for row in rows_in(path)}
    assert found == {
        b'{"id": 0}': (0, "other", None),
        b'{"id": 2}': (2, "n", None),
        b'{"id": 3}': (3, "n", None),
        b'{"id": 4}': (4, "n", {"x": 1.5}),
    }
    dead = {row["value"]: row["reason"] for row in dead_in(path)}
    assert dead.keys() == bad.keys() and all(dead[value].startswith(reason) for value, reason in bad.items())


@pytest.mark.parametrize("kind", FORMATS)
def test_numbers_in_envelopes_keep_all_their_digits(tmp_path: Path, kind: str) -> None:
    """Kafka Connect writes decimals so with ``decimal.format=NUMERIC``."""
    topic, path = ModelTopic(), tmp_path / kind
    texts = ["12345678901234567.89", "-0.1234567890123456789", "1.50", "12345678901234567.5e-2"]
    for number, text in enumerate(texts):
        value = b'{"op": "c", "after": {"id": %d, "n": "x", "in": [{"a": %s}]}}' % (number, text.encode())
        put(topic, 0, b"%d" % number, value)
    declared = '{"id": "long", "n": "string", "in": [{"a": "decimal(38,19)"}]}'
    follow(topic, path, replace(CHANGES, declared=declared, value_format="json"))
    assert [row["in"][0]["a"] for row in rows_in(path)] == [Decimal(each) for each in texts]


@pytest.mark.parametrize("kind", FORMATS)
def test_any_name_may_be_that_of_a_field(tmp_path: Path, kind: str) -> None:
    """Also that by which a follower once knew what a row does."""
    topic, path = ModelTopic(), tmp_path / kind
    for number in range(3):
        put(topic, 0, b"k%d" % (number % 2), b'{"id": %d, "_change": %d, "a`b.c": {"`": 1}}' % (number, number))
    follow(topic, path, UPSERT)
    put(topic, 0, b"k1", None)
    follow(topic, path, UPSERT)
    assert [(row["id"], row["_change"], row["a`b.c"]) for row in rows_in(path)] == [(2, 2, {"`": 1})]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("memory", [1, 1 << 20])
def test_a_truncation(tmp_path: Path, kind: str, memory: int) -> None:
    """It takes the rows before it in its partition, and those of other partitions that are not later."""
    topic, path = ModelTopic(), tmp_path / kind
    topic.append(0)
    for partition, key, time in ((0, b"a", 5), (0, b"b", 12), (1, b"c", 5), (1, b"d", 15), (1, b"e", 5)):
        put(topic, partition, key, envelope("c", {"id": time}), time)
    put(topic, 1, None, envelope("t"), 10)
    put(topic, 1, b"f", envelope("c", {"id": 1}), 5)
    put(topic, 1, b"c", envelope("c", {"id": 2}), 5)
    follow(topic, path, Settings(changes="debezium", batch_records=1, max_bytes=memory))
    assert {row["_key"]: row["id"] for row in rows_in(path)} == {b"b": 12, b"f": 1, b"c": 2}
    assert dead_in(path) == []


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("kind", FORMATS)
def test_changes_of_debezium_in_avro(tmp_path: Path, kind: str, flat: bool) -> None:
    """With a schema of a registry, which a later one widens, and a follower that comes later."""
    pytest.importorskip("fastavro")
    from tests.schemas.registry_server import running_registry
    from tests.tables.test_formats import asking, avro, record

    place = record(("city", "string"), name="Place")
    first = record(("id", "long"), ("to", place), name="Value")
    wider = record(("id", "long"), ("to", place), ("more", ["null", "string"]), name="Value")

    def enveloped(row: Any, *values: Any) -> list[bytes]:
        source = record(("lsn", "long"), name="Source")
        fields = [("before", ["null", row]), ("after", ["null", "Value"]), ("source", source), ("op", "string")]
        return avro(registry, record(*fields, name="Envelope"), *({"source": {"lsn": 1}, **each} for each in values))

    def row(number: int, **more: Any) -> dict[str, Any]:
        return {"id": number, "to": {"city": "Bern"}, **more}

    with running_registry() as registry:
        topic, path = ModelTopic(), tmp_path / kind
        chosen = Settings("avro", changes="debezium", registry=asking(registry), layout=Layout(flatten=flat))
        rows = enveloped(first, *({"op": "r", "after": row(number)} for number in range(4)))
        gone = enveloped(first, {"op": "d", "before": row(0)})
        for number, value in enumerate(rows + gone):
            put(topic, 0, b"%d" % (number % 4), value)
        [no_envelope] = avro(registry, first, row(9))
        put(topic, 0, b"9", no_envelope)
        follow(topic, path, chosen)
        put(topic, 0, b"2", enveloped(wider, {"op": "u", "after": row(2, more="x")})[0])
        put(topic, 0, b"3", None)
        follow(topic, path, replace(chosen, changes=None, value_format=None, layout=Layout()))
        city = "to_city" if flat else "to"
        rows_by_key = {each["_key"]: (each["id"], each[city], each["more"]) for each in rows_in(path)}
        bern = "Bern" if flat else {"city": "Bern"}
        assert rows_by_key == {b"1": (1, bern, None), b"2": (2, bern, "x")}
        assert [each["reason"] for each in dead_in(path)] == ["no envelope of Debezium: it has no op"]


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("kind", FORMATS)
def test_a_field_that_a_later_schema_has_not_is_null(tmp_path: Path, kind: str, flat: bool) -> None:
    """Also to a follower that never saw a schema with it: a row has nothing of the one that was there before."""
    pytest.importorskip("fastavro")
    from tests.schemas.registry_server import running_registry
    from tests.tables.test_formats import asking, avro, record

    def enveloped(row: dict[str, Any]) -> bytes:
        kind = record(*((name, "long") for name in row), name="Value")
        envelope = record(("after", ["null", kind]), ("op", "string"), name="Envelope")
        return avro(registry, envelope, {"op": "u", "after": row})[0]

    with running_registry() as registry:
        topic, path = ModelTopic(), tmp_path / kind
        chosen = Settings("avro", changes="debezium", registry=asking(registry), layout=Layout(flatten=flat))
        for row in ({"id": 1, "gone": 1}, {"id": 2}):
            put(topic, 0, b"key", enveloped(row))
            follow(topic, path, chosen)
        assert [(row["id"], row["gone"]) for row in rows_in(path)] == [(2, None)]


@pytest.mark.parametrize("kind", FORMATS)
def test_flat_rows_fit_the_columns_that_the_table_has(tmp_path: Path, kind: str) -> None:
    """Also to a follower that knows another schema alone: what a column does not hold exactly is a dead letter."""
    pytest.importorskip("fastavro")
    from tests.schemas.registry_server import running_registry
    from tests.tables.test_formats import asking, avro, record

    def enveloped(number: str, row: dict[str, Any]) -> bytes:
        kind = record(("id", number), ("f", "float"), name="Value")
        envelope = record(("after", ["null", kind]), ("op", "string"), name="Envelope")
        return avro(registry, envelope, {"op": "c", "after": {"f": 0.5, **row}})[0]

    with running_registry() as registry:
        topic, path = ModelTopic(), tmp_path / kind
        chosen = Settings("avro", changes="debezium", registry=asking(registry), layout=Layout(flatten=True))
        put(topic, 0, b"0", enveloped("int", {"id": 1}))
        follow(topic, path, chosen)
        put(topic, 0, b"1", enveloped("double", {"id": 1.5}))
        put(topic, 0, b"2", enveloped("string", {"id": "2"}))
        follow(topic, path, chosen)
        put(topic, 0, b"3", enveloped("int", {"id": 3}))
        follow(topic, path, chosen)
        assert {row["_key"]: row["id"] for row in rows_in(path)} == {b"0": 1, b"3": 3}
        assert [row["_key"] for row in dead_in(path)] == [b"1", b"2"]


def test_flat_rows_with_two_fields_of_a_name(tmp_path: Path) -> None:
    pytest.importorskip("fastavro")
    from tests.schemas.registry_server import running_registry
    from tests.tables.test_formats import asking, avro, record

    row = record(("id", "long"), ("to", record(("city", "string"), name="Place")), ("to_city", "string"), name="Value")
    envelope = record(("after", ["null", row]), ("op", "string"), name="Envelope")
    after = {"id": 1, "to": {"city": "Bern"}, "to_city": "Rome"}
    with running_registry() as registry:
        topic, path = ModelTopic(), tmp_path / "t"
        for value in avro(registry, envelope, {"op": "c", "after": after}, {"op": "d", "after": None}):
            put(topic, 0, b"key", value)
        chosen = Settings("avro", changes="debezium", registry=asking(registry), layout=Layout(flatten=True))
        follow(topic, path, chosen)
        [dead] = dead_in(path)
        assert dead["reason"] == "to_city: two fields have this name when they are flat"


@pytest.mark.parametrize("kind", FORMATS)
def test_a_table_in_partitions(tmp_path: Path, kind: str) -> None:
    """A key's row may go to another partition of the table."""
    topic, path = ModelTopic(), tmp_path / kind
    for number in range(9):
        put(
            topic,
            0,
            b"%d" % (number % 3),
            b'{"id": %d, "where": "%s"}' % (number, b"abcd"[number % 4 : number % 4 + 1]),
        )
    follow(topic, path, replace(UPSERT, layout=Layout(partition_by="where", cluster_by="id")))
    put(topic, 0, b"1", b'{"id": 20, "where": "x", "new": 1}')
    follow(topic, path, UPSERT)
    check_latest(topic, path)


def test_a_delta_table_by_days(tmp_path: Path) -> None:
    topic, path = ModelTopic(), tmp_path / "t"
    for number in range(9):
        put(topic, 0, b"%d" % (number % 3), b'{"id": %d}' % number, number * 86_400_000)
    follow(topic, path, replace(UPSERT, layout=Layout(partition_by="day(_timestamp)")))
    put(topic, 0, b"1", b'{"id": 20, "new": 1}', 20 * 86_400_000)
    follow(topic, path, UPSERT)
    found = {row["_key"]: (row["id"], str(row["_timestamp_day"])) for row in rows_in(path)}
    assert found == {b"0": (6, "2023-11-20"), b"1": (20, "2023-12-04"), b"2": (8, "2023-11-22")}
