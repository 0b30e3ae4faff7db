"""The place at which a copy has stopped: as JSON and back, and what is taken after it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.client.producer import Remainder
from kbroker.records_io.items import BadLine, Item
from kbroker.records_io.place import Course, Place, load_place, place_of, remaining, source_of
from kbroker.wire.record_batch import Record

PARTITIONS = st.integers(0, 5)
OFFSETS = st.integers(0, 2**63 - 1)
SOURCES = st.builds(source_of, PARTITIONS, st.integers(0, 50) | OFFSETS)

PLACES = st.builds(
    Place,
    st.text(),
    st.text(),
    st.integers(0, 10**12),
    st.dictionaries(PARTITIONS, OFFSETS),
    st.frozensets(SOURCES),
    st.builds(
        Remainder,
        st.integers(-1, 2**40),
        st.integers(-1, 2**15 - 1),
        st.dictionaries(PARTITIONS, st.integers(0, 2**31 - 1)),
        st.dictionaries(PARTITIONS, st.lists(SOURCES, unique=True).map(sorted)),
    ),
    st.dictionaries(PARTITIONS, OFFSETS),
)


@given(PLACES)
def test_a_place_comes_back(place: Place) -> None:
    assert load_place(place.dump()) == place


@given(PARTITIONS, OFFSETS)
def test_a_source_is_a_partition_and_an_offset(partition: int, offset: int) -> None:
    assert place_of(source_of(partition, offset)) == (partition, offset)


GOOD = json.loads(Place(left=frozenset({7}), rest=Remainder(5, 0, {0: 3}, {0: (1, 2)})).dump())


@pytest.mark.parametrize(
    "change",
    [
        {"left": [[0, 5, 4]]},
        {"left": [[0, 0, 10**12]]},
        {"left": [[0, 5]]},
        {"left": [[-1, 5, 5]]},
        {"left": {"0": 1}},
        {"next": {"x": 1}},
        {"next": {"0": -1}},
        {"next": {"0": True}},
        {"producer": [1]},
        {"producer": 5},
        {"unanswered": []},
        {"stored": None},
        {"sequences": {"0": 1.5}},
    ],
)
def test_what_is_no_place_is_told(change: dict[str, object]) -> None:
    load_place(json.dumps(GOOD))
    for text in (json.dumps(GOOD | change), json.dumps([GOOD]), "{", "[" * 10_000, "", "null"):
        with pytest.raises(ValueError, match="it is no place at which a copy has stopped"):
            load_place(text)


def test_lines_that_were_left_come_before_new_ones() -> None:
    place = Place(next={0: 6}, left=frozenset({2, 4}), rest=Remainder(unanswered={3: (5,)}))
    record = Record(0, 0, None, b"")
    items = [Item(record, 1), Item(record, 2), BadLine(3, "bad"), *(Item(record, n) for n in (5, 6)), BadLine(7, "bad")]
    course = Course(place)
    events: list[object] = []
    taken = remaining(items, course, lambda: events.append(("missing", course.missing)))
    events.extend(item.line for item in taken)
    assert events == [2, 5, ("missing", 1), 6, 7], "line 4 is gone"
    assert course.next == {0: 8}
