"""The input of ``kbroker produce`` and ``import``: lines of a file descriptor as they come, and the records in them."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from kbroker.client.records_io.items import BadLine, Item

_CHUNK: Final = 256 << 10


class LineSource:
    """Lines of a file descriptor as they come. ``on_idle`` is called when nothing has come for ``linger`` seconds:
    whoever types, or a pipe that is slow, does not want to wait for a full batch.
    """

    def __init__(self, descriptor: int, on_idle: Callable[[], None], linger: float) -> None:
        self._descriptor = descriptor
        self._on_idle = on_idle
        self._linger = linger
        self.bytes_read = 0
        self.waiting = False
        """Whether it is waiting for input now, so that an interruption may be raised without harm."""
        self.stopped = False
        """Set it to have no more lines."""

    def __iter__(self) -> Iterator[bytes]:
        begun: list[bytes] = []  # of a line whose end has not come: joined once, however long it is
        idle = False
        while True:
            self.waiting = True
            if self.stopped:
                break
            there = idle or select.select([self._descriptor], [], [], self._linger)[0]
            if not there:
                self.waiting = False
                self._on_idle()
                idle = True
                continue
            chunk = os.read(self._descriptor, _CHUNK)
            self.waiting = False
            if not chunk:
                break
            idle = False
            self.bytes_read += len(chunk)
            first, *lines = chunk.split(b"\n")
            begun.append(first)
            if lines:
                rest = lines.pop()
                yield b"".join(begun)
                yield from lines
                begun = [rest]
        self.waiting = False
        if any(begun) and not self.stopped:
            yield b"".join(begun)


class LineInput:
    """Records out of the lines of a file descriptor, by a reader of lines."""

    def __init__(
        self,
        descriptor: int,
        on_idle: Callable[[], None],
        linger: float,
        read: Callable[[Iterable[bytes]], Iterator[Item | BadLine]],
    ) -> None:
        """See `LineSource`."""
        self._source = LineSource(descriptor, on_idle, linger)
        self._read = read

    def __iter__(self) -> Iterator[Item | BadLine]:
        return self._read(self._source)

    @property
    def position(self) -> int:
        """Bytes that are read."""
        return self._source.bytes_read

    @property
    def waiting(self) -> bool:
        """Whether it is waiting for input now."""
        return self._source.waiting

    @property
    def stopped(self) -> bool:
        """Whether there are to be no more lines."""
        return self._source.stopped

    @stopped.setter
    def stopped(self, value: bool) -> None:
        self._source.stopped = value
