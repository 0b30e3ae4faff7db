"""A group changes its protocol while it has members (KIP-848's online migration): pure conversions, both ways.

Rules: Kafka's ``ConsumerGroup.fromClassicGroup``, ``ClassicGroup.fromConsumerGroup`` and the checks around them in
``GroupMetadataManager`` (4.3).
"""

from __future__ import annotations

from collections.abc import Collection

from kbroker.cores.coordinator.result import CoordinatorRecord
from kbroker.cores.groups.assignors.spec import Assignment
from kbroker.cores.groups.classic_group import CONSUMER_PROTOCOL_TYPE, ClassicGroup, ClassicGroupState, ClassicMember
from kbroker.cores.groups.consumer_group import ClassicMemberMetadata, ConsumerGroup, ConsumerGroupMember
from kbroker.cores.groups.consumer_group_records import (
    current_record,
    group_epoch_record,
    member_record,
    target_epoch_record,
    target_record,
)
from kbroker.cores.groups.settings import GroupSettings
from kbroker.cores.groups.topics import CoordinatorMetadataImage, MetadataHasher
from kbroker.errors import ApiError, ErrorCode
from kbroker.types import Uuid
from kbroker.wire.errors import WireError
from kbroker.wire.records.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from kbroker.wire.records.versioned import decode_versioned, encode_versioned, read_version

_NEWEST_ASSIGNMENT_VERSION = 3


def decode_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """A classic member's subscription; `WireError` if it is malformed."""
    return decode_versioned(ConsumerProtocolSubscription, metadata, newer_as_newest=True)[0]


def encode_assignment(assignment: Assignment, topics: CoordinatorMetadataImage, subscription_metadata: bytes) -> bytes:
    """The assignment as a classic member reads it, in the version of its subscription. `WireError`."""
    named = sorted(
        (topic.name, sorted(partitions))
        for topic_id, partitions in assignment.items()
        if (topic := topics.by_id(topic_id)) is not None
    )
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(topic=name, partitions=partitions) for name, partitions in named
        ]
    )
    version = read_version(subscription_metadata)
    if version < 0:
        raise WireError("a subscription's version is negative")
    return encode_versioned(message, min(version, _NEWEST_ASSIGNMENT_VERSION))


# -- classic to consumer ---------------------------------------------------------------------------


def check_upgrade(group: ClassicGroup, settings: GroupSettings) -> None:
    """`ApiError` GROUP_ID_NOT_FOUND where the group must stay classic."""
    reason = None
    if not settings.is_upgrade_enabled:
        reason = "online upgrade is disabled"
    elif not group.uses_consumer_protocol:
        reason = "the group does not use the consumer embedded protocol"
    elif len(group.members) > settings.consumer_max_size:
        reason = "the group size exceeds the consumer group maximum size"
    if reason is not None:
        raise _cannot_upgrade(group, f"{reason}.")


def _cannot_upgrade(group: ClassicGroup, reason: str) -> ApiError:
    message = f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}"
    return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, message)


def upgraded(group: ClassicGroup, hasher: MetadataHasher) -> ConsumerGroup:
    """A consumer group of the classic group's members, which all stay classic ones. `ApiError` GROUP_ID_NOT_FOUND."""
    consumer = ConsumerGroup(group.group_id, group_epoch=group.generation_id, assignment_epoch=group.generation_id)
    taken: set[tuple[Uuid, int]] = set()
    for member in group.members.values():
        try:
            assigned = _assigned(group, member, hasher.image, taken)
            subscription = decode_subscription(member.metadata(group.protocol_name or ""))
        except WireError:
            raise _cannot_upgrade(group, "the embedded consumer protocol is malformed.")
        consumer.put_target(member.member_id, assigned)
        consumer.put_member(
            ConsumerGroupMember(
                member.member_id,
                member_epoch=group.generation_id,
                previous_member_epoch=group.generation_id,
                instance_id=member.group_instance_id,
                rack_id=subscription.rack_id or None,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                subscribed_topic_names=frozenset(subscription.topics),
                assigned={
                    topic_id: dict.fromkeys(partitions, group.generation_id)
                    for topic_id, partitions in assigned.items()
                },
                classic=ClassicMemberMetadata(member.session_timeout_ms, tuple(member.protocols)),
            )
        )
    consumer.metadata_hash = hasher.group_hash(consumer.subscribed_topics())
    return consumer


