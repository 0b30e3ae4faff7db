"""Records of ``__consumer_offsets`` for consumer groups: values of `consumer_group` to bytes, and back into a group.

Kafka's ``GroupCoordinatorRecordHelpers`` (types 3 to 8, and 16) and the ``replay`` methods of its
``GroupMetadataManager`` (4.3).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kbroker.cores.coordinator.result import CoordinatorRecord
from kbroker.cores.groups.assignors.spec import Assignment
from kbroker.cores.groups.consumer_group import (
    NO_PARTITIONS,
    ClassicMemberMetadata,
    ConsumerGroup,
    ConsumerGroupMember,
    MemberState,
    PartitionEpochs,
    ResolvedRegex,
)
from kbroker.cores.groups.record_maker import (
    CommonRecords,
    coordinator_record,
    read_partitions,
    with_epochs,
    write_partitions,
)
from kbroker.types import Uuid
from kbroker.value_types import replace
from kbroker.wire.records import consumer_group as rec
from kbroker.wire.records.versioned import decode_versioned

RECORD_TYPES = frozenset({3, 4, 5, 6, 7, 8, 16})
"""The types that `replay` applies."""


def group_epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """The group's epoch, and the hash of the topics that it stands for."""
    value = rec.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return coordinator_record(rec.ConsumerGroupMetadataKey(group_id=group_id), value)


def partition_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """Removes the partition metadata, which Kafka 4.0 stored in the place of the metadata hash."""
    return coordinator_record(rec.ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def member_record(group_id: str, member: ConsumerGroupMember) -> CoordinatorRecord:
    """The record of a member: the fields of its heartbeats."""
    classic = None
    if member.classic is not None:
        classic = rec.ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[
                rec.ClassicProtocol(name=name, metadata=metadata) for name, metadata in member.classic.protocols
            ],
        )
    value = rec.ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=classic,
    )
    return coordinator_record(rec.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def target_record(group_id: str, member_id: str, assignment: Assignment) -> CoordinatorRecord:
    """The member's target assignment."""
    value = rec.ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=write_partitions(rec.TopicPartition, assignment)
    )
    return coordinator_record(rec.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def current_record(group_id: str, member: ConsumerGroupMember) -> CoordinatorRecord:
    """The member's epochs, state and partitions."""
    value = rec.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=member.state,
        assigned_partitions=_topic_partitions(member.assigned),
        partitions_pending_revocation=_topic_partitions(member.pending_revocation),
    )
    key = rec.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return coordinator_record(key, value)


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> CoordinatorRecord:
    """The topics that a regular expression stands for."""
    value = rec.ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
    )
    return coordinator_record(rec.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), value)


def regex_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    """Forgets the topics that a regular expression matched."""
    return coordinator_record(rec.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None)


_COMMON = CommonRecords(
    rec.ConsumerGroupMetadataKey,
    rec.ConsumerGroupTargetAssignmentMetadataKey,
    rec.ConsumerGroupTargetAssignmentMetadataValue,
    rec.ConsumerGroupTargetAssignmentMemberKey,
    rec.ConsumerGroupCurrentMemberAssignmentKey,
    rec.ConsumerGroupMemberMetadataKey,
)
target_epoch_record, member_removal = _COMMON.target_epoch_record, _COMMON.member_removal


