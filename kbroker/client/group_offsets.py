"""A group's offsets, of any type of group: looked at, and put elsewhere. The command and the console share these rules.

Rules: Kafka's ``ConsumerGroupCommand``, ``ShareGroupCommand`` and ``StreamsGroupCommand``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kbroker.client import Client, ResponseError
from kbroker.client.errors import known
from kbroker.client.groups import commit_offsets, committed_offsets
from kbroker.client.log_places import offsets_at_time
from kbroker.client.offset_resets import CannotReset, NewOffset, PartitionOffsets, Strategy, plan
from kbroker.client.share_groups import SHARE, alter_share_offsets, describe_any_group, share_offsets
from kbroker.client.streams_groups import STREAMS, StreamsTopics, is_own_topic, streams_topics
from kbroker.client.topics import delete_topics, list_ranges
from kbroker.errors import ErrorCode
from kbroker.types import TopicPartition

_MOST_NAMED = 10
"""Internal topics that a note names before it counts them."""


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
