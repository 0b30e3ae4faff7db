"""Records of ``__consumer_offsets`` for streams groups: values of `group` to bytes, and back into a group.

Kafka's ``StreamsCoordinatorRecordHelpers`` (types 17, 19 to 23) and the ``replay`` methods of its
``GroupMetadataManager`` (4.4).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbroker.cores.coordinator.result import CoordinatorRecord
from kbroker.cores.groups.record_maker import CommonRecords, coordinator_record, with_epochs
from kbroker.cores.groups.streams.group import NO_TAGS, MemberState, StreamsGroup, StreamsGroupMember
from kbroker.cores.groups.streams.tasks import (
    HeldTasks,
    TaskId,
    Tasks,
    partitions_by_subtopology,
    read_tasks,
    write_tasks,
)
from kbroker.cores.groups.streams.topology import topology_of_record
from kbroker.value_types import replace
from kbroker.wire.records import streams_group as rec
from kbroker.wire.records.streams_group import StreamsGroupCurrentMemberAssignmentValueTaskIds as HeldTaskIds
from kbroker.wire.records.versioned import decode_versioned

_COMMON = CommonRecords(
    rec.StreamsGroupMetadataKey,
    rec.StreamsGroupTargetAssignmentMetadataKey,
    rec.StreamsGroupTargetAssignmentMetadataValue,
    rec.StreamsGroupTargetAssignmentMemberKey,
    rec.StreamsGroupCurrentMemberAssignmentKey,
    rec.StreamsGroupMemberMetadataKey,
)
target_epoch_record, member_removal = _COMMON.target_epoch_record, _COMMON.member_removal


def group_record(
    group: StreamsGroup,
    epoch: int,
    *,
    metadata_hash: int | None = None,
    validated_topology_epoch: int | None = None,
    assignment_configs: Mapping[str, str] | None = None,
    stored_description: int | None = None,
    failed_description: int | None = None,
) -> CoordinatorRecord:
    """The group's epoch and all that is kept beside it; what is not given stays as it is."""
    configs = group.last_assignment_configs if assignment_configs is None else assignment_configs
    validated = group.validated_topology_epoch if validated_topology_epoch is None else validated_topology_epoch
    stored = group.stored_description_topology_epoch if stored_description is None else stored_description
    failed = group.failed_description_topology_epoch if failed_description is None else failed_description
    value = rec.StreamsGroupMetadataValue(
        epoch=epoch,
        metadata_hash=group.metadata_hash if metadata_hash is None else metadata_hash,
        validated_topology_epoch=validated,
        last_assignment_configs=[rec.LastAssignmentConfig(key=key, value=configs[key]) for key in sorted(configs)],
        stored_description_topology_epoch=stored,
        failed_description_topology_epoch=failed,
    )
    return coordinator_record(rec.StreamsGroupMetadataKey(group_id=group.group_id), value)


def member_record(group_id: str, member: StreamsGroupMember) -> CoordinatorRecord:
    """The record of a member: the fields of its heartbeats."""
    endpoint = None
    if member.user_endpoint is not None:
        host, port = member.user_endpoint
        endpoint = rec.Endpoint(host=host, port=port)
    value = rec.StreamsGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=endpoint,
        client_tags=[rec.KeyValue(key=key, value=member.client_tags[key]) for key in sorted(member.client_tags)],
    )
    return coordinator_record(rec.StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def target_record(group_id: str, member_id: str, tasks: Tasks) -> CoordinatorRecord:
    """The member's target assignment."""
    value = rec.StreamsGroupTargetAssignmentMemberValue(
        active_tasks=write_tasks(rec.TaskIds, tasks.active),
        standby_tasks=write_tasks(rec.TaskIds, tasks.standby),
        warmup_tasks=write_tasks(rec.TaskIds, tasks.warmup),
    )
    key = rec.StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return coordinator_record(key, value)


def current_record(group_id: str, member: StreamsGroupMember) -> CoordinatorRecord:
    """The member's epochs, state and tasks."""
    has, gives_up = member.assigned, member.pending_revocation
    value = rec.StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=member.state,
        active_tasks=_with_epochs(has.active),
        standby_tasks=write_tasks(HeldTaskIds, has.standby),
        warmup_tasks=write_tasks(HeldTaskIds, has.warmup),
        active_tasks_pending_revocation=_with_epochs(gives_up.active),
        standby_tasks_pending_revocation=write_tasks(HeldTaskIds, gives_up.standby),
        warmup_tasks_pending_revocation=write_tasks(HeldTaskIds, gives_up.warmup),
    )
    key = rec.StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return coordinator_record(key, value)


