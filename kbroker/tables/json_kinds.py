"""Kinds of the fields of JSON values: declared in a file, inferred from a sample, widened by fields that are new. Pure.

A kind is the name of a type, a list with the kind of the elements, or the kinds of an object's fields by name. It is
written in JSON as it is here: ``{"id": "long", "tags": ["string"], "address": {"city": "string"}}``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from math import isfinite
from typing import Final, TypeAlias, cast

from kbroker.client.records_io.json_types import ExactFloat, Json, load_json

Kind: TypeAlias = "str | list[Kind] | dict[str, Kind] | None"
"""None: nothing but nulls, empty lists and empty objects is known of it."""
Kinds: TypeAlias = "dict[str, Kind]"
"""The kinds of an object's fields."""

BOOLEAN, INT, LONG, DOUBLE, STRING = _INFERRED = ("boolean", "int", "long", "double", "string")
TIMESTAMP, DATE = "timestamp", "date"
NAMES: Final = (*_INFERRED, TIMESTAMP, DATE, "decimal(10,2)")
"""The last one stands for all decimals."""
RESERVED: Final = ("_partition", "_offset", "_timestamp", "_key", "_headers")
"""Columns that every table has."""
MAX_FIELDS: Final = 1_000
"""Fields of a table, nested ones counted: objects whose names are data would have no end of them."""

WHOLE_TO: Final = 1 << 53
"""Below it a double holds every whole number exactly."""

_MAX_DEPTH: Final = 30
_BITS: Final = {INT: 31, LONG: 63}
_DECIMAL: Final = re.compile(r"decimal\((\d\d?), ?(\d\d?)\)")
_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d{1,3})?")
_EXACTLY: Final = Context(prec=100, traps=[Inexact, InvalidOperation])
_UNFIT_NAME: Final = re.compile(r"[\x00-\x1f\x7f ,;{}()=\ud800-\udfff]")


class Unfit(ValueError):
    """A value that has no place in the table, and why."""


def parse_kinds(text: bytes) -> Kinds:
    """The kinds that a declaration says; ``ValueError`` with the reason."""
    document = load_json(text)
    if not isinstance(document, dict) or not document:
        raise ValueError('a schema is an object such as {"id": "long", "name": "string"}')
    _check(document, "", set(RESERVED))
    return cast(Kinds, document)


def _check(kind: Json, where: str, taken: set[str]) -> None:
    if isinstance(kind, dict) and kind:
        for name, inner in kind.items():
            check_name(name, where, taken)
            taken.add(name.lower())
            _check(inner, f"{where}.{name}" if where else name, set())
    elif isinstance(kind, list) and len(kind) == 1:
        _check(kind[0], f"{where}[]", set())
    elif not isinstance(kind, str) or (kind not in NAMES and decimal_of(kind) is None):
        raise ValueError(f"{where} is none of {', '.join(NAMES)}, a list of one of them, or an object of fields")


def decimal_of(kind: Kind) -> tuple[int, int] | None:
    """Returns the digits of a decimal, and those of them that are behind the point; None for another kind."""
    match = _DECIMAL.fullmatch(kind) if isinstance(kind, str) else None
    digits, behind = (int(match[1]), int(match[2])) if match else (0, 0)
    return (digits, behind) if 0 < digits <= 38 and behind <= digits else None


def check_name(name: str, where: str, taken: Iterable[str]) -> None:
    """``Unfit`` for the name of a field that no column can have, or that one of ``taken`` has."""
    if not name or _UNFIT_NAME.search(name):
        raise Unfit(f"{_in(where, name)}: a column cannot have this name")
    if name.lower() in taken:
        raise Unfit(f"{_in(where, name)}: there is a column of this name, or it differs in capitals alone")


def check_joined(kinds: Kinds) -> None:
    """``Unfit`` if two fields have one name when each is joined by dots to those that it is within, as ``a.b``."""
    seen: set[str] = set()
    for path in _joined(kinds, ""):
        if path in seen:
            raise Unfit(f"{path}: two fields have this name when names are joined")
        seen.add(path)


