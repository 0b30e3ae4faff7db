"""JSON Schema as kinds of fields, and values that name such a schema.

What a schema leaves open, such as a field of two types, is inferred from the values, as it is without a schema. Values
are not judged by the schema; those that do not fit the columns are bad.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow

from kbroker.client.records_io.json_types import load_json
from kbroker.client.schemas.registry import JSON, KEPT_SCHEMAS, BoundedCache, SchemaRegistry
from kbroker.client.schemas.wire_format import VALUE_HEADER, Headers, SchemaId, UndecodableRecord, frame_of
from kbroker.tables.json_kinds import (
    BOOLEAN,
    DATE,
    DOUBLE,
    LONG,
    RESERVED,
    STRING,
    TIMESTAMP,
    Kind,
    Kinds,
    Unfit,
    check_name,
    merged,
)
from kbroker.tables.rows import JsonValues
from kbroker.tables.schema_values import UNNAMED
from kbroker.tables.target import NO_TRAITS, Traits

_TYPES: Final = {"boolean": BOOLEAN, "integer": LONG, "number": DOUBLE, "string": STRING}
_FORMATS: Final = {"date-time": TIMESTAMP, "date": DATE}
_MAX_DEPTH: Final = 30
_MAX_PARTS: Final = 10_000


class JsonSchemaValues(JsonValues):
    """JSON whose schema is in a registry: its fields are columns, also before a value has them."""

    name = "json-schema"

    def __init__(
        self, registry: SchemaRegistry, kinds: Kinds, *, flat: Kinds | None = None, traits: Traits = NO_TRAITS
    ) -> None:
        super().__init__(kinds, flat=flat, traits=traits)
        self._registry = registry
        self._seen: BoundedCache[SchemaId, str] = BoundedCache(KEPT_SCHEMAS)
        """Schema -> the reason for which its values are bad; empty if they are good."""

    def learn(self, values: Any) -> None:
        """There is nothing to learn before the schemas are known."""

    def columns(
        self, values: Sequence[bytes | None], headers: Sequence[Headers] = ()
    ) -> tuple[list[pyarrow.Array], dict[int, str]]:
        """Returns the columns. ``RegistryError`` if a schema cannot be had, and the values have to wait."""
        bad: dict[int, str] = {}
        documents: list[bytes | None] = list(values)
        for index, value in enumerate(values):
            if value is None:
                continue
            framed = frame_of(value, headers[index], VALUE_HEADER)
            try:
                reason = UNNAMED if framed is None else self._learned(framed.schema_id)
            except UndecodableRecord as error:  # the registry has it not; it may have it later
                reason = str(error)
            documents[index] = None if framed is None or reason else framed.rest
            if reason:
                bad[index] = reason
        columns, unfit = super().columns(documents, headers)
        return columns, {**unfit, **bad}

    def _learned(self, schema_id: SchemaId) -> str:
        """Widen the kinds by a schema that is new; why its values are bad, if they are."""
        reason = self._seen.get(schema_id)
        if reason is None:
            reason = ""
            schema = self._registry.schema(schema_id)
            needed = self._registry.references(schema)
            try:
                if schema.kind != JSON:
                    raise UndecodableRecord(
                        f"its schema, {schema_id}, is {schema.kind} where the table has {self.name}"
                    )
                root = load_json(schema.text.encode())
                others = {name: load_json(each.text.encode()) for name, each in needed}
                self._widen(merged(self.kinds, schema_kinds(root, others)))
            except (UndecodableRecord, Unfit, ValueError) as error:
                reason = str(error)
            self._seen.put(schema_id, reason)
        return reason


def schema_kinds(root: Any, others: Mapping[str, Any]) -> Kinds:
    """Returns the kinds of an object's fields; ``others``: schemas that are referred to, by name."""
    kind = _kind(root, root, _Documents(others), _MAX_DEPTH)
    return kind if isinstance(kind, dict) else {}


class _Documents:
    """Schemas that are referred to, and how many parts may still be looked at: references can multiply them."""

    def __init__(self, by_name: Mapping[str, Any]) -> None:
        self.by_name = by_name
        self.left = _MAX_PARTS


def _kind(schema: Any, root: Any, others: _Documents, depth: int) -> Kind:
    others.left -= 1
    if not isinstance(schema, dict) or not depth or others.left < 0:
        return None
    if isinstance(schema.get("$ref"), str):
        found, place = _referred(schema["$ref"], root, others)
        return _kind(found, place, others, depth - 1)
    for choice in ("oneOf", "anyOf"):
        if isinstance(schema.get(choice), list):
            left = [each for each in schema[choice] if each != {"type": "null"}]
            return _kind(left[0], root, others, depth - 1) if len(left) == 1 else None
    named = schema.get("type")
    types = [each for each in (named if isinstance(named, list) else [named]) if each != "null"]
    if "properties" in schema or "allOf" in schema:
        return _object(schema, root, others, depth)
    if types == ["array"]:
        inner = _kind(schema.get("items"), root, others, depth - 1)
        return None if inner is None else [inner]
    if types == ["string"]:
        return _FORMATS.get(str(schema.get("format")), STRING)
    if {*types} == {"integer", "number"}:
        return DOUBLE
    return _TYPES.get(str(types[0])) if len(types) == 1 else None


def _object(schema: Mapping[str, Any], root: Any, others: _Documents, depth: int) -> Kind:
    kinds: Kinds = {}
    properties = schema.get("properties")
    for name, each in properties.items() if isinstance(properties, dict) else ():
        try:
            check_name(name, "", {*map(str.lower, kinds), *(RESERVED if depth == _MAX_DEPTH else ())})
        except Unfit:
            continue  # a value that has it is bad
        kind = _kind(each, root, others, depth - 1)
        if kind is not None:
            kinds[name] = kind
    for part in schema.get("allOf") or ():
        kind = _kind(part, root, others, depth - 1)
        kinds = merged(kinds, kind) if isinstance(kind, dict) else kinds
    return kinds or None


def _referred(reference: str, root: Any, others: _Documents) -> tuple[Any, Any]:
    """The schema that a reference names, and the document in which it is."""
    name, _, path = reference.partition("#")
    found = place = others.by_name.get(name) if name else root
    for step in filter(None, path.split("/")):
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found, place
