"""Turns of an event loop: at most one step of letting somebody in has each of them, and none waits for ever."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from kbroker.security.turns import Turns


def test_one_step_has_a_turn_and_the_others_follow_in_their_order() -> None:
    turns: Turns[str] = Turns()
    assert turns.take()  # turn 1
    for step in ("second", "third", "fourth"):
        assert not turns.take()
        turns.wait(step)
    turns.leave("third")
    assert turns.waiting == 2
    assert turns.next() == "second"  # turn 2
    assert not turns.take(), "who comes anew does not go first"
    turns.wait("fifth")
    assert [turns.next(), turns.next()] == ["fourth", "fifth"]  # turns 3 and 4
    assert turns.next() is None and turns.take()  # turn 5 is free


@given(st.lists(st.sampled_from(["come", "turn", "leave"]), max_size=200))
def test_no_turn_has_two_steps_and_none_is_wasted(events: list[str]) -> None:
    """Time is the number of the turn."""
    turns: Turns[int] = Turns()
    now, steps = 0, 0
    went: dict[int, int] = {}
    waiting: deque[int] = deque()
    for event in events:
        if event == "turn":
            now += 1
            step = turns.next()
            assert step == (waiting.popleft() if waiting else None)
            if step is not None:
                went[step] = now
        elif event == "come":
            steps += 1
            if turns.take():
                assert not waiting
                went[steps] = now
            else:
                turns.wait(steps)
                waiting.append(steps)
        elif waiting:
            turns.leave(waiting.pop())
        assert len(set(went.values())) == len(went), "each in a turn of its own"
        assert sorted(went) == sorted(went, key=went.__getitem__), "in the order in which they came"
        assert turns.waiting == len(waiting)
