"""A group's next target assignment: the members in an assignor's form, and the records of the changes.

Kafka's ``TargetAssignmentBuilder`` (4.3).
"""

from __future__ import annotations

from collections.abc import Mapping

from kbroker.cores.coordinator.result import CoordinatorRecord
from kbroker.cores.groups.assignors.spec import Assignment, GroupSpec, MemberSpec, NamedTopicsAssignor
from kbroker.cores.groups.consumer_group import ConsumerGroup, ConsumerGroupMember
from kbroker.cores.groups.consumer_group_records import target_epoch_record, target_record
from kbroker.cores.groups.modern_group import NOTHING_ASSIGNED
from kbroker.cores.groups.topics import CoordinatorMetadataImage
from kbroker.types import Uuid


def assign_members(
    group: ConsumerGroup,
    members: Mapping[str, ConsumerGroupMember],
    assignor: NamedTopicsAssignor,
    topics: CoordinatorMetadataImage,
) -> Mapping[str, Assignment]:
    """The assignor's answer for ``members``, which are the group's after the step under way. `AssignorError`,
    `AssignmentKept`."""
    ids: dict[frozenset[str], frozenset[Uuid]] = {}
    specs = {}
    for member_id, member in members.items():
        names = group.topics_of(member)
        topic_ids = ids.get(names)
        if topic_ids is None:
            found = (topics.by_name(name) for name in names)
            topic_ids = ids[names] = frozenset(topic.id for topic in found if topic is not None)
        previous_id = member_id
        if member.instance_id is not None:
            previous_id = group.static_members.get(member.instance_id, member_id)
        specs[member_id] = MemberSpec(
            member_id=member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            subscribed_topic_ids=topic_ids,
            assigned=group.target.get(previous_id, NOTHING_ASSIGNED),
        )
    return assignor.assign(GroupSpec.of(specs), topics)


def target_records(
    group: ConsumerGroup, target: Mapping[str, Assignment], epoch: int, now_ms: int
) -> list[CoordinatorRecord]:
    """The records that make ``target`` the group's: one for each member whose part differs, and the epoch."""
    records = [
        target_record(group.group_id, member_id, assignment) for member_id, assignment in group.changed_targets(target)
    ]
    records.append(target_epoch_record(group.group_id, epoch, now_ms))
    return records
