"""Columns of a table and those that a schema gives: the table's are widened, and values are put into them exactly.

All columns of a value are one struct of Arrow, whose fields they are. A value that a column does not hold exactly has
no place in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

import pyarrow
import pyarrow.compute

from kbroker.tables.json_kinds import MAX_FIELDS, RESERVED, Unfit, check_name
from kbroker.tables.target import Traits
from kbroker.value_types import NamedTuple

T = TypeVar("T")

TIME: Final = pyarrow.timestamp("us", "UTC")
_UUID: Final = pyarrow.binary(16)
"""The type of bytes that become the text of a UUID."""
_DAY_US: Final = 86_400_000_000
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""The years 1 to 9999 in days: engines that read tables know no others."""
_NAMES: Final = {
    pyarrow.int32(): "int",
    pyarrow.int64(): "long",
    pyarrow.float32(): "float",
    pyarrow.bool_(): "boolean",
    TIME: "timestamp",
}
_ZONED: Final = r"(Z|[+-]\d\d:?\d\d)$"
_FINER: Final = r"(\.\d{6})\d+"

types: Final = pyarrow.types


class Shape(NamedTuple):
    """Columns as one struct, and what makes it of many values."""

    type: pyarrow.DataType
    build: Callable[[Sequence[Any]], pyarrow.Array]


class Walk:
    """The way into a schema: the types above, and the number of fields so far, which named types may multiply."""

    def __init__(self, above: tuple[str, ...] = (), seen: list[int] | None = None) -> None:
        self._above = above
        self._seen = [0] if seen is None else seen

    def into(self, name: str, where: str, fields: int) -> Walk:
        """The way into a type of so many fields; ``Unfit`` if it is one of those above, or there are too many."""
        if name in self._above:
            raise Unfit(f"{where}: {name} within itself, which has no end")
        self._seen[0] += fields
        if self._seen[0] > MAX_FIELDS:
            raise Unfit(f"{(where or name)[:39]}: more than {MAX_FIELDS:,} fields")
        return Walk((*self._above, name), self._seen)


def told_type(kind: pyarrow.DataType) -> str:
    """The name of a type, in words that Avro, JSON and tables share."""
    return "a structure" if types.is_struct(kind) else _NAMES.get(kind, str(kind))


# --- Types -----------------------------------------------------------------------------------------------------------


def column_type(kind: pyarrow.DataType, traits: Traits) -> pyarrow.DataType:
    """The type of a column for values of a type; null for one that has no fields."""
    if types.is_struct(kind):
        fields = [pyarrow.field(each.name, column_type(each.type, traits)) for each in kind]
        fields = [each for each in fields if not types.is_null(each.type)]
        return pyarrow.struct(fields) if fields else pyarrow.null()
    if types.is_list(kind):
        inner = column_type(kind.value_type, traits)
        return inner if types.is_null(inner) else pyarrow.list_(inner)
    if types.is_map(kind):
        inner = column_type(kind.item_type, traits)
        return inner if types.is_null(inner) else pyarrow.map_(kind.key_type, inner)
    if types.is_timestamp(kind):
        return pyarrow.timestamp("us", kind.tz)
    if types.is_time(kind):
        return pyarrow.time64("us") if traits.has_time else pyarrow.string()
    return pyarrow.string() if kind == _UUID else kind


def widen(known: pyarrow.DataType, new: pyarrow.DataType, traits: Traits) -> pyarrow.DataType:
    """The columns of a table with those of a schema; ``Unfit`` if one of the new fields cannot be a column."""
    if types.is_null(new):
        return known
    wider = _widen(known, new, traits, "", (*RESERVED, *traits.taken))
    if wider != known and count_fields(wider) > MAX_FIELDS:
        raise Unfit(f"the table would have more than {MAX_FIELDS:,} fields")
    return wider


def count_fields(kind: pyarrow.DataType) -> int:
    """The number of fields in a type, those within others counted."""
    return sum(1 + count_fields(kind.field(index).type) for index in range(kind.num_fields))


def _widen(
    known: pyarrow.DataType, new: pyarrow.DataType, traits: Traits, where: str, taken: Sequence[str] = ()
) -> pyarrow.DataType:
    if types.is_struct(known) and types.is_struct(new):
        fields = {each.name: each.type for each in known}
        for each in new:
            inner = f"{where}.{each.name}" if where else each.name
            if each.name not in fields:
                check_name(each.name, where, {*map(str.lower, fields), *taken})
                fields[each.name] = _widen(_bare(each.type), each.type, traits, inner)
            else:
                fields[each.name] = _widen(fields[each.name], each.type, traits, inner)
        return pyarrow.struct(list(fields.items()))
    if types.is_list(known) and types.is_list(new):
        return pyarrow.list_(_widen(known.value_type, new.value_type, traits, f"{where}[]"))
    if types.is_map(known) and types.is_map(new):
        return pyarrow.map_(known.key_type, _widen(known.item_type, new.item_type, traits, f"{where}[]"))
    return new if traits.promotes and _is_promotion(known, new) else known


