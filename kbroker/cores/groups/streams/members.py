"""The member that a heartbeat makes of the one before. Rules and texts: Kafka's ``GroupMetadataManager`` (4.4)."""

from __future__ import annotations

from operator import attrgetter

from kbroker.cores.groups.client import ClientContext
from kbroker.cores.groups.streams.configured_topology import ConfiguredTopology
from kbroker.cores.groups.streams.group import JOIN_GROUP_MEMBER_EPOCH, StreamsGroupMember, TaskOffsets
from kbroker.cores.groups.streams.tasks import TaskId, Tasks, read_tasks
from kbroker.errors import ApiError, ErrorCode
from kbroker.value_types import replace
from kbroker.wire.messages.streams_groups import StreamsGroupHeartbeatRequest, TaskOffset

_TO_ASSIGNOR = attrgetter("topology_epoch", "rack_id", "client_tags", "process_id")
"""The fields of a member that an assignor looks at."""


def owned_tasks(request: StreamsGroupHeartbeatRequest) -> Tasks | None:
    """The tasks that the member says it has; None if it says nothing."""
    if request.active_tasks is None or request.standby_tasks is None or request.warmup_tasks is None:
        return None
    return Tasks(read_tasks(request.active_tasks), read_tasks(request.standby_tasks), read_tasks(request.warmup_tasks))


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
