"""Alarms and deadlines, on Trio's mock clock."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from kbroker.runtime.timing import Alarm, Deadline, Deadlines


def run(main: object) -> None:
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))  # type: ignore[arg-type]


def test_an_alarm_wakes_at_its_time_or_when_it_is_rung() -> None:
    async def main() -> None:
        alarm, woken = Alarm(), []
        begun = trio.current_time()

        async def sleep() -> None:
            for deadline in (5, 4, 20, inf):
                await alarm.sleep_until(begun + deadline)
                woken.append(trio.current_time() - begun)

        alarm.ring()  # nobody sleeps
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sleep)
            await trio.sleep(10)
            alarm.ring()
            alarm.ring()
            await trio.sleep(3)
            alarm.ring()
        assert woken == [5, 5, 10, 13]

    run(main)


@pytest.mark.parametrize("deadline", [3.0, inf])
def test_a_sleeper_can_be_cancelled(deadline: float) -> None:
    async def main() -> None:
        alarm = Alarm()
        begun = trio.current_time()
        with trio.move_on_after(2) as scope:
            while True:
                await alarm.sleep_until(begun + deadline)
        assert scope.cancelled_caught
        assert trio.current_time() - begun == 2
        alarm.ring()  # reaches nobody
        with trio.move_on_after(1) as scope:
            scope.deadline = begun + 3  # that of the sleep itself
            while True:
                await alarm.sleep_until(begun + 3)
        assert scope.cancelled_caught

    run(main)


@given(
    st.lists(
        st.one_of(st.tuples(st.just("add"), st.integers(0, 50)), st.tuples(st.just("discard"), st.integers(0, 80))),
        max_size=80,
    ),
    st.integers(0, 4),
)
def test_what_is_due_is_called_in_order_and_once(steps: list[tuple[str, int]], least_stale: int) -> None:
    class Few(Deadlines):
        LEAST_STALE = least_stale

    deadlines = Few()
    made: list[Any] = []
    called: list[Any] = []
    expected: dict[int, int] = {}
    for step, value in steps:
        if step == "add":
            number = len(made)
            expected[number] = value
            made.append(deadlines.add(value, lambda number=number: called.append(number)))  # type: ignore[misc]
        elif value < len(made):
            deadlines.discard(made[value])
            expected.pop(value, None)
        assert len(deadlines) == len(expected)
        assert deadlines.next() == min(expected.values(), default=inf)
    deadlines.expire(25)
    assert called == sorted((n for n in expected if expected[n] <= 25), key=lambda n: expected[n])
    for entry in made:
        deadlines.discard(entry)
    deadlines.expire(1000)
    assert not deadlines
    assert len(called) == sum(value <= 25 for value in expected.values())


def test_those_called_off_are_not_kept() -> None:
    deadlines = Deadlines()
    kept = deadlines.add(1e9, lambda: None)
    for when in range(5000):
        deadlines.discard(deadlines.add(when + 2e9, lambda: None))
        assert len(deadlines._heap) <= 2 * Deadlines.LEAST_STALE
    assert len(deadlines) == 1
    assert isinstance(kept, Deadline)


def test_a_callback_may_add_another() -> None:
    deadlines, called = Deadlines(), []

    def again() -> None:
        called.append(1)
        if len(called) < 3:
            deadlines.add(0, again)

    deadlines.add(0, again)
    deadlines.expire(0)
    assert len(called) == 3
