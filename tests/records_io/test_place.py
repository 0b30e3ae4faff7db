"""The place at which a copy has stopped: as JSON and back, and what is taken after it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.client.pending_batches import Remainder, Unanswered
from kbroker.client.records_io.copy_position import (
    CopyPosition,
    CopyProgress,
    load_copy_position,
    made_anew,
    place_of,
    remaining,
    source_of,
)
from kbroker.client.records_io.items import BadLine, Item
from kbroker.wire.record_batch import Record

PARTITIONS = st.integers(0, 5)
OFFSETS = st.integers(0, 2**63 - 1)
SOURCES = st.builds(source_of, PARTITIONS, st.integers(0, 50) | OFFSETS)

UNANSWERED = st.builds(
    Unanswered,
    st.lists(SOURCES, unique=True, min_size=1).map(sorted),
    st.integers(-1, 2**40),
    st.integers(-1, 2**15 - 1),
    st.integers(-1, 2**31 - 1),
)

PLACES = st.builds(
    CopyPosition,
    st.text(),
    st.text(),
    st.integers(0, 10**12),
    st.dictionaries(PARTITIONS, OFFSETS),
    st.frozensets(SOURCES),
    st.builds(Remainder, st.dictionaries(PARTITIONS, UNANSWERED)),
    st.dictionaries(PARTITIONS, OFFSETS),
)


def naming_each_once(place: CopyPosition) -> CopyPosition:
    """A place, without the records of a batch that are in a part before it."""
    named = set(place.left)
    unanswered = {}
    for partition, each in place.rest.unanswered.items():
        if sources := [source for source in each.sources if source not in named]:
            unanswered[partition] = replace(each, sources=sources)
            named.update(sources)
    return replace(place, rest=Remainder(unanswered))


@given(PLACES.map(naming_each_once))
def test_a_place_comes_back(place: CopyPosition) -> None:
    assert load_copy_position(place.dump()) == place


@given(PARTITIONS, OFFSETS)
def test_a_source_is_a_partition_and_an_offset(partition: int, offset: int) -> None:
    assert place_of(source_of(partition, offset)) == (partition, offset)


GOOD = json.loads(CopyPosition(left=frozenset({7}), rest=Remainder({0: Unanswered((1, 2), 5, 0, 3)})).dump())


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
        {"unanswered": []},
        {"unanswered": {"0": [1, 0, 0, []]}},
        {"unanswered": {"0": [1, 0, 0, [[0, 7, 7]]]}},
        {"unanswered": {"0": [1, 0, 0, [[0, 1, 1], [0, 1, 2]]]}},
        {"unanswered": {"0": [1, 0, 0, [[0, 8, 9]]], "1": [1, 0, 0, [[0, 9, 9]]]}},
        {"unanswered": {"0": [1, 0, 1.5, [[0, 1, 2]]]}},
        {"unanswered": {"0": [1, 2**15, 0, [[0, 1, 2]]]}},
        {"unanswered": {"0": [1, 0, 2**31, [[0, 1, 2]]]}},
        {"unanswered": {str(2**31): [1, 0, 0, [[0, 1, 2]]]}},
        {"stored": None},
    ],
)
def test_what_is_no_place_is_told(change: dict[str, object]) -> None:
    load_copy_position(json.dumps(GOOD))
    for text in (json.dumps(GOOD | change), json.dumps([GOOD]), "{", "[" * 10_000, "", "null"):
        with pytest.raises(ValueError, match="it is no place at which a copy has stopped"):
            load_copy_position(text)


def test_a_place_does_not_name_more_than_it_may() -> None:
    text = json.dumps(GOOD | {"unanswered": {"0": [1, 0, 0, [[0, 10, 59]]], "1": [1, 0, 0, [[1, 10, 59]]]}})
    assert len(load_copy_position(text, most=101).again()) == 101
    with pytest.raises(ValueError, match="it is no place"):
        load_copy_position(text, most=100)


def test_lines_that_were_left_come_before_new_ones() -> None:
    place = CopyPosition(next={0: 6}, left=frozenset({2, 4}), rest=Remainder({3: Unanswered((5,))}))
    record = Record(0, 0, None, b"")
    items: list[Item | BadLine] = [
        Item(record, 1),
        Item(record, 2),
        BadLine(3, "bad"),
        *(Item(record, n) for n in (5, 6)),
        BadLine(7, "bad"),
    ]
    course = CopyProgress(place)
    events: list[object] = []
    taken = remaining(items, course, lambda: events.append(("missing", course.missing)))
    events.extend(item.line for item in taken)
    assert events == [2, 5, ("missing", 1), 6, 7], "line 4 is gone"
    assert course.next == {0: 8}


def test_a_topic_that_was_made_anew_is_named() -> None:
    assert made_anew(("to", "from"), "A/B", "A/B") is None
    assert made_anew(("to", "from"), "A/B", "A/C") == "from"
    assert made_anew(("to", "from"), "A/B", "D/C") == "to"
    assert made_anew(("to",), "A/B", "A") == "to", "it is the place of a copy that read a topic, too"
