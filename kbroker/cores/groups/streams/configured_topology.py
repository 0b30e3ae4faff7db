"""A topology against the topics that there are: partition counts of its internal topics, tasks, and what is missing.

A repartition topic has the count that the application gave it; else that of the widest topic read by the subtopology
that writes it, or of the external topics that it is joined with. A changelog has a partition for each task.
Rules: Kafka's ``InternalTopicManager``, ``RepartitionTopics``, ``CopartitionedTopicsEnforcer``, ``ChangelogTopics``
(4.4).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from kbroker.cores.groups.streams.topology import StreamsTopology, invalid_topology, read_topics
from kbroker.cores.groups.topics import CoordinatorMetadataImage
from kbroker.value_types import dataclass, field
from kbroker.wire.records import streams_group as rec

_MOST_NAMED = 3


class StreamsStatus(IntEnum):
    """The status codes of StreamsGroupHeartbeat's answer."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6


class StatusDetail(NamedTuple):
    """A status for a member, and its explanation."""

    code: StreamsStatus
    detail: str


class InternalTopic(NamedTuple):
    """A repartition or changelog topic with its decided number of partitions; factor -1 asks for the default."""

    name: str
    partitions: int
    replication_factor: int
    configs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ConfiguredSubtopology:
    """A subtopology whose numbers of tasks and partitions are known."""

    number_of_tasks: int
    source_topics: tuple[str, ...]
    repartition_source_topics: tuple[InternalTopic, ...]
    repartition_sink_topics: tuple[str, ...]
    state_changelog_topics: tuple[InternalTopic, ...]

    @property
    def is_stateful(self) -> bool:
        """Whether its tasks have state, which standby tasks can follow."""
        return bool(self.state_changelog_topics)


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    """A topology as it fits the topics. ``problem`` keeps tasks from being assigned; None if it is ready."""

    epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology] = field(default_factory=dict)
    """By id; none where source topics are missing or do not fit."""
    missing_topics: tuple[InternalTopic, ...] = ()
    """To be created."""
    problem: StatusDetail | None = None

    @property
    def is_ready(self) -> bool:
        """Whether tasks can be assigned."""
        return self.problem is None


class _Unfit(Exception):
    """The topics do not fit the topology; a member is told the status."""

    def __init__(self, code: StreamsStatus, detail: str) -> None:
        super().__init__(detail)
        self.status = StatusDetail(code, detail)


