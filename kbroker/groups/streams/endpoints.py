"""Which member answers interactive queries for which partitions. Kafka's ``EndpointToPartitionsManager`` (4.4)."""

from __future__ import annotations

from collections.abc import Iterable

from kbroker.groups.streams.group import StreamsGroup, StreamsGroupMember
from kbroker.groups.streams.tasks import TaskId, partitions_by_subtopology
from kbroker.groups.topics import CoordinatorMetadataImage
from kbroker.wire.messages.streams_group_heartbeat import EndpointToPartitions, ResponseEndpoint, TopicPartition


def endpoints(
    group: StreamsGroup, updated: StreamsGroupMember, replaced_id: str | None, topics: CoordinatorMetadataImage
) -> list[EndpointToPartitions]:
    """The endpoints of all members; ``updated`` is one of them after the step under way, in the place of another."""
    found = []
    for member_id, member in group.members.items():
        if member_id in (updated.member_id, replaced_id) or member.user_endpoint is None:
            continue
        known = group.endpoints.get(member_id)
        if known is None:
            known = group.endpoints[member_id] = _endpoint(group, member, topics)
        found.append(known)
    if updated.user_endpoint is not None:
        found.append(_endpoint(group, updated, topics))
    return found


def _endpoint(
    group: StreamsGroup, member: StreamsGroupMember, topics: CoordinatorMetadataImage
) -> EndpointToPartitions:
    assert member.user_endpoint is not None
    host, port = member.user_endpoint
    has = member.assigned
    return EndpointToPartitions(
        user_endpoint=ResponseEndpoint(host=host, port=port),
        active_partitions=_partitions(group, has.active, topics),
        standby_partitions=_partitions(group, has.standby | has.warmup, topics),
    )


def _partitions(group: StreamsGroup, tasks: Iterable[TaskId], topics: CoordinatorMetadataImage) -> list[TopicPartition]:
    """The partitions that the tasks read. A topic with fewer partitions than others has none for the last tasks."""
    configured = {} if group.configured is None else group.configured.subtopologies
    result = []
    for subtopology_id, partitions in partitions_by_subtopology(tasks).items():
        subtopology = configured.get(subtopology_id)
        if subtopology is None:
            continue  # its topics are not there at the moment
        repartition = (topic.name for topic in subtopology.repartition_source_topics)
        for name in dict.fromkeys((*subtopology.source_topics, *repartition)):
            topic = topics.by_name(name)
            there = [] if topic is None else [each for each in partitions if each < topic.partition_count]
            if there:
                result.append(TopicPartition(topic=name, partitions=there))
    return result
