"""Copies that the console's process owns: they go on without a page, and one that is loaded again finds them.

A replay goes on by itself. An import takes the pieces of a file as a page sends them: the file is in the browser, and
after the page was loaded again its reader chooses it once more.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol, TypeAlias

import trio

from kbroker.client import Client
from kbroker.client.records_io.copy_position import CopyPosition
from kbroker.client.records_io.json_types import Json
from kbroker.tools.console.uploads import Upload

THREADS: Final = 4
"""Steps of copies that are under way at once, of all sessions: the pages have other threads."""

MOST_OPEN: Final = 32
"""Copies of all sessions that are not over."""

MOST_OWN: Final = 8
"""Copies of one session that are not over."""

MOST_FILES: Final = 4
"""Files of imports that are kept whole, of all sessions."""

MOST_OWN_FILES: Final = 2
"""Files of one session."""

IDLE_SECONDS: Final = 300.0
"""A copy that does not run, and of which nobody has asked for so long, makes room for another."""

_MOST_OVER: Final = 20
"""Copies of a session that are over and still told of."""

_SHOWN: Final = 10
"""Records that were not stored of which it is told why."""

UNWATCHED_SECONDS: Final = 150.0
"""A copy that is to end with its page ends after so long in which no page has asked for it: browsers let a page behind
others ask once a minute."""


class State(StrEnum):
    """A copy runs; waits for a piece of its file; has failed, and can go on; or is over."""

    RUNNING = "running"
    WAITS = "waits"
    FAILED = "failed"
    DONE = "done"
    CANCELLED = "cancelled"


_OVER: Final = (State.DONE, State.CANCELLED)


@dataclass(slots=True)
class Outcome:
    """The work of a step. With an ``error`` it has failed in the middle; another one goes on from its ``place``.

    ``goon``: partition -> where another step of a replay begins; ``ends``: where its copy ends. ``rows``: those of a
    file of rows after which another step begins.
    """

    stored: int = 0
    looked_at: int = 0
    problems: list[str] = field(default_factory=list)
    """The reasons why records were not stored, one for each."""

    error: str = ""
    place: CopyPosition | None = None
    finished: bool = False
    goon: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    rows: int = 0
    notes: list[str] = field(default_factory=list)
    """The things to know of it that are no reason why a record was not stored."""

    may_double: int = 0
    """Records that may be stored twice when another step goes on: those of a producer to which brokers gave no id."""


class Defect(Exception):
    """An error of the console itself: nobody knows what its step has done. The text is one line."""


Ask: TypeAlias = Callable[[Callable[[Client], Outcome]], Awaitable[Outcome]]
"""Asks the cluster as a user, in a thread. After an error that is no ``Defect`` nothing was done."""


class Control(Protocol):
    """The copy as its step in a thread sees it."""

    def begun(self) -> None:
        """Nothing has to be refused any more."""

    def is_to_end(self) -> bool:
        """Whether the step is to end now."""


class ReplaySteps(Protocol):
    """The work of a replay, a step after the other."""

    def step(
        self, client: Client, goon: dict[int, int], ends: dict[int, int], place: CopyPosition | None, control: Control
    ) -> Outcome: ...


class ImportSteps(Protocol):
    """The work of an import, a piece after the other."""

    def step(self, client: Client, text: str, shift: int, place: CopyPosition | None) -> Outcome: ...

    def step_of_rows(self, client: Client, upload: Upload, begin: int, place: CopyPosition | None) -> Outcome: ...


@dataclass(frozen=True, slots=True)
class CopyContext:
    """The console as a copy knows it."""

    ask: Ask
    audit: Callable[[str], None]
    """Writes a line about the copy into the audit log."""

    text_of: Callable[[Exception], str]
    """An error as a page gets it."""

    clock: Callable[[], float] = time.monotonic


class Copy:
    """A copy of a session: how far it is."""

    kind = ""

    def __init__(self, source: str, to: str, context: CopyContext) -> None:
        self.id = secrets.token_urlsafe(9)
        self.state = State.WAITS
        self.source = source
        self.to = to
        self.error = ""
        self.failure: Exception | None = None
        """An error before which nothing of the copy was done."""
        self.stored = self.looked_at = self.not_stored = 0
        self.may_double: int | None = 0
        """Records that may be stored twice when it goes on; None: some of its last step, nobody knows how many."""
        self._problems: list[str] = []
        self._notes: list[str] = []
        self._place: CopyPosition | None = None
        self._cancelled = False
        self._context = context
        self._asked_at = context.clock()

    def seen(self) -> None:
        """A page has asked for it."""
        self._asked_at = self._context.clock()

    @property
    def unasked(self) -> float:
        """Seconds in which no page has asked for it."""
        return self._context.clock() - self._asked_at

    @property
    def is_running(self) -> bool:
        """Whether a step is under way, or comes without being asked for."""
        return self.state is State.RUNNING

    @property
    def is_over(self) -> bool:
        """Whether nothing comes of it any more."""
        return self.state in _OVER

    def view(self) -> dict[str, Json]:
        """The copy as a page gets it."""
        shown: list[Json] = list(self._problems)
        notes: list[Json] = list(self._notes)
        return {
            "id": self.id,
            "kind": self.kind,
            "source": self.source,
            "to": self.to,
            "state": self.state.value,
            "cancelling": self._cancelled and not self.is_over,
            "stored": self.stored,
            "looked_at": self.looked_at,
            "not_stored": self.not_stored,
            "problems": shown,
            "notes": notes,
            "may_double": self.may_double,
            "error": self.error,
        }

    def cancel(self) -> None:
        """End it; what is stored stays. A step that is under way ends soon."""
        if self.is_running:
            self._cancelled = True
        elif not self.is_over:
            self._end(State.CANCELLED)

    async def _do(self, question: Callable[[Client], Outcome]) -> Outcome | None:
        """Take a step, and note what it has done, also if it has failed in the middle; None if it has done nothing."""
        try:
            outcome = await self._context.ask(question)
        except Exception as error:
            if not self.stored and not self.looked_at and not self.not_stored:
                self.failure = error
            if isinstance(error, Defect):
                self.may_double = None
            self._fail(self._context.text_of(error))
            return None
        self.stored += outcome.stored
        self.looked_at += outcome.looked_at
        self.not_stored += len(outcome.problems)
        self._problems = (self._problems + outcome.problems)[:_SHOWN]
        self._notes = (self._notes + outcome.notes)[:_SHOWN]
        self._place, self.may_double = outcome.place, outcome.may_double
        if outcome.error:
            self._fail(outcome.error)
        elif self._cancelled:
            self._end(State.CANCELLED)
        return outcome

    def _fail(self, error: str) -> None:
        self.error = error
        self._enter(State.CANCELLED if self._cancelled else State.FAILED, f"failed: {error} ({self._counts()})")

    def _end(self, state: State) -> None:
        self._enter(state, f"{state.value}: {self._counts()}")

    def _enter(self, state: State, line: str) -> None:
        self.state = state
        self._context.audit(line)

    def _counts(self) -> str:
        return f"{self.stored} stored, {self.not_stored} not"


class ReplayCopy(Copy):
    """A copy of a topic's records, which goes on by itself."""

    kind = "replay"

    def __init__(
        self,
        steps: ReplaySteps,
        source: str,
        to: str,
        context: CopyContext,
        *,
        while_alive: Callable[[], AbstractContextManager[object]],
        ends_unwatched: bool = False,
    ) -> None:
        """``while_alive``: a block that is cancelled with the session. ``ends_unwatched``: also where no page asks."""
        super().__init__(source, to, context)
        self._steps = steps
        self._while_alive = while_alive
        self._ends_unwatched = ends_unwatched
        self._goon: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self.settled = trio.Event()
        """Set once it is known that there is nothing to be refused, or what."""

    def go_on(self) -> None:
        """Begin, or go on where it has failed."""
        if self.state in (State.WAITS, State.FAILED):
            self.state, self.error, self.failure = State.RUNNING, "", None
            self.seen()
            # The task outlives the request, and must never fail: what it raises is told to whoever asks.
            trio.lowlevel.spawn_system_task(self._run)

    async def _run(self) -> None:
        try:
            await self._take_steps()
        except Exception as error:
            self._fail(self._context.text_of(error))
        self.settled.set()

    async def _take_steps(self) -> None:
        with self._while_alive():
            while self.is_running:
                outcome = await self._do(
                    lambda client: self._steps.step(client, self._goon, self._ends, self._place, self)
                )
                self.settled.set()
                if outcome is None:
                    continue
                self._goon, self._ends = outcome.goon, outcome.ends
                if outcome.finished and self.is_running:
                    self._end(State.DONE)
                elif self.is_running and self._ends_unwatched and self.unasked > UNWATCHED_SECONDS:
                    self._end(State.CANCELLED)
        if self.is_running:
            self._end(State.CANCELLED)  # with its session

    def begun(self) -> None:
        """Nothing has to be refused any more (`Control`)."""
        trio.from_thread.run_sync(self.settled.set)

    def is_to_end(self) -> bool:
        """Whether it was cancelled, or its session has ended, or the console ends; asked in its thread."""
        if self._cancelled:
            return True
        try:
            trio.from_thread.check_cancelled()
        except trio.Cancelled:
            return True
        return False


