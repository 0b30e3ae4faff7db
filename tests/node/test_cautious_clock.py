"""Jumps of the wall clock: an hour, a day, to and fro; none of them deletes early."""

from __future__ import annotations

import random

from kbroker.node.replicas.cautious_clock import CautiousClock

HOUR = 3600.0
START = 1_700_000_000_000


class Clocks:
    """True time, and how wrong the wall clock is."""

    def __init__(self) -> None:
        self.seconds = 5.0
        self.wrong = 0.0

    def now(self) -> float:
        return self.seconds

    def wall_clock_ms(self) -> int:
        return START + int((self.seconds + self.wrong) * 1000)

    def true_ms(self) -> int:
        return START + int(self.seconds * 1000)


def test_it_is_the_wall_clock_while_that_behaves() -> None:
    clocks = Clocks()
    clock = CautiousClock(clocks)
    for _ in range(100):
        clocks.seconds += 300
        assert clock.now_ms() == clocks.wall_clock_ms()


def test_a_jump_that_is_taken_back_did_nothing() -> None:
    for jump in (HOUR, 24 * HOUR):
        clocks = Clocks()
        clock = CautiousClock(clocks)
        clocks.wrong = jump
        for _ in range(5):
            clocks.seconds += 60
            assert clock.now_ms() <= clocks.true_ms() + 300_000
        clocks.wrong = 0
        clocks.seconds += 60
        assert clock.now_ms() == clocks.true_ms()


def test_a_correction_is_followed_in_time() -> None:
    clocks = Clocks()
    clocks.wrong = -24 * HOUR
    clock = CautiousClock(clocks)
    clocks.wrong = 0
    for _ in range(24 * 60 + 1):
        clocks.seconds += 60
        clock.now_ms()
    assert clock.now_ms() == clocks.wall_clock_ms()


def test_back_at_once() -> None:
    clocks = Clocks()
    clock = CautiousClock(clocks)
    clocks.wrong = -HOUR
    assert clock.now_ms() == clocks.wall_clock_ms()


def test_a_clock_that_leaps_to_and_fro() -> None:
    rng = random.Random(1)
    clocks = Clocks()
    clock = CautiousClock(clocks)
    for _ in range(1000):
        clocks.seconds += 1
        clocks.wrong = rng.choice((-24 * HOUR, -HOUR, -0.2, 0, 0.2, HOUR, 24 * HOUR))
        assert clock.now_ms() <= clocks.true_ms() + 2000
