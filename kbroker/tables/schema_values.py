"""Values that name a schema of a registry: the writer's schema gives the columns, and a later one widens them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import pyarrow

from kbroker.client.schemas.registry import AVRO, KEPT_SCHEMAS, PROTOBUF, BoundedCache, SchemaRegistry
from kbroker.client.schemas.wire_format import VALUE_HEADER, Headers, SchemaId, UndecodableRecord, frame_of
from kbroker.tables.columns import Shape, column_type, converted, flat_type, flattened, rows_in_order, widen
from kbroker.tables.json_kinds import Unfit
from kbroker.tables.target import Traits
from kbroker.value_types import NamedTuple

KINDS: Final = {"avro": AVRO, "protobuf": PROTOBUF}
"""The name of a format -> the registry's name of its schemas."""
UNNAMED: Final = "it names no schema of a registry"
"""The reason for a value that is not in the form of a registry's serializers."""


class _Reader(NamedTuple):
    read: Callable[[bytes], Any]
    shape_of: Callable[[Any], Shape]


class SchemaValues:
    """Avro or Protobuf: the fields of a record or message are columns."""

    def __init__(
        self, name: str, registry: SchemaRegistry, columns: pyarrow.DataType, traits: Traits, *, flat: bool = False
    ) -> None:
        """``columns``: the struct of those that the table has."""
        self.name = name
        self._registry = registry
        self._columns = columns
        self._traits = traits
        self._flat = flat
        self._readers: BoundedCache[SchemaId, _Reader | UndecodableRecord] = BoundedCache(KEPT_SCHEMAS)

    def fields(self) -> list[pyarrow.Field]:
        """A column for each field of the schemas that came."""
        return list(self._columns)

    def learn(self, values: Iterable[bytes | None]) -> None:
        """There is nothing to learn: the schemas tell all."""

    def columns(
        self, values: Sequence[bytes | None], headers: Sequence[Headers]
    ) -> tuple[list[pyarrow.Array], dict[int, str]]:
        """Returns the columns. ``RegistryError`` if a schema cannot be had, and the values have to wait."""
        bad: dict[int, str] = {}
        groups: dict[int, tuple[Shape, list[int], list[Any]]] = {}
        known: _Reader | None = None
        known_id: SchemaId | None = None
        for index, value in enumerate(values):
            if value is None:
                continue
            framed = frame_of(value, headers[index], VALUE_HEADER)
            try:
                if framed is None:
                    raise UndecodableRecord(UNNAMED)
                if known is None or framed.schema_id != known_id:
                    known, known_id = self._reader(framed.schema_id), framed.schema_id
                content = known.read(framed.rest)
                shape = known.shape_of(content)
            except (UndecodableRecord, Unfit) as error:
                bad[index] = str(error)
                continue
            group = groups.get(id(shape))
            if group is None:
                group = groups[id(shape)] = (shape, [], [])
            group[1].append(index)
            group[2].append(content)
        for key, (shape, indexes, _) in list(groups.items()):
            try:
                kind = flat_type(shape.type) if self._flat else shape.type
                self._columns = widen(self._columns, column_type(kind, self._traits), self._traits)
            except Unfit as error:
                bad |= dict.fromkeys(indexes, str(error))
                del groups[key]
        parts: list[tuple[Sequence[int], pyarrow.Array]] = []
        for shape, indexes, contents in groups.values():
            array, unfit = converted(contents, self._build(shape), self._columns)
            parts.append((indexes, array))
            bad |= {indexes[place]: reason for place, reason in unfit.items()}
        return rows_in_order(parts, len(values), self._columns).flatten(), bad

    def _build(self, shape: Shape) -> Callable[[Sequence[Any]], pyarrow.Array]:
        return (lambda values: flattened(shape.build(values))) if self._flat else shape.build

    def _reader(self, schema_id: SchemaId) -> _Reader:
        found = self._readers.get(schema_id)
        if found is None:
            schema = self._registry.schema(schema_id)
            needed = self._registry.references(schema)
            try:
                if schema.kind != KINDS[self.name]:
                    raise UndecodableRecord(
                        f"its schema, {schema_id}, is {schema.kind} where the table has {self.name}"
                    )
                if schema.kind == AVRO:
                    found = _avro(schema.text, [each.text for _, each in needed])
                else:
                    found = _protobuf(schema.text, [(name, each.text) for name, each in needed])
            except (UndecodableRecord, ValueError, KeyError, TypeError, pyarrow.ArrowException) as error:
                # Whatever a schema says that is none.
                found = UndecodableRecord(str(error))  # not compiled for every record
            self._readers.put(schema_id, found)
        if isinstance(found, UndecodableRecord):
            raise found
        return found


def _avro(text: str, references: Sequence[str]) -> _Reader:
    from kbroker.client.schemas.avro import read_avro
    from kbroker.tables.avro_columns import avro_shape

    reader = read_avro(text, references, lambda value: value, plain=True)
    shape = avro_shape(reader)
    return _Reader(reader.read, lambda value: shape)


def _protobuf(text: str, references: Sequence[tuple[str, str]]) -> _Reader:
    from kbroker.client.schemas.protobuf import read_protobuf
    from kbroker.tables.protobuf_columns import ProtobufShapes

    return _Reader(read_protobuf(text, references, lambda message, pool: message), ProtobufShapes().of)
