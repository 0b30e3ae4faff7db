"""Keys and values of records that are alike, many at once: who loads a log of small records pays for each otherwise."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from kbroker.value_types import NamedTuple

_MOST = 256
"""Records that are looked at together: what is looked at in vain, because the first of them differ, stays little."""

_ENDS = bytes(range(0x80))
_GOES_ON = bytes(range(0x80, 0x100))
"""Bytes of a varint: the last one, and all before."""


class RecordRun(NamedTuple):
    """Records that follow each other, whose keys are of one length, and whose values are as well, or all null."""

    keys: Sequence[bytes]
    values: Sequence[bytes | None]


def record_runs(data: bytes, position: int, end: int, count: int) -> list[RecordRun] | None:
    """Returns the ``count`` records between two positions, which are not compressed, without offsets and times.

    None where they are not as nearly all are, or damaged: with headers, or with a number of three bytes.
    `iter_payload` reads them then.
    """
    runs = []
    try:
        while count:
            start = position
            length = data[position]
            attributes = position + 1
            if length >= 0x80:
                length = length & 0x7F | data[attributes] << 7
                attributes += 1
            stop = attributes + (length >> 1)
            time = attributes + 1
            delta = time + (2 if data[time] >= 0x80 else 1)
            key_size = delta + (2 if data[delta] >= 0x80 else 1)
            size = data[key_size]
            key = key_size + 1
            if size >= 0x80:
                size = size & 0x7F | data[key] << 7
                key += 1
            value_size = key + (size >> 1)
            # An odd number is negative: a key that is null, for one. A third byte would make it 0x4000 or more.
            if stop > end or length & 1 or size & 1 or length >= 0x4000 or size >= 0x4000 or value_size >= stop:
                return None
            if (delta - time == 2 and data[time + 1] >= 0x80) or (key_size - delta == 2 and data[delta + 1] >= 0x80):
                return None
            size = data[value_size]
            value = value_size + 1
            if size >= 0x80:
                size = size & 0x7F | data[value] << 7
                value += 1
            if size == 1:
                size = 0
                is_null = True
            else:
                is_null = False
            if size & 1 or size >= 0x4000 or value + (size >> 1) + 1 != stop or data[stop - 1]:
                return None
            stride = stop - start
            alike = min(count, _MOST, (end - start) // stride)
            if alike > 1:
                same = (*range(start, delta), *range(key_size, key), *range(value_size, value), stop - 1)
                alike = _alike(data, stride, alike, same, range(delta, key_size))
            if alike == 1:
                runs.append(RecordRun((data[key:value_size],), (None if is_null else data[value : stop - 1],)))
            else:
                layout = f"{key - start}x{value_size - key}s{value - value_size}x{stop - 1 - value}s1x"
                rows = struct.iter_unpack(layout, data[start : start + alike * stride])
                keys, values = zip(*rows, strict=True)
                runs.append(RecordRun(keys, (None,) * alike if is_null else values))
            position = start + alike * stride
            count -= alike
    except IndexError:
        return None
    return runs if position == end else None


def _alike(data: bytes, stride: int, most: int, same: Sequence[int], varint: Sequence[int]) -> int:
    """Returns how many records have what the first has at the positions ``same``, and a ``varint`` as long as its."""
    for at in same:
        column = data[at : at + (most - 1) * stride + 1 : stride]
        most -= len(column.lstrip(column[:1]))
        if most == 1:
            return 1
    for at in varint:
        column = data[at : at + (most - 1) * stride + 1 : stride]
        most -= len(column.lstrip(_ENDS if at == varint[-1] else _GOES_ON))
    return most
