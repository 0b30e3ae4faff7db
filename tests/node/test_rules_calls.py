"""Calls of a rule that fail, hang, or end everything if they may."""

from __future__ import annotations

import itertools
import logging
import math
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import trio
import trio.testing

from kbroker.errors import FatalError
from kbroker.node.rules import assignors, policies
from kbroker.node.rules import timed_calls as waited
from kbroker.node.rules.connection_calls import AwaitedCalls, NoAnswer
from kbroker.node.rules.selector import SelectorRule
from kbroker.node.rules.timed_calls import MAX_STUCK, PAUSE_SECONDS, Busy, CallTimedOut, Raised, WaitedCalls, timeout_of
from tests.patience import LONG, SHORT


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Calls that hang do so until it opens."""
    event = threading.Event()
    yield event
    event.set()


def test_an_answer_comes_from_one_thread_that_is_not_the_loops() -> None:
    calls = WaitedCalls(Clock(), LONG, start=LONG)
    threads = {calls.call(lambda _: threading.get_ident(), None) for _ in range(5)}
    assert len(threads) == 1 and threading.get_ident() not in threads
    calls.close()


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(3), KeyboardInterrupt(), StopIteration()])
def test_whatever_is_raised_is_the_callers_to_know(error: BaseException) -> None:
    def fail(_: object) -> None:
        raise error

    calls = WaitedCalls(Clock(), LONG, start=LONG)
    for _ in range(2):
        with pytest.raises(Raised) as caught:
            calls.call(fail, None)
        assert caught.value.error is error
    assert calls.call(lambda x: x, 1) == 1
    calls.close()


def test_one_that_hangs_is_left_and_nothing_is_asked_for_a_while(gate: threading.Event) -> None:
    clock = Clock()
    calls = WaitedCalls(clock, timeout=0.01)
    with pytest.raises(CallTimedOut):
        calls.call(lambda _: gate.wait(), None)
    with pytest.raises(Busy):
        calls.call(lambda x: x, 1)
    clock.seconds += PAUSE_SECONDS
    calls.timeout = LONG
    assert calls.call(lambda x: x, 2) == 2
    calls.close()


def test_a_rule_that_says_nothing_of_it_has_little_time(gate: threading.Event) -> None:
    """The times of docs/plugins.md: 0.1 s, and 0.5 s for assignors and policies."""
    given: list[tuple[float, float]] = []

    def calls(timeout: float, grace: float, own: float | None) -> WaitedCalls:
        given.append((timeout, grace))
        assert own is None
        return WaitedCalls(Clock(), timeout, grace)

    def rule(_: object) -> None: ...

    SelectorRule(rule, "python:m:rule", Clock(), calls)
    assignors._Asked(rule, "python:m:rule", calls)
    policies._Asked(rule, "python:m:rule", calls)
    assert given == [(0.1, 1.0), (0.5, 0.25), (0.5, math.inf)]
    others = WaitedCalls(Clock())
    assert (others.timeout, others._grace) == (0.1, 1.0)
    begin = time.monotonic()
    with pytest.raises(CallTimedOut):
        others.call(lambda _: gate.wait(), None)
    assert 0.1 <= time.monotonic() - begin < 4


def test_few_threads_hang_and_each_is_used_again_once_it_is_free(gate: threading.Event) -> None:
    clock = Clock()
    calls = WaitedCalls(clock, timeout=0.01)
    others = set(threading.enumerate())
    for _ in range(MAX_STUCK):
        with pytest.raises(CallTimedOut):
            calls.call(lambda _: gate.wait(), None)
        clock.seconds += PAUSE_SECONDS
    stuck = set(threading.enumerate()) - others
    assert len(stuck) == MAX_STUCK
    with pytest.raises(Busy):
        calls.call(lambda x: x, 1)
    gate.set()
    for thread in stuck:
        thread.join(SHORT)
    calls.timeout = LONG
    assert calls.call(lambda x: x, 1) == 1
    calls.close()


def test_a_slow_rule_has_a_tenth_of_the_time_though_it_is_never_late() -> None:
    clock = Clock()
    calls = WaitedCalls(clock, LONG, 0.25, LONG)
    times: list[float] = []

    def slow(_: object) -> None:
        times.append(clock.seconds)
        clock.seconds += 0.4

    while clock.seconds < 100:
        try:
            calls.call(slow, None)
        except Busy:
            clock.seconds += 0.1
    assert 23 <= len(times) <= 26, "a tenth, and a little at the beginning"
    assert min(after - before for before, after in itertools.pairwise(times)) > 1.5
    assert calls.taken == pytest.approx(0.4 * len(times))
    calls.close()


def test_a_call_whose_thread_gets_no_turn_is_not_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a busy machine, where nothing is known of the rule by then."""
    whole, turn = threading.Thread.run, threading.Event()

    def late(thread: threading.Thread) -> None:
        assert turn.wait(SHORT)
        whole(thread)

    monkeypatch.setattr(threading.Thread, "run", late)
    calls = WaitedCalls(Clock(), timeout=1, start=LONG)
    thread = threading.Timer(1.5, turn.set)
    thread.start()
    assert calls.call(lambda question: f"{question} is answered", "a question") == "a question is answered"
    thread.join()
    calls.close()


