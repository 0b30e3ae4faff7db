"""Finds the member that a heartbeat of a streams group is about, and the member that the heartbeat makes of it.

Rules and error texts: Kafka's ``GroupMetadataManager`` (4.4), its ``getOrMaybeCreate...StreamsGroupMember`` and
``throwIf...``.
"""

from __future__ import annotations

from operator import attrgetter

from kbroker.cores.coordinator.result import CoordinatorRecord
from kbroker.cores.groups.client import ClientContext
from kbroker.cores.groups.consumer_members import find_static_member, unreleased_instance
from kbroker.cores.groups.modern_group import LEAVE_GROUP_STATIC_MEMBER_EPOCH
from kbroker.cores.groups.streams.configured_topology import ConfiguredTopology
from kbroker.cores.groups.streams.group import JOIN_GROUP_MEMBER_EPOCH, StreamsGroup, StreamsGroupMember, TaskOffsets
from kbroker.cores.groups.streams.records import current_record, member_record, member_removal, target_record
from kbroker.cores.groups.streams.tasks import NOTHING_HELD, HeldTasks, TaskId, Tasks, read_tasks
from kbroker.errors import ApiError, ErrorCode
from kbroker.value_types import replace
from kbroker.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, TaskOffset

_TO_ASSIGNOR = attrgetter("topology_epoch", "rack_id", "client_tags", "process_id")
"""The fields of a member that an assignor looks at."""


def check_group_size(group: StreamsGroup, member_id: str, instance_id: str | None, limit: int) -> None:
    """`ApiError` GROUP_MAX_SIZE_REACHED for a new member of a full group."""
    if group.static_member(instance_id) is None and len(group.members) >= limit and member_id not in group.members:
        raise ApiError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The streams group has reached its maximum capacity of {limit} members.",
        )


def owned_tasks(request: StreamsGroupHeartbeatRequest) -> Tasks | None:
    """The tasks that the member says it has; None if it says nothing."""
    if request.active_tasks is None or request.standby_tasks is None or request.warmup_tasks is None:
        return None
    return Tasks(read_tasks(request.active_tasks), read_tasks(request.standby_tasks), read_tasks(request.warmup_tasks))


def check_member_epoch(member: StreamsGroupMember, epoch: int, owned: Tasks | None) -> None:
    """`ApiError` FENCED_MEMBER_EPOCH unless the member is where it should be, or asks to start over with 0."""
    current = member.member_epoch
    if epoch in (JOIN_GROUP_MEMBER_EPOCH, current):
        return
    if epoch == member.previous_member_epoch and epoch < current and owned is not None:
        # It did not get the reply that brought the epoch, if it has nothing that it should not have.
        if member.assigned.contains(owned):
            return
    relation = "greater" if epoch > current else "smaller"
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The streams group member has a {relation} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({current}). The member must abandon all its partitions and rejoin.",
    )


def find_member(
    group: StreamsGroup, request: StreamsGroupHeartbeatRequest, owned: Tasks | None, records: list[CoordinatorRecord]
) -> StreamsGroupMember:
    """The member of a heartbeat; a new one if it joins. `ApiError` where it is not who or where it says it is.

    A static member that comes back takes the place of its older self: ``records`` get the replacement.
    """
    joins = request.member_epoch == JOIN_GROUP_MEMBER_EPOCH
    if request.instance_id is None:
        member = group.members.get(request.member_id)
        if member is None:
            member = StreamsGroupMember(request.member_id) if joins else group.member(request.member_id)
    elif joins:
        return _join_static(group, request.member_id, request.instance_id, records)
    else:
        member = find_static_member(group, request.member_id, request.instance_id)
    check_member_epoch(member, request.member_epoch, owned)
    return member


def _join_static(
    group: StreamsGroup, member_id: str, instance_id: str, records: list[CoordinatorRecord]
) -> StreamsGroupMember:
    existing = group.static_member(instance_id)
    if existing is None:
        return group.members.get(member_id) or StreamsGroupMember(member_id)
    if existing.member_epoch != LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        raise unreleased_instance(member_id, instance_id, existing.member_id)
    member = replace(existing, member_id=member_id, member_epoch=0, previous_member_epoch=0)
    records += member_removal(group.group_id, existing.member_id)
    records.append(member_record(group.group_id, member))
    records.append(target_record(group.group_id, member_id, group.target_of(existing.member_id)))
    records.append(current_record(group.group_id, member))
    return member


def away(member: StreamsGroupMember) -> StreamsGroupMember:
    """A static member that has left for a while: its tasks are kept for it."""
    held = HeldTasks(dict.fromkeys(member.assigned.active, 0), member.assigned.standby, member.assigned.warmup)
    return replace(member, member_epoch=LEAVE_GROUP_STATIC_MEMBER_EPOCH, assigned=held, pending_revocation=NOTHING_HELD)


def with_request(
    member: StreamsGroupMember, request: StreamsGroupHeartbeatRequest, client: ClientContext
) -> StreamsGroupMember:
    """The member with the fields of the request; a heartbeat has only those that differ from the last one."""
    endpoint = None if request.user_endpoint is None else (request.user_endpoint.host, request.user_endpoint.port)
    if endpoint is None and request.member_epoch != JOIN_GROUP_MEMBER_EPOCH:
        endpoint = member.user_endpoint
    tags = member.client_tags
    if request.client_tags is not None:
        tags = {tag.key: tag.value for tag in request.client_tags}
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topology_epoch=member.topology_epoch if request.topology is None else request.topology.epoch,
        client_id=client.client_id,
        client_host=client.client_host,
        process_id=member.process_id if request.process_id is None else request.process_id,
        user_endpoint=endpoint,
        client_tags=tags,
    )


def is_new_to_assignor(old: StreamsGroupMember, new: StreamsGroupMember, instance_id: str | None) -> bool:
    """Whether a changed member needs a new group epoch.

    A static member that only moved to another host does not (KIP-1071).
    """
    if instance_id is None:
        return new != old
    return _TO_ASSIGNOR(old) != _TO_ASSIGNOR(new)


def check_tasks(owned: Tasks | None, topology: ConfiguredTopology) -> None:
    """`ApiError` INVALID_REQUEST if the member names tasks that the topology does not have."""
    for task in sorted(frozenset().union(*(owned or ()))):
        subtopology = topology.subtopologies.get(task.subtopology_id)
        if subtopology is None:
            message = f"Subtopology {task.subtopology_id} does not exist in the topology."
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
        if not 0 <= task.partition < subtopology.number_of_tasks:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Task {task.partition} for subtopology {task.subtopology_id} is invalid. Number of tasks for this "
                f"subtopology: {subtopology.number_of_tasks}",
            )


def reported_offsets(before: TaskOffsets, request: StreamsGroupHeartbeatRequest) -> TaskOffsets:
    """The member's offsets after a report; a list that is null is as before. `ApiError` INVALID_REQUEST."""
    return TaskOffsets(
        before.offsets if request.task_offsets is None else _offsets(request.task_offsets),
        before.end_offsets if request.task_end_offsets is None else _offsets(request.task_end_offsets),
    )


def _offsets(entries: list[TaskOffset]) -> dict[TaskId, int]:
    result: dict[TaskId, int] = {}
    for entry in entries:
        task = TaskId(entry.subtopology_id, entry.partition)
        if task in result:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Task offsets contain a duplicate entry for subtopology {task.subtopology_id} and partition "
                f"{task.partition}.",
            )
        result[task] = entry.offset
    return result
