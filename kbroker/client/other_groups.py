"""Administrators' questions about share groups (KIP-932) and Streams groups (KIP-1071), as values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from kbroker.client.cluster import Client, refuse
from kbroker.client.groups import GroupDescription, GroupMember
from kbroker.types import TopicPartition
from kbroker.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kbroker.wire.messages.share_group_describe import ShareGroupDescribeRequest
from kbroker.wire.messages.streams_group_describe import StreamsGroupDescribeRequest

SHARE: Final = "Share"
STREAMS: Final = "Streams"


@dataclass(frozen=True, slots=True)
class ShareOffset:
    """A share group's start offset of a partition: all before it is done. ``lag`` is None where it is not told."""

    start: int
    lag: int | None


def describe_share_group(client: Client, group_id: str) -> GroupDescription:
    """One share group; ``ResponseError`` (GROUP_ID_NOT_FOUND) if there is none."""
    group = _describe(client, group_id, ShareGroupDescribeRequest(group_ids=[group_id]))
    return GroupDescription(
        group_id,
        SHARE,
        group.group_state,
        "share",
        group.assignor_name,
        client.coordinator(group_id),
        tuple(
            GroupMember(
                member.member_id,
                None,
                member.client_id,
                member.client_host,
                tuple(
                    sorted(
                        TopicPartition(entry.topic_name, number)
                        for entry in member.assignment.topic_partitions
                        for number in entry.partitions
                    )
                ),
                tuple(sorted(member.subscribed_topic_names)),
                epoch=member.member_epoch,
                rack=member.rack_id,
                protocol="share",
            )
            for member in sorted(group.members, key=lambda member: str(member.member_id))
        ),
        group.group_epoch,
        group.assignment_epoch,
    )


def describe_streams_group(client: Client, group_id: str) -> GroupDescription:
    """One Streams group. What is assigned are tasks: the name of a subtopology in place of a topic's."""
    group = _describe(client, group_id, StreamsGroupDescribeRequest(group_ids=[group_id]))
    return GroupDescription(
        group_id,
        STREAMS,
        group.group_state,
        "streams",
        "",
        client.coordinator(group_id),
        tuple(
            GroupMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                _tasks(member.assignment.active_tasks),
                epoch=member.member_epoch,
                rack=member.rack_id,
                target=_tasks(member.target_assignment.active_tasks),
                protocol="streams",
            )
            for member in sorted(group.members, key=lambda member: str(member.member_id))
        ),
        group.group_epoch,
        group.assignment_epoch,
    )


def _describe(client: Client, group_id: str, request: ShareGroupDescribeRequest | StreamsGroupDescribeRequest) -> Any:
    def check(response: Any) -> None:
        refuse(response.groups[0].error_code, f"group {group_id}", response.groups[0].error_message)

    return client.ask_coordinator(group_id, request, check).groups[0]


def _tasks(entries: Iterable[Any]) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(TopicPartition(entry.subtopology_id, number) for entry in entries for number in entry.partitions)
    )


def share_offsets(client: Client, group_id: str) -> dict[TopicPartition, ShareOffset]:
    """Where a share group stands in each of its partitions."""

    def check(response: Any) -> None:
        refuse(response.groups[0].error_code, f"group {group_id}", response.groups[0].error_message)

    request = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)]
    )
    response = client.ask_coordinator(group_id, request, check)
    return {
        TopicPartition(topic.topic_name, entry.partition_index): ShareOffset(
            entry.start_offset, entry.lag if entry.lag >= 0 else None
        )
        for topic in response.groups[0].topics
        for entry in topic.partitions
        if not entry.error_code and entry.start_offset >= 0
    }
