"""Avro by ``fastavro``: bytes by their schema become JSON.

Unions are not tagged; bytes and fixed are in base64, as Protobuf's JSON has them; dates and times are ISO's text,
decimals and UUIDs text; NaN and the infinities are the texts ``NaN``, ``Infinity``, ``-Infinity``.
"""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any, Final, Generic, NamedTuple, TypeVar

from kbroker.client.schemas.wire_format import PackageMissing, UndecodableRecord

T = TypeVar("T")

_WRAPPER: Final = "kbroker_decoded"
"""A record around the schema: its bytes are those of its only field, and any schema can be a field's."""

AVRO_DECIMAL: Final = "kbroker-decimal"
"""The logical type of decimals, after a schema was read."""
PLAIN_LOGICAL: Final = "kbroker-logical"

_MOST_DECIMAL: Final = 1024
"""Bytes of a decimal, which are 2,466 digits."""
_ALL_DIGITS: Final = Context(prec=2500)

_MOST_FREE: Final = 100
"""Values of one record that take no bytes, those of records in it included."""


def compile_avro(text: str, references: Sequence[str]) -> Callable[[bytes], str]:
    """The decoder of a schema. ``references``: texts of the schemas that it uses, each after those that it uses.

    :class:`UndecodableRecord` if the schema is none; the decoder raises it for bytes that do not fit.
    """
    return read_avro(text, references, json_text).read


class AvroReader(NamedTuple, Generic[T]):
    """A schema as ``fastavro`` has it, its named types, and what reads bytes by it."""

    schema: Any
    named: Mapping[str, Any]
    read: Callable[[bytes], T]


def read_avro(text: str, references: Sequence[str], shape: Callable[[Any], T], *, plain: bool = False) -> AvroReader[T]:
    """A reader of values, each put into ``shape``; the rest is as of `compile_avro`.

    ``plain``: times, dates and UUIDs are the numbers, texts and bytes that they are stored as, and their logical type
    is under `PLAIN_LOGICAL` in the schema.
    """
    try:
        from fastavro import parse_schema, schemaless_reader
        from fastavro.read import LOGICAL_READERS
    except ImportError:
        raise PackageMissing("Avro", "fastavro") from None
    for base in ("bytes", "fixed"):
        LOGICAL_READERS[f"{base}-{AVRO_DECIMAL}"] = _decimal
    named: dict[str, Any] = {}
    try:
        for reference in references:
            parse_schema(loaded_schema(reference), named)
        field = {"name": "value", "type": loaded_schema(text)}
        schema: Any = parse_schema({"type": "record", "name": _WRAPPER, "fields": [field]}, named)
        free = _FreeValues(named)
        for each in (schema, *named.values()):
            _check(each, free, plain)
    except UndecodableRecord:
        raise
    except RecursionError:
        raise UndecodableRecord("its Avro schema is nested too deep") from None
    except Exception as error:  # fastavro has errors of its own, and lets KeyError and others through
        raise UndecodableRecord(f"its Avro schema cannot be used: {_told(error)}") from None

    def decode(data: bytes) -> T:
        try:
            found: Any = schemaless_reader(io.BytesIO(data), schema, None)
            return shape(found["value"])
        except RecursionError:
            raise UndecodableRecord("it is nested too deep") from None
        except Exception as error:  # whatever fastavro stumbles over in bytes that do not fit
            raise UndecodableRecord(f"its bytes do not fit its Avro schema: {_told(error)}") from None

    return AvroReader(schema["fields"][0]["type"], named, decode)


class _FreeValues:
    """Counts the values of a type that take no bytes, each type once: by names a short schema may tell of billions."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._known: dict[str, tuple[int, bool]] = {}

    def of(self, schema: Any) -> tuple[int, bool]:
        """(number, whether the type takes no bytes at all); the number is 0 for what begins with bytes of its own."""
        if isinstance(schema, str):
            if schema not in self._named:
                return (1, True) if schema == "null" else (0, False)
            return self.of(self._named[schema])
        if not isinstance(schema, dict):
            return 0, False  # a union has the number of its branch
        if schema["type"] in ("record", "error"):
            name = schema["name"]
            if name not in self._known:
                self._known[name] = (0, False)  # a record within itself has no end, unless bytes tell it
                found = [self.of(field["type"]) for field in schema["fields"]]
                is_free = all(each for _, each in found)
                self._known[name] = (sum(count for count, _ in found) + is_free, is_free)
            return self._known[name]
        is_free = schema["type"] == "null" or (schema["type"] == "fixed" and schema["size"] == 0)
        return int(is_free), is_free


def _check(schema: Any, free: _FreeValues, plain: bool) -> None:
    """Refuse types by which a few bytes ask for billions of values: arrays of what takes no bytes, and many such.

    Decimals are given a name of ours, for a reader of ours; with ``plain`` all other logical types go elsewhere.
    """
    if isinstance(schema, list):
        for each in schema:
            _check(each, free, plain)
    elif isinstance(schema, dict):
        if schema.get("logicalType") == "decimal":
            schema["logicalType"] = AVRO_DECIMAL
        elif plain and schema.get("logicalType", AVRO_DECIMAL) != AVRO_DECIMAL:
            schema[PLAIN_LOGICAL] = schema.pop("logicalType")
        for field in schema.get("fields") or ():
            _check(field["type"], free, plain)
        for inner in ("items", "values"):
            if inner in schema:
                _check(schema[inner], free, plain)
        if schema["type"] == "array" and free.of(schema["items"])[1]:
            raise UndecodableRecord("its Avro schema has arrays of what takes no bytes")
        if free.of(schema)[0] > _MOST_FREE:
            raise UndecodableRecord(f"its Avro schema has a record of more than {_MOST_FREE} values that take no bytes")


def _decimal(data: bytes, schema: Any, *_: object) -> Decimal:
    """A decimal as its bytes say; ``fastavro`` would round it to the digits of its schema.

    ``ValueError`` for one of many bytes: the time that it takes grows with their square.
    """
    if len(data) > _MOST_DECIMAL:
        raise ValueError(f"a decimal has {len(data)} bytes")
    return Decimal(int.from_bytes(data, signed=True)).scaleb(-(schema.get("scale") or 0), _ALL_DIGITS)


def loaded_schema(text: str) -> Any:
    """A schema; the name of a type may stand there without the quotes of JSON."""
    try:
        return json.loads(text)
    except ValueError:
        if text.replace(".", "").replace("_", "").isalnum():
            return text
        raise


def _told(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:200]}..."


def json_text(value: object) -> str:
    """A decoded value as JSON on one line."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_as_json)
    except ValueError:
        return json.dumps(_without_nan(value), ensure_ascii=False, default=_as_json)


def _as_json(value: object) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    isoformat = getattr(value, "isoformat", None)
    return str(isoformat()) if isoformat is not None else str(value)


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
