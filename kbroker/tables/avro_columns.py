"""Avro's schemas as types of Arrow; ``fastavro`` reads the values.

Times are read as the numbers that they are, and become times within Arrow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow

from kbroker.client.schemas.avro import AVRO_DECIMAL, PLAIN_LOGICAL, AvroReader
from kbroker.tables.columns import Shape
from kbroker.tables.json_kinds import Unfit

_PRIMITIVE: Final = {
    "null": pyarrow.null(),
    "boolean": pyarrow.bool_(),
    "int": pyarrow.int32(),
    "long": pyarrow.int64(),
    "float": pyarrow.float32(),
    "double": pyarrow.float64(),
    "bytes": pyarrow.binary(),
    "string": pyarrow.string(),
}
_LOGICAL: Final = {
    ("int", "date"): pyarrow.date32(),
    ("int", "time-millis"): pyarrow.time32("ms"),
    ("long", "time-micros"): pyarrow.time64("us"),
    ("long", "timestamp-millis"): pyarrow.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pyarrow.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pyarrow.timestamp("ms"),
    ("long", "local-timestamp-micros"): pyarrow.timestamp("us"),
}
_WIDER: Final = {frozenset(("int", "long")): "long", frozenset(("float", "double")): "double"}
"""Unions of numbers that are the numbers of one of them."""
_MAX_DIGITS: Final = 38


def avro_shape(reader: AvroReader[Any]) -> Shape:
    """The columns of a schema: its fields if it is a record, else ``value``; ``Unfit`` if it has what no column has."""
    kind = _type(reader.schema, reader.named, "", ())
    if pyarrow.types.is_struct(kind):
        return Shape(kind, lambda values: pyarrow.array(values, kind))

    def build(values: Sequence[Any]) -> pyarrow.Array:
        return pyarrow.StructArray.from_arrays([pyarrow.array(values, kind)], ["value"])

    return Shape(pyarrow.struct([("value", kind)]), build)


def _type(schema: Any, named: Mapping[str, Any], where: str, above: tuple[str, ...]) -> pyarrow.DataType:
    if isinstance(schema, list):
        return _union(schema, named, where, above)
    if isinstance(schema, str):
        return _PRIMITIVE[schema] if schema in _PRIMITIVE else _type(named[schema], named, where, above)
    kind, logical = schema["type"], schema.get(PLAIN_LOGICAL)
    if schema.get("logicalType") == AVRO_DECIMAL:
        if schema["precision"] > _MAX_DIGITS:
            raise Unfit(f"{where}: a decimal of more than {_MAX_DIGITS} digits")
        return pyarrow.decimal128(schema["precision"], schema.get("scale") or 0)
    if kind in ("record", "error"):
        name = schema["name"]
        if name in above:
            raise Unfit(f"{where}: a record within itself, which has no end")
        inner = (*above, name)
        return pyarrow.struct(
            [
                (each["name"], _type(each["type"], named, f"{where}.{each['name']}" if where else each["name"], inner))
                for each in schema["fields"]
            ]
        )
    if kind == "array":
        return pyarrow.list_(_type(schema["items"], named, f"{where}[]", above))
    if kind == "map":
        return pyarrow.map_(pyarrow.string(), _type(schema["values"], named, f"{where}[]", above))
    if kind == "enum":
        return pyarrow.string()
    if kind == "fixed":
        return pyarrow.binary(16) if logical == "uuid" and schema["size"] == 16 else pyarrow.binary()
    if kind in _PRIMITIVE:
        return _LOGICAL.get((kind, logical), _PRIMITIVE[kind])
    return _type(kind, named, where, above)


def _union(branches: list[Any], named: Mapping[str, Any], where: str, above: tuple[str, ...]) -> pyarrow.DataType:
    left = [each for each in branches if each != "null"]
    if len(left) == 1:
        return _type(left[0], named, where, above)
    if not left:
        return pyarrow.null()
    numbers = frozenset(each if isinstance(each, str) else "" for each in left)
    if numbers in _WIDER:
        return _PRIMITIVE[_WIDER[numbers]]
    told = [each if isinstance(each, str) else each.get("name") or each["type"] for each in left]
    raise Unfit(f"{where or 'the value'}: a union of {' and '.join(told)}, for which there is no column")
