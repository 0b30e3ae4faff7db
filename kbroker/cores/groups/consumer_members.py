"""Finds the member that a request to a consumer group is about: an existing one, a new one, or a static one's
replacement.

Rules and error texts: Kafka's ``GroupMetadataManager`` (4.3), its ``getOrMaybeSubscribe...ConsumerGroupMember`` and
``throwIf...``.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from kbroker.cores.coordinator.result import CoordinatorRecord
from kbroker.cores.groups.consumer_group import ConsumerGroup, ConsumerGroupMember
from kbroker.cores.groups.consumer_group_records import current_record, member_record, member_removal, target_record
from kbroker.cores.groups.modern_group import LEAVE_GROUP_STATIC_MEMBER_EPOCH, NOTHING_ASSIGNED
from kbroker.cores.groups.reconciliation import OwnedPartitions
from kbroker.cores.groups.settings import GroupSettings
from kbroker.errors import ApiError, ErrorCode
from kbroker.value_types import replace


def check_group_size(group: ConsumerGroup, member_id: str, instance_id: str | None, settings: GroupSettings) -> None:
    """`ApiError` GROUP_MAX_SIZE_REACHED for a new member of a full group."""
    if group.static_member(instance_id) is not None:
        return
    limit = settings.consumer_max_size
    if len(group.members) >= limit and member_id not in group.members:
        raise ApiError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {limit} members.",
        )


def check_member_epoch(member: ConsumerGroupMember, epoch: int, owned: OwnedPartitions | None) -> None:
    """`ApiError` FENCED_MEMBER_EPOCH unless the member is where it should be, or asks to start over with 0."""
    current = member.member_epoch
    if epoch in (0, current):
        return
    relation = "greater" if epoch > current else "smaller"
    if epoch == member.previous_member_epoch and epoch < current and owned is not None:
        # It did not get the reply that brought the epoch, if it has nothing that it should not have.
        if all(partitions <= member.assigned.get(topic_id, {}).keys() for topic_id, partitions in owned.items()):
            return
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({current}). The member must abandon all its partitions and rejoin.",
    )


class _Member(Protocol):
    @property
    def member_id(self) -> str: ...


M = TypeVar("M", bound=_Member)
M_co = TypeVar("M_co", bound=_Member, covariant=True)


class StaticMembers(Protocol[M_co]):
    """A group that knows its static members."""

    def static_member(self, instance_id: str | None) -> M_co | None:
        """The member of that instance id, if there is one."""
        ...


def find_static_member(group: StaticMembers[M], member_id: str, instance_id: str) -> M:
    """The member of that instance id; `ApiError` UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
    member = group.static_member(instance_id)
    if member is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise ApiError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )
    return member


def unreleased_instance(member_id: str, instance_id: str, owner_id: str) -> ApiError:
    """The error of a static member that joins while another one has its instance id, and has not left."""
    return ApiError(
        ErrorCode.UNRELEASED_INSTANCE_ID,
        f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
        f"is owned by {owner_id} member.",
    )


def subscribe_static(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str,
    *,
    is_classic: bool,
    records: list[CoordinatorRecord],
) -> ConsumerGroupMember:
    """A static member that joins: new, or in the place of the one that has its instance id.

    `ApiError` UNRELEASED_INSTANCE_ID where that one has not left (KIP-848: both of the consumer protocol).
    """
    existing = group.static_member(instance_id)
    if existing is None:
        return group.members.get(member_id) or ConsumerGroupMember(member_id)
    is_away = existing.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH
    if not is_classic and existing.classic is None and not is_away:
        raise unreleased_instance(member_id, instance_id, existing.member_id)
    member = replace(existing, member_id=member_id, member_epoch=0, previous_member_epoch=0)
    records += member_removal(group.group_id, existing.member_id)
    records.append(member_record(group.group_id, member))
    records.append(target_record(group.group_id, member_id, group.target.get(existing.member_id, NOTHING_ASSIGNED)))
    records.append(current_record(group.group_id, member))
    return member
