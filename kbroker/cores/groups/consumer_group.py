"""One KIP-848 consumer group: its members, epochs, target assignment, and the owners of partitions.

Nothing here decides: the methods that change a group are called by `replay` of the coordinator's records, on load and
in operation alike. The rules that make the records are in `consumer_protocol`, `member_update` and `reconciliation`.
Kafka's ``ConsumerGroup``, ``ConsumerGroupMember`` (4.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from enum import Enum, IntEnum
from types import MappingProxyType

from kbroker.cores.groups.assignors.spec import Assignment
from kbroker.cores.groups.modern_group import LEAVE_GROUP_STATIC_MEMBER_EPOCH, NOTHING_ASSIGNED, SubscribedGroup, count
from kbroker.types import Uuid
from kbroker.value_types import dataclass, field, replace

PartitionEpochs = Mapping[Uuid, Mapping[int, int]]
"""By topic id and partition: the member epoch in which the member got the partition."""

NO_PARTITIONS: PartitionEpochs = MappingProxyType({})


class ConsumerGroupState(Enum):
    """The state of a group, with the names that tools show. It follows from members and epochs."""

    EMPTY = "Empty"
    """No members."""
    ASSIGNING = "Assigning"
    """The group epoch is ahead of the target assignment: the next heartbeat makes a new one."""
    RECONCILING = "Reconciling"
    """Some member does not have its target assignment yet."""
    STABLE = "Stable"
    """Every member has its target assignment."""
    DEAD = "Dead"
    """No such group; only shown."""


class MemberState(IntEnum):
    """The stages of a member's way to its target assignment; the numbers are those of the records."""

    STABLE = 0
    """Has the target assignment of its epoch."""
    UNREVOKED_PARTITIONS = 1
    """Must give up partitions, and say so, before it may go to the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """Is in the target's epoch, and waits for partitions that others have not given up yet."""
    UNKNOWN = 127
    """Written by a newer version."""

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ClassicMemberMetadata:
    """Further data of a member that uses the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """(assignor name, subscription metadata), most wanted first; never empty."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupMember:
    """A member as its two records describe it; a change makes a new one."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str | None = ""
    server_assignor: str | None = None
    assigned: PartitionEpochs = field(default_factory=lambda: NO_PARTITIONS)
    pending_revocation: PartitionEpochs = field(default_factory=lambda: NO_PARTITIONS)
    classic: ClassicMemberMetadata | None = None
    """Known of a member that uses the classic protocol alone."""

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether there is nothing to do for the target assignment of that epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == epoch

    @property
    def must_give_up(self) -> bool:
        """Whether the member must give up partitions before anything else."""
        return self.state is MemberState.UNREVOKED_PARTITIONS

    @property
    def gives_way(self) -> bool:
        """Whether another member may take the instance id."""
        return self.classic is not None or self.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH

    def has_all(self, owned: Mapping[Uuid, Set[int]]) -> bool:
        """Whether the member has all of these partitions, not to be given up."""
        return all(partitions <= self.assigned.get(topic_id, {}).keys() for topic_id, partitions in owned.items())

    def away(self) -> ConsumerGroupMember:
        """Return the member after it has left for a while: its partitions are kept for it."""
        assigned = {topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in self.assigned.items()}
        epoch = LEAVE_GROUP_STATIC_MEMBER_EPOCH
        return replace(self, member_epoch=epoch, pending_revocation=NO_PARTITIONS, assigned=assigned)

    def partition_epoch(self, topic_id: Uuid, partition: int) -> int | None:
        """Since which epoch the member has the partition (perhaps to be given up); None if it has not."""
        epoch = self.assigned.get(topic_id, {}).get(partition)
        return self.pending_revocation.get(topic_id, {}).get(partition) if epoch is None else epoch


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that a regular expression matched, in which version of the metadata, and when (ms)."""

    topics: frozenset[str] = frozenset()
    version: int = 0
    timestamp_ms: int = 0