def topology_record(group_id: str, value: rec.StreamsGroupTopologyValue) -> CoordinatorRecord:
    """The group's topology."""
    return coordinator_record(rec.StreamsGroupTopologyKey(group_id=group_id), value)


def group_removal(group: StreamsGroup) -> list[CoordinatorRecord]:
    """Everything of the group."""
    group_id = group.group_id
    records = [record for member_id in group.members for record in member_removal(group_id, member_id)]
    records += [
        coordinator_record(kind(group_id=group_id), None)
        for kind in (
            rec.StreamsGroupTargetAssignmentMetadataKey,
            rec.StreamsGroupMetadataKey,
            rec.StreamsGroupTopologyKey,
        )
    ]
    return records


def _with_epochs(tasks: Mapping[TaskId, int]) -> list[HeldTaskIds]:
    return [
        HeldTaskIds(
            subtopology_id=subtopology_id,
            partitions=partitions,
            assignment_epochs=[tasks[TaskId(subtopology_id, partition)] for partition in partitions],
        )
        for subtopology_id, partitions in partitions_by_subtopology(tasks).items()
    ]


# -- back ------------------------------------------------------------------------------------------


def replay(groups: dict[str, StreamsGroup], key: Any, value: bytes | None) -> None:
    """Apply one record to the groups. `WireError` for a value that cannot be read."""
    group = _COMMON.replay(groups, key, value, StreamsGroup)
    if group is None:
        return
    if isinstance(key, rec.StreamsGroupTopologyKey):
        topology = None
        if value is not None:
            topology = topology_of_record(decode_versioned(rec.StreamsGroupTopologyValue, value)[0])
        group.put_topology(topology)
    elif value is not None:
        _replay_value(group, key, value)


def _replay_value(group: StreamsGroup, key: Any, value: bytes) -> None:
    match key:
        case rec.StreamsGroupMetadataKey():
            _replay_group(group, value)
        case rec.StreamsGroupTargetAssignmentMemberKey():
            target, _ = decode_versioned(rec.StreamsGroupTargetAssignmentMemberValue, value)
            roles = (target.active_tasks, target.standby_tasks, target.warmup_tasks)
            group.put_target(key.member_id, Tasks(*map(read_tasks, roles)))
        case rec.StreamsGroupMemberMetadataKey():
            group.put_member(_with_fields(group.member_or_new(key.member_id), value))
        case rec.StreamsGroupCurrentMemberAssignmentKey():
            group.put_member(_with_current(group.member_or_new(key.member_id), value))


def _replay_group(group: StreamsGroup, value: bytes) -> None:
    metadata, _ = decode_versioned(rec.StreamsGroupMetadataValue, value)
    group.group_epoch = metadata.epoch
    group.metadata_hash = metadata.metadata_hash
    group.validated_topology_epoch = metadata.validated_topology_epoch
    group.last_assignment_configs = {each.key: each.value for each in metadata.last_assignment_configs or ()}
    group.stored_description_topology_epoch = metadata.stored_description_topology_epoch
    group.failed_description_topology_epoch = metadata.failed_description_topology_epoch


def _with_current(member: StreamsGroupMember, value: bytes) -> StreamsGroupMember:
    current, _ = decode_versioned(rec.StreamsGroupCurrentMemberAssignmentValue, value)
    epoch = current.member_epoch
    return replace(
        member,
        member_epoch=epoch,
        previous_member_epoch=current.previous_member_epoch,
        state=MemberState(current.state),
        assigned=HeldTasks(
            _read_epochs(current.active_tasks, epoch),
            read_tasks(current.standby_tasks),
            read_tasks(current.warmup_tasks),
        ),
        pending_revocation=HeldTasks(
            _read_epochs(current.active_tasks_pending_revocation, epoch),
            read_tasks(current.standby_tasks_pending_revocation),
            read_tasks(current.warmup_tasks_pending_revocation),
        ),
    )


def _read_epochs(entries: list[HeldTaskIds], default_epoch: int) -> dict[TaskId, int]:
    return {
        TaskId(entry.subtopology_id, partition): epoch
        for entry in entries
        for partition, epoch in with_epochs(entry.partitions, entry.assignment_epochs, default_epoch)
    }


def _with_fields(member: StreamsGroupMember, value: bytes) -> StreamsGroupMember:
    metadata, _ = decode_versioned(rec.StreamsGroupMemberMetadataValue, value)
    endpoint = metadata.user_endpoint
    return replace(
        member,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        rebalance_timeout_ms=metadata.rebalance_timeout_ms,
        topology_epoch=metadata.topology_epoch,
        process_id=metadata.process_id,
        user_endpoint=None if endpoint is None else (endpoint.host, endpoint.port),
        client_tags={tag.key: tag.value for tag in metadata.client_tags} or NO_TAGS,
    )
