"""Input and output of an assignor (KIP-848, Kafka's ``ConsumerGroupPartitionAssignor``).

Neither of Kafka 4.3's assignors looks at racks, so :class:`TopicsView` has no method for those of a partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from kbroker.cores.groups.topics import CoordinatorMetadataImage
from kbroker.types import Uuid
from kbroker.value_types import NamedTuple

Assignment = Mapping[Uuid, frozenset[int]]
"""A member's partitions by topic id; a topic of which it has none is absent."""


NOTHING: Assignment = MappingProxyType({})


class MemberSpec(NamedTuple):
    """A member: the topics it subscribes to, and its target assignment until now."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    subscribed_topic_ids: frozenset[Uuid] = frozenset()
    assigned: Assignment = NOTHING


class GroupSpec(NamedTuple):
    """The members by member id. ``homogeneous`` says that all of them subscribe to the same topics."""

    members: Mapping[str, MemberSpec]
    homogeneous: bool

    @classmethod
    def of(cls, members: Mapping[str, MemberSpec]) -> GroupSpec:
        """The group of ``members``; finds out whether it is homogeneous."""
        subscriptions = {member.subscribed_topic_ids for member in members.values()}
        return cls(members, len(subscriptions) <= 1)


class TopicsView(Protocol):
    """The topics as the metadata image has them."""

    def partition_count(self, topic_id: Uuid) -> int:
        """The number of partitions, -1 for a topic that does not exist."""


class AssignorError(Exception):
    """No assignment can be made, e.g. for a topic that does not exist; the caller's fault, not a client's."""


class AssignmentKept(Exception):
    """An assignor of one's own has failed, and the log has been told: the group keeps the assignment that it has."""


class Assignor(Protocol):
    """Computes a group's target assignment. Pure: the same arguments give the same answer."""

    @property
    def name(self) -> str:
        """The name in ``group.consumer.assignors`` and in a heartbeat's ``server_assignor``."""

    def assign(self, group: GroupSpec, topics: TopicsView) -> dict[str, dict[Uuid, frozenset[int]]]:
        """Partitions for every member (an empty dict for one that gets none); :class:`AssignorError`.

        Every partition of a topic that some member subscribes to goes to exactly one subscriber. Sets that did
        not change are the same objects as in ``MemberSpec.assigned``.
        """


class NamedTopicsAssignor(Protocol):
    """An assignor that may also look at the names and racks of topics. Every `Assignor` is one."""

    def assign(self, group: GroupSpec, topics: CoordinatorMetadataImage) -> Mapping[str, Assignment]:
        """Partitions for every member, as `Assignor` has it; :class:`AssignmentKept`."""


class ShareAssignor(Protocol):
    """An assignor of share groups, whose members may read the same partitions."""

    @property
    def name(self) -> str:
        """The name in ``group.share.assignors``."""

    def assign(
        self, group: GroupSpec, assignable: Mapping[Uuid, frozenset[int]], topics: CoordinatorMetadataImage
    ) -> Mapping[str, Assignment]:
        """Partitions for every member, of those that are ``assignable``; :class:`AssignmentKept`."""


def existing_partition_count(topics: TopicsView, topic_id: Uuid) -> int:
    """The topic's number of partitions; :class:`AssignorError` when there is no such topic."""
    count = topics.partition_count(topic_id)
    if count < 0:
        raise AssignorError(f"Members are subscribed to topic {topic_id.hex()}, which does not exist")
    return count


def usable(assigned: frozenset[int], partition_count: int, taken: set[int]) -> frozenset[int]:
    """The partitions of ``assigned`` that a member may keep: those that exist and that no member before it kept.

    Targets that this package computed lose nothing here; the assignment of a classic group that was converted comes
    from its clients and may hold anything.
    """
    if assigned and (not taken.isdisjoint(assigned) or max(assigned) >= partition_count or min(assigned) < 0):
        return frozenset(p for p in assigned if 0 <= p < partition_count and p not in taken)
    return assigned
