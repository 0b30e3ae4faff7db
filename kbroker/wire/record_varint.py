"""The varints of records, whose sizes and deltas are all varints; loops that read them have the short forms inline."""

from __future__ import annotations

from kbroker.wire.compression import CorruptRecord


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
    """The same, zigzag."""
    result, position = read_uvarint(data, position, longest)
    return (result >> 1) ^ -(result & 1), position


def write_varint(out: bytearray, value: int) -> None:
    """Append ``value``, zigzag."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
