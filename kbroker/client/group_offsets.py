"""A group's offsets, of any type of group: looked at, and put elsewhere. The command and the console share these rules.

Rules: Kafka's ``ConsumerGroupCommand``, ``ShareGroupCommand`` and ``StreamsGroupCommand``. The new offsets of a group
that is reset are pure arithmetic.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kbroker.client import Client, ResponseError
from kbroker.client.errors import known
from kbroker.client.groups import commit_offsets, committed_offsets
from kbroker.client.log_places import END, AtOffset, Place, find, offsets_at_time
from kbroker.client.share_groups import SHARE, alter_share_offsets, describe_any_group, share_offsets
from kbroker.client.streams_groups import STREAMS, StreamsTopics, is_own_topic, streams_topics
from kbroker.client.topics import delete_topics, list_ranges
from kbroker.errors import ErrorCode
from kbroker.types import TopicPartition

_MOST_NAMED = 10
"""Internal topics that a note names before it counts them."""


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


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """A group, and where it is in each partition. ``type`` is empty for one that is not there yet.

    ``offsets`` are committed, or where a share group begins: None where it has not read yet. ``topics`` are those of a
    Streams group. ``unknown``: partitions of a share group of which the coordinator could not tell, and why.
    """

    group_id: str
    type: str
    members: int
    offsets: Mapping[TopicPartition, int | None]
    topics: StreamsTopics | None = None
    unknown: Mapping[TopicPartition, ResponseError] = field(default_factory=dict)

    @property
    def partitions(self) -> list[TopicPartition]:
        """All partitions that it has offsets for; of a Streams group those of its input topics."""
        inputs = None if self.topics is None else self.topics.inputs
        return [each for each in self.offsets if inputs is None or each.topic in inputs]

    @property
    def refusal(self) -> str:
        """The reason why its offsets cannot be set now; empty if they can be."""
        if not self.members:
            return ""
        return f"group {self.group_id} has {self.members} member{'' if self.members == 1 else 's'}: stop them first"

    @property
    def note(self) -> str:
        """Internal topics of a Streams group, which a reset does not touch; empty if there are none."""
        if self.topics is None or not self.topics.internal:
            return ""
        return (
            f"internal topics keep what they have: {named(self.topics.internal)}. To begin without the state that is in"
            " them, delete them, and the local state of the application"
        )

    @property
    def own_topics(self) -> list[str]:
        """Internal topics of a Streams group that are named after it, and are deleted where that is asked for."""
        internal = () if self.topics is None else self.topics.internal
        return [topic for topic in internal if is_own_topic(self.group_id, topic)]


def named(topics: Sequence[str]) -> str:
    """The names, or the number of them if there are many."""
    return ", ".join(topics) if len(topics) <= _MOST_NAMED else f"{len(topics)} of them"


def look_at_group(client: Client, group_id: str) -> GroupOffsets:
    """A group as it is now; one that is not there is like a group of consumers without offsets. ``ResponseError``."""
    try:
        group = describe_any_group(client, group_id)
    except ResponseError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return GroupOffsets(group_id, "", 0, _committed(client, group_id))
    if group.type == SHARE:
        places = share_offsets(client, group_id)
        offsets = {each: place.start for each, place in places.items()}
        unknown = {each: place.problem for each, place in places.items() if place.problem is not None}
        return GroupOffsets(group_id, group.type, len(group.members), offsets, unknown=unknown)
    topics = streams_topics(client, group_id) if group.type == STREAMS else None
    return GroupOffsets(group_id, group.type, len(group.members), _committed(client, group_id), topics)


def _committed(client: Client, group_id: str) -> dict[TopicPartition, int | None]:
    return {partition: each.offset for partition, each in committed_offsets(client, group_id).items()}


def plan_reset(
    client: Client, group: GroupOffsets, partitions: Sequence[TopicPartition], strategy: Strategy
) -> list[NewOffset]:
    """A new offset for each partition; nothing is changed. ``CannotReset``, ``ResponseError``."""
    if group.topics is not None:
        for topic in sorted({each.topic for each in partitions} - group.topics.inputs):
            raise CannotReset(f"topic {topic} is not read by Streams group {group.group_id}")
    for partition in partitions:
        if partition in group.unknown:  # it has a place there: "nothing committed" would put it elsewhere
            raise group.unknown[partition]
    ranges = known(list_ranges(client, partitions))
    at_time = offsets_at_time(client, partitions, strategy)
    states = [PartitionOffsets(each, group.offsets.get(each), *ranges[each], at_time.get(each)) for each in partitions]
    return plan(strategy, states)


def put_offsets(client: Client, group: GroupOffsets, rows: Sequence[NewOffset]) -> dict[TopicPartition, ResponseError]:
    """Set the offsets of a plan; returns those that were refused. ``CannotReset`` while members are in the group.

    A member that joins meanwhile is noticed by the coordinator: ``ResponseError``, or all offsets are refused.
    """
    if group.refusal:
        raise CannotReset(group.refusal)
    offsets = {row.partition: row.new for row in rows}
    if not offsets:
        return {}
    put = alter_share_offsets if group.type == SHARE else commit_offsets
    return put(client, group.group_id, offsets)


def delete_own_topics(client: Client, group: GroupOffsets) -> tuple[list[str], list[ResponseError]]:
    """Delete `GroupOffsets.own_topics`: those that are deleted, and why others are not. One that is gone is neither."""
    if not group.own_topics:
        return [], []
    results = delete_topics(client, group.own_topics)
    failed = [error for error in results.values() if error and error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    return sorted(name for name, error in results.items() if error is None), failed
