"""The replies of one connection: put in the order of its requests, and written as fast as the peer takes them.

The socket is tried first and waited for only when it takes no more. Records leave by ``sendfile`` from the log's files.
Nothing here bounds what waits; the connection stops reading for that.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any

import trio

from kbroker.errors import ErrorCode
from kbroker.handlers.common.context import CloseConnection
from kbroker.node.serving.request_wait import ConnectionLost
from kbroker.runtime.later import Later
from kbroker.types import FileRegion, Part
from kbroker.wire.compiler import encode_parts
from kbroker.wire.headers import encode_response_header

if TYPE_CHECKING:
    from kbroker.handlers.services.connection import Connection
    from kbroker.runtime.env import Env, Stream

logger = logging.getLogger(__name__)

MAX_DELAYED_REPLIES = 256
"""Produce requests of one connection that may wait for replication before the connection stops reading."""

WRITE_CHUNK = 1 << 20
"""The most that one ``sendfile`` is asked to take."""

MAX_IOV = 64
"""Buffers per ``sendmsg`` (IOV_MAX is 1024 on Linux, 16 at least elsewhere)."""

SMALL_REGION = 8 * 1024
"""Records up to this size (bytes) are copied and go out with what is before them: one call, where ``sendfile`` takes
three and a task of its own."""

MAX_COPIED = 64 * 1024
"""The most bytes of records that are copied for one write: about what is kept for a peer that takes nothing."""

LARGE_REPLY = 4096
"""After a reply this large (bytes), write it and yield before serving the next buffered request.

