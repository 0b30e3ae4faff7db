"""Slices that are compared with their neighbours: the order of the turns, and what is made of them."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.pairs import Round, Slice, Turn, compared, turns


def slice_of(cost: float, rate: float) -> Slice:
    """Two seconds of requests that take ``cost`` microseconds of a processor each."""
    return Slice(2 * rate, 2.0, 2 * rate * cost / 1e6)


def test_the_slice_without_is_between_the_others_and_each_of_them_is_first_as_often() -> None:
    orders = list(turns(20))
    assert all(order[1] is Turn.WITHOUT and set(order) == set(Turn) for order in orders)
    assert Counter(order[0] for order in orders) == {Turn.WITH: 10, Turn.CONTROL: 10}


def test_figures_are_medians_and_quartiles_of_neighbours() -> None:
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


def test_costs_and_rates_are_of_a_piece_of_work_and_of_a_second() -> None:
    measured = Slice(34_000, 2.0, 1.7)
    assert measured.rate == 17_000
    assert measured.cost == pytest.approx(50e-6)
