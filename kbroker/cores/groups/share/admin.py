"""Requests of administrators about share groups, and the outcomes of steps that were done outside the core.

Rules: Kafka's ``GroupCoordinatorShard`` and ``GroupMetadataManager`` (4.4).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from kbroker.cores.coordinator.result import CoordinatorRecord, CoordinatorResult
from kbroker.cores.groups.groups import Groups
from kbroker.cores.groups.settings import GroupSettings
from kbroker.cores.groups.share.records import group_epoch_record, states_record
from kbroker.cores.groups.share.requests import (
    StateDeletion,
    StateInitialization,
    by_topic,
    deletion_of_all,
    deletion_of_topic,
    with_initialized,
    with_initializing,
    without_deleted_topics,
    without_initializing,
)
from kbroker.cores.groups.share_group import NO_STATES, ShareGroup, ShareGroupMember, StatePartitions, TopicPartitions
from kbroker.cores.groups.topics import CoordinatorMetadataImage
from kbroker.cores.share_state import SharePartitionKey
from kbroker.errors import ApiError, ErrorCode
from kbroker.types import Uuid
from kbroker.wire.messages import share_group_offsets as alter
from kbroker.wire.messages import share_groups as describe

NOTHING_TO_DELETE = "There is no offset information to delete."


class OffsetsDeletion(NamedTuple):
    """The first half of a deletion: the states to delete, and the topics for which there is an error."""

    request: StateDeletion
    names: Mapping[Uuid, str]
    """The topics whose states are being deleted."""
    errors: Mapping[str, tuple[ErrorCode, str | None]]
    """By topic: the error, and a text where it is not the standard one."""


class ShareAdmin:
    """Questions about the share groups of a shard, and changes of their offsets. ``topics`` gives the latest image."""

    def __init__(
        self,
        groups: Groups,
        topics: Callable[[], CoordinatorMetadataImage],
        empty_group: Callable[[str], ShareGroup],
        settings: Callable[[], GroupSettings],
    ) -> None:
        """``empty_group`` gives a group without members, a new one if need be."""
        self._groups = groups
        self._topics = topics
        self._empty_group = empty_group
        self._settings = settings

    # -- questions -----------------------------------------------------------------------------

    def describe(self, group_id: str) -> describe.DescribedGroup:
        """ShareGroupDescribe of one group. `ApiError` GROUP_ID_NOT_FOUND."""
        group = self._groups.share_group(group_id)
        return describe.DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            group_epoch=group.group_epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=self._settings().share_assignor,
            members=[_described(member, self._topics()) for member in group.members.values()],
        )

    def initialized_partitions(self, group_id: str) -> dict[Uuid, TopicPartitions]:
        """The partitions that have a state; none for a group that is not there, as in Kafka."""
        group = self._groups.share.get(group_id)
        return {} if group is None else dict(group.states.initialized)

    # -- outcomes ------------------------------------------------------------------------------

    def state_initialized(
        self, request: StateInitialization, errors: Mapping[SharePartitionKey, ErrorCode], *, as_a_whole: bool = True
    ) -> CoordinatorResult[None]:
        """The share coordinator has answered an initialization; with any error the whole is tried again.

        Where each partition is answered for itself, and not ``as_a_whole``, those without an error have begun.
        """
        group = self._groups.share.get(request.group_id)
        if group is None:
            return CoordinatorResult(None)
        fails = as_a_whole and any(errors.values())
        done = by_topic(key for key in request.partitions if not (fails or errors[key]))
        failed = by_topic(key for key in request.partitions if fails or errors[key])
        if not as_a_whole and any(epoch < group.group_epoch for epoch, _ in request.partitions.values()):
            failed = {}  # a later alteration may be on its way there
        records = _changed(group, with_initialized(without_initializing(group.states, failed), done))
        if ErrorCode.FENCED_STATE_EPOCH in errors.values():
            # The states are of a group of this name that was lost. The next try comes with a later epoch, and so on.
            records.append(group_epoch_record(group.group_id, group.group_epoch + 1, group.metadata_hash))
        return CoordinatorResult(None, records)

    def on_topics_deleted(self, deleted: Collection[Uuid]) -> list[CoordinatorRecord]:
        """The records by which groups forget topics that are gone."""
        records = []
        for group in self._groups.share.values():
            states = without_deleted_topics(group.states, deleted)
            if states is not None:
                records.append(states_record(group.group_id, states))
        return records

    # -- offsets -------------------------------------------------------------------------------

    def alter_offsets(
        self, request: alter.AlterShareGroupOffsetsRequest, now_ms: int
    ) -> CoordinatorResult[tuple[alter.AlterShareGroupOffsetsResponse, StateInitialization]]:
        """AlterShareGroupOffsets: the states begin anew at other offsets. A group that is not there is made.

        They begin in an epoch of the group that no state has yet (KIP-932; Kafka since 4.5, KAFKA-20910). The response
        holds once the initialization has succeeded. `ApiError` NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND;
        COORDINATOR_LOAD_IN_PROGRESS, after which clients ask again, while states are being deleted: a deletion that
        came later than a new state would take that.
        """
        group = self._empty_group(request.group_id)
        is_deleting = now_ms - group.states_changed_ms < self._settings().share_initialize_retry_interval_ms
        epoch = group.group_epoch + 1
        topics: dict[Uuid, TopicPartitions] = {}
        begun: dict[SharePartitionKey, tuple[int, int]] = {}
        responses = []
        for topic in request.topics:
            known = self._topics().by_name(topic.topic_name)
            if is_deleting and known is not None and known.id in group.states.deleting:
                text = f"The states of topic {known.name} are being deleted."
                raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, text)
            count = 0 if known is None else known.partition_count
            answers = []
            for each in topic.partitions:
                error = ErrorCode.NONE if 0 <= each.partition_index < count else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                answers.append(
                    alter.AlterShareGroupOffsetsResponsePartition(
                        partition_index=each.partition_index, error_code=error
                    )
                )
                if known is not None and not error:
                    key = SharePartitionKey(group.group_id, known.id, each.partition_index)
                    begun[key] = epoch, each.start_offset
            response = alter.AlterShareGroupOffsetsResponseTopic(topic_name=topic.topic_name, partitions=answers)
            if known is not None:
                response.topic_id = known.id
                partitions = frozenset(key.partition for key in begun if key.topic_id == known.id)
                if partitions:
                    topics[known.id] = TopicPartitions(known.name, partitions)
            responses.append(response)
        records = [group_epoch_record(group.group_id, epoch, group.metadata_hash)]
        if topics:
            records += _changed(group, with_initializing(group.states, topics))
        answer = alter.AlterShareGroupOffsetsResponse(responses=responses)
        return CoordinatorResult((answer, StateInitialization(group.group_id, begun)), records)

    def begin_offsets_deletion(self, group_id: str, names: Collection[str]) -> CoordinatorResult[OffsetsDeletion]:
        """DeleteShareGroupOffsets, until the states are to go. `ApiError` NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND."""
        group = self._existing_empty(group_id)
        states = group.states
        keys: list[SharePartitionKey] = []
        deleted: dict[Uuid, str] = {}
        errors: dict[str, tuple[ErrorCode, str | None]] = {}
        for name in names:
            topic = self._topics().by_name(name)
            if topic is None:
                errors[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
                continue
            states, found = deletion_of_topic(group_id, states, topic.id, self._topics())
            if found:
                keys += found
                deleted[topic.id] = name
            else:
                errors[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOTHING_TO_DELETE
        request = StateDeletion(group_id, tuple(keys))
        return CoordinatorResult(OffsetsDeletion(request, deleted, errors), _changed(group, states))

    def begin_deletion(self, group_id: str) -> CoordinatorResult[StateDeletion | None]:
        """DeleteGroups of a share group, until its states are to go; None for a group of another kind, or without any.

        `ApiError` NON_EMPTY_GROUP.
        """
        if group_id not in self._groups.share:
            return CoordinatorResult(None)
        group = self._existing_empty(group_id)
        if group.states == NO_STATES:
            return CoordinatorResult(None)
        states, request = deletion_of_all(group, self._topics())
        return CoordinatorResult(request if request.partitions else None, _changed(group, states))

    def end_deletion(self, group_id: str, deleted: Collection[Uuid]) -> CoordinatorResult[None]:
        """The states of topics are gone."""
        group = self._groups.share.get(group_id)
        if group is None:
            return CoordinatorResult(None)
        left = {topic_id: name for topic_id, name in group.states.deleting.items() if topic_id not in deleted}
        return CoordinatorResult(None, _changed(group, group.states._replace(deleting=left)))

    def _existing_empty(self, group_id: str) -> ShareGroup:
        group = self._groups.share_group(group_id)
        if group.members:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)
        return group


def _changed(group: ShareGroup, states: StatePartitions) -> list[CoordinatorRecord]:
    """The record of the group's states, unless they are what they were."""
    return [] if states == group.states else [states_record(group.group_id, states)]


def _described(member: ShareGroupMember, topics: CoordinatorMetadataImage) -> describe.Member:
    """With names of topics; a topic that is gone has none and is left out."""
    return describe.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        assignment=describe.DescribeAssignment(
            topic_partitions=[
                describe.DescribeTopicPartitions(
                    topic_id=topic_id, topic_name=topic.name, partitions=sorted(partitions)
                )
                for topic_id, partitions in member.assigned.items()
                if (topic := topics.by_id(topic_id)) is not None
            ]
        ),
    )