_EMPTY: Final = pyarrow.struct([])


def _bare(kind: pyarrow.DataType) -> pyarrow.DataType:
    """A type without the fields of its structures, whose names are to be looked at."""
    if types.is_struct(kind):
        return _EMPTY
    if types.is_list(kind):
        return pyarrow.list_(_bare(kind.value_type))
    return pyarrow.map_(kind.key_type, _bare(kind.item_type)) if types.is_map(kind) else kind


def _is_promotion(known: pyarrow.DataType, new: pyarrow.DataType) -> bool:
    if types.is_decimal(known) and types.is_decimal(new):
        return bool(known.scale == new.scale and known.precision < new.precision)
    return (known, new) in ((pyarrow.int32(), pyarrow.int64()), (pyarrow.float32(), pyarrow.float64()))


# --- Values ----------------------------------------------------------------------------------------------------------


def converted(
    values: Sequence[T], build: Callable[[Sequence[T]], pyarrow.Array], kind: pyarrow.DataType
) -> tuple[pyarrow.Array, dict[int, str]]:
    """The array that ``build`` makes of values, put into a type; null where one has no place in it, and why."""
    try:
        return put(build(values), kind), {}
    except (Unfit, pyarrow.ArrowException, OverflowError, TypeError, ValueError) as error:
        if len(values) == 1:
            return pyarrow.nulls(1, kind), {0: " ".join(str(error).split())[:300]}
    half = len(values) // 2
    first, bad = converted(values[:half], build, kind)
    second, more = converted(values[half:], build, kind)
    return pyarrow.concat_arrays([first, second]), bad | {half + index: reason for index, reason in more.items()}


def put(array: pyarrow.Array, kind: pyarrow.DataType, where: str = "") -> pyarrow.Array:
    """An array as one of another type, which may have more fields; ``Unfit`` if a value would not be the same."""
    found = array.type
    if array.null_count == len(array):
        return pyarrow.nulls(len(array), kind)
    if types.is_struct(found) and types.is_struct(kind):
        inner = dict(zip((each.name for each in found), array.flatten(), strict=True))
        if not kind.num_fields:
            return pyarrow.array([{}] * len(array), kind)
        missing = [
            name for name, each in inner.items() if kind.get_field_index(name) < 0 and each.null_count < len(each)
        ]
        if missing and any(not _is_bare(inner[name].type) for name in missing):
            raise Unfit(f"{_within(where, missing[0])}: the table has no such column")
        columns = [
            put(inner[each.name], each.type, _within(where, each.name))
            if each.name in inner
            else pyarrow.nulls(len(array), each.type)
            for each in kind
        ]
        mask = array.is_null() if array.null_count else None
        return pyarrow.StructArray.from_arrays(columns, fields=list(kind), mask=mask)
    mask = array.is_null() if array.null_count else None
    if types.is_list(found) and types.is_list(kind):
        elements = put(array.values, kind.value_type, f"{where}[]")
        return pyarrow.ListArray.from_arrays(array.offsets, elements, type=kind, mask=mask)
    if types.is_map(found) and types.is_map(kind) and found.key_type == kind.key_type:
        items = put(array.items, kind.item_type, f"{where}[]")
        return pyarrow.MapArray.from_arrays(array.offsets, array.keys, items, type=kind, mask=mask)
    try:
        return _in_range(_put_leaf(array, kind, where), where)
    except pyarrow.ArrowInvalid as error:
        raise Unfit(f"{where}: {error}") from None


def _is_bare(kind: pyarrow.DataType) -> bool:
    """Whether a type has nothing that a column could have."""
    return bool(
        types.is_null(kind)
        or (kind.num_fields and all(_is_bare(kind.field(i).type) for i in range(kind.num_fields)))
        or kind == _EMPTY
    )


