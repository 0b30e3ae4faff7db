"""One client's connection: bytes to requests, requests to handlers, replies back in request order.

The socket is tried first and waited for only when it has nothing, so a busy connection costs the scheduler little.
Requests are served one after the other, except that a handler may answer with a ``DelayedResponse``: the connection
then reads on, and the reply waits in its slot. Nothing more is read while replies cannot be written, so a slow
reader holds at most what its last request asked for.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from struct import Struct
from typing import TYPE_CHECKING, Any

import trio

from kbroker.errors import ErrorCode
from kbroker.handlers.api_versions import unsupported_version
from kbroker.handlers.context import CloseConnection, DelayedResponse, RequestContext
from kbroker.handlers.forwarding import by_controller, error_codes
from kbroker.handlers.registration import Registration
from kbroker.node.request_wait import ConnectionLost, RequestWait
from kbroker.types import FileRegion, Part
from kbroker.wire.compiler import decode, encode_parts
from kbroker.wire.errors import WireError
from kbroker.wire.framing import FrameReader
from kbroker.wire.headers import decode_request_header, encode_response_header
from kbroker.wire.registry import API_KEYS

if TYPE_CHECKING:
    from kbroker.env import Poller, Stream
    from kbroker.handlers.context import Defer, RepeatedRequest, Services
    from kbroker.node.memory_budget import MemoryBudget

logger = logging.getLogger(__name__)

API_VERSIONS_KEY = 18

MAX_DELAYED_REPLIES = 256
"""Produce requests of one connection that may wait for replication before the connection stops reading."""

WRITE_CHUNK = 1 << 20
"""The most that one ``sendfile`` is asked to take."""

MAX_IOV = 64
"""Buffers per ``sendmsg`` (IOV_MAX is 1024 on Linux, 16 at least elsewhere)."""

FAIR_REQUESTS = 64
FAIR_BYTES = 2 << 20
"""A connection that never has to wait gives way to the others after this much."""

LARGE_REPLY = 4096
"""After a reply of this size others have a turn, too, and it goes out before the next request is served, of those that
have been read together: there may be thousands, and a few bytes ask for megabytes."""

FREE_BUFFER = 64 * 1024
"""What a connection may buffer whatever the others hold."""

LARGE_READ = 64 * 1024
"""A read of this much shows that more is on its way: try again before giving way."""

LONG_REQUEST = 64 * 1024
"""Of a request of this size, others have a turn between what decodes it, what serves it and what encodes the answer."""

LEARN_EVERY = 32
"""Of so many requests that repeat nothing known, one is learned from, which costs as much as to serve it."""

_PREFIX = Struct(">hhi")


class _Slot:
    """The place of a reply that is not there yet."""

    __slots__ = ("api_key", "correlation_id", "delayed", "parts", "version")

    def __init__(
        self,
        delayed: DelayedResponse | None,
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


class Connection:
    """Serves one stream until it ends.

    ``table`` holds the APIs of the listener; ``start_soon`` starts a task that may outlive a request but not the
    listener. With a ``poller`` an idle connection's task is parked: the poller's task reads for it and serves what can
    be served without waiting (Produce), and wakes the connection's own task only for the rest. Switching tasks costs
    as much as half of a small Produce.
    """

    def __init__(
        self,
        stream: Stream,
        *,
        services: Services,
        table: Mapping[int, Registration],
        listener_name: str,
        is_controller: bool,
        max_frame_bytes: int,
        start_soon: Callable[..., Any],
        budget: MemoryBudget,
        poller: Poller | None = None,
    ) -> None:
        self.stream = stream
        self.services = services
        self.listener_name = listener_name
        self.is_controller = is_controller
        self.peer = f"{stream.peer[0]}:{stream.peer[1]}"
        self.client_software_name = "unknown"
        self.client_software_version = "unknown"
        self.closed = False
        #: Called once when the connection ends.
        self.when_closed: Callable[[], None] | None = None
        #: Cancelled by the listener to end the connection.
        self.scope = trio.CancelScope()
        #: What the housekeeper looks at: whether bytes moved, how many came, how many frames were complete.
        self.active = True
        self.bytes_received = 0
        self.frames = 0
        #: Bytes that followed requests within their frames. They are ignored, as Kafka does.
        self.surplus_bytes = 0
        self._table = table
        self._start_soon = start_soon
        self._budget = budget
        self._reserved = 0
        self._reader = FrameReader(max_frame_bytes, api_keys=table)
        self._out: deque[Part] = deque()
        self._slots: deque[_Slot] = deque()
        self._writing = False
        self._written: trio.Event | None = None
        self._slot_freed: trio.Event | None = None
        self._poller = poller
        self._wait = RequestWait(stream, self._reader, poller, self._received)
        self._parked: trio.lowlevel.Task | None = None
        self._repeated: RepeatedRequest | None = None
        self._unrepeated = 0
        #: What the poller's task leaves to the connection's own: a frame, and what ends the connection.
        self._handed: memoryview | None = None
        self._failure: BaseException | None = None

    # --- reading ----------------------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Read and answer until the peer closes, the listener cancels, or the peer sends nonsense."""
        try:
            with self.scope:
                await self._serve()
        except WireError as error:
            logger.warning("closing connection from %s on %s: %s", self.peer, self.listener_name, error)
        except CloseConnection as error:
            logger.info("closing connection from %s: %s", self.peer, error)
        except ConnectionLost as error:
            if str(error):
                logger.info("connection from %s lost: %s", self.peer, error)
        except (OSError, trio.ClosedResourceError, trio.BrokenResourceError):
            pass  # the peer is gone, which is no news
        except Exception:
            logger.exception("closing connection from %s: internal error", self.peer)
        finally:
            self.close()

    def close(self) -> None:
        """Give everything back. Waiters of this connection are cancelled with its scope."""
        if not self.closed:
            self.closed = True
            self.scope.cancel()
            self._budget.take(-self._reserved)
            self._budget.leave(self)
            self._reserved = 0
            self._out.clear()
            self._slots.clear()
            self.stream.close()
            if self.when_closed is not None:
                self.when_closed()

    @property
    def in_frame(self) -> bool:
        """Whether a frame has begun and is not complete."""
        return self._reader.partial

    def trim(self) -> None:
        """Let go of buffers that a quiet connection does not need."""
        self._reader.trim()
        self._take_account(self._reader.buffered_bytes)

    async def _serve(self) -> None:
        recv_into = self.stream.recv_into
        reader = self._reader
        requests = 0
        received = 0
        while True:
            frame, self._handed = self._handed, None
            if frame is None:
                frame = reader.next_frame()
            while frame is not None:
                requests += 1
                await self._request(frame)
                frame = reader.next_frame()
                if frame is not None and (requests >= FAIR_REQUESTS or self._has_large_reply):
                    await self._give_way()
                    requests = 0
            if self._out and (self._writing or not self._try_write()):
                await self._flush()
            if reader.buffered_bytes != self._reserved:
                self._take_account(reader.buffered_bytes)
            if self._reserved > FREE_BUFFER:
                await self._budget.wait(self)
            if len(self._slots) >= MAX_DELAYED_REPLIES:
                await self._wait_for_slots()
            if requests >= FAIR_REQUESTS or received >= FAIR_BYTES:
                await trio.lowlevel.checkpoint()
                requests = received = 0
            try:
                n = recv_into(reader.get_buffer())
            except BlockingIOError:
                if self._poller is None:
                    await self.stream.wait_readable()
                else:
                    await self._park(self._poller)
                requests = received = 0
                continue
            except InterruptedError:
                continue
            if n == 0:
                return
            self.active = True
            self.bytes_received += n
            received += n
            reader.buffer_updated(n)

    async def _give_way(self) -> None:
        """Between requests that have been read together: their answers go out first, and others have a turn."""
        is_large = self._has_large_reply
        if self._out and (self._writing or not self._try_write()):
            await self._flush()
        await self._wait_for_slots(1 if is_large else MAX_DELAYED_REPLIES)
        await trio.lowlevel.checkpoint()

    @property
    def _has_large_reply(self) -> bool:
        last = self._slots[-1].parts if self._slots else self._out
        return bool(last) and len(last[-1]) >= LARGE_REPLY

    async def _park(self, poller: Poller) -> None:
        """Sleep until the poller's task has something for this one; raises what it found to end the connection."""
        self._parked = trio.lowlevel.current_task()
        poller.register(self.stream, self._on_readable)

        def abort(_: Any) -> trio.lowlevel.Abort:
            self._parked = None
            poller.unregister(self.stream)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)
        if self._failure is not None:
            raise self._failure

    def _hand_over(self, frame: memoryview | None = None, failure: BaseException | None = None) -> None:
        """Wake the connection's own task."""
        assert self._poller is not None and self._parked is not None
        self._poller.unregister(self.stream)
        self._handed = frame
        self._failure = failure
        task, self._parked = self._parked, None
        trio.lowlevel.reschedule(task)

    def _on_readable(self) -> None:
        """Called by the poller's task: read, and serve what needs no waiting. Never raises."""
        if self._writing:
            self._hand_over()  # replies are stuck, so reading on is for who can wait for them
            return
        reader, poller = self._reader, self._poller
        defer = poller.defer if poller is not None and poller.is_crowded else None
        try:
            received = requests = 0
            while True:
                try:
                    n = self.stream.recv_into(reader.get_buffer())
                except (BlockingIOError, InterruptedError):
                    break
                if n == 0:
                    self._hand_over(failure=ConnectionLost(""))
                    return
                received += n
                reader.buffer_updated(n)
                while (frame := reader.next_frame()) is not None:
                    requests += 1
                    if requests > FAIR_REQUESTS or not self._request_now(frame, defer):
                        self.bytes_received += received
                        self.active = True
                        self._hand_over(frame)
                        return
                if n < LARGE_READ or received >= FAIR_BYTES:
                    break
            self.bytes_received += received
            self.active = True
            if (reader.buffered_bytes != self._reserved and self._take_account(reader.buffered_bytes)) or len(
                self._slots
            ) >= MAX_DELAYED_REPLIES:
                self._hand_over()
            elif self._out:
                if received < LARGE_READ and poller is not None:
                    poller.defer(self._write_deferred)
                elif not self._try_write():
                    self._hand_over()
        except BaseException as error:  # the connection's task tells it, as its own
            if self._parked is None:
                raise
            self._hand_over(failure=error)

    def _write_deferred(self) -> None:
        """Called by the poller's task when all that were readable together have been served. Never raises.

        A client that sleeps is woken by the first reply to one of its connections, which costs the sender as much
        as serving a small request; replies in a row wake it once.
        """
        if self._parked is None:
            return  # its own task has them now
        try:
            if self._out and not self._writing and not self._try_write():
                self._hand_over()
        except BaseException as error:
            if self._parked is None:
                raise
            self._hand_over(failure=error)

    async def _wait_for_slots(self, limit: int = MAX_DELAYED_REPLIES) -> None:
        """Wait until fewer replies than ``limit`` are delayed."""
        if self._out and len(self._slots) >= limit:
            await self._flush()
        while len(self._slots) >= limit:
            self._slot_freed = trio.Event()
            await self._slot_freed.wait()

    def _take_account(self, capacity: int) -> bool:
        """Tell the node's budget how much this connection buffers; whether it has to wait for its turn."""
        grown = capacity - self._reserved
        self._reserved = capacity
        self._budget.take(grown)
        return capacity > FREE_BUFFER and self._budget.exhausted

    async def flush(self) -> None:
        """Write what has been answered so far, waiting for the peer as long as it takes."""
        if self._out:
            await self._flush()

    @property
    def is_asked_more(self) -> bool:
        """Whether a request of another API waits behind the Fetch that is being served."""
        return self._wait.is_asked_more

    async def wait_for(self, operation: Any, timeout: float, *, gives_way: bool = False) -> None:
        """Wait until ``operation.done`` or for ``timeout`` seconds. ``ConnectionLost`` when the client goes away.

        One that ``gives_way`` is waited for no longer when the client asks for something else meanwhile.
        """
        if self._out:
            await self._flush()
        await self._wait.until_done(operation, timeout, gives_way=gives_way)
        self.active = True

    def _received(self, count: int) -> None:
        """So many bytes were read while a request waited."""
        self.active = True
        self.bytes_received += count

    # --- one request ------------------------------------------------------------------------------------------

    def _request_now(self, frame: memoryview, defer: Defer | None = None) -> bool:
        """Serve a request whose handler never waits, and queue its reply; false if it is not one."""
        api_key, version, correlation_id = _PREFIX.unpack_from(frame)
        registration = self._table.get(api_key)
        if registration is None or registration.is_async:
            return False
        if self._repeated is not None and registration.learn is not None:
            reply = self._repeated.answer(frame, defer)
            if reply is not None:
                self.frames += 1
                if isinstance(reply, bytes):
                    self._queue([reply])
                else:
                    self._delay(reply, api_key, version, correlation_id)
                return True
        if version not in registration.versions:
            return False
        self.frames += 1
        header, offset = decode_request_header(frame)
        request, end = decode(registration.request_class, version, frame, offset)
        if end != len(frame):
            self._count_surplus(api_key, version, len(frame) - end)
        context = RequestContext(header, self, self.services)
        try:
            response: Any = registration.handle(request, context)
        except CloseConnection:
            raise
        except Exception:
            response = self._failed(api_key, version)
        else:
            if registration.learn is not None:
                self._unrepeated += 1
                if self._unrepeated % LEARN_EVERY == 2:
                    self._repeated = registration.learn(frame, request, response, context)
        self._answer(response, api_key, version, correlation_id)
        return True

    async def _request(self, frame: memoryview) -> None:
        """Decode and serve one request, and queue its reply."""
        if self._request_now(frame):
            return
        self.frames += 1
        api_key, version, correlation_id = _PREFIX.unpack_from(frame)
        registration = self._table.get(api_key)
        if registration is None:
            raise WireError(f"API key {api_key} is not served on this listener")
        if version not in registration.versions:
            if api_key == API_VERSIONS_KEY:
                # KIP-511: whatever the version, the client can read v0.
                self._reply(api_key, 0, correlation_id, unsupported_version())
                return
            low, high = registration.versions
            raise WireError(f"version {version} of API key {api_key} is not served ({low} to {high} are)")
        header, offset = decode_request_header(frame)
        request, end = decode(registration.request_class, version, frame, offset)
        if end != len(frame):
            self._count_surplus(api_key, version, len(frame) - end)
        is_long = len(frame) > LONG_REQUEST
        if is_long:
            await trio.lowlevel.checkpoint()
        try:
            context = RequestContext(header, self, self.services)
            if registration.forwarded and not self.is_controller:
                metadata = self.services.metadata
                response = await by_controller(
                    metadata,
                    lambda: metadata.forward(request, version),
                    lambda: registration.handle(request, context),
                    error_codes,
                )
            else:
                response = await registration.handle(request, context)
        except (CloseConnection, ConnectionLost):
            raise
        except Exception:
            response = self._failed(api_key, version)
        if is_long:
            await trio.lowlevel.checkpoint()
        self._answer(response, api_key, version, correlation_id)

    def _failed(self, api_key: int, version: int) -> Any:
        """Log the exception being handled; what to answer, or the end of the connection."""
        logger.exception("API key %d v%d from %s failed", api_key, version, self.peer)
        response = internal_error(API_KEYS[api_key].response)
        if response is None:
            raise CloseConnection("the request failed inside the broker")
        return response

    def _count_surplus(self, api_key: int, version: int, size: int) -> None:
        """A client declares more than it means, or writes a version that it does not name: say so once."""
        if not self.surplus_bytes:
            logger.warning(
                "%d bytes are left over after API key %d v%d from %s; they are ignored",
                size,
                api_key,
                version,
                self.peer,
            )
        self.surplus_bytes += size

    def _answer(self, response: Any, api_key: int, version: int, correlation_id: int) -> None:
        if response is None:
            return
        if type(response) is DelayedResponse:
            self._delay(response, api_key, version, correlation_id)
        else:
            self._reply(api_key, version, correlation_id, response)

    def _reply(self, api_key: int, version: int, correlation_id: int, response: Any) -> None:
        self._queue(_encode(api_key, version, correlation_id, response))

    def _queue(self, parts: list[Part]) -> None:
        """A reply goes out after those to earlier requests."""
        if self._slots:
            self._slots.append(_Slot(None, parts=parts))
        else:
            self._out.extend(parts)

    def _delay(self, delayed: DelayedResponse, api_key: int, version: int, correlation_id: int) -> None:
        self._slots.append(_Slot(delayed, api_key, version, correlation_id))
        delayed.on_complete(self._completed)

    def _completed(self) -> None:
        """A delayed reply has its value: send what is now in order. Called from whoever completed it."""
        if self.closed:
            return
        slots = self._slots
        while slots:
            slot = slots[0]
            if slot.delayed is not None:
                if not slot.delayed.done:
                    break
                response = slot.delayed.response
                if type(response) is bytes:  # from a RepeatedRequest
                    slot.parts = [response]
                else:
                    slot.parts = _encode(slot.api_key, slot.version, slot.correlation_id, response)
            self._out.extend(slot.parts)
            slots.popleft()
        if self._slot_freed is not None and len(slots) < MAX_DELAYED_REPLIES:
            self._slot_freed.set()
        if self._out and not self._writing:
            try:
                if not self._try_write():
                    self._start_soon(self._drain)
            except OSError:
                self.scope.cancel()

    # --- writing ----------------------------------------------------------------------------------------------

    def _try_write(self) -> bool:
        """Write what the socket takes now; whether all of it is out. A file region stops it (``_flush``)."""
        out = self._out
        stream = self.stream
        while out:
            first = out[0]
            if isinstance(first, FileRegion):
                return False
            try:
                if len(out) == 1:
                    sent = stream.send(first)
                    if sent == len(first):
                        out.popleft()
                        return True
                else:
                    buffers: list[bytes | bytearray | memoryview] = []
                    for part in out:
                        if isinstance(part, FileRegion) or len(buffers) == MAX_IOV:
                            break
                        buffers.append(part)
                    # Before file bytes the header waits for them: one packet, one wake-up of the client less.
                    more = len(out) > len(buffers) and isinstance(out[len(buffers)], FileRegion)
                    sent = stream.send_more(buffers) if more else stream.sendmsg(buffers)
            except BlockingIOError:
                return False
            self._take_sent(sent)
        return True

    def _take_sent(self, sent: int) -> None:
        out = self._out
        while out:
            part = out[0]
            size = len(part)
            if sent < size:
                if sent:
                    out[0] = memoryview(part)[sent:]  # type: ignore[arg-type]
                return
            sent -= size
            out.popleft()

    async def _flush(self) -> None:
        """Write everything queued, waiting for the peer as long as it takes."""
        while self._out:
            if self._writing:
                if self._written is None:
                    self._written = trio.Event()
                await self._written.wait()
                continue
            self._writing = True
            try:
                await self._write_all()
            finally:
                self._writing = False
                if self._written is not None:
                    self._written.set()
                    self._written = None

    async def _write_all(self) -> None:
        out = self._out
        stream = self.stream
        while out:
            first = out[0]
            if isinstance(first, FileRegion):
                out.popleft()
                await self._send_region(first)
            elif not self._try_write() and out and not isinstance(out[0], FileRegion):
                await stream.wait_writable()
                self.active = True

    async def _send_region(self, region: FileRegion) -> None:
        stream = self.stream
        position, left = region.position, region.length
        unchecked = 0
        while left:
            if unchecked <= 0:
                # A page that is not in memory would stall every client of the node.
                unchecked = min(left, WRITE_CHUNK)
                env = self.services.env
                if not env.in_memory(region.fd, position, unchecked):
                    await env.run_blocking(env.read_ahead, region.fd, position, unchecked)
            try:
                sent = stream.sendfile(region.fd, position, unchecked)
            except BlockingIOError:
                await stream.wait_writable()
                self.active = True
                continue
            if sent == 0:
                raise ConnectionLost("a log file ended before the records that were promised from it")
            position += sent
            left -= sent
            unchecked -= sent

    async def _drain(self) -> None:
        """Finish what a completed reply could not write at once."""
        try:
            with trio.CancelScope() as scope:
                if self.scope.cancel_called:
                    scope.cancel()
                await self._flush()
        except (OSError, ConnectionLost, trio.ClosedResourceError, trio.BrokenResourceError):
            self.scope.cancel()


_header_formats: dict[tuple[int, int], tuple[Struct, int]] = {}
"""By API and version: length and response header in one, and the header's size."""


def _header_format(api_key: int, version: int) -> tuple[Struct, int]:
    size = len(encode_response_header(api_key, version, 0))
    found = _header_formats[api_key, version] = (Struct(f">ii{size - 4}x"), size)
    return found


def _encode(api_key: int, version: int, correlation_id: int, response: Any) -> list[Part]:
    """A whole response frame: length, header, body; records are parts of their own, not copied."""
    parts = encode_parts(response, version)
    form, size = _header_formats.get((api_key, version)) or _header_format(api_key, version)
    for part in parts:
        size += len(part)
    parts[0] = form.pack(size, correlation_id) + parts[0]  # type: ignore[operator]
    return parts


def internal_error(response_class: type[Any]) -> Any:
    """A response that says UNKNOWN_SERVER_ERROR at its top, or ``None`` if the API has no place for it."""
    if "error_code" in response_class.__slots__:
        return response_class(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    return None
