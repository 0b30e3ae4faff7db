"""Merged batches of delivery states, compared with a map of offsets that is told the same."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kbroker.cores.share_coordinator.batches import merge
from kbroker.cores.share_state import StateBatch


@st.composite
def batches(draw: st.DrawFn) -> StateBatch:
    first = draw(st.integers(0, 40))
    return StateBatch(
        first, first + draw(st.integers(0, 12)), draw(st.sampled_from((0, 2, 3, 4))), draw(st.integers(0, 3))
    )


def by_offset(merged: tuple[StateBatch, ...] | list[StateBatch], start_offset: int) -> dict[int, tuple[int, int]]:
    """Delivery count and state of each offset; the greater pair holds where there are several."""
    states: dict[int, tuple[int, int]] = {}
    for first, last, state, count in merged:
        for offset in range(max(first, start_offset), last + 1):
            states[offset] = max(states.get(offset, (-1, -1)), (count, state))
    return states


@given(st.lists(batches(), max_size=15), st.integers(-1, 50))
def test_each_offset_keeps_its_greatest_state(given_batches: list[StateBatch], start_offset: int) -> None:
    merged = merge(given_batches, start_offset)
    assert by_offset(merged, start_offset) == by_offset(given_batches, start_offset)


@given(st.lists(batches(), max_size=15), st.integers(-1, 50))
def test_batches_are_in_order_and_as_few_as_can_be(given_batches: list[StateBatch], start_offset: int) -> None:
    merged = merge(given_batches, start_offset)
    for before, after in pairwise(merged):
        assert before.last_offset < after.first_offset
        assert before.last_offset + 1 < after.first_offset or before[2:] != after[2:]
    assert all(start_offset <= batch.first_offset <= batch.last_offset for batch in merged)


@given(st.lists(batches(), max_size=8), st.lists(batches(), max_size=8))
def test_the_order_of_changes_makes_no_difference(some: list[StateBatch], others: list[StateBatch]) -> None:
    assert merge((*merge(some), *others)) == merge((*merge(others), *some)) == merge((*some, *others))


def test_a_thousand_overlapping_batches_are_merged_in_little_time() -> None:
    many = [StateBatch(index, index + 5000, 0, index % 7) for index in range(5000)]
    merged = merge(many)
    assert (merged[0].first_offset, merged[-1].last_offset) == (0, 9999)
    assert max(batch.delivery_count for batch in merged) == 6
