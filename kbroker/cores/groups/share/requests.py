"""The partitions of a share group that have a state, and what it asks of the share coordinator outside the core.

Each function that changes states returns the stages as they are to be stored; nothing of the group changes before the
record is replayed. Rules: Kafka's ``GroupMetadataManager`` (4.4), its ``subscribedTopicsChangeMap``,
``initializeShareGroupState``, ``uninitializeShareGroupState``, ``alterShareGroupOffsets``,
``sharePartitionsEligibleForOffsetDeletion`` and ``shareGroupBuildPartitionDeleteRequest``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kbroker.cores.groups.share_group import (
    ShareGroup,
    StatePartitions,
    TopicPartitions,
    TopicsById,
    united,
    without,
    without_topics,
)
from kbroker.cores.groups.topics import CoordinatorMetadataImage
from kbroker.cores.share_state import UNINITIALIZED_START_OFFSET, SharePartitionKey
from kbroker.types import Uuid
from kbroker.value_types import NamedTuple


class StateInitialization(NamedTuple):
    """Share partitions that begin anew, each with its state epoch and start offset."""

    group_id: str
    partitions: Mapping[SharePartitionKey, tuple[int, int]]

    def topics(self) -> dict[Uuid, frozenset[int]]:
        """The partitions by topic."""
        return by_topic(self.partitions)


class StateDeletion(NamedTuple):
    """Share partitions to be forgotten."""

    group_id: str
    partitions: tuple[SharePartitionKey, ...]


def keys_of(group_id: str, topics: TopicsById) -> tuple[SharePartitionKey, ...]:
    """The share partitions of a group, in order."""
    return tuple(
        SharePartitionKey(group_id, topic_id, partition)
        for topic_id in sorted(topics)
        for partition in sorted(topics[topic_id].partitions)
    )


def by_topic(keys: Iterable[SharePartitionKey]) -> dict[Uuid, frozenset[int]]:
    """The partitions of share partitions by topic."""
    found: dict[Uuid, set[int]] = {}
    for key in keys:
        found.setdefault(key.topic_id, set()).add(key.partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in found.items()}


def named(topics: Mapping[Uuid, frozenset[int]], known: TopicsById) -> dict[Uuid, TopicPartitions]:
    """The partitions with the names that ``known`` has for their topics; a topic that is not there is left out."""
    return {
        topic_id: TopicPartitions(known[topic_id].name, partitions)
        for topic_id, partitions in topics.items()
        if topic_id in known
    }


def lacking_states(
    group: ShareGroup, names: Iterable[str], topics: CoordinatorMetadataImage
) -> dict[Uuid, TopicPartitions]:
    """The partitions of subscribed topics that have no state yet."""
    every = {}
    for name in names:
        topic = topics.by_name(name)
        if topic is not None:
            every[topic.id] = TopicPartitions(name, frozenset(range(topic.partition_count)))
    return without(every, group.states.initialized)


def missing_states(group: ShareGroup, lacking: TopicsById, now_ms: int, retry_ms: int) -> TopicsById:
    """Those of the ``lacking`` for which no state is on its way, and none is being deleted.

    A deletion that came later than the new state would take that, and nobody would begin it again.
    """
    if now_ms - group.states_changed_ms >= retry_ms:
        return lacking
    return without(without_topics(lacking, group.states.deleting), group.states.initializing)


def initialization(group: ShareGroup, missing: TopicsById, state_epoch: int) -> StateInitialization:
    """The request that makes the missing states.

    A new topic begins where ``share.auto.offset.reset`` says. A partition that was added to a topic which the group
    reads begins at 0: records may have come since.
    """
    states = group.states
    partitions = {}
    for key in keys_of(group.group_id, missing):
        begun = states.initializing.get(key.topic_id)
        is_added = key.topic_id in states.initialized or (begun is not None and key.partition not in begun.partitions)
        partitions[key] = state_epoch, 0 if is_added else UNINITIALIZED_START_OFFSET
    return StateInitialization(group.group_id, partitions)


def with_initializing(states: StatePartitions, topics: TopicsById) -> StatePartitions:
    """The stages once states of ``topics`` are on their way; they are not being deleted any more."""
    initializing = united(states.initializing, topics)
    deleting = {topic_id: name for topic_id, name in states.deleting.items() if topic_id not in initializing}
    return StatePartitions(initializing, states.initialized, deleting)


def with_initialized(states: StatePartitions, partitions: Mapping[Uuid, frozenset[int]]) -> StatePartitions:
    """The stages once states are there. Those that nobody waits for any more (of a deleted topic) are left out."""
    done = named(partitions, states.initializing)
    return StatePartitions(without(states.initializing, done), united(states.initialized, done), states.deleting)


def without_initializing(states: StatePartitions, partitions: Mapping[Uuid, frozenset[int]]) -> StatePartitions:
    """The stages when states could not be made: the next heartbeat tries again."""
    failed = named(partitions, states.initializing)
    return StatePartitions(without(states.initializing, failed), states.initialized, states.deleting)


def without_deleted_topics(states: StatePartitions, deleted: Collection[Uuid]) -> StatePartitions | None:
    """The stages without topics that are gone, whose states the share coordinator drops by itself; None: no change."""
    if not any(topic_id in part for part in states for topic_id in deleted):
        return None
    return StatePartitions(
        without_topics(states.initializing, deleted),
        without_topics(states.initialized, deleted),
        {topic_id: name for topic_id, name in states.deleting.items() if topic_id not in deleted},
    )


def deletion_of_all(group: ShareGroup, topics: CoordinatorMetadataImage) -> tuple[StatePartitions, StateDeletion]:
    """Every state of the group goes, those too that an earlier request could not delete.

    Not those of topics that are gone, though the group may not know: the share coordinator drops them by itself.
    """
    states = group.states
    every = united(states.initialized, states.initializing)
    every = united(every, _whole_topics(states.deleting, topics))
    every = {topic_id: each for topic_id, each in every.items() if topics.partition_count(topic_id) > 0}
    deleting = {topic_id: each.name for topic_id, each in every.items()}
    return StatePartitions(deleting=deleting), StateDeletion(group.group_id, keys_of(group.group_id, every))


def deletion_of_topic(
    group_id: str, states: StatePartitions, topic_id: Uuid, topics: CoordinatorMetadataImage
) -> tuple[StatePartitions, tuple[SharePartitionKey, ...]]:
    """The initialized states of one topic go; nothing where there are none."""
    known = states.initialized.get(topic_id)
    if known is None:
        retried = _whole_topics({topic_id: states.deleting[topic_id]}, topics) if topic_id in states.deleting else {}
        return states, keys_of(group_id, retried)
    return (
        StatePartitions(
            states.initializing,
            without_topics(states.initialized, (topic_id,)),
            {**states.deleting, topic_id: known.name},
        ),
        keys_of(group_id, {topic_id: known}),
    )


def _whole_topics(names: Mapping[Uuid, str], topics: CoordinatorMetadataImage) -> dict[Uuid, TopicPartitions]:
    """All partitions of topics, of those that still exist."""
    return {
        topic_id: TopicPartitions(name, frozenset(range(topics.partition_count(topic_id))))
        for topic_id, name in names.items()
        if topics.partition_count(topic_id) > 0
    }


def waits_for_assignment(group: ShareGroup, topics: CoordinatorMetadataImage) -> bool:
    """Whether a subscribed topic has states that no target assignment has taken up.

    A topic that is gone waits for nothing, though the group may not know: it had no coordinator when that was told.
    """
    names = group.subscribed_names()
    targets: dict[Uuid, set[int]] = {}
    for assignment in group.target.values():
        for topic_id, partitions in assignment.items():
            targets.setdefault(topic_id, set()).update(partitions)
    return bool(group.members) and any(
        topic.name in names
        and targets.get(topic_id, set()) != set(topic.partitions)
        and topics.by_id(topic_id) is not None
        for topic_id, topic in group.states.initialized.items()
    )
