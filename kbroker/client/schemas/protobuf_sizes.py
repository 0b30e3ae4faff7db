"""The size that a Protobuf message would have as JSON: one of two bytes has the defaults of all its fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kbroker.client.schemas.errors import UndecodableRecord

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.message import Message

MAX_JSON: Final = 16 << 20
"""Characters of the names and defaults of one message."""

_A_FIELD: Final = 8
"""Quotes, colon, comma and a default, roughly."""

_ANY: Final = "google.protobuf.Any"


class JsonSizes:
    """Sizes of the types of one schema. Threads may share it."""

    def __init__(self) -> None:
        self._own: dict[str, int] = {}
        self._widest: dict[str, int] = {}

    def check(self, message: Message, size: int) -> None:
        """``UndecodableRecord`` if the JSON of a message, which had ``size`` bytes, would be too large."""
        widest = self._widest_of(message.DESCRIPTOR)
        if (size + 1) * widest <= MAX_JSON:
            return  # each message in it takes two bytes, and each name of an enum one
        left = MAX_JSON
        waiting: list[Any] = [message]
        while waiting:
            each = waiting.pop()
            left -= self._own_of(each.DESCRIPTOR)
            for field, value in each.ListFields():
                left -= self._take(field, value, waiting)
            if each.DESCRIPTOR.full_name == _ANY:
                left -= (len(each.value) + 1) * widest
            if left < 0:
                raise UndecodableRecord(f"its JSON would have more than {MAX_JSON >> 20} MiB of names and defaults")

    def _take(self, field: FieldDescriptor, value: Any, waiting: list[Any]) -> int:
        """Put the messages of a field to those that wait; the size of its enums."""
        kind = field.message_type
        if kind is None:
            many = 1 if field.enum_type is None or isinstance(value, int) else len(value)
            return many * _longest_name(field)
        if kind.GetOptions().map_entry:
            of_values = kind.fields_by_name["value"]
            if of_values.message_type is not None:
                waiting.extend(value.values())
            return len(value) * _longest_name(of_values)
        if hasattr(value, "DESCRIPTOR"):
            waiting.append(value)
        else:
            waiting.extend(value)
        return 0

    def _own_of(self, kind: Descriptor) -> int:
        """The size of a message that has defaults alone."""
        found = self._own.get(kind.full_name)
        if found is None:
            found = sum(len(field.name) + _A_FIELD + _longest_name(field) for field in kind.fields) + 2
            self._own[kind.full_name] = found
        return found

    def _widest_of(self, kind: Descriptor) -> int:
        """The largest size of a type, and of all the types of its files: an Any may hold one of those."""
        found = self._widest.get(kind.full_name)
        if found is None:
            files = [kind.file]
            for file in files:
                files += [each for each in file.dependencies if each not in files]
            kinds = [each for file in files for each in file.message_types_by_name.values()]
            for each in kinds:
                kinds += each.nested_types
            found = max(map(self._own_of, kinds))
            self._widest[kind.full_name] = found
        return found


def _longest_name(field: FieldDescriptor) -> int:
    """Characters of the longest name of a field's enum, 0 for other fields."""
    return 0 if field.enum_type is None else max(len(each.name) for each in field.enum_type.values) + _A_FIELD