class ImportCopy(Copy):
    """A copy of a file's records, of which a page sends the pieces."""

    kind = "import"

    def __init__(self, steps: ImportSteps, source: str, size: int, form: str, to: str, context: CopyContext) -> None:
        """``source`` and ``size``: the name of the file and its bytes, by which it is known again."""
        super().__init__(source, to, context)
        self._steps = steps
        self._size = size
        self.format = form
        self.pieces = 0
        """Those that are stored."""

        self.upload: Upload | None = None
        """Its file, where the console has to have it whole; it goes when the copy is over."""

        self._rows = 0
        """Those that are stored, of a file of rows."""

    def view(self) -> dict[str, Json]:
        """The copy as a page gets it, with the number of the piece that comes next.

        ``kept``: the bytes of the file that the console has, where it has to have it whole.
        """
        kept = 0 if self.upload is None else self.upload.size
        return {**super().view(), "pieces": self.pieces, "size": self._size, "format": self.format, "kept": kept}

    def _enter(self, state: State, line: str) -> None:
        super()._enter(state, line)
        if self.is_over and self.upload is not None:
            self.upload.close()
            self.upload = None

    def go_on(self) -> None:
        """Take pieces again after one has failed."""
        if self.state is State.FAILED:
            self.state, self.error = State.WAITS, ""

    async def store(self, text: str, shift: int) -> None:
        """Store the piece that comes next. One that has failed in the middle is sent again, and goes on there."""
        await self._store(lambda client: self._steps.step(client, text, shift, self._place))

    async def store_rows(self, upload: Upload) -> None:
        """Store the rows of a whole file that come next; with the last of them the import is done."""
        await self._store(lambda client: self._steps.step_of_rows(client, upload, self._rows, self._place))

    async def _store(self, question: Callable[[Client], Outcome]) -> None:
        if self.state is not State.WAITS:
            return
        self.state = State.RUNNING
        done = await self._do(question)
        if done is not None and self.is_running:
            self.pieces += 1
            self._rows = done.rows
            self.state = State.WAITS
            if done.finished:
                self.finish()

    def finish(self) -> None:
        """There are no more pieces."""
        if self.state is State.WAITS:
            self._end(State.DONE)


