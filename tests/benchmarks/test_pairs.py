"""Slices that are compared within their round: the order of the turns, and what is made of them."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, permutations

import pytest

from benchmarks.pairs import Round, Slice, Turn, compared, turns


def slice_of(cost: float, rate: float) -> Slice:
    """Two seconds of requests that take ``cost`` microseconds of a processor each."""
    return Slice(2 * rate, 2.0, 2 * rate * cost / 1e6)


def test_each_kind_has_each_place_as_often() -> None:
    orders = list(turns(12))
    assert Counter(orders) == dict.fromkeys(permutations(Turn), 2)


def test_slices_without_and_of_the_control_come_as_often_after_one_with() -> None:
    """The last one of a round and the first one of the next are neighbours, too."""
    slices = [turn for order in turns(7) for turn in order][: 6 * 3 + 1]
    followers = Counter(after for turn, after in pairwise(slices) if turn is Turn.WITH)
    assert followers == {Turn.WITH: 2, Turn.WITHOUT: 2, Turn.CONTROL: 2}


def test_figures_are_medians_and_quartiles_of_pairs() -> None:
    rounds: list[Round] = []
    for number, more in enumerate((0.01, 0.02, 0.03, 0.04, 0.05)):
        machine = 1 + number / 2  # slower from round to round, which no ratio shows
        rounds.append(
            {
                Turn.WITHOUT: slice_of(50 * machine, 17_000 / machine),
                Turn.WITH: slice_of(50 * machine * (1 + more), 17_000 / machine * (1 - more)),
                Turn.CONTROL: slice_of(50 * machine, 17_000 / machine),
            }
        )
    figures = compared(rounds)
    expected = {"percent": 3.0, "low_percent": 2.0, "high_percent": 4.0}
    for name in ("cpu_more", "rate_less"):
        assert {end: figures[f"{name}_{end}"] for end in expected} == pytest.approx(expected)
        assert all(figures[f"control_{name}_{end}"] == pytest.approx(0) for end in expected)
    assert figures["pairs"] == 5


def test_the_control_shows_the_spread_of_slices_that_should_be_the_same() -> None:
    rounds: list[Round] = [
        {Turn.WITHOUT: slice_of(50, 100), Turn.WITH: slice_of(50, 100), Turn.CONTROL: slice_of(50 + more, 100)}
        for more in (-5, 0, 5)
    ]
    figures = compared(rounds)
    assert figures["control_cpu_more_low_percent"] == pytest.approx(-5)
    assert figures["control_cpu_more_high_percent"] == pytest.approx(5)
    assert figures["cpu_more_low_percent"] == figures["cpu_more_high_percent"] == pytest.approx(0)


def test_a_median_may_be_off_by_what_the_wider_quartiles_tell_and_less_of_more_pairs() -> None:
    rounds: list[Round] = [
        {
            Turn.WITHOUT: slice_of(50, 100),
            Turn.WITH: slice_of(50 + more, 100),
            Turn.CONTROL: slice_of(50 - 2 * more, 100),
        }
        for more in (-1, 0, 1)
    ]
    once, four_times = compared(rounds * 3), compared(rounds * 12)
    assert once["cpu_more_high_percent"] == pytest.approx(2)
    assert once["control_cpu_more_high_percent"] == pytest.approx(4)
    assert once["cpu_more_error_percent"] == pytest.approx(1.57 * 8 / 3)
    assert four_times["cpu_more_error_percent"] == pytest.approx(1.57 * 8 / 6)
    assert once["rate_less_error_percent"] == pytest.approx(0)


def test_costs_and_rates_are_of_a_piece_of_work_and_of_a_second() -> None:
    measured = Slice(34_000, 2.0, 1.7)
    assert measured.rate == 17_000
    assert measured.cost == pytest.approx(50e-6)
