"""Protobuf by Google's package: bytes by a file descriptor and the place of a type become JSON.

The JSON is Protobuf's own mapping with the names of the ``.proto`` file: 64 bit integers are texts, bytes in base64.
Fields that have no presence are there with their defaults.
"""

from __future__ import annotations

import base64
import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kbroker.client.schemas.wire_format import PackageMissing, UndecodableRecord, split_message_type

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import Message

T = TypeVar("T")

_WELL_KNOWN: Final = ("google/protobuf/", "google/type/")
"""Python has these in packages: protobuf, and googleapis-common-protos if it is installed."""
OPTIONS_ALONE: Final = "confluent/meta.proto"
"""It declares options, which do not change how bytes are read."""
_DECIMAL: Final = "confluent/type/decimal.proto"


def compile_protobuf(text: str, references: Sequence[tuple[str, str]]) -> Callable[[bytes], str]:
    """The decoder of a file descriptor in base64; its argument begins with the place of the message's type.

    ``references``: the names by which files are imported, and those files, each after those that it imports.
    :class:`UndecodableRecord` if a file cannot be used; the decoder raises it for bytes that do not fit.
    """

    def shape(message: Message, pool: DescriptorPool) -> str:
        from google.protobuf import json_format

        try:
            text: str = json_format.MessageToJson(
                message,
                preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True,
                indent=None,
                ensure_ascii=False,
                descriptor_pool=pool,
            )
        except json_format.Error as error:
            raise ValueError(str(error)) from None
        return text

    return read_protobuf(text, references, shape)


def read_protobuf(
    text: str, references: Sequence[tuple[str, str]], shape: Callable[[Message, DescriptorPool], T]
) -> Callable[[bytes], T]:
    """A reader of messages, each put into ``shape``, which raises ``ValueError``; the rest as `compile_protobuf`."""
    pool, file = pool_of(text, references)
    from google.protobuf import message_factory
    from google.protobuf.message import DecodeError

    classes: dict[tuple[int, ...], type[Message]] = {}
    sizes = JsonSizes()

    def class_of(path: tuple[int, ...]) -> type[Message]:
        if path not in classes:
            classes[path] = message_factory.GetMessageClass(pool.FindMessageTypeByName(_type_name(file, path)))
        return classes[path]

    def decode(data: bytes) -> T:
        path, payload = split_message_type(data)
        message = class_of(path)()
        try:
            message.ParseFromString(payload)
            sizes.check(message, len(payload))
            return shape(message, pool)
        except (DecodeError, TypeError, ValueError, RecursionError) as error:
            raise UndecodableRecord(f"its bytes do not fit its Protobuf schema: {_told(error)}") from None

    return decode


def pool_of(text: str, references: Sequence[tuple[str, str]]) -> tuple[DescriptorPool, FileDescriptorProto]:
    """Returns a pool with a file, given as to ``compile_protobuf``, and with all that the file needs; and the file."""
    try:
        from google.protobuf import descriptor_pool
    except ImportError:
        raise PackageMissing("Protobuf", "protobuf") from None
    pool = descriptor_pool.DescriptorPool()
    try:
        for name, reference in references:
            _add(pool, _file(reference, name))
        file = _file(text, None)
        _add(pool, file)
    except Exception as error:  # TypeError, KeyError, DecodeError: as the package's implementation has it
        raise UndecodableRecord(f"its Protobuf schema cannot be used: {_told(error)}") from None
    return pool, file


def _file(text: str, name: str | None) -> FileDescriptorProto:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    if name is not None:
        file.name = name
    return file


def known_file(name: str) -> FileDescriptorProto | None:
    """Returns a file that all clients have, which serializers do not name among the references of a schema."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    if name == _DECIMAL:
        made = FileDescriptorProto(name=name, package="confluent.type", syntax="proto3")
        message = made.message_type.add(name="Decimal")
        for number, (field, kind) in enumerate((("value", 12), ("precision", 13), ("scale", 5)), 1):
            message.field.add(name=field, number=number, label=1, type=kind)  # bytes, uint32, int32; optional
        return made
    if not (name.startswith(_WELL_KNOWN) and name.endswith(".proto")):
        return None
    try:
        module: Any = importlib.import_module(f"{name.removesuffix('.proto').replace('/', '.')}_pb2")
    except ImportError:
        return None
    return FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)


def _add(pool: DescriptorPool, file: FileDescriptorProto) -> None:
    """Add a file, and those that it imports and all clients have, unless they are there."""
    for name in list(file.dependency):
        if name == OPTIONS_ALONE:
            _drop_dependency(file, name)
        elif not _has(pool, name) and (known := known_file(name)) is not None:
            _add(pool, known)
    pool.AddSerializedFile(file.SerializeToString())


def _has(pool: DescriptorPool, name: str) -> bool:
    try:
        pool.FindFileByName(name)
    except KeyError:
        return False
    return True


def _drop_dependency(file: FileDescriptorProto, name: str) -> None:
    """Take an import away; the places by which others are named as public or weak move down."""
    place = list(file.dependency).index(name)
    del file.dependency[place]
    for places in (file.public_dependency, file.weak_dependency):
        left = [each - (each > place) for each in places if each != place]
        del places[:]
        places.extend(left)


def _type_name(file: FileDescriptorProto, path: tuple[int, ...]) -> str:
    """The full name of the message type at a place in a file."""
    names = [file.package] if file.package else []
    types: Any = file.message_type
    for index in path:
        if not 0 <= index < len(types):
            raise UndecodableRecord(f"its Protobuf schema has no type at {'.'.join(map(str, path))}")
        names.append(types[index].name)
        types = types[index].nested_type
    return ".".join(names)


def _told(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:200]}..."


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
