"""From received bytes to frames, and from messages to bytes to send. Sans-IO: sockets are the caller's.

A connection reads like this::

    reader = FrameReader(limit=100 << 20)
    while (count := sock.recv_into(reader.get_buffer())):
        reader.buffer_updated(count)
        while (frame := reader.next_frame()) is not None:
            header, offset = decode_request_header(frame)
            request, _ = decode(API_KEYS[header.api_key].request, header.api_version, frame, offset)

A frame comes out as a writable ``memoryview`` without its four bytes of size. The reader never writes to
those bytes again nor reuses their buffer, so that a handler may hold the view as long as it wants, and
change the bytes (the log patches base offsets in place).

Copies: small frames are views into the chunk that they were received in. A frame larger than the chunk moves
once, while small, to a buffer of its own, into which the socket then reads directly. Memory: a buffer has
at most four times the bytes received of its frame, whatever size the frame declares, except that a
connection which has just sent a frame of N bytes gets a buffer of up to N (at most 2 MiB) for the next. With a
``BufferPool`` large buffers are taken from it, which may be up to twice as large as asked for, and given back: it
hands them out again when no view of them is left. A large buffer holds one frame.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterator
from typing import Any, Final, cast

from kbroker.types import Part
from kbroker.wire.buffer_pool import LEAST, BufferPool
from kbroker.wire.compiler import encode_parts
from kbroker.wire.errors import FrameTooLarge, NotKafka, UnknownApi, WireError
from kbroker.wire.headers import encode_request_header, encode_response_header
from kbroker.wire.primitives import Buffer
from kbroker.wire.registry import API_KEYS

DEFAULT_LIMIT: Final = 100 << 20
"""Kafka's ``socket.request.max.bytes``."""

_SMALL_CHUNK: Final = 4 << 10
_LARGE_CHUNK: Final = 64 << 10
_FIRST_CAPACITY: Final = 16 << 10
_MOST_CREDIT: Final = 2 << 20
_LEAST_ROOM: Final = 512
_LEAST_FRAME: Final = 12
"""Size, API key, version and correlation id."""

_SIZE: Final = struct.Struct(">i")
_SIZE_AND_KEY: Final = struct.Struct(">ih")