@dataclass(slots=True, eq=False)
class ConsumerGroup(SubscribedGroup[ConsumerGroupMember]):
    """A consumer group's state.

    Invariant: each partition that a member has (``assigned`` or ``pending_revocation``) has that member for its owner,
    so it has no other.
    """

    KIND = "consumer"
    MEMBER = ConsumerGroupMember
    NO_TARGET = NOTHING_ASSIGNED
    RELEASED = MappingProxyType({"assigned": NO_PARTITIONS, "pending_revocation": NO_PARTITIONS})

    resolved_regexes: dict[str, ResolvedRegex] = field(default_factory=dict)
    has_partition_metadata_record: bool = False
    """A record of Kafka 4.0 is there, which the next change of the group removes."""

    _owners: dict[Uuid, dict[int, str]] = field(default_factory=dict)
    regexes: dict[str, int] = field(default_factory=dict)
    """The number of members that subscribe by a regular expression."""
    _assignors: dict[str, int] = field(default_factory=dict)
    classic_member_count: int = 0
    _classic_protocols: dict[str, int] = field(default_factory=dict)
    """The number of classic members that know an assignor of theirs."""

    # -- questions -----------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerGroupState:
        """See `ConsumerGroupState`."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def target_of(self, member: ConsumerGroupMember) -> Assignment:
        """The member's target assignment; of a static member, that of the one it replaces."""
        member_id: str | None = member.member_id
        if member.instance_id is not None:
            member_id = self.static_members.get(member.instance_id)
        return NOTHING_ASSIGNED if member_id is None else self.target.get(member_id, NOTHING_ASSIGNED)

    def owner(self, topic_id: Uuid, partition: int) -> str | None:
        """The member that has the partition, perhaps still to give it up; None if it is free."""
        return self._owners.get(topic_id, {}).get(partition)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic."""
        return topic in self._names or any(topic in each.topics for each in self.resolved_regexes.values())

    def depends_on_any(self, topics: Set[str]) -> bool:
        """Whether a member reads one of the topics."""
        if not topics.isdisjoint(self._names):
            return True
        return any(not topics.isdisjoint(each.topics) for each in self.resolved_regexes.values())

    def subscribed_topics(
        self,
        removed: Iterable[ConsumerGroupMember] = (),
        added: ConsumerGroupMember | None = None,
        without_regexes: Iterable[str] = (),
    ) -> set[str]:
        """The topics that members subscribe to, with changes that are not made yet."""
        topics = self.names_after(removed, added)
        gone = frozenset(without_regexes)
        for regex, resolved in self.resolved_regexes.items():
            if regex not in gone:
                topics |= resolved.topics
        return topics

    def topics_of(self, member: ConsumerGroupMember) -> frozenset[str]:
        """The topics that the member subscribes to, by name and by regular expression."""
        resolved = self.resolved_regexes.get(member.subscribed_topic_regex or "")
        if resolved is None:
            return member.subscribed_topic_names
        if not member.subscribed_topic_names:
            return resolved.topics
        return member.subscribed_topic_names | resolved.topics

    def preferred_assignor(
        self, old: ConsumerGroupMember | None = None, new: ConsumerGroupMember | None = None
    ) -> str | None:
        """The assignor that most members ask for, with ``new`` in the place of ``old``; None if nobody does."""
        counts = dict(self._assignors)
        if old is not None:
            count(counts, old.server_assignor, -1)
        if new is not None:
            count(counts, new.server_assignor, 1)
        return max(sorted(counts), key=lambda name: counts[name], default=None)

    def supports_classic_protocols(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a classic member with these assignors can be in the group with the other classic members."""
        if protocol_type != "consumer":
            return False
        if not self.members:
            return any(True for _ in names)
        return any(self._classic_protocols.get(name, 0) == self.classic_member_count for name in names)

    def waits_for_others(self, member: ConsumerGroupMember) -> bool:
        """Whether a partition that the member is to get is still somebody else's."""
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        for topic_id, partitions in self.target.get(member.member_id, NOTHING_ASSIGNED).items():
            assigned = member.assigned.get(topic_id, {})
            for partition in partitions:
                if partition not in assigned and self.owner(topic_id, partition) is not None:
                    return True
        return False

    # -- changes, by replay only ---------------------------------------------------------------

    def put_member(self, member: ConsumerGroupMember) -> None:
        """Add the member, or put it in the place of its older self."""
        old = self.members.get(member.member_id)
        if old is not None:
            self._discount(old)
        self.members[member.member_id] = member
        self._discount(member, add=True)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if old is not None:
            if old.assigned is member.assigned and old.pending_revocation is member.pending_revocation:
                return
            self._disown(old)
        for topic_id, partition in _partitions(member):
            self._owners.setdefault(topic_id, {})[partition] = member.member_id

    def remove_member(self, member_id: str) -> None:
        """Remove the member, and free its partitions."""
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._discount(member)
        self._disown(member)
        self._forget_instance(member_id, member.instance_id)

    def put_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """Set the topics that a regular expression matches; None forgets them."""
        if resolved is None:
            self.resolved_regexes.pop(regex, None)
        else:
            self.resolved_regexes[regex] = resolved

    def _discount(self, member: ConsumerGroupMember, *, add: bool = False) -> None:
        change = 1 if add else -1
        self._count_names(member, change)
        count(self.regexes, member.subscribed_topic_regex, change)
        count(self._assignors, member.server_assignor, change)
        if member.classic is not None:
            self.classic_member_count += change
            for name, _ in member.classic.protocols:
                count(self._classic_protocols, name, change)

    def _disown(self, member: ConsumerGroupMember) -> None:
        for topic_id, partition in _partitions(member):
            owners = self._owners.get(topic_id)
            if owners is not None and owners.get(partition) == member.member_id:
                del owners[partition]
                if not owners:
                    del self._owners[topic_id]


def _partitions(member: ConsumerGroupMember) -> Iterator[tuple[Uuid, int]]:
    for partitions_by_topic in (member.assigned, member.pending_revocation):
        for topic_id, partitions in partitions_by_topic.items():
            for partition in partitions:
                yield topic_id, partition
