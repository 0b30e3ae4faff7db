"""The questions to assignors, and the judgement of their answers (KIP-848, KIP-932, KIP-1357).

An assignor of tasks is given a `StreamsGroup`, one of partitions a `ConsumerGroup`. Mappings and sets are not to be
changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import NamedTuple

from kbroker.types import TopicPartition


class Task(NamedTuple):
    """The work on one partition of each source topic of a subtopology. A plain tuple of the same is equal to it."""

    subtopology: str
    partition: int


class Tasks(NamedTuple):
    """Tasks of a member, by role. An assignor answers with the first two (Kafka's ``MemberAssignment``)."""

    active: Iterable[tuple[str, int]] = frozenset()
    """Those that process records."""
    standby: Iterable[tuple[str, int]] = frozenset()
    """Those whose state is kept up to date for a takeover."""


class StreamsMember(NamedTuple):
    """A thread of a Kafka Streams application (Kafka's ``MemberAssignmentMetadata`` and ``MemberAssignmentState``)."""

    process_id: str
    """The process that the member is a thread of: its threads share the state on its disk."""
    instance_id: str | None
    rack_id: str | None
    client_tags: Mapping[str, str]
    active: Set[Task]
    """The active tasks that it has now."""
    standby: Set[Task]
    """The standby tasks that it has now."""
    warmup: Set[Task]
    task_offsets: Mapping[Task, int]
    """The offsets that it says it has read of its tasks' changelogs, those on its disk included; summed over stores."""
    task_end_offsets: Mapping[Task, int]
    """The ends of these changelogs, as it knows them."""


class Subtopology(NamedTuple):
    """A part of the topology that is connected (Kafka's ``TopologyDescriber``)."""

    partitions: int
    """The number of its tasks."""
    is_stateful: bool
    """Whether its tasks have state, which standby tasks can follow."""
    source_topics: tuple[str, ...]


class StreamsGroup(NamedTuple):
    """A group whose tasks are to be assigned (Kafka's ``GroupSpec`` of streams groups)."""

    members: Mapping[str, StreamsMember]
    """By member id."""
    subtopologies: Mapping[str, Subtopology]
    """By id."""
    num_standby_replicas: int
    rack_aware_assignment_tags: tuple[str, ...]

    @property
    def tasks(self) -> list[Task]:
        """Every task of the topology, in order."""
        return [Task(name, each) for name, one in self.subtopologies.items() for each in range(one.partitions)]


class ConsumerMember(NamedTuple):
    """A member of a consumer group or a share group (Kafka's ``MemberSubscription``)."""

    instance_id: str | None
    rack_id: str | None
    topics: Set[str]
    """Those that it subscribes to."""
    partitions: Set[TopicPartition]
    """Its part of the target assignment until now."""


class ConsumerTopic(NamedTuple):
    """A topic that members subscribe to (Kafka's ``SubscribedTopicDescriber``)."""

    partitions: tuple[int, ...]
    """Those to assign; of a share group's topic those that have a state at the share coordinator."""
    racks: tuple[tuple[str, ...], ...]
    """By partition, the racks of its replicas; empty if no broker names a rack."""


class ConsumerGroup(NamedTuple):
    """A group whose partitions are to be assigned (Kafka's ``GroupSpec``)."""

    members: Mapping[str, ConsumerMember]
    """By member id."""
    topics: Mapping[str, ConsumerTopic]
    """By name; those that do not exist are left out."""

    @property
    def partitions(self) -> list[TopicPartition]:
        """Every partition to assign, in order."""
        return [TopicPartition(name, each) for name, topic in self.topics.items() for each in topic.partitions]


class BadAssignment(ValueError):
    """An answer that no group can have; the text says why."""


def checked_tasks(group: StreamsGroup, answer: object) -> dict[str, Tasks]:
    """The answer with sets of `Task`. :class:`BadAssignment` unless each task is active with one known member."""
    known = set(group.tasks)
    active_with: dict[Task, str] = {}
    checked = {}
    for member_id, tasks in _of_members(answer, group.members):
        if not isinstance(tasks, Tasks):
            raise BadAssignment(f"member {member_id} has a value of type {type(tasks).__name__}, and no Tasks")
        active = {Task(*each) for each in _pairs(tasks.active, member_id, known, "task")}
        standby = {Task(*each) for each in _pairs(tasks.standby, member_id, known, "task")}
        for task in sorted(active):
            if task in active_with:
                raise BadAssignment(f"task {_named(task)} is active with {active_with[task]} and with {member_id}")
            active_with[task] = member_id
        for task in sorted(standby):
            if task in active:
                raise BadAssignment(f"task {_named(task)} is active and standby with {member_id}")
            if not group.subtopologies[task.subtopology].is_stateful:
                raise BadAssignment(f"task {_named(task)} has no state, and a standby with {member_id}")
        checked[member_id] = Tasks(active, standby)
    missing = sorted(known - active_with.keys())
    if missing:
        raise BadAssignment(f"task {_named(missing[0])} is active with nobody{_more(missing)}")
    return checked


def checked_partitions(
    group: ConsumerGroup, answer: object, *, is_shared: bool = False
) -> dict[str, set[TopicPartition]]:
    """The answer with sets. :class:`BadAssignment` unless each partition has one subscriber; ``is_shared``: or more."""
    known = set(group.partitions)
    owners: dict[TopicPartition, str] = {}
    checked = {}
    for member_id, given in _of_members(answer, group.members):
        partitions = {TopicPartition(*each) for each in _pairs(given, member_id, known, "partition")}
        for partition in sorted(partitions):
            if partition.topic not in group.members[member_id].topics:
                raise BadAssignment(f"partition {partition} is {member_id}'s, which has not subscribed to its topic")
            if partition in owners and not is_shared:
                raise BadAssignment(f"partition {partition} is {owners[partition]}'s and {member_id}'s")
            owners[partition] = member_id
        checked[member_id] = partitions
    missing = sorted(known - owners.keys())
    if missing:
        raise BadAssignment(f"partition {missing[0]} is nobody's{_more(missing)}")
    return checked


def _of_members(answer: object, members: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    if not isinstance(answer, Mapping):
        raise BadAssignment(f"it is a value of type {type(answer).__name__}, and no mapping by member id")
    for member_id, given in answer.items():
        if not isinstance(member_id, str) or member_id not in members:
            raise BadAssignment(f"there is no member {str(member_id)[:100]}")
        yield member_id, given


def _pairs(given: object, member_id: str, known: Set[tuple[str, int]], what: str) -> Iterator[tuple[str, int]]:
    """The entries of one member; each is one of ``known``, once."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise BadAssignment(f"member {member_id} has a value of type {type(given).__name__}, and no set of {what}s")
    seen: set[tuple[str, int]] = set()
    for each in given:
        if not isinstance(each, tuple) or len(each) != 2 or type(each[0]) is not str or type(each[1]) is not int:
            raise BadAssignment(f"member {member_id} has an entry of type {type(each).__name__}, and no {what}")
        if each not in known:
            raise BadAssignment(f"there is no {what} {_named(each)}, which {member_id} is to have")
        if each in seen:
            raise BadAssignment(f"{what} {_named(each)} is there twice with {member_id}")
        seen.add(each)
        yield each


def _named(pair: tuple[str, int]) -> str:
    return f"{pair[0][:100]}-{pair[1]}"


def _more(missing: list[Task] | list[TopicPartition]) -> str:
    return f", like {len(missing) - 1} more" if len(missing) > 1 else ""
