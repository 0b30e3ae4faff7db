"""The cluster's part of the reasons why a group gets nothing; the rules are those of `kbroker.client.lost_records`."""

from __future__ import annotations

from collections.abc import Mapping

from kbroker.client.cluster import Client
from kbroker.client.errors import ResponseError
from kbroker.client.groups import GroupDescription, subscribed_and_unassigned, topics_of_members
from kbroker.client.lost_records import Limits, Loss, losses
from kbroker.client.topics import missing_topics
from kbroker.errors import ErrorCode
from kbroker.types import TopicPartition


def group_losses(
    client: Client,
    group: GroupDescription,
    committed: Mapping[TopicPartition, int],
    ranges: Mapping[TopicPartition, Limits],
) -> list[Loss]:
    """The reasons why a group gets nothing; the cluster is asked which of its members' topics are missing.

    ``ranges``: the logs that it has committed for or is assigned. Topics that its members have left do not count: their
    offsets are there until they expire.
    """
    unknown = {
        each.topic
        for each, limits in ranges.items()
        if isinstance(limits, ResponseError) and limits.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
    subscribed = subscribed_and_unassigned(group, unknown)
    missing = missing_topics(client, sorted(subscribed))
    topics = topics_of_members(group)
    read = {each: limits for each, limits in ranges.items() if topics is None or each.topic in topics}
    return losses(committed, read, {topic: subscribed[topic] for topic in missing})
