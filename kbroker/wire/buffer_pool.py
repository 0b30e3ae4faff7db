"""Large buffers that are used again when nobody looks into them any more.

Python fills a new ``bytearray`` with zeros, and the system first has to find its pages: for a Produce of a megabyte
that costs as much as its checksum. Whether a buffer is free need not be told by who holds it: Python does not let a
``bytearray`` change its size while any ``memoryview`` of it lives, and that can be tried.
"""

from __future__ import annotations

from collections import deque
from typing import Final

LEAST: Final = 64 << 10
"""Bytes beyond which a buffer is worth keeping. Sizes are multiples of it, so that requests of about one size fit."""

MOST: Final = 2 << 20
"""Bytes of the largest buffer that is kept."""

KEPT: Final = 4
"""As many are kept, for all connections together: of those that are served one after the other each is soon free."""


class BufferPool:
    """Buffers for whoever reads large frames; not to be shared between threads."""

    def __init__(self) -> None:
        self._buffers: deque[bytearray] = deque(maxlen=KEPT)

    def take(self, size: int) -> bytearray:
        """At least ``size`` bytes (and less than twice that), with anything in them; nobody else writes to them."""
        buffers = self._buffers
        for index, buffer in enumerate(buffers):
            if size <= len(buffer) < 2 * size and _is_free(buffer):
                del buffers[index]
                return buffer
        return bytearray(-(-size // LEAST) * LEAST)

    def give(self, buffer: bytearray) -> None:
        """Have it used again as soon as all views of it are gone. The caller must not write to it from now on."""
        if LEAST < len(buffer) <= MOST:
            self._buffers.append(buffer)


def _is_free(buffer: bytearray) -> bool:
    """Whether no ``memoryview`` of it lives. One byte less, and one more again, fit in place: nothing is moved."""
    try:
        last = buffer.pop()
    except BufferError:
        return False
    buffer.append(last)
    return True
