"""Records of ``__consumer_offsets`` for share groups: values of `share_group` to bytes, and back into a group.

Kafka's ``GroupCoordinatorRecordHelpers`` (types 10 to 15) and the ``replay`` methods of its ``GroupMetadataManager``
(4.4).
"""

from __future__ import annotations

from kbroker.cores.coordinator.result import CoordinatorRecord
from kbroker.cores.groups.assignors.spec import Assignment
from kbroker.cores.groups.modern_group import LEAVE_GROUP_MEMBER_EPOCH, NO_ASSIGNMENT_EPOCH, NOTHING_ASSIGNED
from kbroker.cores.groups.record_maker import coordinator_record
from kbroker.cores.groups.share_group import (
    NO_STATES,
    STABLE_MEMBER,
    ShareGroup,
    ShareGroupMember,
    StatePartitions,
    TopicPartitions,
    TopicsById,
)
from kbroker.types import Uuid
from kbroker.value_types import replace
from kbroker.wire.records import share_group as rec
from kbroker.wire.records.versioned import decode_versioned

RecordKey = (
    rec.ShareGroupMemberMetadataKey
    | rec.ShareGroupMetadataKey
    | rec.ShareGroupTargetAssignmentMetadataKey
    | rec.ShareGroupTargetAssignmentMemberKey
    | rec.ShareGroupCurrentMemberAssignmentKey
    | rec.ShareGroupStatePartitionMetadataKey
)
"""The keys of such records."""


def group_epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """The group's epoch, and the hash of the topics that it stands for."""
    value = rec.ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return coordinator_record(rec.ShareGroupMetadataKey(group_id=group_id), value)