Thousands of requests may be buffered, and a few bytes ask for megabytes.
"""


class _Slot:
    """The place of a reply that is not there yet, or of one behind it."""

    __slots__ = ("api_key", "correlation_id", "delayed", "parts", "version")

    def __init__(
        self,
        delayed: Later[Any] | None,
        api_key: int = 0,
        version: int = 0,
        correlation_id: int = 0,
        parts: list[Part] | None = None,
    ) -> None:
        self.delayed = delayed
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.parts: list[Part] = [] if parts is None else parts


class ReplyQueue:
    """The replies of one connection, from the handler's answer to the last byte in the socket."""

    __slots__ = (
        "_closed",
        "_connection",
        "_env",
        "_on_progress",
        "_slot_freed",
        "_start_soon",
        "_stream",
        "_written",
        "is_writing",
        "parts",
        "round_open",
        "slots",
    )

    def __init__(
        self,
        stream: Stream,
        env: Env,
        connection: Connection,
        start_soon: Callable[..., object],
        on_progress: Callable[[], None],
    ) -> None:
        """``connection`` ends when the peer is gone; ``start_soon`` starts a task that may outlive a request;
        ``on_progress`` hears that a peer that took nothing takes more.
        """
        #: Parts to be written, in order.
        self.parts: deque[Part] = deque()
        #: Delayed replies, and those behind them.
        self.slots: deque[_Slot] = deque()
        #: Whether a task waits for the peer to take what there is.
        self.is_writing = False
        #: Whether replies may be replaced until the end of the poller's present round, so that none goes out. Set and
        #: unset by the connection.
        self.round_open = False
        self._stream = stream
        self._env = env
        self._connection = connection
        self._start_soon = start_soon
        self._on_progress = on_progress
        self._written: trio.Event | None = None
        self._slot_freed: trio.Event | None = None
        self._closed = False

    def close(self) -> None:
        """Forget what was not written; delayed replies that come later are, too."""
        self._closed = True
        self.parts.clear()
        self.slots.clear()

    # --- in the order of the requests -------------------------------------------------------------------------

    @property
    def ends_large(self) -> bool:
        """Whether the last reply is so large that it should go out before more is served."""
        last = self.slots[-1].parts if self.slots else self.parts
        return bool(last) and len(last[-1]) >= LARGE_REPLY

    def answer(
        self, response: object, api_key: int, version: int, correlation_id: int, parts: list[Part] | None = None
    ) -> None:
        """Queue a handler's response, keep the place of a delayed one; ``None`` if the client expects no reply.

        ``parts`` are its ``encoded_frame``, if that is there already. An error replaces a response that cannot be
        encoded; ``CloseConnection`` where the API has no place for it.
        """
        if parts is not None:
            self.add(parts)
            return
        if response is None:
            return
        if isinstance(response, Later):
            self.delay(response, api_key, version, correlation_id)
        else:
            try:
                parts = _encode(api_key, version, correlation_id, response)
            except Exception:
                parts = _error_frame(api_key, version, correlation_id, response)
            self.add(parts)

    def add(self, parts: list[Part]) -> None:
        """A whole frame. It goes out after the replies to earlier requests."""
        if self.slots:
            self.slots.append(_Slot(None, parts=parts))
        else:
            self.parts.extend(parts)

    def replace_unsent(self, reply: bytes, response: object, api_key: int, version: int) -> None:
        """Send ``response`` in the place of a reply that was queued since ``round_open`` was set."""
        (correlation_id,) = _CORRELATION_ID.unpack_from(reply, 4)
        try:
            parts = encoded_frame(api_key, version, correlation_id, response)
        except CloseConnection:
            self._end()
            return
        self._put_instead(reply, b"".join(parts))  # type: ignore[arg-type]

    def _put_instead(self, reply: bytes, instead: bytes) -> None:
        for queued in (self.parts, *(slot.parts for slot in self.slots)):
            for index, part in enumerate(queued):
                if part is reply:
                    queued[index] = instead

    def delay(self, delayed: Later[Any], api_key: int, version: int, correlation_id: int) -> None:
        """Keep the place of a reply that is sent when it is complete."""
        self.slots.append(_Slot(delayed, api_key, version, correlation_id))
        delayed.on_done(self._completed)

    def _completed(self) -> None:
        """Send the replies that are now in order. Called by whoever has completed a delayed one."""
        if self._closed:
            return
        slots = self.slots
        while slots:
            slot = slots[0]
            if slot.delayed is not None:
                if not slot.delayed.done:
                    break
                response = slot.delayed.value
                if type(response) is bytes:  # from a shortcut
                    slot.parts = [response]
                else:
                    try:
                        slot.parts = encoded_frame(slot.api_key, slot.version, slot.correlation_id, response)
                    except CloseConnection:
                        self._end()
                        return
            self.parts.extend(slot.parts)
            slots.popleft()
        if self._slot_freed is not None and len(slots) < MAX_DELAYED_REPLIES:
            self._slot_freed.set()
        if self.parts and not self.is_writing and not self.round_open:
            try:
                if not self._write_now():
                    self._start_soon(self._drain)
            except OSError:
                self._connection.end()

    def _end(self) -> None:
        """End the connection without an error for whoever calls: that is another request's task, or the node's own."""
        self.close()
        self._connection.end()

    async def wait_for_slots(self, limit: int = MAX_DELAYED_REPLIES) -> None:
        """Wait until fewer replies than ``limit`` are delayed."""
        if len(self.slots) >= limit:
            await self.flush()
        while len(self.slots) >= limit:
            self._slot_freed = trio.Event()
            await self._slot_freed.wait()

    # --- into the socket --------------------------------------------------------------------------------------

    def try_write(self) -> bool:
        """Write as much as the socket takes now, unless a task waits to write. True if all of it is out."""
        return not self.is_writing and self._write_now()

    def _write_now(self) -> bool:
        """Write as much as the socket takes now, up to a file region (see ``flush``). True if all of it is out."""
        out = self.parts
        stream = self._stream
        while out:
            first = out[0]
            if isinstance(first, FileRegion):
                records = self._records(first)
                if records is None:
                    return False
                out[0] = first = records
            try:
                if len(out) == 1:
                    sent = stream.send(first)
                    if sent == len(first):
                        out.popleft()
                        return True
                else:
                    buffers = self._buffers()
                    # Before file bytes the header waits for them: one packet, one wake-up of the client less.
                    more = len(out) > len(buffers) and isinstance(out[len(buffers)], FileRegion)
                    sent = stream.send_more(buffers) if more else stream.sendmsg(buffers)
            except BlockingIOError:
                return False
            self._take_sent(sent)
        return True

    def _buffers(self) -> list[bytes | bytearray | memoryview]:
        """The next parts for one call, up to a file region that is left to ``sendfile``."""
        buffers: list[bytes | bytearray | memoryview] = []
        out, copied = self.parts, 0
        for index in range(min(len(out), MAX_IOV)):
            part = out[index]
            if isinstance(part, FileRegion):
                records = self._records(part) if copied < MAX_COPIED else None
                if records is None:
                    break
                copied += len(records)
                out[index] = part = records
            buffers.append(part)
        return buffers

    def _records(self, region: FileRegion) -> bytearray | None:
        """The bytes of a small region, if there is no need to wait for a disk."""
        if region.length > SMALL_REGION:
            return None
        return self._env.read_now(region.fd, region.position, region.length)

    def _take_sent(self, sent: int) -> None:
        out = self.parts
        while out:
            part = out[0]
            size = len(part)
            if sent < size:
                if sent:
                    out[0] = memoryview(part)[sent:]  # type: ignore[arg-type]
                return
            sent -= size
            out.popleft()

    async def flush(self) -> None:
        """Write everything that is in order, waiting for the peer as long as it takes."""
        while self.parts:
            if self.is_writing:
                if self._written is None:
                    self._written = trio.Event()
                await self._written.wait()
                continue
            self.is_writing = True
            try:
                await self._write_all()
            finally:
                self.is_writing = False
                if self._written is not None:
                    self._written.set()
                    self._written = None

    async def _write_all(self) -> None:
        out = self.parts
        while out:
            first = out[0]
            if isinstance(first, FileRegion):
                out.popleft()
                await self._send_region(first)
            elif not self._write_now() and out and not isinstance(out[0], FileRegion):
                await self._wait_writable()

    async def _send_region(self, region: FileRegion) -> None:
        stream = self._stream
        position, left = region.position, region.length
        unchecked = 0
        while left:
            if unchecked <= 0:
                # A page that is not in memory would stall every client of the node.
                unchecked = min(left, WRITE_CHUNK)
                env = self._env
                if not env.in_memory(region.fd, position, unchecked):
                    env.disk_reads.add(unchecked)
                    await env.run_blocking(env.read_ahead, region.fd, position, unchecked)
            try:
                sent = stream.sendfile(region.fd, position, unchecked)
            except BlockingIOError:
                await self._wait_writable()
                continue
            if sent == 0:
                raise ConnectionLost("a log file ended before the records that were promised from it")
            position += sent
            left -= sent
            unchecked -= sent

    async def _wait_writable(self) -> None:
        await self._stream.wait_writable()
        self._on_progress()

    async def _drain(self) -> None:
        """Write the rest of a completed reply that the socket did not take at once."""
        try:
            with trio.CancelScope() as scope:
                if self._connection.is_ending:
                    scope.cancel()
                await self.flush()
        except (OSError, ConnectionLost, trio.ClosedResourceError, trio.BrokenResourceError):
            self._connection.end()


