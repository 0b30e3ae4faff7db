"""Rates from one look to the next."""

from __future__ import annotations

import pytest

from kbroker.console.rates import Meter


def test_a_rate_is_the_growth_between_two_looks() -> None:
    meter: Meter[str] = Meter()
    meter.take(10, {"a": 100, "b": 5})
    assert meter.rates == {}
    meter.take(12, {"a": 300, "b": 5, "c": 9})
    assert meter.rates == {"a": 100, "b": 0}
    meter.take(14, {"c": 10})
    assert meter.rates == {"c": 0.5}, "what is gone is forgotten"


@pytest.mark.parametrize(("at", "value"), [(12.1, 999), (14, 50)])
def test_what_tells_nothing_leaves_the_rate_as_it_was(at: float, value: int) -> None:
    """Looks that are too close, and a log that has shrunk."""
    meter: Meter[str] = Meter()
    meter.take(10, {"a": 100})
    meter.take(12, {"a": 300})
    meter.take(at, {"a": value})
    assert meter.rates == {"a": 100}


def test_looks_that_are_far_apart_tell_nothing() -> None:
    meter: Meter[str] = Meter()
    meter.take(10, {"a": 100})
    meter.take(100, {"a": 300})
    assert meter.rates == {}
    meter.take(102, {"a": 302})
    assert meter.rates == {"a": 1}


def test_close_looks_do_not_lose_what_was_written_between() -> None:
    meter: Meter[str] = Meter()
    meter.take(10, {"a": 0})
    for at in range(1, 11):
        meter.take(10 + at / 10, {"a": at * 10})
    assert meter.rates == {"a": pytest.approx(100)}
