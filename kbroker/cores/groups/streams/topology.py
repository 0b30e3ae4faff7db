"""A streams group's topology as its members declare it, and as it is stored. Kafka's ``StreamsTopology`` (4.4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kbroker.errors import ApiError, ErrorCode
from kbroker.wire.messages import streams_groups as heartbeat
from kbroker.wire.records import streams_group as rec


@dataclass(frozen=True, slots=True)
class StreamsTopology:
    """The subtopologies of an application by their ids, in the terms of the record that keeps them."""

    epoch: int
    subtopologies: Mapping[str, rec.Subtopology]
    source_topics: Mapping[str, str] = field(compare=False, repr=False)
    """The id of the subtopology that reads a topic, an external or a repartition topic."""

    def required_topics(self) -> set[str]:
        """The topics that must exist before tasks are assigned: those that are read, and changelogs."""
        topics = set(self.source_topics)
        for subtopology in self.subtopologies.values():
            topics.update(topic.name for topic in subtopology.state_changelog_topics)
        return topics


def topology_of_record(value: rec.StreamsGroupTopologyValue) -> StreamsTopology:
    """The topology of a record."""
    sources = {}
    for subtopology in value.subtopologies:
        for name in read_topics(subtopology):
            sources[name] = subtopology.subtopology_id
    by_id = {subtopology.subtopology_id: subtopology for subtopology in value.subtopologies}
    return StreamsTopology(value.epoch, by_id, sources)


def read_topics(subtopology: rec.Subtopology) -> list[str]:
    """The topics that a subtopology reads: external ones, then repartition topics."""
    return [*subtopology.source_topics, *(topic.name for topic in subtopology.repartition_source_topics)]


def topology_record_value(topology: heartbeat.HeartbeatTopology) -> rec.StreamsGroupTopologyValue:
    """The value of the record that keeps a member's topology. `ApiError` STREAMS_INVALID_TOPOLOGY if it has no sense.

    Apache Kafka answers an id that comes twice, a negative epoch or count, and a copartition group that points outside
    its subtopology with UNKNOWN_SERVER_ERROR, after an exception.
    """
    if topology.epoch < 0:
        raise invalid_topology(f"Topology epoch {topology.epoch} is negative.")
    seen: set[str] = set()
    for subtopology in topology.subtopologies:
        if subtopology.subtopology_id in seen:
            raise invalid_topology(f"Subtopology {subtopology.subtopology_id} is declared twice.")
        seen.add(subtopology.subtopology_id)
        _check(subtopology)
    return rec.StreamsGroupTopologyValue(
        epoch=topology.epoch, subtopologies=[_subtopology(each) for each in topology.subtopologies]
    )


def _check(subtopology: heartbeat.HeartbeatSubtopology) -> None:
    for topic in subtopology.repartition_source_topics:
        if topic.partitions < 0:
            raise invalid_topology(f"Repartition topic {topic.name} has {topic.partitions} partitions.")
    for group in subtopology.copartition_groups:
        for indexes, topics in (
            (group.source_topics, len(subtopology.source_topics)),
            (group.repartition_source_topics, len(subtopology.repartition_source_topics)),
        ):
            if any(not 0 <= index < topics for index in indexes):
                raise invalid_topology(
                    f"A copartition group of subtopology {subtopology.subtopology_id} names a topic that it lacks."
                )


def invalid_topology(message: str) -> ApiError:
    """`ApiError` STREAMS_INVALID_TOPOLOGY."""
    return ApiError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


def _subtopology(declared: heartbeat.HeartbeatSubtopology) -> rec.Subtopology:
    return rec.Subtopology(
        subtopology_id=declared.subtopology_id,
        source_topics=list(declared.source_topics),
        source_topic_regex=list(declared.source_topic_regex),
        state_changelog_topics=_topics(declared.state_changelog_topics),
        repartition_sink_topics=list(declared.repartition_sink_topics),
        repartition_source_topics=_topics(declared.repartition_source_topics),
        copartition_groups=[
            rec.CopartitionGroup(
                source_topics=list(group.source_topics),
                source_topic_regex=list(group.source_topic_regex),
                repartition_source_topics=list(group.repartition_source_topics),
            )
            for group in declared.copartition_groups
        ],
    )


def _topics(declared: Iterable[heartbeat.TopicInfo]) -> list[rec.TopicInfo]:
    return [
        rec.TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[rec.TopicConfig(key=config.key, value=config.value) for config in topic.topic_configs],
        )
        for topic in declared
    ]
