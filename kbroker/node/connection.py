"""One client's connection: bytes to requests, requests to handlers, replies back in request order.

The socket is tried first and waited for only when it has nothing, so a busy connection costs the scheduler little.
Requests are served one after the other, except that a handler may answer with a ``DelayedResponse``: the connection
then reads on, and the reply waits in its slot. Nothing more is read while replies cannot be written, so a slow
reader holds at most what its last request asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING, Any

import trio

from kbroker.errors import ErrorCode
from kbroker.handlers.api_versions import unsupported_version
from kbroker.handlers.context import CloseConnection, RequestContext
from kbroker.handlers.forwarding import by_controller, error_codes
from kbroker.handlers.registration import Registration
from kbroker.node.reply_queue import MAX_DELAYED_REPLIES, ReplyQueue
from kbroker.node.request_wait import ConnectionLost, RequestWait
from kbroker.wire.compiler import decode
from kbroker.wire.errors import WireError
from kbroker.wire.framing import FrameReader
from kbroker.wire.headers import decode_request_header
from kbroker.wire.registry import API_KEYS

if TYPE_CHECKING:
    from kbroker.env import Poller, Stream
    from kbroker.handlers.context import Defer, RepeatedRequest, Services
    from kbroker.node.memory_budget import MemoryBudget
    from kbroker.wire.buffer_pool import BufferPool

logger = logging.getLogger(__name__)

API_VERSIONS_KEY = 18

FAIR_REQUESTS = 64
FAIR_BYTES = 2 << 20
"""A connection that never has to wait gives way to the others after this much."""

FREE_BUFFER = 64 * 1024
"""What a connection may buffer whatever the others hold."""

LARGE_READ = 64 * 1024
"""A read of this much shows that more is on its way: try again before giving way."""

LONG_REQUEST = 64 * 1024
"""Of a request of this size, others have a turn between what decodes it, what serves it and what encodes the answer."""

LEARN_EVERY = 32
"""Of so many requests that repeat nothing known, one is learned from, which costs as much as to serve it."""

LEARNING_PAID_BY = 2
"""So many repetitions save that much, and pay for another one where that is kept beside what is known."""

LEARNING_CREDIT = 32
"""Repetitions that a new connection is taken to bring."""

_PREFIX = Struct(">hhi")


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
        buffers: BufferPool | None = None,
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
        #: By API key, what serves requests like earlier ones.
        self.repeated: dict[int, RepeatedRequest] = {}
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
        self._reader = FrameReader(max_frame_bytes, api_keys=table, pool=buffers)
        self._replies = ReplyQueue(stream, services.env, self.scope, start_soon, self._progressed)
        self._poller = poller
        self._long_produces = services.long_produces
        self._long_waiting = services.long_produces.waiting if services.long_produces is not None else {}
        self._wait = RequestWait(stream, self._reader, poller, self._received)
        self._parked: trio.lowlevel.Task | None = None
        self._unrepeated = 0
        self._learning_credit = LEARNING_CREDIT
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
            self._write_last()
        except CloseConnection as error:
            logger.info("closing connection from %s: %s", self.peer, error)
            self._write_last()
        except ConnectionLost as error:
            if str(error):
                logger.info("connection from %s lost: %s", self.peer, error)
        except (OSError, trio.ClosedResourceError, trio.BrokenResourceError):
            pass  # the peer is gone, which is no news
        except Exception:
            logger.exception("closing connection from %s: internal error", self.peer)
        finally:
            self.close()

    def _write_last(self) -> None:
        """What was asked before the request that ends the connection has been done: say so, if the client listens."""
        with suppress(OSError):
            self._replies.try_write()

    def close(self) -> None:
        """Give everything back. Waiters of this connection are cancelled with its scope."""
        if not self.closed:
            self.closed = True
            self.scope.cancel()
            self._budget.take(-self._reserved)
            self._budget.leave(self)
            self._reserved = 0
            self._replies.close()
            # Frames of what ended the connection may keep it for a while; what it has received must not stay with it.
            self._reader.drop()
            self._failure = self._handed = None
            self.repeated.clear()  # some know the connection: nothing of it is to wait for the collector
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
        reader, replies = self._reader, self._replies
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
                if frame is not None and (requests >= FAIR_REQUESTS or replies.ends_large):
                    await self._give_way()
                    requests = 0
            if replies.parts and not replies.try_write():
                await replies.flush()
            if reader.buffered_bytes != self._reserved:
                self._take_account(reader.buffered_bytes)
            if self._reserved > FREE_BUFFER:
                await self._budget.wait(self)
            if len(replies.slots) >= MAX_DELAYED_REPLIES:
                await replies.wait_for_slots()
            if self._has_long_produces:
                await self._long_produces.wait_for_room(self.peer)
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
        replies = self._replies
        is_large = replies.ends_large
        if replies.parts and not replies.try_write():
            await replies.flush()
        await replies.wait_for_slots(1 if is_large else MAX_DELAYED_REPLIES)
        if self._has_long_produces:
            await self._long_produces.wait_for_room(self.peer)
        await trio.lowlevel.checkpoint()

    @property
    def _has_long_produces(self) -> bool:
        """Whether a Produce of this connection is being appended in turns with everything else."""
        return self.peer in self._long_waiting

    async def _park(self, poller: Poller) -> None:
        """Sleep until the poller's task has something for this one; raises what it found to end the connection."""
        self._parked = trio.lowlevel.current_task()
        poller.register(self.stream, self._on_readable)

        def abort(_: Any) -> trio.lowlevel.Abort:
            self._parked = None
            poller.unregister(self.stream)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)
        self._replies.is_held = False
        if self._failure is not None:
            raise self._failure

    def _hand_over(self, frame: memoryview | None = None, failure: BaseException | None = None) -> None:
        """Wake the connection's own task, unless it has been cancelled: by a reply that could not be written, say."""
        if self._parked is None:
            return
        assert self._poller is not None
        self._poller.unregister(self.stream)
        self._handed = frame
        self._failure = failure
        task, self._parked = self._parked, None
        trio.lowlevel.reschedule(task)

    def _on_readable(self) -> None:
        """Called by the poller's task: read, and serve what needs no waiting. Never raises."""
        if self._replies.is_writing:
            self._hand_over()  # replies are stuck, so reading on is for who can wait for them
            return
        reader, replies, poller, waiting = self._reader, self._replies, self._poller, self._long_waiting
        defer = None
        if poller is not None and poller.is_crowded:
            defer = poller.defer
            replies.is_held = True  # until `_write_deferred`, or until the connection's own task has its turn
        try:
            received = requests = 0
            while True:
                room = reader.get_buffer()
                try:
                    n = self.stream.recv_into(room)
                except (BlockingIOError, InterruptedError):
                    break
                if n == 0:
                    if replies.parts:
                        break  # they go out first: the client may have ended its side alone
                    self.bytes_received += received
                    self._hand_over(failure=ConnectionLost(""))
                    return
                received += n
                frame = reader.only_frame(n)
                if frame is not None:
                    if self._request_now(frame, defer):
                        break
                    self.bytes_received += received
                    self.active = True
                    self._hand_over(frame)
                    return
                reader.buffer_updated(n)
                while (frame := reader.next_frame()) is not None:
                    requests += 1
                    if requests > FAIR_REQUESTS or not self._request_now(frame, defer):
                        self.bytes_received += received
                        self.active = True
                        self._hand_over(frame)
                        return
                if (
                    (n < LARGE_READ and n < len(room))
                    or received >= FAIR_BYTES
                    or (waiting and self._has_long_produces)
                ):
                    break
            self.bytes_received += received
            self.active = True
            if (
                (reader.buffered_bytes != self._reserved and self._take_account(reader.buffered_bytes))
                or len(replies.slots) >= MAX_DELAYED_REPLIES
                or (waiting and self._has_long_produces)
            ):
                self._hand_over()
            elif replies.parts:
                if poller is not None and (received < LARGE_READ or defer is not None):
                    poller.defer(self._write_deferred)
                elif not replies.try_write():
                    self._hand_over()
            else:
                replies.is_held = False
        except BaseException as error:  # the connection's task tells it, as its own
            self._hand_over(failure=error)

    def _write_deferred(self) -> None:
        """Called by the poller's task when all that were readable together have been served. Never raises.

        A client that sleeps is woken by the first reply to one of its connections, which costs the sender as much
        as serving a small request; replies in a row wake it once.
        """
        if self._parked is None:
            return  # its own task has them now
        replies = self._replies
        replies.is_held = False
        try:
            if replies.parts and not replies.is_writing and not replies.try_write():
                self._hand_over()
        except BaseException as error:
            self._hand_over(failure=error)

    def _take_account(self, capacity: int) -> bool:
        """Tell the node's budget how much this connection buffers; whether it has to wait for its turn."""
        grown = capacity - self._reserved
        self._reserved = capacity
        self._budget.take(grown)
        return capacity > FREE_BUFFER and self._budget.exhausted

    def take_back(self, reply: bytes, response: Any, version: int) -> None:
        """Answer ``response`` instead of ``reply``, which is held (``ReplyQueue.is_held``)."""
        if not self.closed:
            self._replies.take_back(reply, response, type(response).api_key, version)

    async def flush(self) -> None:
        """Write what has been answered so far, waiting for the peer as long as it takes."""
        await self._replies.flush()

    @property
    def is_asked_more(self) -> bool:
        """Whether a request of another API waits behind the Fetch that is being served."""
        return self._wait.is_asked_more

    async def wait_for(self, operation: Any, timeout: float, *, gives_way: bool = False) -> None:
        """Wait until ``operation.done`` or for ``timeout`` seconds. ``ConnectionLost`` when the client goes away.

        One that ``gives_way`` is waited for no longer when the client asks for something else meanwhile.
        """
        try:
            await self._replies.flush()
        except (OSError, trio.ClosedResourceError) as error:
            raise ConnectionLost("") from error
        await self._wait.until_done(operation, timeout, gives_way=gives_way)
        self.active = True

    def _progressed(self) -> None:
        """The peer takes what it is sent."""
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
        repeated = self.repeated.get(api_key)
        if repeated is not None:
            # Behind a reply that is delayed nothing can be held: both might go out at any moment.
            reply = repeated.answer(frame, None if self._replies.slots else defer)
            if reply is not None:
                self.frames += 1
                self._learning_credit += 1
                if not isinstance(reply, bytes):
                    self._replies.delay(reply, api_key, version, correlation_id)
                elif self._replies.slots:
                    self._replies.add([reply])
                else:
                    self._replies.parts.append(reply)
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
            if registration.learn is not None and self._may_learn(repeated):
                learned = registration.learn(frame, request, response, context)
                if learned is not None:
                    self.repeated[api_key] = learned
        self._replies.answer(response, api_key, version, correlation_id)
        return True

    def _may_learn(self, repeated: RepeatedRequest | None) -> bool:
        """Whether it is worth it to learn from a request that ``repeated`` has not recognised."""
        self._unrepeated += 1
        if repeated is not None and repeated.collects and self._learning_credit >= LEARNING_PAID_BY:
            self._learning_credit -= LEARNING_PAID_BY
            return True
        return self._unrepeated % LEARN_EVERY == 2

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
                self._replies.answer(unsupported_version(), api_key, 0, correlation_id)
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
        self._replies.answer(response, api_key, version, correlation_id)

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


def internal_error(response_class: type[Any]) -> Any:
    """A response that says UNKNOWN_SERVER_ERROR at its top, or ``None`` if the API has no place for it."""
    if "error_code" in response_class.__slots__:
        return response_class(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    return None
