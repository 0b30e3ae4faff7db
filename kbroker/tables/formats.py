"""The formats that values have, by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pyarrow

from kbroker.client.schemas.registry import SchemaRegistry
from kbroker.tables.json_kinds import RESERVED, Unfit, parse_kinds
from kbroker.tables.json_schema import JsonSchemaValues
from kbroker.tables.layout import Layout
from kbroker.tables.plan import Kept, Refused
from kbroker.tables.rows import BytesValues, JsonValues, TextValues, Values, kinds_of
from kbroker.tables.schema_values import KINDS, SchemaValues
from kbroker.tables.target import Target
from kbroker.tables.upserts import DEBEZIUM, DebeziumColumns, DebeziumValues, KeyedValues

REGISTERED: Final = (*KINDS, JsonSchemaValues.name)
"""Formats that ask a registry for schemas."""
FORMATS: Final = ("bytes", "text", "json", *REGISTERED)
"""The first one is that of a table for which none is given."""


def values_of(kept: Kept, schema: pyarrow.Schema | None, target: Target, registry: SchemaRegistry | None) -> Values:
    """Returns the values of a table that has ``schema``, or is new; ``Refused`` if they cannot be read."""
    if kept.way == DEBEZIUM and kept.value_format in KINDS:
        return _changes_of(kept, schema, target, registry)
    values = _values_of(kept, schema, target, registry)
    if kept.way == DEBEZIUM:
        return DebeziumValues(values)
    return KeyedValues(values) if kept.way else values


def _changes_of(kept: Kept, schema: pyarrow.Schema | None, target: Target, registry: SchemaRegistry | None) -> Values:
    """Envelopes are columns, of which one is an object with those of the table."""
    flatten = Layout.of(kept.layout).flatten
    columns = [each for each in schema or () if each.name not in RESERVED]
    after = [pyarrow.field("after", pyarrow.struct(columns))] if columns and not flatten else []
    envelopes = _values_of(replace(kept, layout={}), pyarrow.schema(after), target, registry)
    return DebeziumColumns(envelopes, columns, target.traits, flatten=flatten)


def _values_of(kept: Kept, schema: pyarrow.Schema | None, target: Target, registry: SchemaRegistry | None) -> Values:
    name, flatten = kept.value_format, Layout.of(kept.layout).flatten
    if flatten and name in ("bytes", "text"):
        raise Refused(f"values that are {name} have no fields: leave out --flatten, or say what they are with --value")
    known, others = ({}, []) if schema is None else kinds_of(schema)
    parts = [each.name for each in Layout.of(kept.layout).parts if each.unit]
    traits = target.traits._replace(taken=(*target.traits.taken, *map(str.lower, (*parts, *others))))
    flat = known if flatten else None
    if name in REGISTERED:
        if registry is None:
            raise Refused(f"values that are {name} need the registry of their schemas: give --registry URL")
        if name == JsonSchemaValues.name:
            return JsonSchemaValues(registry, {} if flatten else known, flat=flat, traits=traits)
        columns = [each for each in schema or () if each.name not in RESERVED]
        return SchemaValues(name, registry, pyarrow.struct(columns), traits, flat=flatten)
    if name == "json" and kept.declared:
        try:
            return JsonValues(parse_kinds(kept.declared.encode()), declared=True, flat=flat)
        except Unfit as error:
            raise Refused(f"--flatten: {error}") from None
    if name == "json":
        return JsonValues({} if flatten else known, flat=flat, traits=traits)
    return TextValues() if name == "text" else BytesValues()
