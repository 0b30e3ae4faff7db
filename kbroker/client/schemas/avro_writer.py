"""Avro from JSON: the bytes of what ``avro.compile_avro`` tells; what does not fit is told by its place.

Unions are not tagged: the first type that fits is taken. What is not in the schema is refused, for it would be lost.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from uuid import UUID

from kbroker.client.schemas.avro import loaded_schema
from kbroker.client.schemas.wire_format import PackageMissing, UndecodableRecord, UnfitValue

_RANGES: Final = {"int": 31, "long": 63}
_FLOATS: Final = {"float": "<f", "double": "<d"}
_UNITS: Final = {"millis": 1000, "micros": 1}
"""Microseconds of a unit that times are counted in."""


class AvroWriter:
    """Values by one schema. ``UndecodableRecord`` if the schema is none, ``PackageMissing`` without fastavro."""

    messages: tuple[str, ...] = ()

    def __init__(self, text: str, references: Sequence[str]) -> None:
        """``references``: texts of the schemas that it uses, each after those that it uses itself."""
        try:
            from fastavro import parse_schema
        except ImportError:
            raise PackageMissing("Avro", "fastavro") from None
        self._named: dict[str, Any] = {}
        try:
            for reference in references:
                parse_schema(loaded_schema(reference), self._named)
            self._schema: Any = parse_schema(loaded_schema(text), self._named)
        except Exception as error:  # fastavro has errors of its own, and lets KeyError and others through
            raise UndecodableRecord(f"the Avro schema cannot be used: {error}") from None

    def encode(self, document: Any) -> bytes:
        """The bytes of a value; ``UnfitValue`` if it does not fit."""
        return self._encoded(self._schema, document, "$")

    def skeleton(self) -> Any:
        """Returns a value that fits, with defaults, and with every field that has none."""
        return self._example(self._schema, ())

    def _resolved(self, schema: Any) -> Any:
        """A union as a list, every other type as a mapping."""
        while not isinstance(schema, list):
            if isinstance(schema, str):
                if schema not in self._named:
                    return {"type": schema}
                schema = self._named[schema]
            elif isinstance(schema["type"], str) and schema["type"] not in self._named:
                return schema
            else:
                schema = schema["type"]
        return schema

    # --- Bytes --------------------------------------------------------------------------------------------------------

    def _encoded(self, schema: Any, value: Any, path: str, *, is_default: bool = False) -> bytes:
        schema = self._resolved(schema)
        if isinstance(schema, list):
            return self._branch(schema, value, path, is_default)
        kind = schema["type"]
        match kind:
            case "record" | "error":
                return self._record(schema, value, path, is_default)
            case "array":
                _check(isinstance(value, list), path, "a list is wanted", value)
                items = [
                    self._encoded(schema["items"], v, f"{path}[{i}]", is_default=is_default)
                    for i, v in enumerate(value)
                ]
                return _blocks(items)
            case "map":
                _check(isinstance(value, dict), path, "an object is wanted", value)
                pairs = [
                    _counted(name.encode())
                    + self._encoded(schema["values"], each, f"{path}.{name}", is_default=is_default)
                    for name, each in value.items()
                ]
                return _blocks(pairs)
            case "enum":
                _check(value in schema["symbols"], path, f"one of {', '.join(schema['symbols'][:20])} is wanted", value)
                return _zigzag(schema["symbols"].index(value))
            case _:
                return _primitive(schema, value, path, is_default)

    def _record(self, schema: Any, value: Any, path: str, is_default: bool) -> bytes:
        _check(isinstance(value, dict), path, f"an object ({schema['name']}) is wanted", value)
        fields = schema["fields"]
        unknown = sorted(value.keys() - {each["name"] for each in fields})
        if unknown:
            names = ", ".join(each["name"] for each in fields)
            raise UnfitValue(f"{path}.{unknown[0]}", f"{schema['name']} has no such field; it has {names}")
        parts = []
        for each in fields:
            name = each["name"]
            place = f"{path}.{name}"
            if name in value:
                parts.append(self._encoded(each["type"], value[name], place, is_default=is_default))
            elif "default" in each:
                parts.append(self._encoded(each["type"], each["default"], place, is_default=True))
            else:
                raise UnfitValue(place, "it is missing, and has no default")
        return b"".join(parts)

    def _branch(self, branches: list[Any], value: Any, path: str, is_default: bool) -> bytes:
        failures = []
        for index, branch in enumerate(branches):
            try:
                return _zigzag(index) + self._encoded(branch, value, path, is_default=is_default)
            except UnfitValue as failure:
                failures.append(failure)
        inner = max(failures, key=lambda each: len(each.path))
        if len(inner.path) > len(path):
            raise inner
        names = ", ".join(str(each.get("name", each["type"])) for each in map(self._resolved, branches))
        raise UnfitValue(path, f"one of {names} is wanted, and this is {_shown(value)}")

    # --- Skeletons ----------------------------------------------------------------------------------------------------

    def _example(self, schema: Any, above: tuple[str, ...]) -> Any:
        schema = self._resolved(schema)
        if isinstance(schema, list):
            return None if {"type": "null"} in map(self._resolved, schema) else self._example(schema[0], above)
        kind = schema["type"]
        if kind in ("record", "error"):
            if schema["name"] in above:
                raise UndecodableRecord(f"no value of {schema['name']} has an end")
            inner = (*above, schema["name"])
            return {
                each["name"]: self._default(each) if "default" in each else self._example(each["type"], inner)
                for each in schema["fields"]
            }
        if kind == "enum":
            return schema["symbols"][0]
        logical = _EXAMPLES.get(schema.get("logicalType", ""))
        if logical is not None:
            return logical
        if kind == "fixed":
            return base64.b64encode(bytes(schema["size"])).decode()
        return {"null": None, "boolean": False, "array": [], "map": {}, "string": "", "bytes": ""}.get(kind, 0)

    def _default(self, field: Any) -> Any:
        """The default of a field; that of bytes is written otherwise in a schema than in a value."""
        kind = self._resolved(field["type"])
        kind = self._resolved(kind[0]) if isinstance(kind, list) else kind
        is_binary = kind["type"] in ("bytes", "fixed") and kind.get("logicalType") != "decimal"
        return base64.b64encode(field["default"].encode("latin-1")).decode() if is_binary else field["default"]


_EXAMPLES: Final[Mapping[str, str]] = {
    "date": "2026-01-31",
    "time-millis": "12:00:00",
    "time-micros": "12:00:00",
    "timestamp-millis": "2026-01-31T12:00:00+00:00",
    "timestamp-micros": "2026-01-31T12:00:00+00:00",
    "local-timestamp-millis": "2026-01-31T12:00:00",
    "local-timestamp-micros": "2026-01-31T12:00:00",
    "decimal": "0",
    "uuid": "00000000-0000-0000-0000-000000000000",
}


def _primitive(schema: Any, value: Any, path: str, is_default: bool) -> bytes:
    kind = schema["type"]
    logical = schema.get("logicalType", "")
    if logical == "decimal" and not is_default:
        return _decimal(schema, value, path)
    if kind in _RANGES:
        number = value if not isinstance(value, str) else _moment(logical, value, path)
        _check(type(number) is int, path, f"{_EXAMPLES.get(logical, 'a whole number')} is wanted", value)
        _check(-(1 << _RANGES[kind]) <= number < 1 << _RANGES[kind], path, f"it is no {kind}: too large", value)
        return _zigzag(number)
    if kind in _FLOATS:
        number = (
            {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}.get(value, value)
            if isinstance(value, str)
            else value
        )
        _check(type(number) in (int, float), path, "a number is wanted", value)
        try:
            return struct.pack(_FLOATS[kind], number)
        except (OverflowError, struct.error):
            raise UnfitValue(path, f"it is no {kind}: too large") from None
    if kind == "null":
        _check(value is None, path, "null is wanted", value)
        return b""
    if kind == "boolean":
        _check(isinstance(value, bool), path, "true or false is wanted", value)
        return bytes([value])
    _check(isinstance(value, str), path, "text is wanted" if kind == "string" else "bytes in base64 are wanted", value)
    if kind == "string":
        if logical == "uuid":
            _parsed(UUID, value, path, "a UUID")
        return _counted(value.encode("utf-8", "surrogatepass"))
    data = value.encode("latin-1") if is_default else _parsed(_base64, value, path, "bytes in base64")
    return data if _is_sized(schema, data, path) else _counted(data)


def _is_sized(schema: Any, data: bytes, path: str) -> bool:
    """Whether a type has its size in the schema, which the data has then."""
    if schema["type"] != "fixed":
        return False
    if len(data) != schema["size"]:
        raise UnfitValue(path, f"{schema['size']} bytes are wanted, and these are {len(data)}")
    return True


def _decimal(schema: Any, value: Any, path: str) -> bytes:
    is_number = isinstance(value, (str, int, float)) and not isinstance(value, bool)
    _check(is_number, path, "a decimal such as 12.50 is wanted", value)
    found = _parsed(lambda text: Decimal(str(text)), value, path, "a decimal such as 12.50")
    scale, precision = schema.get("scale", 0), schema["precision"]
    _check(found.is_finite() and found.adjusted() < precision, path, f"it has more than {precision} digits", value)
    sign, digits, exponent = found.as_tuple()
    shift = int(exponent) + scale
    unscaled = int("".join(map(str, digits)))
    _check(shift >= 0 or unscaled % 10**-shift == 0, path, f"it has more than {scale} digits after the point", value)
    unscaled = unscaled * 10**shift if shift >= 0 else unscaled // 10**-shift
    _check(unscaled < 10**precision, path, f"it has more than {precision} digits", value)
    unscaled = -unscaled if sign else unscaled
    if schema["type"] == "fixed":
        fixed: bytes = _parsed(
            lambda each: each.to_bytes(schema["size"], signed=True), unscaled, path, "a smaller number"
        )
        return fixed
    return _counted(unscaled.to_bytes(unscaled.bit_length() // 8 + 1, signed=True))


def _moment(logical: str, text: str, path: str) -> Any:
    """The number of a date or time; the text itself where none is meant."""
    example = f"{_EXAMPLES.get(logical, '')}, or a number,"
    if logical == "date":
        return _parsed(date.fromisoformat, text, path, example).toordinal() - date(1970, 1, 1).toordinal()
    name, _, unit = logical.rpartition("-")
    if name == "time" and unit in _UNITS:
        at = _parsed(time.fromisoformat, text, path, example)
        return ((at.hour * 60 + at.minute) * 60 + at.second) * 1_000_000 // _UNITS[unit] + at.microsecond // _UNITS[
            unit
        ]
    if name in ("timestamp", "local-timestamp") and unit in _UNITS:
        at = _parsed(datetime.fromisoformat, text, path, example)
        _check(
            (at.tzinfo is None) == (name != "timestamp"),
            path,
            f"{example} is wanted, with its zone where that has one",
            text,
        )
        epoch = datetime(1970, 1, 1, tzinfo=None if at.tzinfo is None else UTC)
        return (at - epoch) // timedelta(microseconds=_UNITS[unit])
    return text


def _parsed(parse: Callable[[Any], Any], value: Any, path: str, wanted: str) -> Any:
    try:
        return parse(value)
    except (ValueError, OverflowError, InvalidOperation):
        raise UnfitValue(path, f"{wanted} is wanted, and this is {_shown(value)}") from None


def _base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _check(fits: bool, path: str, wanted: str, value: Any) -> None:
    if not fits:
        raise UnfitValue(path, f"{wanted}, and this is {_shown(value)}")


def _shown(value: Any) -> str:
    match value:
        case None | bool():
            return {None: "null", True: "true", False: "false"}[value]
        case dict() | list():
            return "an object" if isinstance(value, dict) else "a list"
        case str():
            return f"the text {value[:40]!r}"
    return str(value)[:40]


def _blocks(items: list[bytes]) -> bytes:
    return (_zigzag(len(items)) + b"".join(items) if items else b"") + b"\0"


def _counted(data: bytes) -> bytes:
    return _zigzag(len(data)) + data


def _zigzag(number: int) -> bytes:
    left = number << 1 ^ number >> 63
    out = bytearray()
    while left >= 0x80:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)
