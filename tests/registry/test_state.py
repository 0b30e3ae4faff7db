"""Records of ``_schemas`` and what they say, those of other registries as well."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kbroker.registry.state import State, Unreadable


def key(kind: str, subject: str | None = None, version: int | None = None, **more: Any) -> bytes:
    numbered = {} if version is None else {"version": version}
    return json.dumps({"keytype": kind, "subject": subject, **numbered, "magic": 1, **more}).encode()


def schema(subject: str, version: int, schema_id: int, text: str = '"int"', **more: Any) -> tuple[bytes, bytes]:
    value = {"subject": subject, "version": version, "id": schema_id, "schema": text, "deleted": False, **more}
    return key("SCHEMA", subject, version), json.dumps(value).encode()


def of(*records: tuple[bytes | None, bytes | None]) -> State:
    state = State()
    for each in records:
        state.apply(*each)
    return state


def numbers(state: State, subject: str, *, deleted: bool = False) -> list[int]:
    return [each.version for each in state.versions(subject, deleted=deleted)]


def test_versions_and_ids() -> None:
    state = of(schema("a", 1, 1), schema("a", 2, 5, '"long"'), schema("b", 1, 1, ' "int" '))
    assert numbers(state, "a") == [1, 2] and state.highest_id == 5
    assert sorted(state.by_id[1]) == [("a", 1), ("b", 1)]
    found = state.with_id(5)
    assert found is not None and (found.text, found.kind) == ('"long"', "AVRO")


def test_a_subject_is_deleted_softly_and_for_good() -> None:
    gone = (key("DELETE_SUBJECT", "a"), b'{"subject":"a","version":2}')
    state = of(schema("a", 1, 1), schema("a", 2, 2, '"long"'), gone, schema("a", 3, 1))
    assert numbers(state, "a") == [3] and numbers(state, "a", deleted=True) == [1, 2, 3]
    state.apply(key("SCHEMA", "a", 2), None)
    assert state.with_id(2) is None and state.highest_id == 2
    state.apply(key("CLEAR_SUBJECT", "a"), b'{"subject":"a"}')
    assert numbers(state, "a", deleted=True) == [3]


def test_levels_and_modes() -> None:
    state = of()
    assert (state.level("a"), state.mode("a")) == ("BACKWARD", "READWRITE")
    state.apply(key("CONFIG"), b'{"compatibilityLevel":"FULL"}')
    state.apply(key("CONFIG", "a"), b'{"subject":"a","compatibilityLevel":"NONE","normalize":true,"alias":"b"}')
    state.apply(key("MODE", "a"), b'{"subject":"a","mode":"READONLY"}')
    assert (state.level("a"), state.level("b"), state.mode("a")) == ("NONE", "FULL", "READONLY")
    assert state.normalizes("a") and not state.normalizes("b") and state.levels["a"]["alias"] == "b"
    state.apply(key("CONFIG", "a"), None)
    state.apply(key("MODE", "a"), None)
    state.apply(key("MODE"), b'{"mode":"READONLY_OVERRIDE"}')
    assert (state.level("a"), state.mode("a")) == ("FULL", "READONLY_OVERRIDE")


def test_records_that_mean_nothing_here_change_nothing() -> None:
    state = of((key("NOOP"), None), (key("CONTEXT", "c", tenant="t"), b'{"context":"c"}'), schema(":.x:a", 1, 1))
    assert not state.subjects and not state.by_id


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ((None, b"{}"), "no key"),
        ((b"\xff", b"{}"), "its key is no JSON"),
        ((b"[1]", b"{}"), "its key is no object"),
        ((key("SCHEMA", "b", 1), b"what"), "its value is no JSON"),
        ((key("SCHEMA", "b", 1), b'{"subject":"b"}'), "no 'version'"),
        ((key("SCHEMA", "b", 2), schema("b", 1, 2)[1]), "its key names another"),
        ((key("SCHEMA", "b", 1), b'{"subject":"b","version":1,"id":1e400,"schema":"x"}'), "no cannot convert"),
        (schema("b", 1, 1, '"string"'), "id 1 is that of another schema"),
        ((key("CONFIG"), b'{"compatibilityLevel":"WIDE"}'), "no level WIDE"),
        ((key("MODE"), b'{"mode":"ODD"}'), "no mode ODD"),
    ],
)
def test_what_cannot_be_understood_changes_nothing(record: tuple[bytes | None, bytes | None], why: str) -> None:
    state = of(schema("a", 1, 1))
    with pytest.raises(Unreadable, match=why):
        state.apply(*record)
    assert list(state.subjects) == ["a"] and not state.levels and not state.modes


def test_a_record_is_written_anew_with_its_own_key_and_all_of_its_fields() -> None:
    """Another registry's key may be laid out in another way, and compaction goes by bytes."""
    own = b'{"subject": "a", "version": 1, "magic": 1, "keytype": "SCHEMA"}'
    value = {"subject": "a", "version": 1, "id": 1, "schema": '"int"', "md5": "x", "metadata": {"properties": {}}}
    state = of((own, json.dumps(value).encode()))
    [version] = state.versions("a")
    written, content = state.record("SCHEMA", "a", version.change(deleted=True), 1)
    assert written == own and content is not None and json.loads(content) == {**value, "deleted": True}
    assert state.record("SCHEMA", "b", None, 1)[0] == b'{"keytype":"SCHEMA","subject":"b","version":1,"magic":1}'


def test_references_are_told_in_the_order_of_their_use() -> None:
    to = {"references": [{"name": "A", "subject": "a", "version": 1}]}
    both = {"references": [{"name": "B", "subject": "b", "version": 1}, *to["references"]]}
    state = of(schema("a", 1, 1), schema("b", 1, 2, '"long"', **to), schema("c", 1, 3, '"string"', **both))
    [version] = state.versions("c")
    assert state.texts_of(version.references) == [("A", '"int"'), ("B", '"long"')]
    assert [each.subject for each in state.referring("a", 1)] == ["b", "c"]
