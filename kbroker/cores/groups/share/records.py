"""Records of ``__consumer_offsets`` for share groups: values of `share_group` to bytes, and back into a group.

Kafka's ``GroupCoordinatorRecordHelpers`` (types 10 to 15) and the ``replay`` methods of its ``GroupMetadataManager``
(4.4).
"""

from __future__ import annotations

from kbroker.cores.coordinator.result import CoordinatorRecord
from kbroker.cores.groups.assignors.spec import Assignment
from kbroker.cores.groups.record_maker import CommonRecords, coordinator_record, read_partitions, write_partitions
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


_COMMON = CommonRecords(
    rec.ShareGroupMetadataKey,
    rec.ShareGroupTargetAssignmentMetadataKey,
    rec.ShareGroupTargetAssignmentMetadataValue,
    rec.ShareGroupTargetAssignmentMemberKey,
    rec.ShareGroupCurrentMemberAssignmentKey,
    rec.ShareGroupMemberMetadataKey,
)
target_epoch_record, member_removal = _COMMON.target_epoch_record, _COMMON.member_removal


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


def target_record(group_id: str, member_id: str, assignment: Assignment) -> CoordinatorRecord:
    """The member's target assignment."""
    value = rec.ShareGroupTargetAssignmentMemberValue(topic_partitions=write_partitions(rec.TopicPartition, assignment))
    return coordinator_record(rec.ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def current_record(group_id: str, member: ShareGroupMember) -> CoordinatorRecord:
    """The member's epochs and partitions."""
    value = rec.ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=STABLE_MEMBER,
        assigned_partitions=write_partitions(rec.TopicPartitions, member.assigned),
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
    """Apply one record to the groups. `WireError` for a value that cannot be read."""
    group = _COMMON.replay(groups, key, value, ShareGroup)
    if group is None:
        return
    if isinstance(key, rec.ShareGroupStatePartitionMetadataKey):
        group.states = NO_STATES if value is None else _read_states(value)
        group.states_changed_ms = now_ms
    elif value is not None:
        _replay_value(group, key, value)


def _replay_value(group: ShareGroup, key: RecordKey, value: bytes) -> None:
    match key:
        case rec.ShareGroupMetadataKey():
            metadata, _ = decode_versioned(rec.ShareGroupMetadataValue, value)
            group.group_epoch, group.metadata_hash = metadata.epoch, metadata.metadata_hash
        case rec.ShareGroupTargetAssignmentMemberKey():
            target, _ = decode_versioned(rec.ShareGroupTargetAssignmentMemberValue, value)
            group.put_target(key.member_id, read_partitions(target.topic_partitions))
        case rec.ShareGroupMemberMetadataKey():
            fields, _ = decode_versioned(rec.ShareGroupMemberMetadataValue, value)
            group.put_member(
                replace(
                    group.member_or_new(key.member_id),
                    rack_id=fields.rack_id,
                    client_id=fields.client_id,
                    client_host=fields.client_host,
                    subscribed_topic_names=frozenset(fields.subscribed_topic_names),
                )
            )
        case rec.ShareGroupCurrentMemberAssignmentKey():
            current, _ = decode_versioned(rec.ShareGroupCurrentMemberAssignmentValue, value)
            group.put_member(
                replace(
                    group.member_or_new(key.member_id),
                    member_epoch=current.member_epoch,
                    previous_member_epoch=current.previous_member_epoch,
                    assigned=read_partitions(current.assigned_partitions),
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
