"""The view of what is in flight of a share partition: who holds which records, for how long, how often delivered."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kbroker.cores.share_partitions.in_flight_view import InFlight, InFlightView, in_flight, view
from kbroker.cores.share_partitions.runs import Run
from kbroker.cores.share_state import DeliveryState, SharePartitionState, StateBatch
from kbroker.errors import ErrorCode
from tests.share_partitions.share_fixture import ACCEPT, LOADED, REJECT, RELEASE, RENEW, Fixture

S = DeliveryState


def seen(fixture: Fixture, most: int = 100) -> InFlightView:
    return view(fixture.partition, most, fixture.now_ms)


def test_two_members_hold_different_records_and_one_was_released() -> None:
    fixture = Fixture()
    fixture.fetch("a", 10, exact=True)
    fixture.now_ms += 5000
    fixture.fetch("b", 10, exact=True)
    fixture.done("a", 2, 2, RELEASE)
    assert seen(fixture) == InFlightView(
        0,
        [
            InFlight(0, 1, S.ACQUIRED, 1, "a", 25_000),
            InFlight(2, 2, S.AVAILABLE, 1, None, None),
            InFlight(3, 9, S.ACQUIRED, 1, "a", 25_000),
            InFlight(10, 19, S.ACQUIRED, 1, "b", 30_000),
        ],
        0,
    )
    assert fixture.fetch("b", 1, exact=True) == [(2, 2, 2)]
    fixture.done("a", 3, 9, ACCEPT)
    assert [each[:5] for each in seen(fixture).ranges] == [
        (0, 1, S.ACQUIRED, 1, "a"),
        (2, 2, S.ACQUIRED, 2, "b"),
        (10, 19, S.ACQUIRED, 1, "b"),
    ]


def test_what_is_done_with_or_was_never_handed_out_is_not_in_flight() -> None:
    fixture = Fixture()
    assert seen(fixture) == InFlightView(0, [], 0)
    acquired = fixture.fetch("a", 10, exact=True)
    fixture.partition.give_back("a", acquired)
    assert seen(fixture).ranges == []
    fixture.fetch("a", 10, exact=True)
    fixture.done("a", 0, 4, ACCEPT)
    fixture.done("a", 6, 9, ACCEPT)
    assert seen(fixture) == InFlightView(5, [InFlight(5, 5, S.ACQUIRED, 1, "a", 30_000)], 0)


def test_a_word_that_is_being_kept_leaves_the_record_with_its_holder() -> None:
    fixture = Fixture()
    fixture.fetch("a", 10, exact=True)
    write = fixture.acknowledge("a", 0, 9, ACCEPT)
    assert write is not None
    assert seen(fixture).ranges == [InFlight(0, 9, S.ACQUIRED, 1, "a", 30_000)]
    fixture.now_ms += 40_000
    assert [each.lock_ms_left for each in seen(fixture).ranges] == [0]
    fixture.partition.finish(write, ErrorCode.COORDINATOR_NOT_AVAILABLE, fixture.now_ms)
    assert seen(fixture).ranges == [InFlight(0, 9, S.AVAILABLE, 1, None, None)]


def test_a_renewed_lock_and_a_dead_letter() -> None:
    fixture = Fixture(has_dead_letter_queue=True)
    fixture.fetch("a", 10, exact=True)
    fixture.now_ms += 20_000
    fixture.acknowledge("a", 0, 0, RENEW)
    fixture.done("a", 5, 5, REJECT)
    assert seen(fixture).ranges == [
        InFlight(0, 0, S.ACQUIRED, 1, "a", 30_000),
        InFlight(1, 4, S.ACQUIRED, 1, "a", 10_000),
        InFlight(5, 5, S.ARCHIVING, 1, None, None),
        InFlight(6, 9, S.ACQUIRED, 1, "a", 10_000),
    ]


def test_a_new_leader_knows_how_often_the_old_one_delivered() -> None:
    batches = (StateBatch(2, 4, S.AVAILABLE, 3), StateBatch(5, 5, S.ACKNOWLEDGED, 1))
    loaded: SharePartitionState = LOADED._replace(start_offset=2, batches=batches)
    assert seen(Fixture(loaded)) == InFlightView(2, [InFlight(2, 4, S.AVAILABLE, 3, None, None)], 0)


def test_ranges_beyond_the_bound_are_counted() -> None:
    fixture = Fixture()
    fixture.fetch("a", 20, exact=True)
    for offset in range(1, 20, 2):
        fixture.done("a", offset, offset, ACCEPT)
    assert len(seen(fixture).ranges) == 10
    few = seen(fixture, 3)
    assert ([each.first_offset for each in few.ranges], few.left_out) == ([0, 2, 4], 7)
    assert seen(fixture, 0)[1:] == ([], 10)


RUNS = st.lists(
    st.tuples(
        st.integers(0, 2),  # offsets between it and the one before
        st.integers(1, 3),
        st.sampled_from(DeliveryState),
        st.integers(0, 2),
        st.sampled_from("ab"),
        st.sampled_from([900, 1000, 5000]),
        st.sampled_from([None, S.ACKNOWLEDGED, S.AVAILABLE]),
        st.integers(1, 2),
    ),
    max_size=12,
)


@given(RUNS)
def test_each_offset_is_told_as_its_run_has_it(drawn: list[tuple[int, int, S, int, str, int, S | None, int]]) -> None:
    runs, position = [], 0
    for gap, length, state, count, member, until, following, size in drawn:
        held = state is S.ACQUIRED
        first = position + gap
        runs.append(
            Run(
                first,
                first + length - 1,
                state,
                count,
                member if held else "",
                until if held else None,
                origin=(first, first + size - 1),
                next_state=following if held else None,
            )
        )
        position = first + length
    found = list(in_flight(runs, 1000))
    told = {offset: each[2:] for each in found for offset in range(each.first_offset, each.last_offset + 1)}
    expected = {
        offset: (run.state, run.delivery_count, run.member_id, max(0, run.locked_until_ms - 1000))
        if run.locked_until_ms is not None
        else (run.state, run.delivery_count, None, None)
        for run in runs
        for offset in range(run.first, run.last + 1)
        if run.state in (S.ACQUIRED, S.ARCHIVING) or (run.state is S.AVAILABLE and run.delivery_count)
    }
    assert told == expected
    for before, after in pairwise(found):
        assert before.last_offset < after.first_offset
        assert before.last_offset + 1 < after.first_offset or before[2:] != after[2:], "one range, and not two"
