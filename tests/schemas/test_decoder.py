"""Whole records by a registry: a bad one is told, and the others are decoded."""

from __future__ import annotations

import uuid

import pytest

from kbroker.client.schemas.decoder import Decoded, PartNote, RecordDecoder
from kbroker.client.schemas.registry import SchemaRegistry
from kbroker.client.schemas.settings import registry_settings
from kbroker.client.schemas.wire_format import RegistryError
from kbroker.wire.record_batch import Record
from tests.schemas.registry_server import Registry

pytest.importorskip("fastavro")


@pytest.fixture
def decoder(registry: Registry) -> RecordDecoder:
    settings = registry_settings(registry.url, None)
    assert settings is not None
    return RecordDecoder(SchemaRegistry(settings))


def record(key: bytes | None, value: bytes | None, *headers: tuple[str, bytes | None]) -> Record:
    return Record(7, 5, key, value, headers)


def framed(schema_id: int, data: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4) + data


def test_keys_and_values_by_their_own_schemas(registry: Registry, decoder: RecordDecoder) -> None:
    registry.add("k", '"long"')
    registry.add("v", "{}", "JSON")
    found = decoder.decode(record(framed(1, b"\x0e"), framed(2, b'{ "a" : "\xc3\xa4",\n "b" : 1.10, "c" : 1e400 }')))
    shown = '{ "a" : "ä",  "b" : 1.10, "c" : 1e400 }'.encode()
    assert found == Decoded(record(b"7", shown), PartNote(1, "AVRO"), PartNote(2, "JSON"))


@pytest.mark.parametrize("value", [None, b"", b"text", b"\0\0\0\x07", b"{}"])
def test_what_names_no_schema_stays(registry: Registry, decoder: RecordDecoder, value: bytes | None) -> None:
    given = record(value, value)
    assert decoder.decode(given) == Decoded(given)
    assert registry.asked == []


def test_one_bad_part_does_not_hide_the_other(registry: Registry, decoder: RecordDecoder) -> None:
    registry.add("k", '"string"')
    registry.add("v", "{}", "JSON")
    registry.add("v", "nothing", "AVRO")
    registry.add("v", "x", "THRIFT")
    key = framed(1, b"\x02k")
    for value, kind, problem in (
        (framed(99, b"x"), None, "the registry has no schema 99"),
        (framed(1, b"\x10k"), "AVRO", "its bytes do not fit its Avro schema: "),
        (framed(2, b"{"), "JSON", "it is not JSON, as its schema says"),
        (framed(2, b"NaN"), "JSON", "it is not JSON, as its schema says"),
        (framed(2, b"[" * 100_000), "JSON", "it is nested too deep"),
        (framed(3, b""), "AVRO", "its Avro schema cannot be used: "),
        (framed(4, b""), "THRIFT", "its schema is of the unknown kind THRIFT"),
    ):
        for _ in range(2):
            found = decoder.decode(record(key, value))
            assert (found.record.key, found.record.value) == (b'"k"', value)
            note = found.value
            assert note is not None and note.kind == kind and note.error is not None
            assert note.error.startswith(problem)
    assert len(registry.asked) == 5


def test_a_guid_in_a_header(registry: Registry, decoder: RecordDecoder) -> None:
    registry.add("v", '"long"')
    guid = uuid.UUID(int=1)
    given = record(b"k", b"\x0e", ("__value_schema_id", b"\x01" + guid.bytes))
    assert decoder.decode(given) == Decoded(
        record(b"k", b"7", ("__value_schema_id", b"\x01" + guid.bytes)), None, PartNote(guid, "AVRO")
    )


def test_a_registry_that_is_gone_is_no_bad_record(registry: Registry, decoder: RecordDecoder) -> None:
    registry.fails_with = 500
    with pytest.raises(RegistryError, match="status 500"):
        decoder.decode(record(None, framed(1, b"")))