AnyCopy: TypeAlias = ReplayCopy | ImportCopy


class Copies:
    """The copies of all sessions, in memory; those of a session are forgotten with it."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, AnyCopy]] = {}
        self._with_file: list[ImportCopy] = []
        self.threads = trio.CapacityLimiter(THREADS)

    def add(self, session: str, copy: AnyCopy) -> bool:
        """Have a copy belong to a session; false if there are too many that are not over, and none makes room."""
        own = self._of.setdefault(session, {})
        every = [each for copies in self._of.values() for each in copies.values()]
        if not (_has_room(list(own.values()), MOST_OWN) and _has_room(every, MOST_OPEN)):
            return False
        over = [each.id for each in own.values() if each.is_over]
        for each in over[: max(len(over) - _MOST_OVER, 0)]:
            del own[each]
        own[copy.id] = copy
        return True

    def begin_file(self, session: str, copy: ImportCopy) -> Upload | None:
        """Begin to keep the file of an import; None if there are too many, and none makes room with its copy."""
        # That of a session that has ended counts until its step has ended.
        self._with_file = [each for each in self._with_file if each.upload is not None]
        own = [each for each in self._with_file if self.find(session, each.id) is each]
        if not (_has_room(own, MOST_OWN_FILES) and _has_room(self._with_file, MOST_FILES)):
            return None
        copy.upload = Upload()
        self._with_file.append(copy)
        return copy.upload

    def of(self, session: str) -> Collection[AnyCopy]:
        """The copies of a session, the first begun first."""
        return self._of.get(session, {}).values()

    def find(self, session: str, copy: str) -> AnyCopy | None:
        """A copy by its id, if it is the session's."""
        return self._of.get(session, {}).get(copy)

    def forget(self, session: str, copy: AnyCopy) -> None:
        """Tell no more of it."""
        self._of.get(session, {}).pop(copy.id, None)

    def end(self, session: str) -> None:
        """End and forget the copies of a session that has ended."""
        for copy in self._of.pop(session, {}).values():
            copy.cancel()


def _has_room(copies: Iterable[AnyCopy], most: int) -> bool:
    """Whether another copy may be open; one that stands still, and is not asked for, is cancelled for it."""
    still = [each for each in copies if not each.is_over]
    if len(still) < most:
        return True
    idle = [each for each in still if not each.is_running and each.unasked > IDLE_SECONDS]
    if not idle:
        return False
    max(idle, key=lambda each: each.unasked).cancel()
    return True
