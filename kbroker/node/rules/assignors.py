"""Assignors of one's own for consumer groups, share groups and streams groups (KIP-848, KIP-932, KIP-1357).

A group's coordinator asks within a heartbeat, so the node waits for the answer, which has half a second. An assignor
that raises, is late, is left alone since it was slow, or answers what no group can have leaves its group with the
assignment that it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from kbroker.config import BrokerConfig
from kbroker.config.assignors import (
    CONSUMER_ASSIGNORS,
    SHARE_ASSIGNORS,
    STREAMS_ASSIGNORS,
    assignor_name,
    names_callable,
)
from kbroker.cores.groups.assignors.spec import Assignment, AssignmentKept, GroupSpec
from kbroker.cores.groups.own_assignors import OwnAssignors
from kbroker.cores.groups.streams.assignors.spec import GroupSpec as StreamsSpec
from kbroker.cores.groups.streams.configured_topology import ConfiguredSubtopology
from kbroker.cores.groups.streams.tasks import TaskId
from kbroker.cores.groups.streams.tasks import Tasks as GroupTasks
from kbroker.cores.groups.topics import CoordinatorMetadataImage, TopicMetadata
from kbroker.node.rules.complaints import Complaints
from kbroker.node.rules.timed_calls import Busy, CallTimedOut, MakeCalls, Raised, timeout_of
from kbroker.rules.assignors import (
    BadAssignment,
    ConsumerGroup,
    ConsumerMember,
    ConsumerTopic,
    StreamsGroup,
    StreamsMember,
    Subtopology,
    Task,
    checked_partitions,
    checked_tasks,
)
from kbroker.rules.loading import call_of, described
from kbroker.types import TopicPartition, Uuid

TIMEOUT_SECONDS: Final = 0.5
GRACE_SECONDS: Final = 0.25
"""A node waits for an assignor for so long in a row, then leaves it alone for nine times as long: groups can wait."""

_KEPT: Final = "the group keeps the assignment that it has"
A = TypeVar("A")


def own_assignors(config: BrokerConfig, load: Callable[[str, str, str], Any], calls: MakeCalls) -> OwnAssignors:
    """The callables of a node's file. ``load`` takes property, value and method; `FatalError`.

    ``calls`` makes what a rule is asked by.
    """

    def of(property_name: str) -> list[tuple[str, _Asked]]:
        texts = [text for text in config.values[property_name] if names_callable(text)]
        return [(assignor_name(text), _Asked(load(property_name, text, "assign"), text, calls)) for text in texts]

    shared = of(SHARE_ASSIGNORS)
    return OwnAssignors(
        consumer={name: _ConsumerAssignor(asked) for name, asked in of(CONSUMER_ASSIGNORS)},
        streams={name: _StreamsAssignor(asked) for name, asked in of(STREAMS_ASSIGNORS)},
        share=_ShareAssignor(*shared[0]) if shared else None,
    )


class _Asked:
    """A rule that is asked for assignments."""

    def __init__(self, rule: Any, name: str, calls: MakeCalls) -> None:
        self._assign = call_of(rule, "assign")
        self._calls = calls(TIMEOUT_SECONDS, GRACE_SECONDS, timeout_of(rule, name))
        self._complaints = Complaints(name)

    def answer(self, group: object, judge: Callable[[Any], A]) -> A:
        """The answer as ``judge`` takes it, in the rule's thread: a collection of the rule's may be code, too.

        `AssignmentKept`, after the log has been told why.
        """
        try:
            answer: A = self._calls.call(lambda question: judge(self._assign(question)), group)
            return answer
        except Raised as raised:
            if isinstance(raised.error, BadAssignment):
                self._complaints.bad(str(raised.error), _KEPT)
            else:
                self._complaints.failed(described(raised.error), _KEPT)
        except CallTimedOut:
            self._complaints.late(self._calls.timeout, _KEPT)
        except Busy:
            self._complaints.busy(_KEPT)
        raise AssignmentKept


class _StreamsAssignor:
    """A `kbroker.cores.groups.streams.assignors.spec.TaskAssignor`."""

    def __init__(self, asked: _Asked) -> None:
        self._asked = asked

    def assign(
        self, group: StreamsSpec, subtopologies: Mapping[str, ConfiguredSubtopology]
    ) -> Mapping[str, GroupTasks]:
        """See `TaskAssignor.assign`."""
        question = StreamsGroup(
            {
                member_id: StreamsMember(
                    process_id=member.process_id,
                    instance_id=member.instance_id,
                    rack_id=member.rack_id,
                    client_tags=dict(member.client_tags),
                    active=_tasks(member.current.active),
                    standby=_tasks(member.current.standby),
                    warmup=_tasks(member.current.warmup),
                    task_offsets={Task(*task): offset for task, offset in member.task_offsets.items()},
                    task_end_offsets={Task(*task): offset for task, offset in member.task_end_offsets.items()},
                )
                for member_id, member in group.members.items()
            },
            {
                name: Subtopology(
                    each.number_of_tasks,
                    each.is_stateful,
                    (*each.source_topics, *(topic.name for topic in each.repartition_source_topics)),
                )
                for name, each in subtopologies.items()
            },
            group.configs.num_standby_replicas,
            group.configs.rack_aware_assignment_tags,
        )
        checked = self._asked.answer(question, lambda answer: checked_tasks(question, answer))
        return {
            member_id: GroupTasks(_task_ids(tasks.active), _task_ids(tasks.standby))
            for member_id, tasks in checked.items()
        }


def _tasks(tasks: Any) -> frozenset[Task]:
    return frozenset(Task(*task) for task in tasks)


def _task_ids(tasks: Any) -> frozenset[TaskId]:
    return frozenset(TaskId(*task) for task in tasks)


class _ConsumerAssignor:
    """A `kbroker.cores.groups.assignors.spec.NamedTopicsAssignor`."""

    def __init__(self, asked: _Asked) -> None:
        self._asked = asked

    def assign(self, group: GroupSpec, topics: CoordinatorMetadataImage) -> Mapping[str, Assignment]:
        """See `NamedTopicsAssignor.assign`."""
        known = _subscribed(group, topics)
        question = _question(
            group, known, {topic_id: tuple(range(topic.partition_count)) for topic_id, topic in known.items()}
        )
        checked = self._asked.answer(question, lambda answer: checked_partitions(question, answer))
        return _assignments(group, known, checked)


class _ShareAssignor:
    """A `kbroker.cores.groups.assignors.spec.ShareAssignor`."""

    def __init__(self, name: str, asked: _Asked) -> None:
        self.name = name
        self._asked = asked

    def assign(
        self, group: GroupSpec, assignable: Mapping[Uuid, frozenset[int]], topics: CoordinatorMetadataImage
    ) -> Mapping[str, Assignment]:
        """See `ShareAssignor.assign`."""
        known = _subscribed(group, topics)
        question = _question(group, known, {each: tuple(sorted(assignable.get(each, ()))) for each in known})
        checked = self._asked.answer(question, lambda answer: checked_partitions(question, answer, is_shared=True))
        return _assignments(group, known, checked)


def _subscribed(group: GroupSpec, topics: CoordinatorMetadataImage) -> dict[Uuid, TopicMetadata]:
    """The topics that members subscribe to, in the order of their names."""
    ids = {topic_id for member in group.members.values() for topic_id in member.subscribed_topic_ids}
    found = [topic for topic in map(topics.by_id, ids) if topic is not None]
    return {topic.id: topic for topic in sorted(found, key=lambda topic: topic.name)}


def _question(
    group: GroupSpec, known: Mapping[Uuid, TopicMetadata], partitions: Mapping[Uuid, tuple[int, ...]]
) -> ConsumerGroup:
    return ConsumerGroup(
        {
            member_id: ConsumerMember(
                member.instance_id,
                member.rack_id,
                frozenset(known[each].name for each in member.subscribed_topic_ids if each in known),
                frozenset(
                    TopicPartition(known[each].name, partition)
                    for each, numbers in member.assigned.items()
                    if each in known
                    for partition in numbers
                ),
            )
            for member_id, member in group.members.items()
        },
        {topic.name: ConsumerTopic(partitions[topic_id], topic.racks) for topic_id, topic in known.items()},
    )


def _assignments(
    group: GroupSpec, known: Mapping[Uuid, TopicMetadata], checked: Mapping[str, set[TopicPartition]]
) -> dict[str, Assignment]:
    """By topic id, for every member. What has not changed is the same object as before."""
    ids = {topic.name: topic_id for topic_id, topic in known.items()}
    result: dict[str, Assignment] = {}
    for member_id, member in group.members.items():
        numbers: dict[Uuid, set[int]] = {}
        for topic, partition in checked.get(member_id, ()):
            numbers.setdefault(ids[topic], set()).add(partition)
        made = {topic_id: frozenset(numbers[topic_id]) for topic_id in sorted(numbers)}
        result[member_id] = member.assigned if made == member.assigned else made
    return result
