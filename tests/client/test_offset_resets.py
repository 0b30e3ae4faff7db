"""The arithmetic of resets, without a broker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.client.group_offsets import (
    CannotReset,
    NewOffset,
    PartitionOffsets,
    ShiftBy,
    Strategy,
    ToCurrent,
    ToOffsets,
    plan,
    read_offsets_file,
    write_offsets_file,
)
from kbroker.client.log_places import END, START, AtOffset, AtTime
from kbroker.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def one(strategy: Strategy, current: int | None = 50, at_time: int | None = None) -> NewOffset:
    """Of a partition with the offsets 10 to 99."""
    [row] = plan(strategy, [PartitionOffsets(T0, current, 10, 100, at_time)])
    return row


@pytest.mark.parametrize(
    ("strategy", "current", "new", "note"),
    [
        (START, 50, 10, ""),
        (END, 50, 100, ""),
        (ToCurrent(), 50, 50, ""),
        (ToCurrent(), None, 100, "nothing committed: the end"),
        (AtOffset(70), 50, 70, ""),
        (AtOffset(10), 50, 10, ""),
        (AtOffset(100), 50, 100, ""),
        (AtOffset(9), 50, 10, "9 is before the start"),
        (AtOffset(101), 50, 100, "101 is beyond the end"),
        (ShiftBy(5), 50, 55, ""),
        (ShiftBy(-5), 50, 45, ""),
        (ShiftBy(-41), 50, 10, "9 is before the start"),
        (ShiftBy(51), 50, 100, "101 is beyond the end"),
        (AtTime(1), 50, 100, "no record after this time: the end"),
        (ToOffsets({T0: 3}), None, 10, "3 is before the start"),
    ],
)
def test_strategies(strategy: Strategy, current: int | None, new: int, note: str) -> None:
    row = one(strategy, current)
    assert (row.new, row.note) == (new, note)
    assert row.change == (None if current is None else new - current)


def test_a_time_that_has_a_record() -> None:
    assert one(AtTime(1), at_time=33).new == 33


def test_shifting_from_nowhere() -> None:
    with pytest.raises(CannotReset, match="t-0 cannot be shifted: the group has committed no offset"):
        one(ShiftBy(1), None)


@given(
    st.one_of(
        st.sampled_from([START, END, ToCurrent(), AtTime(5)]),
        st.builds(AtOffset, st.integers(0, 2**63 - 1)),
        st.builds(ShiftBy, st.integers(-(2**63), 2**63 - 1)),
    ),
    st.integers(0, 1000),
    st.integers(0, 1000),
    st.integers(0, 1000),
)
def test_the_new_offset_is_in_the_log(strategy: Strategy, start: int, length: int, current: int) -> None:
    end = start + length
    within = min(max(current, start), end)
    [row] = plan(strategy, [PartitionOffsets(T0, within, start, end, None)])
    assert start <= row.new <= end
    assert row.change == row.new - within


@given(st.dictionaries(st.builds(TopicPartition, st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True),
                                 st.integers(0, 1000)), st.integers(0, 2**62), min_size=1))  # fmt: skip
def test_files_are_read_as_they_were_written(offsets: dict[TopicPartition, int]) -> None:
    rows = [NewOffset(partition, None, offset) for partition, offset in offsets.items()]
    assert read_offsets_file(write_offsets_file(rows), "g") == offsets


def test_files_of_several_groups() -> None:
    text = "g,t,0,5\nother,t,0,9\n\ng,t,1,6\n"
    assert read_offsets_file(text, "g") == {T0: 5, T1: 6}
    with pytest.raises(CannotReset, match="no offsets for group x"):
        read_offsets_file(text, "x")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("t,0", "line 1 is not of the form"),
        ("t,0,1\nt,a,1", "line 2 is not of the form"),
        ("t,0,-1", "line 1"),
        ("t,0,1\nt,0,2", "line 2: t-0 is there twice"),
        ("", "no offsets"),
        ('{"a": 1}', "line 1"),
    ],
)
def test_bad_files(text: str, problem: str) -> None:
    with pytest.raises(CannotReset, match=problem):
        read_offsets_file(text, "g")
