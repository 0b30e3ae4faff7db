"""The form in which serializers of a schema registry write keys and values, and the errors of decoding it. Pure.

Magic 0, the schema's id in four bytes, the data: Confluent's wire format. Newer serializers put magic 1 and the
schema's GUID in 16 bytes into a header of the record instead. With Protobuf the place of the message's type follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias
from uuid import UUID

from kbroker.errors import FatalError
from kbroker.value_types import NamedTuple

KEY_HEADER: Final = "__key_schema_id"
VALUE_HEADER: Final = "__value_schema_id"
"""Headers in which a schema's id may be."""

_ID_END: Final = 5
_GUID_END: Final = 17
_MAX_DEPTH: Final = 64
"""Levels of messages within messages that the place of a type may go down."""

SchemaId = int | UUID
"""The number of a schema, or its GUID."""

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
"""The headers of a record."""


class UndecodableRecord(Exception):
    """One key or value cannot be decoded: its schema is not there or is unusable, or its bytes do not fit it."""


class RegistryError(FatalError):
    """The registry cannot be asked at all, so nothing can be decoded."""


class RegistryAway(RegistryError):
    """The registry does not answer now; another try may help."""


class RegistryRefused(FatalError):
    """The registry does not do what it is asked for, and says why; ``status`` is that of its answer."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class UnfitValue(Exception):
    """A value does not fit a schema; ``path`` is the place of what does not fit, as in ``$.items[2].price``."""

    def __init__(self, path: str, wanted: str) -> None:
        super().__init__(f"{path}: {wanted}")
        self.path = path


class PackageMissing(FatalError):
    """A package of ``kbroker[schemas]`` is not installed."""

    def __init__(self, what: str, package: str) -> None:
        super().__init__(f"{what} needs the package {package}: pip install 'kbroker[schemas]'")


class Framed(NamedTuple):
    """The id of a schema, and the bytes after it."""

    schema_id: SchemaId
    rest: bytes


def frame_of(data: bytes, headers: Headers, name: str) -> Framed | None:
    """The schema's id of a key or value, in the header ``name`` or at its own beginning; None if there is none."""
    for each, content in reversed(headers):
        if each == name and content is not None:
            found = split_header(content)
            if found is not None:
                # The place of a Protobuf type is in the header, too, after the id.
                return Framed(found.schema_id, found.rest + data)
            break
    return split_frame(data)


def split_frame(data: bytes) -> Framed | None:
    """The schema's id at the beginning of a key or value; None if there is none, as in plain text."""
    if len(data) >= _ID_END and data[0] == 0:
        return Framed(int.from_bytes(data[1:_ID_END]), data[_ID_END:])
    return None


def split_header(content: bytes) -> Framed | None:
    """The schema's id in a header: a GUID, or a number as in values; None if there is none."""
    if len(content) >= _GUID_END and content[0] == 1:
        return Framed(UUID(bytes=content[1:_GUID_END]), content[_GUID_END:])
    return split_frame(content)


def split_message_type(data: bytes) -> tuple[tuple[int, ...], bytes]:
    """The place of a message's type in its Protobuf file, and the bytes after it.

    ``(1, 0)`` is the first type within the second. The numbers are zigzag varints after their count, and a single byte
    0 stands for ``(0,)``. :class:`UndecodableRecord` if that is not so.
    """
    if data[:1] == b"\0":  # most often
        return (0,), data[1:]
    count, place = _zigzag(data, 0)
    if not 0 < count <= _MAX_DEPTH:
        raise UndecodableRecord(f"{count} is no number of levels of a Protobuf message")
    path: list[int] = []
    for _ in range(count):
        index, place = _zigzag(data, place)
        path.append(index)
    return tuple(path), data[place:]


def _zigzag(data: bytes, place: int) -> tuple[int, int]:
    """A zigzag varint of up to five bytes, and the place after it."""
    value = 0
    for shift in range(0, 35, 7):
        if place >= len(data):
            raise UndecodableRecord("it ends before the type of its Protobuf message")
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), place
    raise UndecodableRecord("the type of its Protobuf message is no number")
