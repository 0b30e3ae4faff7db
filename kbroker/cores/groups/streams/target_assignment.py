"""A streams group's next target assignment: the members in an assignor's form, and the records of the changes.

Kafka's ``TargetAssignmentBuilder`` (4.4).
"""

from __future__ import annotations

from collections.abc import Mapping

from kbroker.cores.coordinator.result import CoordinatorRecord
from kbroker.cores.groups.streams.assignors.spec import AssignmentConfigs, GroupSpec, MemberSpec, TaskAssignor
from kbroker.cores.groups.streams.configured_topology import ConfiguredTopology
from kbroker.cores.groups.streams.group import StreamsGroup, StreamsGroupMember, TaskOffsets
from kbroker.cores.groups.streams.records import target_epoch_record, target_record
from kbroker.cores.groups.streams.tasks import NO_TASKS, Tasks

_NO_OFFSETS = TaskOffsets()


def assign_tasks(
    group: StreamsGroup,
    members: Mapping[str, StreamsGroupMember],
    topology: ConfiguredTopology,
    assignor: TaskAssignor,
    configs: AssignmentConfigs,
) -> Mapping[str, Tasks]:
    """The assignor's answer for ``members``, which are the group's after the step under way; nothing while the
    topology is not ready. `TaskAssignorError`."""
    if not topology.is_ready:
        return dict.fromkeys(members, NO_TASKS)
    specs = {}
    for member_id, member in members.items():
        offsets = group.task_offsets.get(member_id, _NO_OFFSETS)
        specs[member_id] = MemberSpec(
            process_id=member.process_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_tags=member.client_tags,
            current=Tasks(frozenset(member.assigned.active), member.assigned.standby, member.assigned.warmup),
            task_offsets=offsets.offsets,
            task_end_offsets=offsets.end_offsets,
        )
    assigned = assignor.assign(GroupSpec(specs, configs), topology.subtopologies)
    return {member_id: assigned.get(member_id, NO_TASKS) for member_id in members}


def target_records(
    group: StreamsGroup, before: Mapping[str, Tasks], target: Mapping[str, Tasks], epoch: int, now_ms: int
) -> list[CoordinatorRecord]:
    """The records that make ``target`` the group's: one for each member whose part differs, and the epoch."""
    records = [
        target_record(group.group_id, member_id, tasks)
        for member_id, tasks in target.items()
        if before.get(member_id) != tasks
    ]
    records.append(target_epoch_record(group.group_id, epoch, now_ms))
    return records
