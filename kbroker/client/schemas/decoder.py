"""Whole records decoded: keys and values that name a schema become JSON, all others stay as they are."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NoReturn

from kbroker.client.schemas.registry import AVRO, JSON, KEPT_SCHEMAS, PROTOBUF, BoundedCache, Schema, SchemaRegistry
from kbroker.client.schemas.wire_format import (
    KEY_HEADER,
    VALUE_HEADER,
    Headers,
    PackageMissing,
    RegistryError,
    SchemaId,
    UndecodableRecord,
    frame_of,
)
from kbroker.value_types import NamedTuple
from kbroker.wire.record_batch import Record


class PartNote(NamedTuple):
    """The schema of a key or value. With ``error``, one line, the part is not decoded: its bytes are as they were."""

    schema_id: SchemaId
    kind: str | None = None
    error: str | None = None


class Decoded(NamedTuple):
    """A record whose key and value are JSON in UTF-8 where a note without an error is there."""

    record: Record
    key: PartNote | None = None
    value: PartNote | None = None


class RecordDecoder:
    """Decodes by the schemas of one registry, which it asks when they are new to it: a call may block.

    ``RegistryError`` and ``PackageMissing`` if nothing can be decoded; one bad record is told in its notes, and so are
    those two errors with ``goes_on``. Threads may share it.
    """

    def __init__(self, registry: SchemaRegistry, *, goes_on: bool = False) -> None:
        self._registry = registry
        self._caught = (UndecodableRecord, RegistryError, PackageMissing) if goes_on else (UndecodableRecord,)
        self._compiled: BoundedCache[SchemaId, tuple[str, Callable[[bytes], str]]] = BoundedCache(KEPT_SCHEMAS)

    def decode(self, record: Record) -> Decoded:
        """The record with what can be decoded of it."""
        key, key_note = self._part(record.key, record.headers, KEY_HEADER)
        value, value_note = self._part(record.value, record.headers, VALUE_HEADER)
        if key_note is None and value_note is None:
            return Decoded(record)
        return Decoded(Record(record.offset, record.timestamp, key, value, record.headers), key_note, value_note)

    def _part(self, data: bytes | None, headers: Headers, header: str) -> tuple[bytes | None, PartNote | None]:
        framed = None if data is None else frame_of(data, headers, header)
        if framed is None:
            return data, None
        kind: str | None = None
        try:
            kind, decode = self._decoder_of(framed.schema_id)
            return decode(framed.rest).encode("utf-8", "backslashreplace"), PartNote(framed.schema_id, kind)
        except self._caught as error:
            return data, PartNote(framed.schema_id, kind, str(error))

    def _decoder_of(self, schema_id: SchemaId) -> tuple[str, Callable[[bytes], str]]:
        kept = self._compiled.get(schema_id)
        if kept is not None:
            return kept
        schema = self._registry.schema(schema_id)
        needed = self._registry.references(schema)
        try:
            decode = _compiled(schema, needed)
        except UndecodableRecord as error:
            decode = _refusing(str(error))
        return self._compiled.put(schema_id, (schema.kind, decode))


def _compiled(schema: Schema, needed: list[tuple[str, Schema]]) -> Callable[[bytes], str]:
    if schema.kind == AVRO:
        from kbroker.client.schemas.avro import compile_avro

        return compile_avro(schema.text, [each.text for _, each in needed])
    if schema.kind == PROTOBUF:
        from kbroker.client.schemas.protobuf import compile_protobuf

        return compile_protobuf(schema.text, [(name, each.text) for name, each in needed])
    if schema.kind == JSON:
        return _json
    raise UndecodableRecord(f"its schema is of the unknown kind {schema.kind}")


def _refusing(reason: str) -> Callable[[bytes], str]:
    """Stands for a schema that cannot be used, so that it is not compiled for every record."""

    def decode(data: bytes) -> str:
        raise UndecodableRecord(reason)

    return decode


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _json(data: bytes) -> str:
    """The bytes of a JSON Schema's value are JSON already, with all their digits; the schema does not judge them."""
    try:
        json.loads(text := data.decode(), parse_constant=_no_constant)
    except RecursionError:
        raise UndecodableRecord("it is nested too deep") from None
    except ValueError:
        raise UndecodableRecord("it is not JSON, as its schema says") from None
    return text.strip().replace("\r", " ").replace("\n", " ")  # on one line: line ends are between JSON's words alone
