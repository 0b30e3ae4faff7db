"""The processes that answer interactive queries, by partition. Kafka's ``EndpointToPartitionsManager`` (4.4).

Threads of a process have one endpoint, and one entry. Apache Kafka answers with an entry for each thread, of which its
client keeps the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kbroker.cores.groups.streams.group import StreamsGroup, StreamsGroupMember
from kbroker.cores.groups.streams.tasks import TaskId, partitions_by_subtopology
from kbroker.cores.groups.topics import CoordinatorMetadataImage
from kbroker.wire.messages.streams_groups import Endpoint, EndpointToPartitions, TopicPartition


class _Partitions(NamedTuple):
    """The partitions that an endpoint answers for, by topic."""

    active: dict[str, set[int]]
    standby: dict[str, set[int]]


def endpoints(
    group: StreamsGroup, updated: StreamsGroupMember, replaced_id: str | None, topics: CoordinatorMetadataImage
) -> list[EndpointToPartitions]:
    """The endpoints of all members; ``updated`` is one of them after the step under way, in the place of another."""
    others = [member for key, member in group.members.items() if key not in (updated.member_id, replaced_id)]
    found: dict[tuple[str, int], _Partitions] = {}
    for member in (*others, updated):
        if member.user_endpoint is not None:
            partitions = found.setdefault(member.user_endpoint, _Partitions({}, {}))
            has = member.assigned
            _add(partitions.active, group, has.active, topics)
            _add(partitions.standby, group, has.standby | has.warmup, topics)
    return [
        EndpointToPartitions(
            user_endpoint=Endpoint(host=host, port=port),
            active_partitions=_wire(partitions.active),
            standby_partitions=_wire(partitions.standby),
        )
        for (host, port), partitions in found.items()
    ]


def _add(
    partitions: dict[str, set[int]], group: StreamsGroup, tasks: Iterable[TaskId], topics: CoordinatorMetadataImage
) -> None:
    """Add what the tasks read. A topic with fewer partitions than others has none for the last tasks."""
    configured = {} if group.configured is None else group.configured.subtopologies
    for subtopology_id, indexes in partitions_by_subtopology(tasks).items():
        subtopology = configured.get(subtopology_id)
        if subtopology is None:
            continue  # its topics are not there at the moment
        for name in (*subtopology.source_topics, *(topic.name for topic in subtopology.repartition_source_topics)):
            topic = topics.by_name(name)
            there = () if topic is None else [index for index in indexes if index < topic.partition_count]
            if there:
                partitions.setdefault(name, set()).update(there)


def _wire(partitions: Mapping[str, set[int]]) -> list[TopicPartition]:
    return [TopicPartition(topic=name, partitions=sorted(partitions[name])) for name in partitions]
