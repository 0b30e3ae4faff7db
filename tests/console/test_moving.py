"""The plan by which partitions move."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.client.reassignments import CannotPlan, parse_numbers, plan_moves

BROKERS: dict[int, str | None] = dict.fromkeys((1, 2, 3))


def test_nothing_moves_that_is_well() -> None:
    before = {0: (1, 2), 1: (2, 3), 2: (3, 1)}
    assert plan_moves(before, BROKERS, 2) == before


def test_a_broker_is_emptied_and_the_others_keep_what_they_have() -> None:
    before = {0: (1, 2), 1: (2, 3), 2: (3, 1)}
    after = plan_moves(before, {2: None, 3: None}, 2)
    assert {partition: set(replicas) for partition, replicas in after.items()} == {key: {2, 3} for key in before}
    assert sorted(Counter(replicas[0] for replicas in after.values()).values()) == [1, 2]


def test_a_new_broker_gets_its_share() -> None:
    before = dict.fromkeys(range(6), (1,))
    after = plan_moves(before, BROKERS, 1)
    assert Counter(replicas[0] for replicas in after.values()) == {1: 2, 2: 2, 3: 2}
    assert sum(after[partition] != before[partition] for partition in before) == 4


def test_another_rack_is_preferred() -> None:
    after = plan_moves({0: (1,)}, {1: "a", 2: "a", 3: "b"}, 2)
    assert after == {0: (1, 3)}


def test_fewer_and_more_replicas() -> None:
    assert plan_moves({0: (1, 2, 3)}, BROKERS, 1) == {0: (1,)}
    assert set(plan_moves({0: (2,)}, BROKERS, 3)[0]) == {1, 2, 3}


@pytest.mark.parametrize(("factor", "told"), [(4, "4 replicas need as many brokers"), (0, "at least one replica")])
def test_what_cannot_be_planned_is_told(factor: int, told: str) -> None:
    with pytest.raises(CannotPlan, match=told):
        plan_moves({0: (1,)}, BROKERS, factor)


def test_numbers_and_ranges() -> None:
    assert parse_numbers("5-7, 0,2,2", "partitions") == [0, 2, 5, 6, 7]
    for text in ("", "x", "1-", "3-1", "1,,2", "1-99999999", "-1"):
        with pytest.raises(CannotPlan):
            parse_numbers(text, "partitions")


@given(
    st.dictionaries(st.integers(0, 40), st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True), max_size=30),
    st.dictionaries(st.integers(1, 9), st.sampled_from(["a", "b", None]), min_size=1, max_size=7),
    st.data(),
)
def test_each_plan_is_one(before: dict[int, list[int]], racks: dict[int, str | None], data: st.DataObject) -> None:
    factor = data.draw(st.integers(1, len(racks)))
    after = plan_moves(before, racks, factor)
    assert after.keys() == before.keys()
    for replicas in after.values():
        assert len(replicas) == len(set(replicas)) == factor and set(replicas) <= racks.keys()
    leaders = Counter(replicas[0] for replicas in after.values())
    assert not before or factor < len(racks) or max(leaders.values()) <= -(-len(before) // len(racks)) + 1


def test_numbers_are_bounded() -> None:
    assert parse_numbers("0,2,5-7, 6-9", "partitions") == [0, 2, 5, 6, 7, 8, 9]
    with pytest.raises(CannotPlan, match="more than 100,000"):
        parse_numbers("0-90000,100000-190000", "partitions")
    with pytest.raises(CannotPlan, match="is no range"):
        parse_numbers("0-200000", "partitions")
