"""Administrators' questions about Streams groups (KIP-1071), as values."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kbroker.client.cluster import Client
from kbroker.client.groups import GroupDescription, GroupMember, ask_about_group, description_of
from kbroker.types import TopicPartition
from kbroker.wire.messages.streams_groups import Member, StreamsGroupDescribeRequest, TaskIds

STREAMS: Final = "Streams"

_NAMED_BY_STREAMS: Final = re.compile(
    r".*-(changelog|repartition|subscription-(registration|response)-topic)"
    r"|.+-KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-\d+-topic"
)
"""The names that Kafka Streams gives to topics of its own, as ``StreamsGroupCommand`` knows them."""


def describe_streams_group(client: Client, group_id: str) -> GroupDescription:
    """Describe a Streams group. Its members are assigned tasks: the name of a subtopology in place of a topic's."""
    group = ask_about_group(client, group_id, StreamsGroupDescribeRequest(group_ids=[group_id]))
    return description_of(client, group_id, group, STREAMS, "", _member)


@dataclass(frozen=True, slots=True)
class StreamsTopics:
    """The topics of a Streams group by its topology: its inputs, and those that it has made, in order."""

    inputs: frozenset[str]
    internal: tuple[str, ...]


def streams_topics(client: Client, group_id: str) -> StreamsTopics:
    """The topics of a Streams group; none for a group that has told no topology yet. ``ResponseError``."""
    group = ask_about_group(client, group_id, StreamsGroupDescribeRequest(group_ids=[group_id]))
    parts = (group.topology.subtopologies or ()) if group.topology is not None else ()
    inputs = frozenset(topic for part in parts for topic in part.source_topics)
    made = {each.name for part in parts for each in (*part.repartition_source_topics, *part.state_changelog_topics)}
    return StreamsTopics(inputs, tuple(sorted(made - inputs)))


def is_own_topic(group_id: str, topic: str) -> bool:
    """Whether the topic has a name that Kafka Streams gives to topics of the group.

    Those of a group ``a-b`` may look like those of ``a``: only topics that the topology names are judged by it.
    """
    return topic.startswith(f"{group_id}-") and _NAMED_BY_STREAMS.fullmatch(topic) is not None


def _member(member: Member) -> GroupMember:
    return GroupMember(
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


def _tasks(entries: Iterable[TaskIds]) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(TopicPartition(entry.subtopology_id, number) for entry in entries for number in entry.partitions)
    )