def group_removal(group: ConsumerGroup, member_ids: Iterable[str] | None = None) -> list[CoordinatorRecord]:
    """Everything of the group; ``member_ids`` where they are not those of ``group.members``."""
    group_id = group.group_id
    members = [member_removal(group_id, each) for each in (group.members if member_ids is None else member_ids)]
    return [
        *(current for current, _, _ in members),
        *(target for _, target, _ in members),
        coordinator_record(rec.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *(member for _, _, member in members),
        *(regex_tombstone(group_id, regex) for regex in group.resolved_regexes),
        partition_metadata_tombstone(group_id),
        coordinator_record(rec.ConsumerGroupMetadataKey(group_id=group_id), None),
    ]


def _topic_partitions(partitions: PartitionEpochs) -> list[rec.TopicPartitions]:
    return [
        rec.TopicPartitions(
            topic_id=topic_id,
            partitions=(indexes := sorted(partitions[topic_id])),
            assignment_epochs=[partitions[topic_id][index] for index in indexes],
        )
        for topic_id in sorted(partitions)
    ]


# -- back ------------------------------------------------------------------------------------------


def replay(groups: dict[str, ConsumerGroup], key: Any, value: bytes | None) -> None:
    """Apply one record to the groups. `WireError` for a value that cannot be read."""
    group = _COMMON.replay(groups, key, value, ConsumerGroup)
    if group is None:
        return
    match key:
        case rec.ConsumerGroupPartitionMetadataKey():
            group.has_partition_metadata_record = value is not None
        case rec.ConsumerGroupRegularExpressionKey():
            regex = None
            if value is not None:
                read, _ = decode_versioned(rec.ConsumerGroupRegularExpressionValue, value)
                regex = ResolvedRegex(frozenset(read.topics), read.version, read.timestamp)
            group.put_regex(key.regular_expression, regex)
        case _ if value is not None:
            _replay_value(group, key, value)


def _replay_value(group: ConsumerGroup, key: Any, value: bytes) -> None:
    match key:
        case rec.ConsumerGroupMetadataKey():
            metadata, _ = decode_versioned(rec.ConsumerGroupMetadataValue, value)
            group.group_epoch, group.metadata_hash = metadata.epoch, metadata.metadata_hash
        case rec.ConsumerGroupTargetAssignmentMemberKey():
            target, _ = decode_versioned(rec.ConsumerGroupTargetAssignmentMemberValue, value)
            group.put_target(key.member_id, read_partitions(target.topic_partitions))
        case rec.ConsumerGroupMemberMetadataKey():
            group.put_member(_with_fields(group.member_or_new(key.member_id), value))
        case rec.ConsumerGroupCurrentMemberAssignmentKey():
            group.put_member(_with_current(group.member_or_new(key.member_id), value))


def _with_current(member: ConsumerGroupMember, value: bytes) -> ConsumerGroupMember:
    current, _ = decode_versioned(rec.ConsumerGroupCurrentMemberAssignmentValue, value)
    # A static member that is away has epoch -2; its partitions count as assigned in epoch 0.
    default_epoch = max(current.member_epoch, 0)
    return replace(
        member,
        member_epoch=current.member_epoch,
        previous_member_epoch=current.previous_member_epoch,
        state=MemberState(current.state),
        assigned=_partition_epochs(current.assigned_partitions, default_epoch),
        pending_revocation=_partition_epochs(current.partitions_pending_revocation, default_epoch),
    )


def _partition_epochs(topics: list[rec.TopicPartitions], default_epoch: int) -> PartitionEpochs:
    if not topics:
        return NO_PARTITIONS
    return {
        Uuid(topic.topic_id): dict(with_epochs(topic.partitions, topic.assignment_epochs, default_epoch))
        for topic in topics
    }


def _with_fields(member: ConsumerGroupMember, value: bytes) -> ConsumerGroupMember:
    metadata, _ = decode_versioned(rec.ConsumerGroupMemberMetadataValue, value)
    classic = None
    if metadata.classic_member_metadata is not None:
        classic = ClassicMemberMetadata(
            metadata.classic_member_metadata.session_timeout_ms,
            tuple((each.name, bytes(each.metadata)) for each in metadata.classic_member_metadata.supported_protocols),
        )
    return replace(
        member,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        rebalance_timeout_ms=metadata.rebalance_timeout_ms,
        subscribed_topic_names=frozenset(metadata.subscribed_topic_names),
        subscribed_topic_regex=metadata.subscribed_topic_regex,
        server_assignor=metadata.server_assignor,
        classic=classic,
    )
