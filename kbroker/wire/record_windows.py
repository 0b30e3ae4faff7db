"""The records of a batch in windows of about a megabyte, however much a few kilobytes of it decompress to.

Whoever looks at records takes one window after another, so that neither the memory nor a step of the work grows with
the batch. A batch of ordinary size is one window, and costs no more than its decompression.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, TypeVar

from kbroker.value_types import NamedTuple
from kbroker.wire.batch_header import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, Buffer
from kbroker.wire.compression import PIECE_BYTES, CompressionType, CorruptRecord, unpack
from kbroker.wire.primitives import read_uvarint

_T = TypeVar("_T")
Steps = Generator[Callable[[], Any] | None, Any, _T]
"""Work in steps. It goes on with the result of the function that it yields, which needs no lock and is fit for a
thread, or gives way to others where it yields None."""

MIN_RECORD_SIZE = 7
"""A record with neither key, value nor headers: length, attributes, two deltas, -1, -1, 0."""

MAX_KEY = 64 * 1024 * 1024
"""Bytes of a record that may have to be in memory together: those up to the end of its key."""

_STEP_RECORDS = 4096
"""A power of two."""

_STEP_PIECES = 1024
"""Pieces that are decompressed at once, however little they hold."""


def run_steps(steps: Steps[_T]) -> _T:
    """Do the work without giving way."""
    result = None
    try:
        while True:
            step = steps.send(result)
            result = None if step is None else step()
    except StopIteration as end:
        value: _T = end.value
        return value


def inline(steps: Steps[_T]) -> Generator[None, None, _T]:
    """Do in place what may be done in a thread, and give way after each step."""
    result = None
    try:
        while True:
            step = steps.send(result)
            result = None if step is None else step()
            yield
    except StopIteration as end:
        value: _T = end.value
        return value


class Window(NamedTuple):
    """Records of a batch that follow each other."""

    data: bytes
    records_count: int
    first: int
    """The number of the first one, within the batch."""
    stop: int
    """Where in ``data`` they end. Beyond its end if there is one record alone that is larger than a window: ``data``
    goes to the end of its key or farther then, and the rest comes in pieces (`RecordWindows.rest`)."""


class RecordWindows:
    """The windows of one batch, one after another; ``CorruptRecord`` where it is damaged.

    A batch that is not compressed is one window: all of it is in memory already.
    """

    # Attributes of the class until a batch is more than one window: most are one, and each costs its beginning.
    whole: Window | None = None
    """The one window that the batch is, if it has begun and has turned out to be."""
    _pieces: Iterator[bytes] | None = None
    """The pieces that are still to be decompressed, since it has begun."""
    _kept = b""
    """The bytes behind the last window, as far as they are decompressed."""
    _missing = 0
    """Bytes of the last window's record that are still to come."""
    _first = 0
    _ended = False
    _last_given = False

    def __init__(self, buf: Buffer, pos: int, header: BatchHeader, most: int = PIECE_BYTES) -> None:
        """``most``: bytes of a window, and of a piece that is decompressed at once."""
        end = pos + header.batch_length + LOG_OVERHEAD
        if end > len(buf):
            raise CorruptRecord(f"batch at {pos} is cut off: {len(buf) - pos} of {header.size} bytes")
        self._codec = header.compression_type
        self._view = memoryview(buf)[pos + HEADER_SIZE : end]
        self._count = header.records_count
        self._most = most

    def rewind(self) -> None:
        """Go back to the first window."""
        self._pieces = None
        self._kept = b""
        self._missing = self._first = 0
        self._ended = self._last_given = False

    def begin(self) -> None:
        """Decompress the first of it, unless that is done already; `next` yields this."""
        if self._pieces is None and self.whole is None:
            # No bytes at all are no record for every codec: compaction may leave a batch so.
            self._pieces = unpack(self._codec, self._view, self._most) if self._view else iter(())
            self._kept = self._gather()
            if self._ended:
                self.whole = Window(self._kept, self._count, 0, len(self._kept))

    def next(self) -> Steps[Window | None]:
        """Returns the next window, None behind the last one. What is left of a record before it is passed over."""
        if self._last_given:
            return None
        if self._pieces is None and self.whole is None:
            yield self.begin
        if self.whole is not None:
            self._last_given = True
            return self.whole
        while self._missing:
            if (yield from self.rest()) is None:
                raise CorruptRecord("records end early")
        data = self._kept
        while not self._ended:
            if len(data) >= self._most:
                count, end = yield from self._cut(data)
                if count:
                    self._kept = data[end:]
                    return self._window(data[:end], count, end)
                needed, end = _extent(data)
                if needed <= len(data):
                    self._kept = b""
                    self._missing = end - len(data)
                    return self._window(data, 1, end)
            data += yield self._gather
        self._last_given = True
        if not data and self._first == self._count:
            return None
        return self._window(data, self._count - self._first, len(data))  # what it holds is for the reader to find

    def rest(self) -> Steps[bytes | None]:
        """Returns the next piece of the record that the last window had the beginning of, None after the last."""
        if not self._missing:
            return None
        data = self._kept
        if not data:
            if self._ended:
                raise CorruptRecord("records end early")
            data = yield self._gather
        self._kept = data[self._missing :]
        data = data[: self._missing]
        self._missing -= len(data)
        return data

    def _gather(self) -> bytes:
        """Decompress some more."""
        assert self._pieces is not None
        parts = []
        size = 0
        for piece in self._pieces:
            parts.append(piece)
            size += len(piece)
            is_step = size >= self._most or len(parts) >= _STEP_PIECES
            if is_step and self._codec is not CompressionType.NONE:
                break
        else:
            self._ended = True
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _window(self, data: bytes, count: int, stop: int) -> Window:
        window = Window(data, count, self._first, stop)
        self._first += count
        if count < 0 or self._first > self._count:
            raise CorruptRecord(f"more than {self._count} records")
        return window

    @staticmethod
    def _cut(data: bytes) -> Generator[None, None, tuple[int, int]]:
        """Count the whole records; and where they end."""
        count = position = 0
        size = len(data)
        try:
            while position < size:
                end = position
                length = data[end]
                end += 1
                if length >= 0x80:
                    byte = data[end]
                    end += 1
                    if byte < 0x80:
                        length = length & 0x7F | byte << 7
                    else:
                        length, end = read_uvarint(data, end - 2, 5)
                if length & 1 or length < 2 * MIN_RECORD_SIZE - 2:
                    raise CorruptRecord(f"a record of {(length >> 1) ^ -(length & 1)} bytes")
                end += length >> 1
                if end > size:
                    break
                position = end
                count += 1
                if not count & _STEP_RECORDS - 1:
                    yield
        except IndexError:
            pass  # the length itself is cut off
        return count, position


def _extent(data: bytes) -> tuple[int, int]:
    """The bytes that are needed of a record that ``data`` begins with, and where it ends."""
    try:
        length, position = read_uvarint(data, 0, 5)
        end = position + (length >> 1)
        _, position = read_uvarint(data, position + 1, 10)  # behind the attributes: the timestamp
        _, position = read_uvarint(data, position, 5)
        size, position = read_uvarint(data, position, 5)
    except IndexError:
        return len(data) + 1, 0  # the numbers themselves are cut off
    key_end = position if size & 1 else position + (size >> 1)
    if key_end >= end:
        raise CorruptRecord(f"a key of {size >> 1} bytes leaves its record")
    if key_end > MAX_KEY:
        raise CorruptRecord(f"a key of {size >> 1} bytes is more than {MAX_KEY}")
    return key_end + 1, end
