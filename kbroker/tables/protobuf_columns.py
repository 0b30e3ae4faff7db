"""Protobuf's messages as columns of Arrow, field by field for many messages together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import pyarrow

from kbroker.tables.columns import TIME, Shape
from kbroker.tables.json_kinds import Unfit

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.message import Message

_PACKAGE: Final = "google.protobuf."
_TIMESTAMP: Final = f"{_PACKAGE}Timestamp"
_DOCUMENTS: Final = (f"{_PACKAGE}Struct", f"{_PACKAGE}Value", f"{_PACKAGE}ListValue")
"""They may have anything, and are JSON as text."""
_WRAPPERS: Final = tuple(
    f"{_PACKAGE}{each}Value"
    for each in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
)
_SCALARS: Final = {
    "bool": pyarrow.bool_(),
    "bytes": pyarrow.binary(),
    "double": pyarrow.float64(),
    "enum": pyarrow.string(),
    "float": pyarrow.float32(),
    "int32": pyarrow.int32(),
    "int64": pyarrow.int64(),
    "string": pyarrow.string(),
    "uint32": pyarrow.int64(),
    "uint64": pyarrow.decimal128(20),
}


class ProtobufShapes:
    """The columns of each type of message in one schema."""

    def __init__(self) -> None:
        self._known: dict[type[Message], Shape | Unfit] = {}

    def of(self, message: Message) -> Shape:
        """The columns of a message's type; ``Unfit`` if it has what no column has."""
        found = self._known.get(type(message))
        if found is None:
            kind = message.DESCRIPTOR
            try:
                found = Shape(_struct_type(kind, "", ()), lambda messages: _structs(messages, kind))
            except Unfit as error:
                found = error
            self._known[type(message)] = found
        if isinstance(found, Unfit):
            raise found
        return found


# --- Types -----------------------------------------------------------------------------------------------------------


def _struct_type(kind: Descriptor, where: str, above: tuple[str, ...]) -> pyarrow.DataType:
    if kind.full_name in above:
        raise Unfit(f"{where}: a message within itself, which has no end")
    inner = (*above, kind.full_name)
    return pyarrow.struct(
        [(each.name, _field_type(each, f"{where}.{each.name}" if where else each.name, inner)) for each in kind.fields]
    )


def _field_type(field: FieldDescriptor, where: str, above: tuple[str, ...]) -> pyarrow.DataType:
    if _is_map(field):
        key, value = _entry(field)
        return pyarrow.map_(_type(key, where, above), _type(value, f"{where}[]", above))
    kind = _type(field, where, above)
    return pyarrow.list_(kind) if _is_repeated(field) else kind


def _type(field: FieldDescriptor, where: str, above: tuple[str, ...]) -> pyarrow.DataType:
    message = field.message_type
    if message is None:
        return _SCALARS[_scalar(field)]
    if message.full_name == _TIMESTAMP:
        return TIME
    if message.full_name in _DOCUMENTS:
        return pyarrow.string()
    if message.full_name in _WRAPPERS:
        return _SCALARS[_scalar(message.fields[0])]
    return _struct_type(message, where, above)


def _scalar(field: FieldDescriptor) -> str:
    """The type of a field as Python has it: those that differ on the wire alone are one."""
    return "enum" if field.enum_type is not None else _CPP_TYPES[field.cpp_type]


_CPP_TYPES: Final = {
    1: "int32", 2: "int64", 3: "uint32", 4: "uint64", 5: "double", 6: "float", 7: "bool", 8: "enum", 9: "string",
}  # fmt: skip


def _is_repeated(field: FieldDescriptor) -> bool:
    found: Any = field  # the label is deprecated where the property is
    return bool(found.is_repeated if hasattr(found, "is_repeated") else found.label == found.LABEL_REPEATED)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _entry(field: FieldDescriptor) -> tuple[FieldDescriptor, FieldDescriptor]:
    assert field.message_type is not None
    key, value = field.message_type.fields
    return key, value


# --- Values ----------------------------------------------------------------------------------------------------------


def _structs(messages: Sequence[Message | None], kind: Descriptor) -> pyarrow.Array:
    mask = None
    if None in messages:
        mask = pyarrow.array([each is None for each in messages])
        absent = kind._concrete_class()
        messages = [absent if each is None else each for each in messages]
    columns = [_column(messages, field) for field in kind.fields]
    if not columns:
        return pyarrow.array([{}] * len(messages), pyarrow.struct([]))
    return pyarrow.StructArray.from_arrays(columns, [field.name for field in kind.fields], mask=mask)


def _column(messages: Sequence[Any], field: FieldDescriptor) -> pyarrow.Array:
    name = field.name
    if not _is_repeated(field):
        if field.has_presence:
            return _values([getattr(each, name) if each.HasField(name) else None for each in messages], field)
        return _values([getattr(each, name) for each in messages], field)
    found = [getattr(each, name) for each in messages]
    ends = pyarrow.array([0, *accumulate(map(len, found))], pyarrow.int32())
    if _is_map(field):
        key, value = _entry(field)
        keys = _values([inner for each in found for inner in each], key)
        return pyarrow.MapArray.from_arrays(
            ends, keys, _values([each[inner] for each in found for inner in each], value)
        )
    return pyarrow.ListArray.from_arrays(ends, _values([inner for each in found for inner in each], field))


def _values(values: Sequence[Any], field: FieldDescriptor) -> pyarrow.Array:
    """An array of single values, None among them."""
    message = field.message_type
    if message is None:
        if field.enum_type is not None:
            names = {each.number: each.name for each in reversed(field.enum_type.values)}
            # A number without a name is of a newer schema; so is its text.
            values = [None if each is None else names.get(each) or str(each) for each in values]
        return pyarrow.array(values, _SCALARS[_scalar(field)])
    if message.full_name == _TIMESTAMP:
        return pyarrow.array(
            [None if each is None else each.seconds * 1_000_000 + each.nanos // 1000 for each in values], TIME
        )
    if message.full_name in _DOCUMENTS:
        from google.protobuf import json_format

        texts = [None if each is None else json_format.MessageToJson(each, indent=None) for each in values]
        return pyarrow.array(texts, pyarrow.string())
    if message.full_name in _WRAPPERS:
        return _values([None if each is None else each.value for each in values], message.fields[0])
    return _structs(values, message)
