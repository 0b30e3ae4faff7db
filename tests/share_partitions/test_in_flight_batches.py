"""Records that were handed out together: what of them goes out again, and a word for records that nobody has.

As Apache Kafka 4.4.0 does, by raw requests to both.
"""

from __future__ import annotations

import pytest

from kbroker.errors import ApiError, ErrorCode
from tests.share_partitions.share_fixture import ACCEPT, RELEASE, Fixture


@pytest.mark.parametrize(
    ("exact", "taken"), [(False, [(1, 1), (3, 4), (8, 9)]), (True, [(1, 1)])], ids=["batch_optimized", "record_limit"]
)
def test_what_came_back_of_records_that_went_out_together_goes_out_together(
    exact: bool, taken: list[tuple[int, int]]
) -> None:
    """In ``batch_optimized`` mode, however few records are asked for; and nothing of those of another time."""
    world = Fixture()
    world.fetch("a", 10)
    world.fetch("a", 10)
    for first, last in ((1, 1), (3, 4), (8, 9), (10, 19)):
        world.done("a", first, last, RELEASE)
    assert [(first, last) for first, last, _ in world.fetch("b", 1, exact=exact)] == taken


def test_ranges_of_one_length_go_out_again_one_by_one() -> None:
    world = Fixture()
    world.fetch("a", 20, batch_size=10)
    world.done("a", 0, 19, RELEASE)
    assert world.fetch("b", 5) == [(0, 9, 2)]


def test_a_word_for_what_nobody_has_ever_had_is_refused_by_what_is_in_delivery() -> None:
    world = Fixture()

    def refusal(first: int, last: int) -> ErrorCode:
        with pytest.raises(ApiError) as refused:
            world.acknowledge("a", first, last, ACCEPT)
        return refused.value.code

    assert refusal(0, 0) == ErrorCode.INVALID_RECORD_STATE, "nothing is in delivery"
    world.fetch("a", 10)
    assert refusal(5, 10) == refusal(10, 12) == ErrorCode.INVALID_REQUEST
    world.done("a", 0, 9, ACCEPT)
    assert world.acknowledge("a", 3, 9, ACCEPT) is None, "all of it is done with"
    assert refusal(10, 10) == refusal(20, 30) == refusal(5, 12) == ErrorCode.INVALID_RECORD_STATE