def configure(topology: StreamsTopology, topics: CoordinatorMetadataImage) -> ConfiguredTopology:
    """The topology against the topics of an image. `ApiError` STREAMS_INVALID_TOPOLOGY if no topics can fit it."""
    try:
        _check_sources(topology, topics)
        counts = _PartitionCounts(topology, topics).decide()
        subtopologies = {
            subtopology_id: _configured(topology.subtopologies[subtopology_id], counts, topics)
            for subtopology_id in sorted(topology.subtopologies)
        }
        missing = tuple(_missing_topics(subtopologies, topics))
    except _Unfit as unfit:
        return ConfiguredTopology(topology.epoch, problem=unfit.status)
    problem = None
    if missing:
        names = _some(topic.name for topic in missing)
        problem = StatusDetail(StreamsStatus.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {names}")
    return ConfiguredTopology(topology.epoch, subtopologies, missing, problem)


def _check_sources(topology: StreamsTopology, topics: CoordinatorMetadataImage) -> None:
    missing = sorted(
        {
            name
            for subtopology in topology.subtopologies.values()
            for name in subtopology.source_topics
            if topics.by_name(name) is None
        }
    )
    if missing:
        raise _Unfit(StreamsStatus.MISSING_SOURCE_TOPICS, f"Source topics {_some(missing)} are missing.")


class _PartitionCounts:
    """Decides the partition counts of a topology's internal topics."""

    def __init__(self, topology: StreamsTopology, topics: CoordinatorMetadataImage) -> None:
        self._subtopologies = [topology.subtopologies[each] for each in sorted(topology.subtopologies)]
        self._topics = topics
        self._decided: dict[str, int] = {}
        repartition = [topic for each in self._subtopologies for topic in each.repartition_source_topics]
        self._fixed = {topic.name for topic in repartition if topic.partitions}
        self._repartition = {topic.name for topic in repartition}

    def decide(self) -> Mapping[str, int]:
        """Counts by internal topic. `ApiError` STREAMS_INVALID_TOPOLOGY."""
        self._decided = self._repartition_topics()
        for subtopology in self._subtopologies:
            for names in _copartition_groups(subtopology):
                self._enforce_copartitioning(names)
        for subtopology in self._subtopologies:
            counts = [self._count(name) for name in read_topics(subtopology)]
            if not counts:
                raise invalid_topology(f"No source topics found for subtopology {subtopology.subtopology_id}")
            for topic in subtopology.state_changelog_topics:
                self._decided[topic.name] = max(counts)
        return self._decided

    def _count(self, name: str) -> int:
        """The partitions of a topic: as it is, else as was decided."""
        found = self._topics.by_name(name)
        return self._decided[name] if found is None else found.partition_count

    def _repartition_topics(self) -> dict[str, int]:
        counts = {
            topic.name: topic.partitions
            for subtopology in self._subtopologies
            for topic in subtopology.repartition_source_topics
            if topic.partitions
        }
        unsettled = True
        while unsettled:
            unsettled = progress = False
            for subtopology in self._subtopologies:
                for sink in subtopology.repartition_sink_topics:
                    if sink in counts:
                        continue
                    width = self._width(subtopology, counts)
                    if width is None:
                        unsettled = True
                    else:
                        counts[sink] = width
                        progress = True
            if unsettled and not progress:
                raise invalid_topology(
                    "Failed to compute number of partitions for all repartition topics. There may be loops in the "
                    "topology that cannot be resolved."
                )
        if not self._repartition <= counts.keys():
            raise invalid_topology(
                "Failed to compute number of partitions for all repartition topics, because a repartition source topic "
                "is never used as a sink topic."
            )
        return counts

    def _width(self, subtopology: rec.Subtopology, counts: Mapping[str, int]) -> int | None:
        """The partitions of the widest topic that a subtopology reads, of those that are known yet."""
        known = [counts[topic.name] for topic in subtopology.repartition_source_topics if topic.name in counts]
        for name in subtopology.source_topics:
            found = self._topics.by_name(name)
            if found is not None:
                known.append(found.partition_count)
        return max(known, default=None)

    def _enforce_copartitioning(self, names: Collection[str]) -> None:
        """Give topics that are joined the same number of partitions, or find that they cannot have it."""
        repartition = {name: self._count(name) for name in names if name in self._repartition}
        external = {name: self._count(name) for name in names if name not in self._repartition}
        if external:
            wanted = _same(external, external.values())
        elif self._fixed:
            # As in Apache Kafka, all fixed topics of the topology are compared, not only those of this group.
            wanted = _same(repartition, [self._count(name) for name in sorted(self._fixed)])
        else:
            wanted = max(repartition.values(), default=0)
        for name, count in repartition.items():
            if name in self._fixed and count != wanted:
                raise _Unfit(
                    StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Number of partitions [{count}] of repartition topic [{name}] doesn't match number of partitions "
                    f"[{wanted}] of the source topic.",
                )
            self._decided[name] = wanted


def _same(shown: Mapping[str, int], counts: Iterable[int]) -> int:
    distinct = set(counts)
    if len(distinct) > 1:
        listed = ", ".join(f"{name}={count}" for name, count in sorted(shown.items()))
        raise _Unfit(
            StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{{{listed}}}]",
        )
    return distinct.pop()


def _copartition_groups(subtopology: rec.Subtopology) -> Iterator[set[str]]:
    for group in subtopology.copartition_groups:
        names = {subtopology.source_topics[index] for index in group.source_topics}
        names.update(subtopology.repartition_source_topics[index].name for index in group.repartition_source_topics)
        yield names


def _configured(
    subtopology: rec.Subtopology, counts: Mapping[str, int], topics: CoordinatorMetadataImage
) -> ConfiguredSubtopology:
    tasks = 0
    for name in read_topics(subtopology):
        found = topics.by_name(name)
        tasks = max(tasks, counts[name] if found is None else found.partition_count)
    return ConfiguredSubtopology(
        number_of_tasks=tasks,
        source_topics=tuple(subtopology.source_topics),
        repartition_source_topics=tuple(_internal(each, counts) for each in subtopology.repartition_source_topics),
        repartition_sink_topics=tuple(subtopology.repartition_sink_topics),
        state_changelog_topics=tuple(_internal(each, counts) for each in subtopology.state_changelog_topics),
    )


def _internal(topic: rec.TopicInfo, counts: Mapping[str, int]) -> InternalTopic:
    configs = {config.key: config.value for config in topic.topic_configs}
    return InternalTopic(
        topic.name, topic.partitions or counts[topic.name], topic.replication_factor or -1, tuple(configs.items())
    )


def _missing_topics(
    subtopologies: Mapping[str, ConfiguredSubtopology], topics: CoordinatorMetadataImage
) -> Iterator[InternalTopic]:
    internal = {
        topic.name: topic
        for each in subtopologies.values()
        for topic in (*each.repartition_source_topics, *each.state_changelog_topics)
    }
    for topic in sorted(internal.values()):
        found = topics.by_name(topic.name)
        if found is None:
            yield topic
        elif found.partition_count != topic.partitions:
            raise _Unfit(
                StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {topic.name} has different number of partitions: expected {topic.partitions}, "
                f"found {found.partition_count}",
            )


def _some(names: Iterable[str]) -> str:
    names = list(names)
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} additional topics" if more > 0 else "")