def _joined(kinds: Kinds, where: str) -> Iterator[str]:
    for name, kind in kinds.items():
        path = where + name
        yield path
        while isinstance(kind, list):
            path += ".element"
            yield path
            kind = kind[0]
        if isinstance(kind, dict):
            yield from _joined(kind, f"{path}.")


def _in(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name or '""'


def infer(values: Iterable[bytes | None], check: Callable[[Kinds], object] = lambda kinds: None) -> Kinds:
    """The kinds of a sample of values; those that are no objects, or fit no others before them, are passed over.

    A field that has whole and broken numbers in it is ``double``. ``check`` raises ``Unfit`` for kinds that cannot be.
    """
    kinds: Kinds = {}
    for value in values:
        try:
            wider, _ = fit_object(kinds, value, promote=True)
            if wider is not kinds:
                check(wider)
            kinds = wider
        except Unfit:
            continue
    return kinds


def flat_kinds(kinds: Kinds, prefix: str = "") -> Kinds:
    """The fields of objects as fields of their own: ``address.city`` as ``address_city``; ``Unfit`` for a collision."""
    flat: Kinds = {}
    for name, kind in kinds.items():
        for inner, each in (
            flat_kinds(kind, f"{prefix}{name}_").items() if isinstance(kind, dict) else [(prefix + name, kind)]
        ):
            if inner.lower() in map(str.lower, flat):
                raise Unfit(f"{inner}: two fields have this name when they are flat")
            flat[inner] = each
    return flat


def aligned(kinds: Kinds, flat: Kinds, prefix: str = "") -> Kinds:
    """The kinds with those that flat columns have; the same object if they are so."""
    found: Kinds = {
        name: aligned(kind, flat, f"{prefix}{name}_") if isinstance(kind, dict) else flat.get(prefix + name, kind)
        for name, kind in kinds.items()
    }
    return kinds if found == kinds else found


def merged(kinds: Kinds, more: Kinds) -> Kinds:
    """The kinds with fields that only ``more`` has; the same object if there are none."""
    found: Kinds = dict(kinds)
    for name, kind in more.items():
        known = kinds.get(name)
        if isinstance(known, dict) and isinstance(kind, dict):
            found[name] = merged(known, kind)
        elif known is None and name.lower() not in map(str.lower, found):
            found[name] = kind
    return kinds if found == kinds else found


def fit_object(kinds: Kinds, value: bytes | None, *, promote: bool = False) -> tuple[Kinds, dict[str, Json] | None]:
    """The kinds with what is new in a value, and the object that the value is; ``Unfit`` if it has no place in them.

    ``promote``: whole numbers may become ``double``, as long as there is no table yet.
    """
    if value is None:
        return kinds, None
    try:
        document = load_json(value, exact=True)
    except UnicodeDecodeError:
        raise Unfit("not UTF-8") from None
    except ValueError as error:
        raise Unfit(f"not JSON: {error}") from None
    if document is None:
        return kinds, None
    if not isinstance(document, dict):
        raise Unfit(f"no object but {_told(document)}")
    kind, fitted = _fit(kinds, document, "", promote, 0)
    wider = cast(Kinds, kind if kind is not None else {})
    if wider is not kinds and count(wider) > MAX_FIELDS >= count(kinds):
        raise Unfit(f"the table would have more than {MAX_FIELDS:,} fields")
    return wider, cast("dict[str, Json]", fitted)


def count(kinds: Mapping[str, Kind]) -> int:
    """The number of fields, nested ones counted."""
    total = 0
    for kind in kinds.values():
        while isinstance(kind, list):
            kind = kind[0]
        total += 1 + (count(kind) if isinstance(kind, dict) else 0)
    return total


def _fit(kind: Kind, value: Json, where: str, promote: bool, depth: int) -> tuple[Kind, Json]:
    if value is None:
        return kind, None
    if depth > _MAX_DEPTH:
        raise Unfit(f"{where[:40]}: nested too deep")
    if isinstance(value, dict):
        return _fit_fields(kind, value, where, promote, depth)
    if isinstance(value, list):
        if not isinstance(kind, list | None):
            raise _mismatch(where, kind, value)
        inner: Kind = kind[0] if kind else None
        fitted: list[Json] = []
        for each in value:
            inner, element = _fit(inner, each, f"{where}[]", promote, depth + 1)
            fitted.append(element)
        if inner is None:
            return kind, None  # nothing but nulls, in a list of nobody knows what
        return kind if kind and inner is kind[0] else [inner], fitted
    if (digits := decimal_of(kind)) is not None:
        return kind, cast(Json, _as_decimal(value, digits, where, kind))
    if isinstance(value, bool):
        wanted = BOOLEAN
    elif isinstance(value, int):
        wanted = LONG
        if kind == DOUBLE:
            return kind, _as_float(value, where)
        if kind == INT:
            wanted = INT
        if not -(1 << _BITS[wanted]) <= value < 1 << _BITS[wanted]:
            raise Unfit(f"{where}: {str(value)[:30]} is too large for {wanted}")
    elif isinstance(value, float):
        if not isfinite(value):
            raise Unfit(f"{where}: a number that is too large for double")
        wanted = DOUBLE
        if promote and kind == LONG:
            return DOUBLE, value
    else:
        wanted = kind if kind in (TIMESTAMP, DATE) else STRING
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Unfit(f"{where}: half a surrogate pair") from None
    if kind is not None and kind != wanted:
        raise _mismatch(where, kind, value)
    return kind or wanted, value  # the same object: then nothing is new


def _as_float(value: int, where: str) -> float:
    try:
        number = float(value)
    except OverflowError:
        raise Unfit(f"{where}: a number that is too large for double") from None
    if number != value:
        raise Unfit(f"{where}: {str(value)[:30]} is a whole number that double does not hold exactly")
    return number


def _as_decimal(value: Json, digits: tuple[int, int], where: str, kind: Kind) -> Decimal:
    text = value.text if isinstance(value, ExactFloat) else value if isinstance(value, str) else str(value)
    if isinstance(value, bool | list | dict) or not _NUMBER.fullmatch(text):
        raise _mismatch(where, kind, value)
    try:
        number = Decimal(text).quantize(Decimal((0, (1,), -digits[1])), context=_EXACTLY)
    except DecimalException:
        raise Unfit(f"{where}: {text[:30]} is not held exactly by {kind}") from None
    if len(number.as_tuple().digits) > digits[0]:
        raise Unfit(f"{where}: {text[:30]} is too large for {kind}")
    return number


def _fit_fields(
    kind: Kind, value: dict[str, Json], where: str, promote: bool, depth: int
) -> tuple[Kind, dict[str, Json] | None]:
    if not isinstance(kind, dict | None):
        raise _mismatch(where, kind, value)
    kinds: dict[str, Kind] = {} if kind is None else kind
    wider = kinds
    fitted: dict[str, Json] = {}
    for name, each in value.items():
        known = wider.get(name)
        inner_kind, inner = _fit(known, each, f"{where}.{name}" if where else name, promote, depth + 1)
        if inner_kind is not known:
            if known is None:
                check_name(name, where, {*map(str.lower, wider), *(() if depth else RESERVED)})
            wider = {**wider, name: inner_kind}
        if inner_kind is not None:
            fitted[name] = inner
    if not wider and depth:
        return kind, None
    return kind if wider is kinds else wider, fitted


def _mismatch(where: str, kind: Kind, value: Json) -> Unfit:
    wanted = kind if isinstance(kind, str) else "list" if isinstance(kind, list) else "object"
    return Unfit(f"{where}: {_told(value)} where the table has {wanted}")


def _told(value: Json) -> str:
    names: dict[type, str] = {
        bool: BOOLEAN, int: "a whole number", float: DOUBLE, ExactFloat: DOUBLE, str: STRING, list: "list"
    }  # fmt: skip
    return names.get(type(value), "object")