def test_a_rule_does_not_pay_for_the_time_in_which_its_thread_had_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, whole = Clock(), threading.Thread.run

    def late(thread: threading.Thread) -> None:
        clock.seconds += 2
        whole(thread)

    monkeypatch.setattr(waited, "monotonic", clock)
    monkeypatch.setattr(threading.Thread, "run", late)
    calls = WaitedCalls(clock, LONG, 1, LONG)
    assert [calls.call(lambda x: x, 1), calls.call(lambda x: x, 2)] == [1, 2]
    assert calls.taken == 2, "the node has waited all the same"
    calls.close()


@pytest.mark.parametrize(
    ("timeout", "begins", "until"),
    [(0.1, 0, 0.1), (0.1, 0.099, 0.199), (0.5, 0.9, 1.4), (5, 0.7, 5.7), (0.1, None, 1), (5, None, 1)],
)
def test_the_time_out_runs_from_the_beginning_which_is_waited_for_a_second_at_most(
    timeout: float, begins: float | None, until: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node waits until then for a call that begins at some time, or never, and does not end."""
    clock = Clock()

    class NeverFree:
        def acquire(self, timeout: float) -> bool:
            clock.seconds += timeout
            if begins is not None and clock.seconds >= begins:
                job.began_at = begins
            return False

    monkeypatch.setattr(waited, "monotonic", clock)
    job: Any = waited.Job(print, None)
    job.done = NeverFree()
    calls = WaitedCalls(clock, timeout)
    assert not calls.is_done_in_time(job)
    assert clock.seconds == pytest.approx(until, abs=0.02)


def test_a_fast_rule_is_always_asked() -> None:
    clock = Clock()
    calls = WaitedCalls(clock, LONG, 0.25, LONG)

    def fast(_: object) -> None:
        clock.seconds += 0.001

    for _ in range(200):
        calls.call(fast, None)
    calls.close()


@pytest.mark.parametrize("seconds", [0, -1, 5.1, float("inf"), float("nan")])
def test_a_rule_cannot_have_the_node_wait_for_long(seconds: float) -> None:
    def rule(_: object) -> None: ...

    assert timeout_of(rule, "python:m:rule") is None
    rule.timeout_seconds = seconds  # type: ignore[attr-defined]
    with pytest.raises(FatalError, match=r"^python:m:rule: timeout_seconds=.*: more than 0, and 5 at most$"):
        timeout_of(rule, "python:m:rule")


# --- Those that a connection waits for ------------------------------------------------------------------------------


def awaited(rule: Any) -> AwaitedCalls:
    return AwaitedCalls(rule, "check", "python:m:f", "nobody is let in")


def outcome(rule: Any, *, autojump: bool = False) -> Any:
    async def main() -> Any:
        try:
            return await awaited(rule).call("question")
        except NoAnswer:
            return NoAnswer

    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0) if autojump else None)


async def waits(question: str) -> str:
    await trio.sleep(1)
    return question


class Checks:
    async def check(self, question: str) -> str:
        return f"{question} of a method"


class Called:
    async def __call__(self, question: str) -> str:
        return f"{question} of a call"


@pytest.mark.parametrize(
    ("rule", "answer"),
    [(lambda question: question, "question"), (Checks(), "question of a method"), (Called(), "question of a call")],
)
def test_functions_and_methods_of_both_kinds_answer(rule: Any, answer: str) -> None:
    assert outcome(rule) == answer


def test_an_async_function_may_wait() -> None:
    assert outcome(waits, autojump=True) == "question"


def fails(_: object) -> None:
    raise ValueError("geheim")


def exits(_: object) -> None:
    sys.exit(3)


async def fails_too(_: object) -> None:
    raise ValueError("geheim")


async def exits_too(_: object) -> None:
    sys.exit(3)


async def in_a_group(_: object) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fails_too, None)


@pytest.mark.parametrize("rule", [fails, exits, fails_too, exits_too, in_a_group])
def test_one_that_fails_has_not_answered_and_its_text_is_not_logged(
    rule: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert outcome(rule) is NoAnswer
    (line,) = caplog.messages
    assert line.startswith("python:m:f fails, and nobody is let in: ") and "test_rules_calls.py, line" in line
    assert "geheim" not in line and caplog.records[0].exc_info is None


def test_one_that_takes_too_long_is_left(caplog: pytest.LogCaptureFixture, gate: threading.Event) -> None:
    async def for_ever(_: object) -> None:
        await trio.sleep_forever()

    assert outcome(for_ever, autojump=True) is NoAnswer
    assert outcome(lambda _: gate.wait(), autojump=True) is NoAnswer
    assert caplog.messages == 2 * ["python:m:f has not answered within 5 s, and nobody is let in"]


def test_threads_that_hang_are_few(gate: threading.Event, caplog: pytest.LogCaptureFixture) -> None:
    begun = []

    def hang(_: object) -> None:
        begun.append(1)
        gate.wait()

    hang.threads = 2  # type: ignore[attr-defined]

    async def main() -> None:
        calls = awaited(hang)
        refused = 0
        for _ in range(5):
            with pytest.raises(NoAnswer):
                await calls.call(None)
            refused += 1
        assert refused == 5 and len(begun) <= 2 and calls._limiter.borrowed_tokens == 2

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert len(caplog.messages) == 1  # of each kind one a minute


def test_an_async_function_that_blocks_is_told_of(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([0.0, 0.5])
    monkeypatch.setattr("kbroker.node.rules.connection_calls.perf_counter", lambda: next(times))
    assert outcome(Called()) == "question of a call"
    assert caplog.messages == ["python:m:f has kept the node waiting for 0.50 s: an async def must not block"]
    assert caplog.records[0].levelno == logging.WARNING
