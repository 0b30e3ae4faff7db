"""The order in which Java's ``HashMap`` goes through strings: Kafka's tools print what they have in one so. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def in_hash_order(names: Sequence[str], capacity: int = 16) -> list[str]:
    """Strings in the order of a ``HashMap`` made for ``capacity`` of them that they were put into."""
    size = 1
    while size < capacity or len(names) > size * 3 // 4:
        size *= 2
    return sorted(names, key=lambda name: _spread(name) & (size - 1))


def _spread(text: str) -> int:
    code = 0
    for letter in text:
        code = (31 * code + ord(letter)) & 0xFFFF_FFFF
    return code ^ code >> 16
