"""One client's connection: bytes in, frames to the dispatcher, replies back in the order of requests.

The socket is tried first and waited for only when it has nothing, so a busy connection costs the scheduler little.
Requests are served one after the other (`kbroker.node.serving.dispatcher`). A handler may answer with a ``Later``: the
connection then reads on, and the reply keeps its place. Nothing more is read while replies cannot be written, so a
slow reader holds at most what its last request asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

import trio

from kbroker.handlers.common.context import CloseConnection
from kbroker.node.serving.dispatcher import Dispatcher
from kbroker.node.serving.reply_queue import MAX_DELAYED_REPLIES, ReplyQueue
from kbroker.node.serving.request_wait import ConnectionLost, RequestWait
from kbroker.runtime.round import FAIR_REQUESTS, Round, Turn, Turns
from kbroker.security.principal import ANONYMOUS, KafkaPrincipal, as_authenticated
from kbroker.security.shown import shown
from kbroker.wire.errors import WireError
from kbroker.wire.framing import FrameReader

if TYPE_CHECKING:
    from kbroker.handlers.common.context import Services
    from kbroker.handlers.registration import Registration
    from kbroker.handlers.services.connection import Awaited
    from kbroker.handlers.services.refused_batches import RefusedBatches
    from kbroker.node.serving.memory_budget import MemoryBudget
    from kbroker.node.serving.observed_requests import RequestObservers
    from kbroker.node.serving.refusal_log import RefusalLog
    from kbroker.runtime.env import Poller, Stream
    from kbroker.wire.buffer_pool import BufferPool

logger = logging.getLogger(__name__)

FAIR_BYTES = 2 << 20
"""A connection that never has to wait gives way to the others after this much."""

FREE_BUFFER = 64 * 1024
"""Bytes that a connection may buffer whatever the others hold."""

MAX_TEXT = 500
"""Characters of a log line that a client has a part in."""

LARGE_READ = 64 * 1024
"""A read of this many bytes shows that more is on its way: try again before giving way."""


class Connection:
    """Serves one stream until it ends.

    ``table`` holds the APIs of the listener; ``start_soon`` starts a task that may outlive a request but not the
    listener. With a ``poller`` the poller's task reads for an idle connection and serves what can be served without
    waiting (Produce). The rest is for the connection's own task, which is started when there is some, and is parked
    between. Switching tasks costs as much as half of a small Produce.
    """

    __slots__ = (
        *("_budget", "_dispatcher", "_expect", "_failure", "_handed", "_is_polled", "_parked", "_poller"),
        *("_produce_queue", "_queued", "_reader", "_refusals", "_replies", "_reserved", "_scope", "_start_soon"),
        *("_turn", "_wait", "active", "bytes_received", "client_software_name", "client_software_version", "closed"),
        *("is_controller", "is_ending", "is_muted", "is_of_node", "listener_name", "peer", "principal"),
        *("refused_batches", "services", "session", "session_ended", "stream", "when_closed"),
    )

    def __init__(
        self,
        stream: Stream,
        *,
        services: Services,
        table: Mapping[int, Registration],
        listener_name: str,
        is_controller: bool,
        max_frame_bytes: int,
        start_soon: Callable[..., object],
        budget: MemoryBudget,
        refusals: RefusalLog,
        turns: Turns,
        buffers: BufferPool | None = None,
        poller: Poller | None = None,
        principal: KafkaPrincipal = ANONYMOUS,
        session: object | None = None,
        observers: RequestObservers | None = None,
    ) -> None:
        self.stream = stream
        self.principal = principal
        self.session = session
        self.services = services
        self.listener_name = listener_name
        self.is_controller = is_controller
        self.peer = f"{stream.peer[0]}:{stream.peer[1]}"
        self.client_software_name = "unknown"
        self.client_software_version = "unknown"
        self.closed = False
        #: Whether ``end`` was called, or the connection has ended.
        self.is_ending = False
        #: Whether the client's session has ended: nothing that comes from now on is for its eyes.
        self.session_ended = False
        #: Whether it has asked, and was allowed to, what nodes alone ask of one another.
        self.is_of_node = False
        #: Batches of its producers that were refused; None if none was.
        self.refused_batches: RefusedBatches | None = None
        #: Called once when the connection ends.
        self.when_closed: list[Callable[[], None]] = []
        #: Whether its client is throttled, and nothing is read.
        self.is_muted = False
        #: The number of bytes that have come.
        self.bytes_received = 0
        #: Whether others have gone, or been waited for, since the housekeeper set it to false.
        self.active = True
        #: Of the connection's own task.
        self._scope: trio.CancelScope | None = None
        self._start_soon = start_soon
        self._refusals = refusals
        self._budget = budget
        self._turn = Turn(turns)
        self._reserved = 0
        self._reader = FrameReader(max_frame_bytes, api_keys=table, pool=buffers)
        if observers is None:
            self._replies = ReplyQueue(stream, services.env, self, start_soon, self._progressed)
            self._dispatcher = Dispatcher(self, services, table, self._replies)
        else:
            self._replies, self._dispatcher = observers.parts(
                self, services, table, stream, start_soon, self._progressed
            )
        self._poller = poller
        self._produce_queue = services.produce_queue
        self._queued = services.produce_queue.waiting if services.produce_queue is not None else {}
        self._wait = RequestWait(stream, self._reader, poller, self._received)
        #: With TLS: says how much is to come before the stream tells of any.
        self._expect: Callable[[int], None] | None = getattr(stream, "expect", None)
        #: Whether the poller's task serves the connection, whose own task is parked then, or not started yet.
        self._is_polled = False
        self._parked: trio.lowlevel.Task | None = None
        #: Left by the poller's task to the connection's own: a frame, and an error that ends the connection.
        self._handed: memoryview | None = None
        self._failure: BaseException | None = None

    # --- reading ----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Have the poller's task serve the connection, or a task of its own where there is no poller."""
        if self._poller is not None:
            # The listener ends, or the system watches no more streams: the connection's own task finds the same.
            with suppress(trio.ClosedResourceError, OSError):
                self._poller.register(self.stream, self._on_readable, is_new=True)
                self._is_polled = True
                return
        self._start_soon(self.serve)

    async def serve(self) -> None:
        """Read and answer until the peer closes, the listener cancels, or the peer sends nonsense."""
        try:
            with trio.CancelScope() as self._scope:
                if not self.is_ending:
                    await self._serve()
        except Exception as error:
            self._tell(error)
        finally:
            self.close()

    def _tell(self, error: Exception) -> None:
        """Tell of the error that ends the connection."""
        if isinstance(error, WireError):
            text = f"closing connection from {self.peer}: {error}"
            self._refusals.add(self.services.env.now(), self.peer.rpartition(":")[0], "protocol", text)
            self._write_last()
        elif isinstance(error, CloseConnection):
            logger.info("closing connection from %s: %s", self.peer, shown(str(error), MAX_TEXT))
            self._write_last()
        elif isinstance(error, ConnectionLost):
            if str(error):
                logger.info("connection from %s lost: %s", self.peer, error)
        elif not isinstance(error, OSError | trio.ClosedResourceError | trio.BrokenResourceError):  # else it is no news
            logger.error("closing connection from %s: internal error", self.peer, exc_info=error)

    def _write_last(self) -> None:
        """Send the replies to the requests before the one that ends the connection, if the client takes them."""
        with suppress(OSError):
            self._replies.try_write()

    def end(self) -> None:
        """End the connection soon, whatever it is at. Called by anybody, as often as they like."""
        self.is_ending = True
        if self._scope is not None:
            self._scope.cancel()
        else:
            self._hand_over()  # its task is started, and ends

    def close(self) -> None:
        """Give everything back, when the connection's own task has ended or was never started."""
        if not self.closed:
            self.closed = self.is_ending = True
            self._budget.take(-self._reserved)
            self._budget.leave(self)
            self._reserved = 0
            self._replies.close()
            # A traceback may keep the connection for a while: its buffers must not stay with it.
            self._reader.drop()
            self._failure = self._handed = None
            self._dispatcher.forget_requests()
            self.stream.close()
            for callback in self.when_closed:
                callback()
            self.when_closed.clear()
            # These know the connection: circles, which else only the collector would free.
            del self._replies, self._dispatcher, self._wait

    def restrict(self, api_keys: Collection[int] | None) -> None:
        """Serve only these APIs from the next request on, and end with any other; None for all (KIP-368).

        A Fetch that waits is answered now, with what it had before.
        """
        self._dispatcher.restrict(api_keys)
        self.session_ended = api_keys is not None
        if self.session_ended:
            self._wait.end_time()

    def reauthenticated(self, *, by_token: bool) -> None:
        """The client has authenticated again (KIP-368), by a delegation token or without one.

        It stays who it is, as a principal builder has it. Shortcuts are made for what was allowed before: an
        authorizer may tell who comes by a token.
        """
        self.principal = as_authenticated(self.principal, by_token=by_token)
        self._dispatcher.forget_requests()

    @property
    def frames(self) -> int:
        """The number of requests that were received in full."""
        return self._dispatcher.requests

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
        reader, replies, dispatcher = self._reader, self._replies, self._dispatcher
        replies.round_open = False  # a round that has started this task is over
        requests = received = 0
        fair = self._turn.take()
        if self._failure is not None:
            raise self._failure
        while True:
            frame, self._handed = self._handed, None
            if frame is None:
                frame = reader.next_frame()
            while frame is not None:
                requests += 1
                # Looked up each time: observers come and go between requests.
                if not dispatcher.serve_now(frame):
                    if replies.parts and not replies.try_write():  # what is answered already does not wait for it
                        await replies.flush()
                    await dispatcher.serve(frame)
                frame = reader.next_frame()
                if frame is not None and (requests >= fair or replies.ends_large):
                    await self._give_way()
                    requests, fair = 0, self._turn.take()
            if replies.parts and not replies.try_write():
                await replies.flush()
            if reader.buffered_bytes != self._reserved:
                self._take_account(reader.buffered_bytes)
            if len(replies.slots) >= MAX_DELAYED_REPLIES:
                await replies.wait_for_slots()
            if self._has_queued_produces:
                await self._produce_queue.wait_for_room(self.peer)
            if self._reserved > FREE_BUFFER:
                await self._budget.wait(self)
            if requests >= fair or received >= FAIR_BYTES:
                await trio.lowlevel.checkpoint()
                requests = received = 0
                fair = self._turn.take()
            try:
                n = recv_into(reader.get_buffer())
            except BlockingIOError:
                self._expect_rest()
                if reader.buffered_bytes != self._reserved:  # the buffer of the frame before is gone
                    self._take_account(reader.buffered_bytes)
                if self._poller is None:
                    await self.stream.wait_readable()
                else:
                    await self._park(self._poller)
                requests = received = 0
                fair = self._turn.take()
                continue
            except InterruptedError:
                continue
            if n == 0:
                return
            self.bytes_received += n
            received += n
            reader.buffer_updated(n)

    def _expect_rest(self) -> None:
        """Before a wait: be woken for the rest of a large frame when much of it is there."""
        if self._expect is not None:
            self._expect(self._reader.rest)

    def look(self) -> None:
        """Stop waiting for more of a large frame: read the bytes that are there (for slow clients)."""
        if self._expect is not None and not self.closed:
            self._expect(0)

    async def _give_way(self) -> None:
        """Between requests that have been read together: write their replies, and let others have a turn."""
        replies = self._replies
        is_large = replies.ends_large
        if replies.parts and not replies.try_write():
            await replies.flush()
        await replies.wait_for_slots(1 if is_large else MAX_DELAYED_REPLIES)
        if self._has_queued_produces:
            await self._produce_queue.wait_for_room(self.peer)
        await trio.lowlevel.checkpoint()

    @property
    def _has_queued_produces(self) -> bool:
        """Whether a Produce of this connection is being appended in turns with everything else."""
        return self.peer in self._queued

    async def _park(self, poller: Poller) -> None:
        """Sleep until the poller's task has something for this one. Raises the error that it has left."""
        poller.register(self.stream, self._on_readable)
        self._parked, self._is_polled = trio.lowlevel.current_task(), True

        def abort(_: object) -> trio.lowlevel.Abort:
            self._parked, self._is_polled = None, False
            poller.unregister(self.stream)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)
        self._replies.round_open = False
        if self._failure is not None:
            raise self._failure

    def _hand_over(self, frame: memoryview | None = None, failure: BaseException | None = None) -> None:
        """Wake or start the connection's own task. Nothing is done if it has been woken for anything else.

        Where no task has been started, a failure needs none: it ends the connection here, unless the round has gathered
        what is not written yet.
        """
        if not self._is_polled:
            return
        assert self._poller is not None
        self._is_polled = False
        self._poller.unregister(self.stream)
        task, self._parked = self._parked, None
        if task is None and isinstance(failure, Exception) and not self._replies.round_open:
            self._tell(failure)
            self.close()
            return
        self._handed = frame
        self._failure = failure
        if task is None:
            self._start_soon(self.serve)
        else:
            trio.lowlevel.reschedule(task)

    def _on_readable(self) -> None:
        """Called by the poller's task: read, and serve what needs no waiting. Never raises."""
        replies, poller = self._replies, self._poller
        assert poller is not None
        if replies.is_writing:
            self._hand_over()  # replies are stuck, and only the connection's own task can wait for them
            return
        reader, waiting, dispatcher = self._reader, self._queued, self._dispatcher
        round = None
        if poller.round.is_crowded:
            round = poller.round
            replies.round_open = True  # until `_write_at_end`, or until the connection's own task has its turn
        try:
            received = requests = 0
            while True:
                room = reader.get_buffer()
                try:
                    n = self.stream.recv_into(room)
                except (BlockingIOError, InterruptedError):
                    self._expect_rest()
                    break
                if n == 0:
                    if replies.parts or (received and replies.slots):
                        break  # they go out first: the client may have ended its side alone
                    self.bytes_received += received
                    self._hand_over(failure=ConnectionLost(""))
                    return
                received += n
                frame = reader.only_frame(n)
                if frame is not None:
                    if dispatcher.serve_now(frame, round):
                        break
                    self.bytes_received += received
                    self._hand_over(frame)
                    return
                reader.buffer_updated(n)
                while (frame := reader.next_frame()) is not None:
                    requests += 1
                    if requests > FAIR_REQUESTS or not dispatcher.serve_now(frame, round):
                        self.bytes_received += received
                        self._hand_over(frame)
                        return
                if (
                    (n < LARGE_READ and n < len(room))
                    or received >= FAIR_BYTES
                    or (waiting and self._has_queued_produces)
                ):
                    self._expect_rest()
                    break
            self.bytes_received += received
            if (
                (reader.buffered_bytes != self._reserved and self._take_account(reader.buffered_bytes))
                or len(replies.slots) >= MAX_DELAYED_REPLIES
                or (waiting and self._has_queued_produces)
            ):
                self._hand_over()
            elif replies.round_open or (replies.parts and received < LARGE_READ):
                poller.round.at_end(self._write_at_end)
            elif replies.parts and not replies.try_write():
                self._hand_over()
        except BaseException as error:  # the connection's own task raises it
            self._hand_over(failure=error)

    def _write_at_end(self) -> None:
        """Write the replies of the round. Called by the poller's task at its end. Never raises.

        A client that sleeps is woken by the first reply to one of its connections, which costs the sender as much
        as serving a small request; replies in a row wake it once.
        """
        if not self._is_polled:
            return  # its own task has them now
        replies = self._replies
        replies.round_open = False
        try:
            if replies.parts and not replies.is_writing and not replies.try_write():
                self._hand_over()
        except BaseException as error:
            self._hand_over(failure=error)

    def _take_account(self, capacity: int) -> bool:
        """Tell the node's budget how much this connection buffers. True if the connection has to wait for its turn."""
        grown = capacity - self._reserved
        self._reserved = capacity
        self._budget.take(grown)
        return capacity > FREE_BUFFER and self._budget.exhausted

    def hold_replies(self) -> Round | None:
        """Have no reply go out before the end of the poller's present round; None if its task does not serve."""
        if not self._is_polled or self._poller is None:
            return None
        self._replies.round_open = True  # until `_write_at_end`, or until the connection's own task has its turn
        return self._poller.round

    def replace_unsent(self, reply: bytes, response: Any, version: int) -> None:
        """Send ``response`` instead of ``reply``, which was queued in the poller's present round."""
        if not self.closed:
            self._replies.replace_unsent(reply, response, type(response).api_key, version)

    async def flush(self) -> None:
        """Write all replies so far, waiting for the peer as long as it takes."""
        await self._replies.flush()

    async def mute(self, seconds: float) -> None:
        """Write all replies that are in order, and read nothing for this time: its client is throttled (KIP-219).

        The client may go away meanwhile without being noticed, until `connections.max.idle.ms` at the most.
        """
        await self._replies.flush()
        self.is_muted = True
        try:
            await trio.sleep(seconds)
        finally:
            self.is_muted = False

    @property
    def has_pipelined_request(self) -> bool:
        """Whether a request of another API waits behind the Fetch that is being served."""
        return self._wait.has_pipelined_request

    async def wait_for(self, operation: Awaited, timeout: float, *, gives_way: bool = False) -> bool:
        """Wait until ``operation.done`` or for ``timeout`` seconds. ``ConnectionLost`` when the client goes away.

        A wait whose time has a limit ends when the session does. With ``gives_way``, stop waiting as soon as another
        request arrives on this connection. True if the authorizer's rules have changed meanwhile.
        """
        authorizer = self.services.authorizer
        rules = None if authorizer is None else authorizer.version
        try:
            await self._replies.flush()
        except (OSError, trio.ClosedResourceError) as error:
            raise ConnectionLost("") from error
        if self.session_ended and timeout < inf:
            return False
        await self._wait.until_done(operation, timeout, gives_way=gives_way)
        self.active = True
        return authorizer is not None and authorizer.version != rules

    def _progressed(self) -> None:
        """Called when the peer has taken bytes that it was sent."""
        self.active = True

    def _received(self, count: int) -> None:
        """Called when ``count`` bytes were read while a request waited."""
        self.bytes_received += count
