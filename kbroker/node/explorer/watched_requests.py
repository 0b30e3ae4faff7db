"""The requests of one connection, and the answers as they are queued, as the tap sees them: all, some, or none.

How much of them is seen changes between requests (`settle`), and at once where a request is looked for alone (`look`).
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from kbroker.handlers.context import CloseConnection
from kbroker.node.explorer.kept_frames import CUT_OFF, client_id_of
from kbroker.node.explorer.watched_parts import COUNT, LOOK, UNASKED, Parts, Stage
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


class WatchedRequests:
    """Shows requests to the tap, if it wants them. They are served as they would be without it, short ways included."""

    __slots__ = (
        *("_env", "_hides_records", "_later", "_parts", "_queue", "_seen", "_stage", "_steady", "_summed", "_tap"),
        *("begun", "is_left", "leaves", "missed", "ways"),
    )

    def __init__(self, tap: Tap, connection: Connection, queue: ReplyQueue, parts: Parts) -> None:
        """``parts``: those of the connection, which have the classes of the stage that it is in."""
        self._tap = tap
        self._env: Env = tap.env
        self._seen = tap.connected(connection)
        self._seen.requests = self
        self.missed = self._seen.missed.too_fast
        self.ways = bytes(256)
        self._queue = queue
        self._hides_records = connection.is_controller
        """Records of the metadata log have secrets."""
        self.begun: Begun | None = None
        self._later: tuple[Later[Any], int, int, int] | None = None
        """The answer of ``begun`` that comes later."""
        self.is_left = self.leaves = False
        self._parts = parts
        self._stage = Stage.NEW
        """That which the connection is in between requests; ``COUNTING`` while it is ``STEADY``, too."""
        self._steady = -1
        """The API key of the requests that are counted by those of the dispatcher; -1 if each is counted."""
        self._summed = 0
        """Requests of the dispatcher that are counted."""
        parts.change(Stage.NEW)

    # --- how much is seen

    def met(self, frame: memoryview) -> None:
        """Take the client id, by which it is known whether anybody asks for the connection."""
        self._seen.client_id = client_id_of(frame)
        self._stage = Stage.PLAIN
        self._parts.change(Stage.PLAIN)
        if self._tap.is_watched:
            self._tap.place(self._seen)

    def settle(self, stage: Stage, ways: bytes) -> None:
        """Be seen so much from the next request on, and of each API as ``ways`` says."""
        self.sum_up()
        self._steady = -1
        self._stage, self.ways = stage, ways
        self.leaves = stage is not Stage.WATCHED and (self.begun is not None or self.is_left)
        if not self.leaves:
            self._parts.change(stage)

    def tend(self) -> None:
        """Count what has been served steadily; begin to serve so, if that can be."""
        if self._steady >= 0:
            self.sum_up()
        elif self._stage is Stage.COUNTING:
            key = self._parts.sole_api
            if key >= 0 and self.ways[key] != LOOK:
                self._steady, self._summed = key, self._parts.requests
                self._parts.make_steady(key)

    def sum_up(self) -> None:
        """Count what has been served steadily."""
        if self._steady >= 0:
            requests = self._parts.requests
            self.missed[self._steady] += (requests - self._summed) * self.ways[self._steady]
            self._summed = requests

    def unsettle(self) -> None:
        """Count each request: the next one is of another API."""
        self.sum_up()
        self._steady = -1
        self._parts.change(Stage.COUNTING)

    def leave(self) -> None:
        """Be seen as it was settled: no request is under way."""
        self.leaves = False
        self._parts.change(self._stage)

    def end(self) -> None:
        """Nobody watches: what is under way is not shown any more."""
        self.begun = self._later = None
        self.is_left = False
        self.settle(Stage.PLAIN, bytes(256))

    def look(self, frame: memoryview) -> int:
        """See this request alone, if somebody asks for it and it can be afforded."""
        tap = self._tap
        if self.ways is tap.ways_of_others and not tap.is_wanted(self._seen, frame):
            return UNASKED
        if not tap.can_see(frame):
            return COUNT
        self.leaves = True
        self._parts.change(Stage.WATCHED)
        return LOOK

    # --- requests

    def came(self, frame: memoryview) -> None:
        """Ask the tap whether it sees the request."""
        tap = self._tap
        if tap.can_see(frame):
            self.begun = tap.begin(self._seen, frame)
        else:
            self.missed[frame[1]] += 1

    def answers_later(self, later: Later[Any], api_key: int, version: int, correlation_id: int) -> None:
        """Remember the answer: it is shown after it is queued."""
        if self.begun is not None:
            self._later = later, api_key, version, correlation_id

    def answered(self, response: object, queued: int) -> None:
        """Show what the handler has answered."""
        begun = None if self.begun is None else self._take_begun()
        if begun is None:
            return
        queue = self._queue
        if response is None:
            begun.ended(NO_ANSWER)
        else:
            self._show(begun, queue.slots[-1].parts if queue.slots else list(islice(queue.parts, queued, None)))

    def served(self, round: Round | None) -> None:
        """Show what a shortcut has answered, if no handler has."""
        begun = self._take_begun()
        if begun is None:
            return
        slots = self._queue.slots
        queued: Sequence[Part] = slots[-1].parts if slots else self._queue.parts
        place = len(queued) - 1
        if round is None:
            self._show(begun, [queued[place]])
        else:
            round.at_end(partial(self._show_sent, begun, queued, place))

    def failed(self, error: BaseException) -> None:
        """Tell that the request ends its connection, and why."""
        begun, self.begun, self._later = self.begun, None, None
        if begun is not None:
            reason = f": {error}" if isinstance(error, WireError | CloseConnection) and str(error) else ""
            begun.ended(f"{CUT_OFF}{reason}")

    # --- answers ------------------------------------------------------------------------------------------------

    def _take_begun(self) -> Begun | None:
        """The request that is answered now, and no more than this once; None if the tap does not see it, or it is
        answered later."""
        begun, later = self.begun, self._later
        self.begun = self._later = None
        if begun is None or later is None:
            return begun
        self._show_later(begun, *later)
        return None

    def _show_sent(self, begun: Begun, queued: Sequence[Part], place: int) -> None:
        """Show the reply that has this place at the round's end, when nothing replaces it any more."""
        if len(queued) <= place:
            begun.ended(CUT_OFF)  # the queue was emptied with its connection
        else:
            self._show(begun, [queued[place]])

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