_CORRELATION_ID = Struct(">i")

_header_formats: dict[tuple[int, int], tuple[Struct, int]] = {}
"""By API and version: length and response header in one, and the header's size."""


def _header_format(api_key: int, version: int) -> tuple[Struct, int]:
    size = len(encode_response_header(api_key, version, 0))
    found = _header_formats[api_key, version] = (Struct(f">ii{size - 4}x"), size)
    return found


def encoded_frame(api_key: int, version: int, correlation_id: int, response: object) -> list[Part]:
    """A whole response frame, or the error in its place (:func:`_error_frame`)."""
    try:
        return _encode(api_key, version, correlation_id, response)
    except Exception:
        return _error_frame(api_key, version, correlation_id, response)


def _error_frame(api_key: int, version: int, correlation_id: int, response: object) -> list[Part]:
    """In place of the response that could not be encoded, one that says so; called where that was noticed.

    ``CloseConnection`` where that cannot be said. It is a mistake in a handler, and concerns this request alone.
    """
    from kbroker.handlers.common.error_answers import (
        error_in_place,  # a node that makes no such mistake needs none of it
    )

    logger.exception("the answer to API key %d v%d cannot be encoded", api_key, version)
    try:
        instead = error_in_place(api_key, version, response, ErrorCode.UNKNOWN_SERVER_ERROR)
        if instead is not None:
            return _encode(api_key, version, correlation_id, instead)
    except Exception:
        logger.exception("nor can the error instead of it")
    raise CloseConnection("its answer cannot be encoded")


def _encode(api_key: int, version: int, correlation_id: int, response: object) -> list[Part]:
    """A whole response frame: length, header, body; records are parts of their own, not copied."""
    parts = encode_parts(response, version)
    form, size = _header_formats.get((api_key, version)) or _header_format(api_key, version)
    for part in parts:
        size += len(part)
    parts[0] = form.pack(size, correlation_id) + parts[0]  # type: ignore[operator]
    return parts
