"""A streams group as StreamsGroupDescribe shows it. Kafka's ``StreamsGroup.asDescribedGroup`` (4.4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kbroker.cores.groups.streams.configured_topology import ConfiguredSubtopology, InternalTopic
from kbroker.cores.groups.streams.group import StreamsGroup, StreamsGroupMember, TaskOffsets
from kbroker.cores.groups.streams.tasks import HeldTasks, TaskId, Tasks, write_tasks
from kbroker.cores.groups.streams.topology import StreamsTopology
from kbroker.wire.messages import streams_groups as describe
from kbroker.wire.records import streams_group as rec


def describe_group(group: StreamsGroup, assignor: str) -> describe.DescribedGroup:
    """The group, without the description of its topology and authorized operations."""
    return describe.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=assignor,
        topology=_topology(group),
        members=[_member(group, member) for member in group.members.values()],
    )


def _topology(group: StreamsGroup) -> describe.DescribeTopology | None:
    """The topology with the numbers of partitions that were decided; as members declare it while it is not ready."""
    configured = group.configured
    if configured is not None and configured.is_ready:
        return describe.DescribeTopology(
            epoch=configured.epoch,
            subtopologies=[_configured(each, configured.subtopologies[each]) for each in configured.subtopologies],
        )
    return None if group.topology is None else _declared(group.topology)


def _configured(subtopology_id: str, subtopology: ConfiguredSubtopology) -> describe.DescribeSubtopology:
    return describe.DescribeSubtopology(
        subtopology_id=subtopology_id,
        source_topics=sorted(subtopology.source_topics),
        repartition_sink_topics=sorted(subtopology.repartition_sink_topics),
        state_changelog_topics=_internal_topics(subtopology.state_changelog_topics),
        repartition_source_topics=_internal_topics(subtopology.repartition_source_topics),
    )


def _internal_topics(topics: Iterable[InternalTopic]) -> list[describe.TopicInfo]:
    return [
        describe.TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=max(topic.replication_factor, 0),
            topic_configs=[describe.KeyValue(key=key, value=value) for key, value in topic.configs],
        )
        for topic in sorted(topics)
    ]


def _declared(topology: StreamsTopology) -> describe.DescribeTopology:
    return describe.DescribeTopology(
        epoch=topology.epoch,
        subtopologies=[
            describe.DescribeSubtopology(
                subtopology_id=subtopology_id,
                source_topics=sorted(subtopology.source_topics),
                repartition_sink_topics=sorted(subtopology.repartition_sink_topics),
                state_changelog_topics=_declared_topics(subtopology.state_changelog_topics),
                repartition_source_topics=_declared_topics(subtopology.repartition_source_topics),
            )
            for subtopology_id, subtopology in sorted(topology.subtopologies.items())
        ],
    )


def _declared_topics(topics: Iterable[rec.TopicInfo]) -> list[describe.TopicInfo]:
    return [
        describe.TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[describe.KeyValue(key=config.key, value=config.value) for config in topic.topic_configs],
        )
        for topic in sorted(topics, key=lambda topic: topic.name)
    ]


def _member(group: StreamsGroup, member: StreamsGroupMember) -> describe.Member:
    offsets = group.task_offsets.get(member.member_id, TaskOffsets())
    endpoint = None
    if member.user_endpoint is not None:
        host, port = member.user_endpoint
        endpoint = describe.Endpoint(host=host, port=port)
    return describe.Member(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=endpoint,
        client_tags=[describe.KeyValue(key=key, value=value) for key, value in member.client_tags.items()],
        task_offsets=_offsets(offsets.offsets),
        task_end_offsets=_offsets(offsets.end_offsets),
        assignment=_assignment(member.assigned),
        target_assignment=_assignment(group.target_of(member.member_id)),
    )


def _offsets(offsets: Mapping[TaskId, int]) -> list[describe.TaskOffset]:
    return [
        describe.TaskOffset(subtopology_id=task.subtopology_id, partition=task.partition, offset=offsets[task])
        for task in sorted(offsets)
    ]


def _assignment(tasks: Tasks | HeldTasks) -> describe.Assignment:
    return describe.Assignment(
        active_tasks=write_tasks(describe.TaskIds, tasks.active),
        standby_tasks=write_tasks(describe.TaskIds, tasks.standby),
        warmup_tasks=write_tasks(describe.TaskIds, tasks.warmup),
    )
