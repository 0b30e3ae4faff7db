"""Rates from one look to the next."""

from __future__ import annotations

import pytest

from kbroker.base.rates import Meter, Sample, rates_after, rates_of_counters


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


def test_what_a_look_did_not_tell_stays() -> None:
    samples, rates = rates_after({"a": Sample(1, 10), "b": Sample(1, 10)}, {"b": 7.0}, {"a": 30}, 3)
    assert samples == {"a": Sample(3, 30), "b": Sample(1, 10)}
    assert rates == {"a": 10, "b": 7}


def test_two_looks_at_the_same_time_tell_no_rate() -> None:
    assert rates_after({"a": Sample(1, 10)}, {"a": 2.0}, {"a": 11}, 1) == ({"a": Sample(1, 11)}, {"a": 2.0})


def test_a_counter_that_begins_anew_has_counted_from_0() -> None:
    assert rates_of_counters({"a": 10, "b": 100}, {"a": 30, "b": 8, "c": 4}, 2) == {"a": 10, "b": 4, "c": 2}
