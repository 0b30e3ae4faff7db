"""The varints of the protocol and those of records, and a cache of compiled fixed-width formats.

Everything else (strings, arrays, compact forms, tagged fields) is written out by ``decoder_source.py`` and
``encoder_source.py`` in the code they generate, because a call per field is what makes Python codecs slow. Loops that
read records have the short forms of their varints, of which sizes and deltas are all made, inline.
"""

from __future__ import annotations

import functools
import struct
from typing import Final

from kbroker.wire.compression import CorruptRecord
from kbroker.wire.errors import WireError

Buffer = bytes | bytearray | memoryview
"""Bytes to decode; a ``memoryview`` has format "B" and one dimension."""

MAX_TAGGED_FIELDS: Final = 64
"""More tagged fields than this in one struct are refused; Kafka's own structs have at most five."""

MAX_ELEMENTS: Final = 100_000
"""Elements that the arrays of one request may have, all together. Each becomes an object of hundreds of bytes and some
microseconds of work, though it may take but two bytes of the frame: eight megabytes of them took gigabytes of memory,
and half a minute in which nobody else was served."""

MAX_ARRAY: Final = 1_000_000
"""Elements that one array of a response or a record may have: from 4.4 on Apache Kafka's limit for all arrays."""

compiled_struct = functools.cache(struct.Struct)
"""``struct.Struct`` objects by format, shared by all codecs."""


def encode_uvarint(value: int) -> bytes:
    """An unsigned varint: seven bits a byte, the lowest first. ``ValueError`` below zero."""
    if value < 0:
        raise ValueError(f"unsigned varint of {value}")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


VARINTS: Final = tuple(encode_uvarint(value << 1) for value in range(1024))
"""Lengths of keys, values and records, and offsets in a batch, are rarely more."""


def encode_varint(value: int) -> bytes:
    """A zigzag varint of a number that is not negative."""
    return VARINTS[value] if value < 1024 else encode_uvarint(value << 1)


def decode_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """``(value, next position)`` of an unsigned varint of 32 bits, at most 5 bytes.

    ``WireError`` if it is longer or cut short.
    """
    try:
        first = buffer[position]
    except IndexError:
        raise WireError("varint cut short") from None
    if first < 0x80:
        return first, position + 1
    return continue_uvarint(buffer, position + 1, first)


def continue_uvarint(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """The rest of a varint whose first byte (with its continuation bit) has been read already."""
    value = first & 0x7F
    try:
        byte = buffer[position]
        value |= (byte & 0x7F) << 7
        if byte < 0x80:
            return value, position + 1
        byte = buffer[position + 1]
        value |= (byte & 0x7F) << 14
        if byte < 0x80:
            return value, position + 2
        byte = buffer[position + 2]
        value |= (byte & 0x7F) << 21
        if byte < 0x80:
            return value, position + 3
        byte = buffer[position + 3]
    except IndexError:
        raise WireError("varint cut short") from None
    if byte >= 0x10:
        raise WireError("varint longer than 5 bytes, or more than 32 bits")
    return value | byte << 28, position + 4


def skip_tagged_fields(buffer: Buffer, position: int, count: int) -> int:
    """The position after ``count`` tagged fields, none of which this version knows.

    ``count`` may be the first byte of a longer varint, which may stand for a small number all the same.
    """
    if count > 0x7F:
        count, position = continue_uvarint(buffer, position, count)
    if count > MAX_TAGGED_FIELDS:
        raise WireError("more than 64 tagged fields in one struct")
    end = len(buffer)
    for _ in range(count):
        _tag, position = decode_uvarint(buffer, position)
        size, position = decode_uvarint(buffer, position)
        position += size
        if position > end:
            raise WireError("a tagged field ends beyond the frame")
    return position


def read_uvarint(data: bytes, position: int, longest: int) -> tuple[int, int]:
    """A varint of at most ``longest`` bytes (5: int32, 10: int64), unsigned, and the position after it."""
    result = 0
    for index in range(longest):
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return result & (0xFFFFFFFF if longest == 5 else 0xFFFFFFFFFFFFFFFF), position
    raise CorruptRecord(f"a varint has more than {longest} bytes")


def read_varint(data: bytes, position: int, longest: int) -> tuple[int, int]:
    """A zigzag varint of at most ``longest`` bytes, and the position after it."""
    result, position = read_uvarint(data, position, longest)
    return (result >> 1) ^ -(result & 1), position


def write_varint(out: bytearray, value: int) -> None:
    """Append ``value``, zigzag."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
