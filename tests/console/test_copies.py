"""Copies that the console's process owns: how they go on, fail and end, whatever pages do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import cast

import pytest
import trio

from kbroker.client import Client, ClientError
from kbroker.client.records_io.copy_position import CopyPosition
from kbroker.tools.console import copies
from kbroker.tools.console.copies import Control, Copies, CopyContext, Defect, ImportCopy, Outcome, ReplayCopy, State
from kbroker.tools.console.uploads import NoUpload, Upload

PLACE = cast(CopyPosition, object())


class Steps:
    """A step is the next of these outcomes or errors, and notes what it was given. ``held``: it waits for its end."""

    def __init__(self, *outcomes: Outcome | Exception, held: bool = False) -> None:
        self._coming = iter(outcomes)
        self._held = held
        self.given: list[tuple[dict[int, int], dict[int, int], CopyPosition | None]] = []

    def step(
        self, client: Client, goon: dict[int, int], ends: dict[int, int], place: CopyPosition | None, control: Control
    ) -> Outcome:
        self.given.append((goon, ends, place))
        outcome = next(self._coming)
        if isinstance(outcome, Exception):
            raise outcome
        control.begun()
        while self._held and not control.is_to_end():
            threading.Event().wait(0.001)
        return outcome


async def ask(question: Callable[[Client], Outcome]) -> Outcome:
    return await trio.to_thread.run_sync(question, cast(Client, None))


class Audit(list[str]):
    def __call__(self, text: str) -> None:
        self.append(text)


class Session:
    """A session that ends with ``scope``."""

    scope: trio.CancelScope

    @contextmanager
    def while_alive(self) -> Iterator[trio.CancelScope]:
        with trio.CancelScope() as self.scope:
            yield self.scope


def replay(
    steps: Steps,
    audit: Audit,
    session: Session | None = None,
    *,
    ends_unwatched: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> ReplayCopy:
    return ReplayCopy(
        steps,
        "from",
        "to",
        CopyContext(ask, audit, str, clock),
        while_alive=(session or Session()).while_alive,
        ends_unwatched=ends_unwatched,
    )


async def settled(copy: ReplayCopy) -> None:
    while copy.state is State.RUNNING:
        await trio.sleep(0.001)


async def test_steps_follow_one_another_and_each_goes_on_where_the_last_ended() -> None:
    audit = Audit()
    steps = Steps(
        Outcome(3, 5, ["a"], goon={0: 5}, ends={0: 9}),
        Outcome(1, 2, error="no leader", place=PLACE, goon={0: 7}, ends={0: 9}),
        ClientError("no broker"),
        Outcome(2, 2, finished=True, goon={0: 9}, ends={0: 9}),
    )
    copy = replay(steps, audit)
    copy.go_on()
    await copy.settled.wait()
    await settled(copy)
    assert (copy.state, copy.error, copy.failure) == (State.FAILED, "no leader", None)
    copy.go_on()
    await settled(copy)
    assert (copy.state, copy.error) == (State.FAILED, "no broker")
    copy.go_on()
    copy.go_on()  # a second button is none
    await settled(copy)
    assert (copy.state, copy.stored, copy.looked_at, copy.not_stored) == (State.DONE, 6, 9, 1)
    after_failure = ({0: 7}, {0: 9}, PLACE)
    assert steps.given == [({}, {}, None), ({0: 5}, {0: 9}, None), after_failure, after_failure]
    assert audit == ["failed: no leader (4 stored, 1 not)", "failed: no broker (4 stored, 1 not)",
                     "done: 6 stored, 1 not"]  # fmt: skip


async def test_an_error_before_anything_was_done_is_known_as_such() -> None:
    error = ClientError("no such topic")
    copy = replay(Steps(error), Audit())
    copy.go_on()
    await copy.settled.wait()
    assert copy.failure is error


async def test_a_copy_is_cancelled_in_the_middle_of_a_step() -> None:
    for ends in ("button", "session"):
        audit, session = Audit(), Session()
        copy = replay(Steps(Outcome(3, 3, goon={0: 3}), held=True), audit, session)
        copy.go_on()
        await copy.settled.wait()
        if ends == "button":
            copy.cancel()
            assert copy.view()["cancelling"]
        else:
            session.scope.cancel()
        await settled(copy)
        assert (copy.state, copy.stored, copy.view()["cancelling"]) == (State.CANCELLED, 3, False)
        assert audit == ["cancelled: 3 stored, 0 not"]


async def test_it_ends_without_a_page_only_if_that_was_asked_for() -> None:
    for ends_unwatched, expected in ((True, State.CANCELLED), (False, State.DONE)):
        times = iter([0.0, 0.0, *[copies.UNWATCHED_SECONDS + 1] * 9])
        steps = Steps(Outcome(1, 1, goon={0: 1}), Outcome(1, 1, finished=True))
        copy = replay(steps, Audit(), ends_unwatched=ends_unwatched, clock=partial(next, times))
        copy.go_on()
        await settled(copy)
        assert copy.state is expected


async def test_the_console_ends_while_a_copy_goes_on() -> None:
    steps = Steps(Outcome(), held=True)
    copy = replay(steps, Audit())
    copy.go_on()
    await copy.settled.wait()
    assert len(steps.given) == 1


class Imports:
    """Imports of a clock, each added to the copies of a session."""

    def __init__(self) -> None:
        self.kept = Copies()
        self.now = 0.0

    def add(self, session: str, *steps: Outcome | Exception) -> ImportCopy | None:
        coming = Pieces(*steps)
        copy = ImportCopy(coming, "file", 1, "parquet", "to", CopyContext(ask, Audit(), str, lambda: self.now))
        return copy if self.kept.add(session, copy) else None


class Pieces:
    """Steps of an import: each is the next of these outcomes or errors."""

    def __init__(self, *outcomes: Outcome | Exception) -> None:
        self._coming = iter(outcomes)

    def step(self, client: Client, text: str, shift: int, place: CopyPosition | None) -> Outcome:
        outcome = next(self._coming)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def step_of_rows(self, client: Client, upload: Upload, begin: int, place: CopyPosition | None) -> Outcome:
        return self.step(client, "", begin, place)


async def test_so_many_are_open_and_so_many_are_told_of() -> None:
    imports = Imports()
    kept, add = imports.kept, imports.add
    made = [add("a") for _ in range(copies.MOST_OWN)]
    assert None not in made and add("a") is None and add("b") is not None, "a session has so many"
    imports.now = copies.IDLE_SECONDS
    for copy in made[1:]:
        assert copy is not None
        copy.seen()
    imports.now += 1
    assert add("a") is not None and made[0] is not None and made[0].state is State.CANCELLED, "it makes room"
    kept.end("b")
    for session in range(copies.MOST_OPEN // copies.MOST_OWN - 1):
        assert all(add(f"other {session}") for _ in range(copies.MOST_OWN))
    assert add("b") is None, "all sessions have so many"
    for each in kept.of("a"):
        each.cancel()
    last = add("a")
    assert last is not None and kept.find("a", last.id) is last and kept.find("b", last.id) is None
    for _ in range(30):
        last = add("a")
        assert last is not None
        last.cancel()
    assert len(kept.of("a")) == 22, "of those that are over the oldest are forgotten"
    kept.end("a")
    assert add("b") is not None and not kept.of("a")


async def test_the_file_of_an_import_is_dropped_when_it_is_over_or_its_session_has_ended() -> None:
    imports = Imports()
    for ends in ("done", "cancelled", "session"):
        copy = imports.add("a", ClientError("no broker"), Outcome(finished=True))
        assert copy is not None
        upload = imports.kept.begin_file("a", copy)
        assert upload is not None
        upload.add(0, b"PAR1")
        await copy.store_rows(upload)
        assert (copy.state, copy.view()["kept"], upload.is_closed) == (State.FAILED, 4, False), "it goes on with it"
        copy.go_on()
        if ends == "done":
            await copy.store_rows(upload)
        elif ends == "session":
            imports.kept.end("a")
        else:
            copy.cancel()
        assert copy.is_over and upload.is_closed and copy.view()["kept"] == 0
        with pytest.raises(NoUpload), upload.use():
            pass


def test_a_file_that_is_used_is_closed_after_that() -> None:
    upload = Upload()
    with upload.use() as file:
        upload.close()
        file.write(b"more")
    assert file.closed


def test_a_file_makes_room_with_its_copy() -> None:
    imports = Imports()

    def begin(session: str) -> ImportCopy | None:
        copy = imports.add(session)
        assert copy is not None
        return copy if imports.kept.begin_file(session, copy) else None

    first = begin("a")
    assert first is not None and begin("a") is not None and begin("a") is None, "a session has so many"
    imports.now = copies.IDLE_SECONDS + 1
    assert begin("a") is not None and first.state is State.CANCELLED and first.upload is None
    for _ in range(copies.MOST_FILES - copies.MOST_OWN_FILES):
        assert begin("b") is not None
    assert begin("c") is not None, "the other one of the session a makes room"
    assert begin("d") is None, "all sessions have so many"


async def test_it_is_told_what_may_be_stored_twice() -> None:
    copy = Imports().add(
        "a", ClientError("refused"), Outcome(1, error="lost", place=PLACE, may_double=3), Defect("it failed")
    )
    assert copy is not None
    for expected in (0, 3, None):
        await copy.store("", 0)
        assert (copy.state, copy.view()["may_double"]) == (State.FAILED, expected)
        copy.go_on()
