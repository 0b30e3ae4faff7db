"""A dispatcher in front of another one, that lets the tap see requests, and the answers as they are queued.

Requests are served as they would be without it, short ways included.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from kbroker.explorer.exchange import KEPT_RECORDS, MAX_KEPT, Frame
from kbroker.explorer.redaction import LARGEST, may_have_secrets
from kbroker.handlers.context import CloseConnection
from kbroker.later import Later
from kbroker.node.explorer.kept_frames import CUT_OFF
from kbroker.types import FileRegion, Part
from kbroker.wire.errors import WireError
from kbroker.wire.framing import response_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbroker.env import Env
    from kbroker.handlers.context import Services
    from kbroker.handlers.registration import Registration
    from kbroker.handlers.services.connection import Connection
    from kbroker.node.explorer.tap import Begun, Tap
    from kbroker.node.replies import MakeDispatcher, Replies, Serves
    from kbroker.node.reply_queue import ReplyQueue
    from kbroker.round import Round

NO_ANSWER = "none is expected"


class WatchedReplies:
    """The replies of a connection; those to the request that is seen are shown to the tap."""

    __slots__ = ("_env", "_hides_records", "_queue", "begun", "round")

    def __init__(self, queue: Replies, env: Env, *, hides_records: bool) -> None:
        """With ``hides_records`` no records of answers are shown: those of the metadata log have secrets."""
        self._queue = queue
        self._env = env
        self._hides_records = hides_records
        self.begun: Begun | None = None
        """The request that is served."""
        self.round: Round | None = None
        """The poller's round that it is served in: until its end another reply may take a reply's place."""

    @property
    def slots(self) -> Any:
        """As those of the queue."""
        return self._queue.slots

    @property
    def parts(self) -> Any:
        """Those of the queue, or what takes one to it."""
        return self._queue.parts if self.begun is None else self

    def append(self, reply: bytes) -> None:
        """Queue a reply of a shortcut, as the queue's ``parts`` do."""
        queued = self._queue.parts
        queued.append(reply)
        self._show_queued(queued, len(queued) - 1, 1)

    def add(self, parts: list[Part]) -> None:
        """As ``ReplyQueue.add``."""
        self._queue.add(parts)
        self._show_queued(parts, 0, len(parts))  # a slot has this list itself

    def delay(self, delayed: Later[Any], api_key: int, version: int, correlation_id: int) -> None:
        """As ``ReplyQueue.delay``."""
        self._queue.delay(delayed, api_key, version, correlation_id)
        self._show_later(delayed, api_key, version, correlation_id)

    def answer(self, response: Any, api_key: int, version: int, correlation_id: int) -> None:
        """As ``ReplyQueue.answer``."""
        queue = self._queue
        before = len(queue.parts)
        queue.answer(response, api_key, version, correlation_id)
        if self.begun is None:
            return
        if response is None:
            self.begun.ended(NO_ANSWER)
        elif isinstance(response, Later):
            self._show_later(response, api_key, version, correlation_id)
        elif queue.slots:
            self._show(queue.slots[-1].parts)
        else:
            self._show(list(islice(queue.parts, before, None)))

    def _show_queued(self, queued: Any, place: int, number: int) -> None:
        """Show parts that have this place: at the round's end, when nothing replaces them any more."""
        begun = self.begun
        if begun is None:
            return
        if self.round is None:
            self._show(list(islice(queued, place, place + number)))
        else:
            self.round.at_end(partial(self._show_sent, begun, queued, place, number))

    def _show_sent(self, begun: Begun, queued: Any, place: int, number: int) -> None:
        parts = list(islice(queued, place, place + number))
        if len(parts) < number:
            begun.ended(CUT_OFF)  # the queue was emptied with its connection
            return
        is_whole = may_have_secrets(begun.api_key)
        begun.answered(lambda: self._frame(parts, is_whole=is_whole))

    def _show(self, parts: list[Part]) -> None:
        if self.begun is not None:
            is_whole = may_have_secrets(self.begun.api_key)
            self.begun.answered(lambda: self._frame(parts, is_whole=is_whole))

    def _show_later(self, delayed: Later[Any], api_key: int, version: int, correlation_id: int) -> None:
        begun = self.begun
        if begun is None:
            return

        def done() -> None:
            value = delayed.value
            if value is None:
                begun.ended(NO_ANSWER)
                return
            try:
                parts = [value] if type(value) is bytes else response_parts(api_key, version, correlation_id, value)
            except Exception:  # the queue meets the same, and answers an error
                begun.ended("the answer cannot be encoded")
                return
            begun.answered(lambda: self._frame(parts, is_whole=may_have_secrets(api_key)))

        delayed.on_done(done)

    def _frame(self, parts: Sequence[Part], *, is_whole: bool) -> Frame:
        """A frame of an answer, without its size; records are cut, and those of a file read if that costs no wait."""
        first = parts[0]
        assert not isinstance(first, FileRegion)
        offset, room = len(first) - 4, LARGEST if is_whole else MAX_KEPT
        pieces = [(0, bytes(first[4 : 4 + room]))]
        room -= len(pieces[0][1])
        for part in parts[1:]:
            if self._hides_records:
                offset += len(part)
                continue
            kept = self._kept(part, min(KEPT_RECORDS, room))
            if kept:
                pieces.append((offset, kept))
                room -= len(kept)
            offset += len(part)
        return Frame(offset, tuple(pieces))

    def _kept(self, part: Part, most: int) -> bytes:
        if isinstance(part, FileRegion):
            return bytes(self._env.read_now(part.fd, part.position, min(part.length, most)) or b"")
        return bytes(part[:most])