def _within(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _put_leaf(array: pyarrow.Array, kind: pyarrow.DataType, where: str) -> pyarrow.Array:
    found = array.type
    if types.is_time(found):
        array = _in_range(array.cast(pyarrow.time64("us")), where)
    if found == kind:
        return array
    if found == _UUID and types.is_string(kind):
        return pyarrow.array([None if each is None else str(UUID(bytes=each)) for each in array.to_pylist()], kind)
    if found == pyarrow.float64() and kind == pyarrow.float32():
        narrow = array.cast(kind)
        same = pyarrow.compute.equal(narrow.cast(found), array)
        nan = pyarrow.compute.is_nan(array)
        if pyarrow.compute.all(pyarrow.compute.or_(same, nan)).as_py() is False:
            raise Unfit(f"{where}: a double that float does not hold exactly")
        return narrow
    if types.is_string(found) and types.is_timestamp(kind):
        text = pyarrow.compute.replace_substring_regex(array, _FINER, r"\1")
        if kind.tz is not None:
            zoned = pyarrow.compute.match_substring_regex(text, _ZONED)
            whole = pyarrow.compute.if_else(
                pyarrow.compute.equal(pyarrow.compute.utf8_length(text), len("2026-01-31")),
                pyarrow.compute.binary_join_element_wise(text, "T00:00", ""),
                text,
            )
            text = pyarrow.compute.if_else(zoned, text, pyarrow.compute.binary_join_element_wise(whole, "Z", ""))
        return text.cast(kind)
    if not _holds(found, kind):
        raise Unfit(f"{where}: {told_type(found)} where the table has {told_type(kind)}")
    return array.cast(kind)


def _holds(found: pyarrow.DataType, kind: pyarrow.DataType) -> bool:
    """Whether a cast, which checks each value, leaves values as they are."""
    if types.is_integer(found):
        return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))
    if types.is_timestamp(found):
        return bool(types.is_timestamp(kind) and found.tz == kind.tz)
    if types.is_time(found):
        return bool(types.is_time(kind) or types.is_string(kind))
    if types.is_string(found):
        return bool(types.is_date(kind))
    return bool(
        (types.is_decimal(found) and types.is_decimal(kind))
        or (found == pyarrow.float32() and kind == pyarrow.float64())
    )


def _in_range(array: pyarrow.Array, where: str) -> pyarrow.Array:
    """The array itself; ``Unfit`` for times of a day that is in no year that can be shown, or in no day."""
    kind = array.type
    if types.is_date(kind):
        numbers, least, most = array.cast(pyarrow.int32()), _FIRST_DAY, _LAST_DAY
    elif types.is_timestamp(kind):
        numbers, least, most = array.cast(pyarrow.int64()), _FIRST_DAY * _DAY_US, (_LAST_DAY + 1) * _DAY_US - 1
    elif types.is_time64(kind):
        numbers, least, most = array.cast(pyarrow.int64()), 0, _DAY_US - 1
    else:
        return array
    found = pyarrow.compute.min_max(numbers).as_py()
    if found["min"] is not None and not least <= found["min"] <= found["max"] <= most:
        raise Unfit(f"{where}: a time that is in no {'day' if least == 0 else 'year'} that can be shown")
    return array


# --- Flat ------------------------------------------------------------------------------------------------------------


def flattened(array: pyarrow.StructArray) -> pyarrow.StructArray:
    """The same with structures' fields as fields of their own, ``address.city`` as ``address_city``; ``Unfit``."""
    fields: list[tuple[str, pyarrow.Array]] = []
    for field, column in zip(array.type, array.flatten(), strict=True):
        if types.is_struct(field.type):
            inner = flattened(column)
            fields += [
                (f"{field.name}_{each.name}", part) for each, part in zip(inner.type, inner.flatten(), strict=True)
            ]
        else:
            fields.append((field.name, column))
    names = [name for name, _ in fields]
    for name in names:
        if [each.lower() for each in names].count(name.lower()) > 1:
            raise Unfit(f"{name}: two fields have this name when they are flat")
    if not fields:
        return pyarrow.array([{}] * len(array), _EMPTY)
    return pyarrow.StructArray.from_arrays([column for _, column in fields], names)


def flat_type(kind: pyarrow.DataType) -> pyarrow.DataType:
    """The type of `flattened` arrays."""
    return flattened(pyarrow.array([], kind)).type


def rows_in_order(parts: Sequence[tuple[Sequence[int], pyarrow.Array]], count: int, kind: pyarrow.DataType) -> Any:
    """Returns an array of ``count`` values out of parts that say where each of their values belongs; null elsewhere."""
    places: list[int | None] = [None] * count
    for place, index in enumerate(index for indexes, _ in parts for index in indexes):
        places[index] = place
    if not parts:
        return pyarrow.nulls(count, kind)
    whole = pyarrow.concat_arrays([array for _, array in parts])
    return whole if places == list(range(count)) else whole.take(pyarrow.array(places, pyarrow.int64()))