def member_record(group_id: str, member: ShareGroupMember) -> CoordinatorRecord:
    """The record of a member: the fields of its heartbeats."""
    value = rec.ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
    )
    return coordinator_record(rec.ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    """The epoch that the target assignment was made for, and when."""
    value = rec.ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
    return coordinator_record(rec.ShareGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def target_record(group_id: str, member_id: str, assignment: Assignment) -> CoordinatorRecord:
    """The member's target assignment."""
    value = rec.ShareGroupTargetAssignmentMemberValue(
        topic_partitions=[
            rec.TopicPartition(topic_id=topic_id, partitions=sorted(assignment[topic_id]))
            for topic_id in sorted(assignment)
        ]
    )
    return coordinator_record(rec.ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def current_record(group_id: str, member: ShareGroupMember) -> CoordinatorRecord:
    """The member's epochs and partitions."""
    value = rec.ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=STABLE_MEMBER,
        assigned_partitions=[
            rec.TopicPartitions(topic_id=topic_id, partitions=sorted(member.assigned[topic_id]))
            for topic_id in sorted(member.assigned)
        ],
    )
    key = rec.ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return coordinator_record(key, value)


def states_record(group_id: str, states: StatePartitions) -> CoordinatorRecord:
    """The partitions by the stage of their states."""
    value = rec.ShareGroupStatePartitionMetadataValue(
        initializing_topics=_topics_info(states.initializing),
        initialized_topics=_topics_info(states.initialized),
        deleting_topics=[
            rec.TopicInfo(topic_id=topic_id, topic_name=states.deleting[topic_id])
            for topic_id in sorted(states.deleting)
        ],
    )
    return coordinator_record(rec.ShareGroupStatePartitionMetadataKey(group_id=group_id), value)


def _topics_info(topics: TopicsById) -> list[rec.TopicPartitionsInfo]:
    return [
        rec.TopicPartitionsInfo(
            topic_id=topic_id, topic_name=topics[topic_id].name, partitions=sorted(topics[topic_id].partitions)
        )
        for topic_id in sorted(topics)
    ]


def member_removal(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Everything of a member; Kafka refuses another order."""
    return [
        coordinator_record(key(group_id=group_id, member_id=member_id), None)
        for key in (
            rec.ShareGroupCurrentMemberAssignmentKey,
            rec.ShareGroupTargetAssignmentMemberKey,
            rec.ShareGroupMemberMetadataKey,
        )
    ]


def group_removal(group: ShareGroup) -> list[CoordinatorRecord]:
    """Everything of a group without members."""
    return [
        coordinator_record(key(group_id=group.group_id), None)
        for key in (
            rec.ShareGroupTargetAssignmentMetadataKey,
            rec.ShareGroupStatePartitionMetadataKey,
            rec.ShareGroupMetadataKey,
        )
    ]


# -- back ------------------------------------------------------------------------------------------


def replay(groups: dict[str, ShareGroup], key: RecordKey, value: bytes | None, now_ms: int) -> None:
    """Apply one record to the groups; a group begins with its first value and ends with its epoch's tombstone.

    A tombstone without a value before it changes nothing. `WireError` for a value that cannot be read.
    """
    group = groups.get(key.group_id)
    if group is None:
        if value is None:
            return
        group = groups[key.group_id] = ShareGroup(key.group_id)
    match key:
        case rec.ShareGroupCurrentMemberAssignmentKey():
            _replay_current(group, key.member_id, value)
        case rec.ShareGroupTargetAssignmentMemberKey():
            assignment = None
            if value is not None:
                target, _ = decode_versioned(rec.ShareGroupTargetAssignmentMemberValue, value)
                assignment = {Uuid(each.topic_id): frozenset(each.partitions) for each in target.topic_partitions}
            group.put_target(key.member_id, assignment)
        case rec.ShareGroupMemberMetadataKey():
            _replay_member(group, key.member_id, value)
        case rec.ShareGroupMetadataKey():
            if value is None:
                del groups[key.group_id]
                return
            metadata, _ = decode_versioned(rec.ShareGroupMetadataValue, value)
            group.group_epoch, group.metadata_hash = metadata.epoch, metadata.metadata_hash
        case rec.ShareGroupTargetAssignmentMetadataKey():
            if value is None:
                group.assignment_epoch, group.assignment_timestamp_ms = NO_ASSIGNMENT_EPOCH, 0
                return
            made, _ = decode_versioned(rec.ShareGroupTargetAssignmentMetadataValue, value)
            group.assignment_epoch, group.assignment_timestamp_ms = made.assignment_epoch, made.assignment_timestamp
        case rec.ShareGroupStatePartitionMetadataKey():
            group.states = NO_STATES if value is None else _read_states(value)
            group.states_changed_ms = now_ms


def _replay_current(group: ShareGroup, member_id: str, value: bytes | None) -> None:
    member = group.members.get(member_id)
    if value is not None:
        current, _ = decode_versioned(rec.ShareGroupCurrentMemberAssignmentValue, value)
        group.put_member(
            replace(
                member if member is not None else ShareGroupMember(member_id),
                member_epoch=current.member_epoch,
                previous_member_epoch=current.previous_member_epoch,
                assigned={Uuid(each.topic_id): frozenset(each.partitions) for each in current.assigned_partitions},
            )
        )
    elif member is not None:
        left = LEAVE_GROUP_MEMBER_EPOCH
        group.put_member(replace(member, member_epoch=left, previous_member_epoch=left, assigned=NOTHING_ASSIGNED))


def _replay_member(group: ShareGroup, member_id: str, value: bytes | None) -> None:
    if value is None:
        group.remove_member(member_id)
        return
    metadata, _ = decode_versioned(rec.ShareGroupMemberMetadataValue, value)
    member = group.members.get(member_id)
    group.put_member(
        replace(
            member if member is not None else ShareGroupMember(member_id),
            rack_id=metadata.rack_id,
            client_id=metadata.client_id,
            client_host=metadata.client_host,
            subscribed_topic_names=frozenset(metadata.subscribed_topic_names),
        )
    )


def _read_states(value: bytes) -> StatePartitions:
    read, _ = decode_versioned(rec.ShareGroupStatePartitionMetadataValue, value)
    return StatePartitions(
        _topics(read.initializing_topics),
        _topics(read.initialized_topics),
        {Uuid(each.topic_id): each.topic_name for each in read.deleting_topics},
    )


def _topics(topics: list[rec.TopicPartitionsInfo]) -> TopicsById:
    return {Uuid(each.topic_id): TopicPartitions(each.topic_name, frozenset(each.partitions)) for each in topics}
