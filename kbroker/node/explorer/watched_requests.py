"""The requests of one connection, and the answers as they are queued, as the tap sees them."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from kbroker.handlers.common.context import CloseConnection
from kbroker.node.explorer.kept_frames import CUT_OFF, client_id_of
from kbroker.node.serving.observed_requests import ObservedDispatcher, RequestObserver
from kbroker.observe.explorer.exchange import KEPT_RECORDS, MAX_KEPT, Frame
from kbroker.observe.explorer.redaction import LARGEST, may_have_secrets
from kbroker.runtime.later import Later
from kbroker.types import FileRegion, Part
from kbroker.wire.errors import WireError
from kbroker.wire.framing import response_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbroker.handlers.services.connection import Connection
    from kbroker.node.explorer.tap import Begun, Tap
    from kbroker.node.serving.reply_queue import ReplyQueue
    from kbroker.runtime.env import Env
    from kbroker.runtime.round import Round

NO_ANSWER = "none is expected"


class WatchedRequests(RequestObserver):
    """Shows requests to the tap, if it wants them. They are served as they would be without it, short ways included."""

    __slots__ = ("_begun", "_dispatcher", "_env", "_held", "_hides_records", "_later", "_queue", "_seen", "_tap")

    def __init__(self, tap: Tap, connection: Connection, dispatcher: ObservedDispatcher, queue: ReplyQueue) -> None:
        self._tap = tap
        self._env: Env = tap.env
        self._seen = tap.connected(connection)
        self._seen.requests = self
        self._dispatcher = dispatcher
        self._queue = queue
        self._hides_records = connection.is_controller
        """Records of the metadata log have secrets."""
        self._begun: Begun | None = None
        """The request that is served, if it is seen, and until its answer is known."""
        self._later: tuple[Later[Any], int, int, int] | None = None
        """The answer of the same request that comes later."""
        self._held: dict[int, Part] = {}
        """Replies that wait for the end of a round, by the identity of the ones that were there first."""
        dispatcher.see_each(self, True)  # of the first request the client id is taken

    def watch(self, wanted: bool) -> None:
        """Have each request seen from the next one on, or none; what is under way is not shown any more then."""
        if not wanted:
            self._begun = self._later = None
        self._dispatcher.see_each(self, wanted or self._seen.client_id is None)

    # --- requests

    def received(self, frame: memoryview) -> None:
        """Have the tap decide whether it sees the request."""
        if self._seen.client_id is None:
            self._seen.client_id = client_id_of(frame)
            self.watch(self._tap.asks_of(self._seen))
        self._begun = self._tap.begin(self._seen, frame)

    def answers_later(self, later: Later[Any], api_key: int, version: int, correlation_id: int) -> None:
        """Remember the answer: it is shown after it is queued."""
        if self._begun is not None:
            self._later = later, api_key, version, correlation_id

    def answered(self, response: object, api_key: int, queued: int) -> None:
        """Show what the handler has answered."""
        begun = None if self._begun is None else self._take_begun()
        if begun is None:
            return
        queue = self._queue
        if response is None:
            begun.ended(NO_ANSWER)
        else:
            self._show(begun, queue.slots[-1].parts if queue.slots else list(islice(queue.parts, queued, None)))

    def served(self, round: Round | None) -> None:
        """Show what a shortcut has answered, if no handler has."""
        begun = None if self._begun is None else self._take_begun()
        if begun is None:
            return
        slots = self._queue.slots
        reply: Part = (slots[-1].parts if slots else self._queue.parts)[-1]
        if round is None:
            self._show(begun, [reply])
        else:
            self._held[id(reply)] = reply
            round.at_end(partial(self._show_sent, begun, reply))

    def replaced(self, reply: bytes, instead: bytes) -> None:
        """Show what is sent instead."""
        if id(reply) in self._held:
            self._held[id(reply)] = instead

    def failed(self, error: BaseException) -> None:
        """Tell that the request ends its connection, and why."""
        begun, self._begun, self._later = self._begun, None, None
        if begun is not None:
            reason = f": {error}" if isinstance(error, WireError | CloseConnection) and str(error) else ""
            begun.ended(f"{CUT_OFF}{reason}")

    # --- answers ------------------------------------------------------------------------------------------------

    def _take_begun(self) -> Begun | None:
        """The request that is answered now, and no more than this once; None if the tap does not see it, or it is
        answered later."""
        begun, later = self._begun, self._later
        self._begun = self._later = None
        if begun is None or later is None:
            return begun
        self._show_later(begun, *later)
        return None

    def _show_sent(self, begun: Begun, reply: Part) -> None:
        """Show a reply, or the one instead of it, at the round's end, when nothing replaces it any more."""
        sent = self._held.pop(id(reply))
        if self._queue.parts or self._queue.slots:
            self._show(begun, [sent])
        else:
            begun.ended(CUT_OFF)  # the queue was emptied with its connection

    def _show(self, begun: Begun, parts: list[Part]) -> None:
        is_whole = may_have_secrets(begun.api_key)
        begun.answered(lambda: self._frame(parts, is_whole=is_whole))

    def _show_later(self, begun: Begun, delayed: Later[Any], api_key: int, version: int, correlation_id: int) -> None:
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