class WatchedDispatcher:
    """Serves the requests of one connection by the dispatcher behind it."""

    __slots__ = ("_handed_over", "_inner", "_missed", "_replies", "_seen", "_tap")

    def __init__(self, tap: Tap, connection: Connection, env: Env, inner: Serves) -> None:
        self._tap = tap
        self._seen = tap.connected(connection)
        self._missed = self._seen.missed
        self._inner = inner
        inner.show_replies(partial(self._see, env, connection.is_controller))
        self._handed_over = False
        """Whether ``serve`` has the next request that ``serve_now`` has seen already."""

    def _see(self, env: Env, hides_records: bool, queue: Replies) -> Replies:
        self._replies = WatchedReplies(queue, env, hides_records=hides_records)
        return self._replies

    def show_replies(self, between: Callable[[Replies], Replies]) -> None:
        """As `Dispatcher.show_replies`."""
        self._inner.show_replies(between)

    @property
    def requests(self) -> int:
        """Requests so far."""
        return self._inner.requests

    @property
    def surplus_bytes(self) -> int:
        """As `Dispatcher.surplus_bytes`."""
        return self._inner.surplus_bytes

    def forget_requests(self) -> None:
        """As `Dispatcher.forget_requests`."""
        self._inner.forget_requests()

    def restrict(self, api_keys: Collection[int] | None) -> None:
        """As `Dispatcher.restrict`."""
        self._inner.restrict(api_keys)

    def serve_now(self, frame: memoryview, round: Round | None = None) -> bool:
        """As `Dispatcher.serve_now`."""
        tap = self._tap
        if not tap.is_open:
            if not tap.is_watched:
                return self._inner.serve_now(frame, round)
            self._missed[frame[1]] += 1
            served = self._inner.serve_now(frame, round)
            self._handed_over = not served
            return served
        begun = tap.begin(self._seen, frame)
        if begun is None:
            served = self._inner.serve_now(frame, round)
            self._handed_over = not served
            return served
        replies = self._replies
        replies.begun = begun
        replies.round = round
        try:
            served = self._inner.serve_now(frame, round)
        except BaseException as error:
            self._cut_off(begun, error)
            raise
        if served:
            replies.begun = None
        self._handed_over = not served
        return served

    async def serve(self, frame: memoryview) -> None:
        """As `Dispatcher.serve`."""
        replies = self._replies
        if not self._handed_over:
            replies.begun = self._tap.begin(self._seen, frame) if self._tap.is_watched else None
        self._handed_over = False
        replies.round = None
        begun = replies.begun
        if begun is None:
            await self._inner.serve(frame)
            return
        try:
            await self._inner.serve(frame)
        except BaseException as error:
            self._cut_off(begun, error)
            raise
        finally:
            replies.begun = None

    def _cut_off(self, begun: Begun, error: BaseException) -> None:
        self._replies.begun = None
        reason = f": {error}" if isinstance(error, WireError | CloseConnection) and str(error) else ""
        begun.ended(f"{CUT_OFF}{reason}")


def watched(make: MakeDispatcher, tap: Tap) -> MakeDispatcher:
    """Make dispatchers as ``make`` does, that ``tap`` sees the requests of."""

    def make_watched(
        connection: Connection, services: Services, table: Mapping[int, Registration], replies: ReplyQueue
    ) -> Serves:
        return WatchedDispatcher(tap, connection, services.env, make(connection, services, table, replies))

    return make_watched
