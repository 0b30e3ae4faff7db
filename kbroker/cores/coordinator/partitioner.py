"""The partition of a coordinator's topic that a group or transactional id belongs to."""

from __future__ import annotations

import struct
from functools import lru_cache


def java_hash(text: str) -> int:
    """``String.hashCode``: 32 bit signed, over UTF-16 code units."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for (unit,) in struct.iter_unpack(">H", encoded):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value >= 0x8000_0000 else value


def partition_for(key: str, partition_count: int) -> int:
    """Kafka's ``partitionFor``: the partition of a key; the one hash without an absolute value counts as 0."""
    if len(key) > _LONGEST_KEPT_KEY:
        return _partition_for(key, partition_count)
    return _kept_partition_for(key, partition_count)


def _partition_for(key: str, partition_count: int) -> int:
    value = java_hash(key)
    return (0 if value == -0x8000_0000 else abs(value)) % partition_count


_LONGEST_KEPT_KEY = 255
"""Longer ids are hashed each time: clients choose ids, and the cache must stay small."""
_kept_partition_for = lru_cache(maxsize=10_000)(_partition_for)
