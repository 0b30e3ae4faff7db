"""The ``range`` assignor: each topic's partitions in contiguous ranges (Kafka's ``RangeAssignor``).

Members are taken in one order for all topics, so topics with equally many partitions and the same subscribers are
co-partitioned: a member gets the same partition numbers of each. Static members come first, by instance id, so that
one which comes back under another member id gets its ranges again. What members had before plays no part.
"""

from __future__ import annotations

from collections import defaultdict

from kbroker.cores.groups.assignors.spec import GroupSpec, MemberSpec, TopicsView, existing_partition_count
from kbroker.types import Uuid


class RangeAssignor:
    """Contiguous ranges for each topic; the first subscribers get the partitions that do not divide evenly."""

    name = "range"

    def assign(self, group: GroupSpec, topics: TopicsView) -> dict[str, dict[Uuid, frozenset[int]]]:
        """See :class:`~kbroker.cores.groups.assignors.spec.Assignor`."""
        members = sorted(group.members.values(), key=_order)
        subscribers: dict[Uuid, list[str]] = defaultdict(list)
        if group.homogeneous and members:
            member_ids = [member.member_id for member in members]
            subscribers = dict.fromkeys(members[0].subscribed_topic_ids, member_ids)
        else:
            for member in members:
                for topic_id in member.subscribed_topic_ids:
                    subscribers[topic_id].append(member.member_id)

        target: dict[str, dict[Uuid, frozenset[int]]] = {member.member_id: {} for member in members}
        # Co-partitioned topics have the same ranges: one set serves them all.
        ranges: dict[tuple[int, int], list[frozenset[int]]] = {}
        for topic_id in sorted(subscribers):
            member_ids = subscribers[topic_id]
            shape = (existing_partition_count(topics, topic_id), len(member_ids))
            if shape not in ranges:
                ranges[shape] = _ranges(*shape)
            for member_id, partitions in zip(member_ids, ranges[shape], strict=False):
                target[member_id][topic_id] = partitions
        return target


def _order(member: MemberSpec) -> tuple[bool, str]:
    return (member.instance_id is None, member.member_id if member.instance_id is None else member.instance_id)


def _ranges(partition_count: int, member_count: int) -> list[frozenset[int]]:
    """Ranges for the members in order; none for the members at the end when there are more than partitions."""
    size, extra = divmod(partition_count, member_count)
    ranges = []
    start = 0
    for index in range(min(member_count, partition_count)):
        end = start + size + (index < extra)
        ranges.append(frozenset(range(start, end)))
        start = end
    return ranges
