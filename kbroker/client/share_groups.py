"""Administrators' questions about share groups (KIP-932), as values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kbroker.client.cluster import Client, refuse
from kbroker.client.errors import ApiNotServed, ResponseError
from kbroker.client.groups import (
    GroupDescription,
    GroupMember,
    ask_about_group,
    describe_group,
    description_of,
    partitions_of,
)
from kbroker.client.leaders import ask_leaders
from kbroker.client.streams_groups import describe_streams_group
from kbroker.cores.share_state import DeliveryState
from kbroker.errors import ErrorCode
from kbroker.types import TopicPartition
from kbroker.wire.messages.share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponsePartition,
)
from kbroker.wire.messages.share_groups import Member, ShareGroupDescribeRequest

SHARE: Final = "Share"

_LEADER_IS_SILENT: Final = frozenset(
    (
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    )
)
"""Said of a partition whose leader the coordinator could not ask just now; there may be one."""

_STATES: Final = {int(state): state.name.lower() for state in DeliveryState}


@dataclass(frozen=True, slots=True)
class ShareOffset:
    """The place of a share group in a partition: below ``start`` all is done with. None: there is none yet.

    ``lag`` are the records from there on that are not done with (KIP-1226); None where the broker cannot tell.
    """

    start: int | None
    lag: int | None
    problem: ResponseError | None = None
    """Set where neither is known, since the coordinator got no answer from a leader: there may be none."""


@dataclass(frozen=True, slots=True)
class InFlight:
    """Neighbouring records of a partition that are in one state, offsets inclusive.

    ``state``: ``acquired`` by a member; ``available`` again, for the next one; ``archiving``, on its way to the
    dead-letter queue. ``member`` is None where nobody holds them, or the holder is not in the group any more.
    """

    partition: TopicPartition
    first_offset: int
    last_offset: int
    state: str
    delivery_count: int
    member_id: str | None
    member: GroupMember | None
    lock_ms_left: int | None


@dataclass(frozen=True, slots=True)
class PartitionInFlight:
    """The records in flight of a partition, by offset. ``left_out``: so many ranges more are not told."""

    ranges: tuple[InFlight, ...]
    left_out: int


def describe_any_group(client: Client, group_id: str) -> GroupDescription:
    """Describe a group of any type; its coordinator alone is asked. ``ResponseError`` (GROUP_ID_NOT_FOUND)."""
    try:
        return describe_group(client, group_id)
    except ResponseError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        for describe in (describe_share_group, describe_streams_group):
            try:
                return describe(client, group_id)
            except ApiNotServed:
                continue
            except ResponseError as other:
                # Any other error may be of a group that is there, as of one with a topic that the user may not see.
                if other.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                    raise
        raise ResponseError(error.code, f"group {group_id}") from None  # the same words for each broker's


def describe_share_group(client: Client, group_id: str) -> GroupDescription:
    """Describe a share group. ``ResponseError`` (GROUP_ID_NOT_FOUND) if there is none, ``ApiNotServed``."""
    group = ask_about_group(client, group_id, ShareGroupDescribeRequest(group_ids=[group_id]))
    return description_of(client, group_id, group, SHARE, group.assignor_name, _member)


def _member(member: Member) -> GroupMember:
    return GroupMember(
        member.member_id,
        None,
        member.client_id,
        member.client_host,
        partitions_of(member.assignment.topic_partitions),
        tuple(sorted(member.subscribed_topic_names)),
        epoch=member.member_epoch,
        rack=member.rack_id,
        protocol="share",
    )


def share_offsets(client: Client, group_id: str) -> dict[TopicPartition, ShareOffset]:
    """The place of a share group in each of its partitions, in order. ``ResponseError``."""
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)
    group = ask_about_group(client, group_id, DescribeShareGroupOffsetsRequest(groups=[asked]))
    found: dict[TopicPartition, ShareOffset] = {}
    for topic in group.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.topic_name, each.partition_index)
            what = f"group {group_id}, partition {partition}"
            if each.error_code in _LEADER_IS_SILENT:
                found[partition] = ShareOffset(None, None, ResponseError(each.error_code, what))
                continue
            refuse(each.error_code, what, each.error_message)
            found[partition] = ShareOffset(_known(each.start_offset), _known(each.lag))
    return dict(sorted(found.items()))


def alter_share_offsets(
    client: Client, group_id: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, ResponseError]:
    """Let partitions of a share group begin at other offsets; returns those that were refused.

    ``ResponseError`` NON_EMPTY_GROUP while members are in it.
    """
    topics: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        entry = AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=offset)
        topics.setdefault(topic, []).append(entry)
    request = AlterShareGroupOffsetsRequest(
        group_id=group_id,
        topics=[AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=each) for name, each in topics.items()],
    )

    def check(response: AlterShareGroupOffsetsResponse) -> None:
        refuse(response.error_code, f"group {group_id}", response.error_message)

    refused: dict[TopicPartition, ResponseError] = {}
    for answer in client.ask_coordinator(group_id, request, check).responses:
        for each in answer.partitions:
            if each.error_code:
                partition = TopicPartition(answer.topic_name, each.partition_index)
                refused[partition] = ResponseError(each.error_code, f"partition {partition}")
    return refused


def share_in_flight(
    client: Client, group: GroupDescription, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, PartitionInFlight | ResponseError | None]:
    """Partition -> the records in flight as its leader tells them; the error that remained; None: it tells nothing.

    The leader is asked by a tagged field of kbroker's own, which Apache Kafka's brokers skip.
    """
    wanted = dict.fromkeys(sorted(partitions))
    members = {member.member_id: member for member in group.members}
    asked: list[TopicPartition] = []

    def make(some: Mapping[TopicPartition, None]) -> DescribeShareGroupOffsetsRequest:
        asked[:] = some
        topics: dict[str, list[int]] = {}
        for topic, number in some:
            topics.setdefault(topic, []).append(number)
        named = [
            DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=numbers)
            for name, numbers in topics.items()
        ]
        of_group = DescribeShareGroupOffsetsRequestGroup(group_id=group.group_id, topics=named)
        return DescribeShareGroupOffsetsRequest(groups=[of_group], wants_in_flight=True)

    def read(
        response: DescribeShareGroupOffsetsResponse,
    ) -> Iterator[tuple[TopicPartition, int, PartitionInFlight | None]]:
        answer = response.groups[0]
        if answer.error_code:
            yield from ((partition, answer.error_code, None) for partition in asked)
        for topic in answer.topics:
            for each in topic.partitions:
                partition = TopicPartition(topic.topic_name, each.partition_index)
                yield partition, each.error_code, _in_flight(partition, each, members)

    try:
        found = ask_leaders(client, wanted, make, read)
    except ApiNotServed:
        return dict(wanted)
    return {partition: found[partition] for partition in wanted}


def _in_flight(
    partition: TopicPartition, answer: DescribeShareGroupOffsetsResponsePartition, members: Mapping[str, GroupMember]
) -> PartitionInFlight | None:
    told = answer.in_flight
    if told is None:
        return None
    ranges = tuple(
        InFlight(
            partition,
            each.first_offset,
            each.last_offset,
            _STATES.get(each.delivery_state) or str(each.delivery_state),
            each.delivery_count,
            each.member_id,
            members.get(each.member_id or ""),
            None if each.lock_ms_left < 0 else each.lock_ms_left,
        )
        for each in told.ranges
    )
    return PartitionInFlight(ranges, told.ranges_left_out)


def share_lags(client: Client, node_id: int, group_ids: Sequence[str]) -> dict[str, int | None]:
    """Share group -> records that are not done with, of groups that one broker coordinates; None if it cannot tell.

    One request. A group that fails is left out. ``ApiNotServed``.
    """
    groups = [DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None) for group_id in group_ids]
    response = client.ask_node(node_id, DescribeShareGroupOffsetsRequest(groups=groups))
    found: dict[str, int | None] = {}
    for group in response.groups:
        if not group.error_code:
            lags = [each.lag for topic in group.topics for each in topic.partitions if not each.error_code]
            known = [lag for lag in lags if lag >= 0]
            found[group.group_id] = sum(known) if known else None
    return found


def _known(number: int) -> int | None:
    return None if number < 0 else number
