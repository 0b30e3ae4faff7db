"""Times of the event loop's turns: slow ones are all seen, of short ones a sample."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kbroker.node.metrics import event_loop
from kbroker.node.metrics.event_loop import PAUSE_NS, SAMPLE, SLOW_NS, EventLoopTimes, IdleShare


class Clock:
    """Nanoseconds that pass when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0
        monkeypatch.setattr(event_loop, "perf_counter_ns", lambda: self.now)

    def turn(self, times: EventLoopTimes, took: int, slept: int) -> None:
        self.now += took
        times.before_io_wait(0)
        self.now += slept
        times.after_io_wait(0)


def test_short_turns_and_slow_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    sampled: list[int] = []
    times = EventLoopTimes(lambda: sampled.append(clock.now))
    for number in range(20 * SAMPLE):
        slow = number % 20 == 7
        clock.turn(times, 5 * SLOW_NS if slow else 1000, PAUSE_NS)
    assert times.count == 20 * SAMPLE and len(sampled) == 20
    median, most = times.turns.quantiles([0.5, 0.97])
    assert 1000 <= median < 1200
    assert 5 * SLOW_NS <= most < 6 * SLOW_NS, "one turn in twenty is slow: none is missed"


def test_however_many_turns_there_are_what_is_sampled_costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    sampled: list[int] = []
    times = EventLoopTimes(lambda: sampled.append(clock.now))
    while clock.now < 20 * PAUSE_NS:
        clock.turn(times, 1000, 0)
    assert 18 <= len(sampled) <= 20
    assert min(after - before for before, after in pairwise(sampled)) >= PAUSE_NS


def test_the_share_of_sleep_is_of_the_time_since_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    times = EventLoopTimes()
    share, other = IdleShare(times), IdleShare(times)
    clock.turn(times, 100, 300)
    assert share.take() == 0.75
    clock.turn(times, 300, 100)
    assert share.take() == 0.25
    assert other.take() == 0.5, "each reader has its own times"
    assert times.idle == 400
