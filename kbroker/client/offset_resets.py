"""The new offsets of a group that is reset: pure arithmetic, by the rules of Kafka's own tool."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kbroker.client.log_places import END, AtOffset, Place, find
from kbroker.types import TopicPartition


class CannotReset(ValueError):
    """The text says why, in one line."""


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """A partition's offsets: the group's, and the log's. ``current`` is None if the group has committed nothing."""

    partition: TopicPartition
    current: int | None
    start: int
    end: int
    at_time: int | None = None
    """The first offset at or after the requested time; None without a time, or without a record after it."""


@dataclass(frozen=True, slots=True)
class ToCurrent:
    """To the committed offset; to the end of the log where the group has committed nothing."""


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """A number of records on, or back when negative."""

    count: int


@dataclass(frozen=True, slots=True)
class ToOffsets:
    """An offset for each partition, from a file."""

    offsets: Mapping[TopicPartition, int]


Strategy = Place | ToCurrent | ShiftBy | ToOffsets
"""A place that is the same for all partitions, or one for each, by what is committed or by a file."""


@dataclass(frozen=True, slots=True)
class NewOffset:
    """A row of the preview. ``note`` says what was done to a value that the log does not have."""

    partition: TopicPartition
    current: int | None
    new: int
    note: str = ""

    @property
    def change(self) -> int | None:
        """New minus current; None without a current offset."""
        return None if self.current is None else self.new - self.current


def plan(strategy: Strategy, states: Iterable[PartitionOffsets]) -> list[NewOffset]:
    """A new offset for each partition, in their order; ``CannotReset`` if one has none by this strategy."""
    return [_plan_one(strategy, state) for state in sorted(states, key=lambda state: state.partition)]


def _plan_one(strategy: Strategy, state: PartitionOffsets) -> NewOffset:
    match strategy:
        case ToCurrent():
            if state.current is None:
                return _at(END, state, "nothing committed: the end")
            return NewOffset(state.partition, state.current, state.current)
        case ShiftBy(count):
            if state.current is None:
                raise CannotReset(f"{state.partition} cannot be shifted: the group has committed no offset for it")
            return _at(AtOffset(state.current + count), state)
        case ToOffsets(offsets):
            return _at(AtOffset(offsets[state.partition]), state)
        case place:
            return _at(place, state)


def _at(place: Place, state: PartitionOffsets, note: str = "") -> NewOffset:
    found = find(place, state.start, state.end, state.at_time)
    return NewOffset(state.partition, state.current, found.offset, note or found.note)


def read_offsets_file(text: str, group_id: str) -> dict[TopicPartition, int]:
    """A file as ``--export`` (and Kafka's tool) writes it: ``topic,partition,offset`` a line.

    Lines may begin with the group as a fourth column; those of other groups are skipped. ``CannotReset`` for anything
    else.
    """
    offsets: dict[TopicPartition, int] = {}
    for number, row in enumerate(csv.reader(text.splitlines()), 1):
        if not row:
            continue
        cells = [cell.strip() for cell in row]
        if len(cells) == 4:
            if cells[0] != group_id:
                continue
            del cells[0]
        if len(cells) != 3 or not all(cell.isascii() and cell.isdigit() for cell in cells[1:]):
            raise CannotReset(f"line {number} is not of the form topic,partition,offset: {','.join(row)[:80]}")
        partition = TopicPartition(cells[0], int(cells[1]))
        if partition in offsets:
            raise CannotReset(f"line {number}: {partition} is there twice")
        offsets[partition] = int(cells[2])
    if not offsets:
        raise CannotReset(f"there are no offsets for group {group_id} in it")
    return offsets


def write_offsets_file(rows: Sequence[NewOffset]) -> str:
    """The same, of a plan."""
    return "".join(f"{row.partition.topic},{row.partition.partition},{row.new}\n" for row in rows)