_HTTP_VERBS: Final = frozenset(
    (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ")
)


class FrameReader:
    """Cuts a stream of bytes into frames.

    ``limit``: the largest frame, in bytes without the size field; may be changed at any time (it is raised
    after authentication). ``api_keys``: the keys that a request may have, looked at as soon as six bytes
    are there; ``None`` on the client's side, where frames are responses. ``pool``: where large buffers come from.

    After a ``WireError`` the stream is lost: every further call raises it again.
    """

    __slots__ = (
        "_api_keys",
        "_buffer",
        "_chunk_size",
        "_credit",
        "_end",
        "_error",
        "_pool",
        "_size",
        "_start",
        "_view",
        "buffered_bytes",
        "limit",
    )

    def __init__(
        self, limit: int = DEFAULT_LIMIT, *, api_keys: Container[int] | None = API_KEYS, pool: BufferPool | None = None
    ) -> None:
        self.limit = limit
        self._pool = pool
        self._api_keys = api_keys
        self._buffer = bytearray()
        self._view = memoryview(self._buffer)
        self.buffered_bytes = 0
        """Memory that the reader itself holds now."""
        self._start = 0
        """First byte of the frame being received (of its size field)."""
        self._end = 0
        """End of the bytes received."""
        self._size: int | None = None
        """Size of that frame, once it is known and accepted."""
        self._chunk_size = _SMALL_CHUNK
        self._credit = 0
        self._error: WireError | None = None

    @property
    def partial(self) -> bool:
        """Whether a frame has begun and is not complete: the time to read it is running."""
        return self._end > self._start

    @property
    def rest(self) -> int:
        """The number of bytes that the frame lacks that has begun; 0 if none has, or its size is not known yet."""
        return 0 if self._size is None else max(0, self._start + 4 + self._size - self._end)

    def get_buffer(self) -> memoryview:
        """Room for the next bytes, never empty; fill it from its start, then call ``buffer_updated``.

        To be called when ``next_frame`` has answered ``None``: the buffer is sized by the frame that has begun.
        """
        end = self._end
        if self._start == end and end + _LEAST_ROOM <= self.buffered_bytes <= _LARGE_CHUNK:
            return self._view[end:]
        if self._error is not None:
            raise self._error
        if self._size is None:
            # A large buffer is one frame's: what comes behind it would keep it for long.
            is_spent = self._start == self._end and len(self._buffer) > _LARGE_CHUNK
            if is_spent or self.buffered_bytes - self._end < _LEAST_ROOM:
                self._move_to(self._chunk_size)
        else:
            total = 4 + self._size
            if self._start + total > len(self._buffer):
                received = self._end - self._start
                capacity = min(total, max(_FIRST_CAPACITY, 4 * received, self._credit))
                if capacity > len(self._buffer) - self._start:
                    self._move_to(capacity)
        if self._end == len(self._buffer):
            self._move_to(self._end - self._start + self._chunk_size)
        stop = len(self._buffer)
        if self._size is not None and stop > _LARGE_CHUNK and self._end < self._start + 4 + self._size:
            stop = self._start + 4 + self._size  # else more is wanted than the frame that nobody has taken yet
        return self._view[self._end : stop]

    def _move_to(self, capacity: int) -> None:
        """Take a new buffer, with the bytes of the unfinished frame at its start."""
        pool, left = self._pool, self._buffer
        buffer = bytearray(capacity) if pool is None or capacity <= LEAST else pool.take(capacity)
        length = self._end - self._start
        buffer[:length] = self._view[self._start : self._end]
        self._buffer = buffer
        self._view = memoryview(buffer)
        self.buffered_bytes = len(buffer)
        self._start, self._end = 0, length
        if pool is not None:
            pool.give(left)

    def buffer_updated(self, count: int) -> None:
        """``count`` bytes have been written to the start of what ``get_buffer`` returned last."""
        self._end += count
        if self._end == len(self._buffer) and self._size is None and self._chunk_size < _LARGE_CHUNK:
            self._chunk_size *= 4

    def only_frame(self, count: int) -> memoryview | None:
        """``buffer_updated(count)`` and ``next_frame()`` in one, where all that there is is these bytes, a small frame.

        Such are the requests of who waits for each answer. ``None``: it is not so, and nothing has been done.
        """
        start = self._start
        end = start + count
        if start != self._end or count < _LEAST_FRAME or end >= self.buffered_bytes:
            return None
        size, api_key = _SIZE_AND_KEY.unpack_from(self._buffer, start)
        if size != count - 4 or size > self.limit or self._api_keys is None or api_key not in self._api_keys:
            return None
        self._start = self._end = end
        self._credit >>= 1
        return self._view[start + 4 : end]

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Copy bytes in, for those who have them already.

        Takes complete frames only as fast as they are taken out: bytes behind a refused size are dropped,
        since ``next_frame`` raises.
        """
        rest = memoryview(data)
        while rest:
            room = self.get_buffer()
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            self.buffer_updated(count)
            rest = rest[count:]
            if rest and self._complete():
                self._extend(rest)
                return

    def _complete(self) -> bool:
        """Whether the buffer holds at least one whole frame; also learns the size of a begun one."""
        try:
            self._learn_size()
        except WireError:
            return True
        return self._size is not None and self._end - self._start >= 4 + self._size

    def _extend(self, rest: memoryview) -> None:
        """Keep bytes that follow a complete frame which nobody has taken yet."""
        used = self._end - self._start
        room = len(self._buffer) - self._end
        if len(rest) > room:
            self._move_to(used + len(rest) + _LEAST_ROOM)
        self._view[self._end : self._end + len(rest)] = rest
        self._end += len(rest)

    @property
    def waiting_api_key(self) -> int | None:
        """The API key of the frame that ``next_frame`` would give; ``None`` if it is not complete."""
        at = self._start + 4
        if not self._complete() or self._end < at + 2:
            return None
        return int.from_bytes(self._view[at : at + 2], "big", signed=True)

    def next_frame(self) -> memoryview | None:
        """The next complete frame, or ``None`` until more bytes have come.

        ``FrameTooLarge``, ``UnknownApi``, ``NotKafka`` or another ``WireError`` as soon as the bytes that
        show it have come.
        """
        size = self._size
        if size is None:
            if self._error is not None:
                raise self._error
            if self._start == self._end:
                return None
            self._learn_size()
            size = self._size
            if size is None:
                return None
        begin = self._start + 4
        stop = begin + size
        if stop > self._end:
            return None
        self._start = stop
        self._size = None
        if size > _LARGE_CHUNK:
            # The next frame will likely be as large: read its head into a small chunk and the body to its
            # place.
            self._credit = min(size + 4, _MOST_CREDIT)
            self._chunk_size = _SMALL_CHUNK
        else:
            self._credit >>= 1
        return self._view[begin:stop]

    def __iter__(self) -> Iterator[memoryview]:
        """All frames that are complete now."""
        while (frame := self.next_frame()) is not None:
            yield frame

    def trim(self) -> None:
        """Let go of a large idle buffer; to be called before a wait that may be long."""
        if self._start == self._end and len(self._buffer) > _SMALL_CHUNK:
            self.drop()

    def drop(self) -> None:
        """Let go of the buffer, whatever is in it."""
        if self._pool is not None:
            self._pool.give(self._buffer)
        self._buffer = bytearray()
        self._view = memoryview(self._buffer)
        self.buffered_bytes = 0
        self._start = self._end = 0
        self._chunk_size = _SMALL_CHUNK

    def _learn_size(self) -> None:
        """Read and judge the size and the API key once both are there."""
        received = self._end - self._start
        if self._size is not None or received < 4:
            return
        if self._api_keys is None:
            (size,) = _SIZE.unpack_from(self._buffer, self._start)
            if not 4 <= size <= self.limit:
                self._refuse(size)
        elif received < 6:
            (size,) = _SIZE.unpack_from(self._buffer, self._start)
            if not 8 <= size <= self.limit:
                self._refuse(size)
            return
        else:
            size, api_key = _SIZE_AND_KEY.unpack_from(self._buffer, self._start)
            if not 8 <= size <= self.limit:
                self._refuse(size)
            if api_key not in self._api_keys:
                self._fail(UnknownApi(f"unknown API key {api_key}"))
        self._size = size

    def _refuse(self, size: int) -> None:
        start = bytes(self._view[self._start : self._start + 4])
        if start[:2] == b"\x16\x03":
            self._fail(NotKafka("a TLS handshake on a plaintext listener (security.protocol=SSL in the client?)"))
        if start in _HTTP_VERBS:
            self._fail(NotKafka("an HTTP request on a Kafka listener"))
        if size > self.limit:
            self._fail(FrameTooLarge(f"a frame of {size} bytes; the limit is {self.limit}"))
        self._fail(WireError(f"a frame of {size} bytes is too short for its header"))

    def _fail(self, error: WireError) -> None:
        self._error = error
        raise error


def response_parts(api_key: int, api_version: int, correlation_id: int, response: Any) -> list[Part]:
    """A whole response for the socket: size, header and body; records are parts of their own, not copied."""
    header = encode_response_header(api_key, api_version, correlation_id)
    return _framed(header, encode_parts(response, api_version))


def request_parts(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None, request: Any
) -> list[Buffer]:
    """A whole request for the socket: size, header and body; records are parts of their own, not copied."""
    header = encode_request_header(api_key, api_version, correlation_id, client_id)
    return cast("list[Buffer]", _framed(header, encode_parts(request, api_version)))


def request_bytes(api_version: int, correlation_id: int, client_id: str | None, request: Any) -> bytes:
    """A whole request in one piece, its size first."""
    return b"".join(request_parts(request.api_key, api_version, correlation_id, client_id, request))


def _framed(header: bytes, parts: list[Part]) -> list[Part]:
    first = parts[0]
    assert isinstance(first, bytes)
    size = len(header) + len(first)
    for part in parts[1:]:
        size += len(part)
    parts[0] = _SIZE.pack(size) + header + first
    return parts