def _assigned(
    group: ClassicGroup, member: ClassicMember, topics: CoordinatorMetadataImage, taken: set[tuple[Uuid, int]]
) -> dict[Uuid, frozenset[int]]:
    """The member's assignment by the group's leader; nothing if the leader has not synced yet.

    The leader is a client and may assign a partition twice: the first member keeps it (``taken``).
    """
    if not member.assignment:
        return {}
    assignment, _ = decode_versioned(ConsumerProtocolAssignment, member.assignment, newer_as_newest=True)
    if assignment.user_data:
        raise _cannot_upgrade(
            group,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
            "assignor before re-attempting the upgrade.",
        )
    assigned = {}
    for each in assignment.assigned_partitions:
        topic = topics.by_name(each.topic)
        if topic is not None:
            partitions = frozenset(index for index in each.partitions if (topic.id, index) not in taken)
            taken.update((topic.id, index) for index in partitions)
            assigned[topic.id] = partitions
    return assigned


def creation_records(group: ConsumerGroup) -> list[CoordinatorRecord]:
    """The records that make the whole group."""
    members = group.members.values()
    return [
        *(member_record(group.group_id, member) for member in members),
        group_epoch_record(group.group_id, group.group_epoch, group.metadata_hash),
        *(target_record(group.group_id, member.member_id, group.target[member.member_id]) for member in members),
        target_epoch_record(group.group_id, group.assignment_epoch, group.assignment_timestamp_ms),
        *(current_record(group.group_id, member) for member in members),
    ]


# -- consumer to classic ---------------------------------------------------------------------------


def may_downgrade(group: ConsumerGroup, leaving: Collection[ConsumerGroupMember], settings: GroupSettings) -> bool:
    """Whether the group becomes classic when the members leave: only classic ones are left, and there are some."""
    remaining = len(group.members) - len(leaving)
    classic = group.classic_member_count - sum(1 for member in leaving if member.classic is not None)
    return 0 < remaining == classic and settings.is_downgrade_enabled and remaining <= settings.group_max_size


def may_downgrade_replacing(group: ConsumerGroup, replaced: ConsumerGroupMember, settings: GroupSettings) -> bool:
    """Whether the group becomes classic when a classic static member takes the place of ``replaced``."""
    return (
        replaced.classic is None
        and group.classic_member_count == len(group.members) - 1
        and settings.is_downgrade_enabled
        and len(group.members) <= settings.group_max_size
    )


def downgraded(
    group: ConsumerGroup,
    leaving: Collection[ConsumerGroupMember],
    joining: ConsumerGroupMember | None,
    topics: CoordinatorMetadataImage,
    now_ms: int,
) -> ClassicGroup:
    """The classic group of the members that stay; ``joining`` has the place of its instance id's member.

    `ApiError` GROUP_ID_NOT_FOUND where a member's subscription cannot be read.
    """
    classic = ClassicGroup(
        group.group_id,
        state=ClassicGroupState.STABLE,
        state_timestamp_ms=now_ms,
        generation_id=group.group_epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
    )
    gone = {member.member_id for member in leaving}
    replaced = None if joining is None else group.static_member(joining.instance_id)
    if replaced is not None:
        gone.add(replaced.member_id)
    for member in group.members.values():
        if member.member_id not in gone:
            classic.add(_classic_member(member))
    if joining is not None:
        classic.add(_classic_member(joining))
    classic.protocol_name = classic.select_protocol()
    classic.subscribed_topics = classic.compute_subscribed_topics()
    for member_id, classic_member in classic.members.items():
        source = member_id
        if joining is not None and replaced is not None and member_id == joining.member_id:
            source = replaced.member_id
        try:
            classic_member.assignment = encode_assignment(
                group.target.get(source, {}), topics, classic_member.metadata(classic.protocol_name)
            )
        except WireError as error:
            message = f"Cannot downgrade the classic group {group.group_id}: {error}."
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, message)
    return classic


def _classic_member(member: ConsumerGroupMember) -> ClassicMember:
    assert member.classic is not None
    return ClassicMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocols=list(member.classic.protocols),
    )
