"""The part that consumer, share and streams groups have in common: members that send heartbeats, epochs, and a target.

Kafka's ``ModernGroup`` (4.4). Nothing here decides: a group changes when records are replayed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar

from kbroker.cores.groups.assignors.spec import Assignment
from kbroker.errors import ApiError, ErrorCode
from kbroker.value_types import dataclass, field, replace

if TYPE_CHECKING:
    from dataclasses import Field
    from enum import IntEnum

LEAVE_GROUP_MEMBER_EPOCH = -1
"""The epoch of a heartbeat by which a member leaves."""
LEAVE_GROUP_STATIC_MEMBER_EPOCH = -2
"""The epoch of a heartbeat by which a static member leaves for a while; its place is kept."""
INITIAL_EPOCH = 1
"""Group and assignment epoch of a group without records; the first member's change makes it 2."""
NO_ASSIGNMENT_EPOCH = -1
"""The assignment epoch after its tombstone."""
METADATA_REFRESH_INTERVAL_MS = 2**31 - 1
"""A group trusts its metadata hash for this time, unless it is notified of a change."""
RETRY_ASSIGNMENT_MS = 5_000
"""An assignor of one's own that has failed is asked again for the same group after this time."""
FENCING_BACKOFF_MS = 500
"""A member whose time is over is fenced again after this, if the last try could not be stored."""
UNSETTLED_INTERVAL_MS = 1_000
"""After which a member sends its next heartbeat while there is something to come for it."""

NOTHING_ASSIGNED: Assignment = MappingProxyType({})


class Member(Protocol):
    """A member, as far as all kinds are alike: a dataclass that is made by its id alone."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init__(self, member_id: str) -> None: ...

    @property
    def member_id(self) -> str: ...

    @property
    def member_epoch(self) -> int: ...

    @property
    def previous_member_epoch(self) -> int: ...

    @property
    def must_give_up(self) -> bool: ...

    @property
    def rebalance_timeout_ms(self) -> int: ...


class StaticMember(Member, Protocol):
    """A member that may have an instance id."""

    @property
    def gives_way(self) -> bool: ...

    def away(self) -> Self: ...


class Subscriber(Member, Protocol):
    """A member that subscribes to topics by name."""

    @property
    def subscribed_topic_names(self) -> frozenset[str]: ...


M = TypeVar("M", bound=Member)
S = TypeVar("S", bound=Subscriber)
T = TypeVar("T")


class Kind(Generic[M, T]):
    """The things that differ from kind to kind of group."""

    __slots__ = ()

    KIND: ClassVar[str]
    """The name of the kind in texts for people."""
    MEMBER: type[M]
    """The class of members."""
    RELEASED: ClassVar[Mapping[str, object]]
    """The fields of a member that has nothing."""
    NO_TARGET: T
    """The target of a member that gets nothing."""


@dataclass(slots=True, eq=False)
class ModernGroup(Kind[M, T]):
    """Epochs, members and target assignment of a group; ``T`` is a member's part of the target.

    Invariant: ``static_members`` maps an instance id to a key of ``members``. Members of share groups have none.
    """

    group_id: str
    group_epoch: int = INITIAL_EPOCH
    metadata_hash: int = 0
    assignment_epoch: int = INITIAL_EPOCH
    assignment_timestamp_ms: int = 0
    members: dict[str, M] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    target: dict[str, T] = field(default_factory=dict)
    """By member id; a member without an entry has no target yet."""
    metadata_refresh_ms: int = 0
    """When the metadata hash is due for a check; not stored: 0 after a load and when a subscribed topic changed."""
    metadata_refresh_epoch: int = 0
    """The group epoch which that check led to; above the group's where its record was lost."""
    retry_assignment_ms: int = 0
    """When the assignor is asked again that has failed; not stored."""

    def member(self, member_id: str) -> M:
        """The member of that id; `ApiError` UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}.")
        return member

    def member_or_new(self, member_id: str) -> M:
        """Return the member of that id, or a new one, which is not in the group yet."""
        return self.members.get(member_id) or self.MEMBER(member_id)

    def static_member(self, instance_id: str | None) -> M | None:
        """The member of that instance id, if there is one."""
        member_id = self.static_members.get(instance_id) if instance_id is not None else None
        return None if member_id is None else self.members.get(member_id)

    def find_static(self, member_id: str, instance_id: str) -> M:
        """Return the member of that instance id; `ApiError` UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
        member = self.static_member(instance_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if member.member_id != member_id:
            raise ApiError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
            )
        return member

    def check_size(self, member_id: str, limit: int, instance_id: str | None = None) -> None:
        """Refuse a new member of a full group: `ApiError` GROUP_MAX_SIZE_REACHED."""
        is_known = member_id in self.members or self.static_member(instance_id) is not None
        if len(self.members) >= limit and not is_known:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The {self.KIND} group has reached its maximum capacity of {limit} members.",
            )

    def depends_on_any(self, topics: Set[str]) -> bool:
        """Whether a change of one of the topics may change the metadata hash."""
        raise NotImplementedError

    def is_metadata_expired(self, now_ms: int) -> bool:
        """Whether the metadata hash is to be checked with the next heartbeat."""
        return now_ms >= self.metadata_refresh_ms or self.group_epoch < self.metadata_refresh_epoch

    def trust_metadata(self, now_ms: int, epoch: int) -> None:
        """Take the metadata hash, which led to ``epoch``, for right, until a topic changes."""
        self.metadata_refresh_ms = now_ms + METADATA_REFRESH_INTERVAL_MS
        self.metadata_refresh_epoch = epoch

    def doubt_metadata(self) -> None:
        """Have the metadata hash checked with the next heartbeat: a topic has changed."""
        self.metadata_refresh_ms = self.metadata_refresh_epoch = 0

    def may_assign(self, interval_ms: int, now_ms: int) -> bool:
        """Whether the last target is old enough for a next one, and the assignor not one that has just failed."""
        if now_ms < self.retry_assignment_ms:
            return False
        made_ms = self.assignment_timestamp_ms
        # A later time is that of a coordinator whose clock was ahead.
        return made_ms == 0 or not made_ms <= now_ms < made_ms + interval_ms

    def changed_targets(self, target: Mapping[str, T]) -> list[tuple[str, T]]:
        """The entries of ``target`` that differ from the group's."""
        return [(member_id, each) for member_id, each in target.items() if self.target.get(member_id) != each]

    # -- changes, by replay only ---------------------------------------------------------------

    def put_member(self, member: M) -> None:
        """Add the member, or put it in the place of its older self."""
        raise NotImplementedError

    def remove_member(self, member_id: str) -> None:
        """Remove the member, if there is one, and free what it has."""
        raise NotImplementedError

    def put_target(self, member_id: str, assignment: T | None) -> None:
        """Set, or with None forget, a member's target assignment."""
        if assignment is None:
            self.target.pop(member_id, None)
        else:
            self.target[member_id] = assignment

    def _forget_instance(self, member_id: str, instance_id: str | None) -> None:
        # A static member that another one has replaced has lost its place already.
        if instance_id is not None and self.static_members.get(instance_id) == member_id:
            del self.static_members[instance_id]


@dataclass(slots=True, eq=False)
class SubscribedGroup(ModernGroup[S, Assignment]):
    """A group whose members subscribe to topics by name, and are assigned partitions."""

    _names: dict[str, int] = field(default_factory=dict)
    """The number of members that subscribe to a topic by name."""

    def names_after(self, removed: Iterable[S], added: S | None) -> set[str]:
        """The topics that members subscribe to by name, with changes that are not made yet."""
        names = self._names
        removed = tuple(removed)
        if removed:
            names = dict(names)
            for member in removed:
                for name in member.subscribed_topic_names:
                    count(names, name, -1)
        topics = set(names)
        if added is not None:
            topics |= added.subscribed_topic_names
        return topics

    def _count_names(self, member: S, change: int) -> None:
        for name in member.subscribed_topic_names:
            count(self._names, name, change)


def moved(member: M, state: IntEnum, epoch: int, assigned: object, pending_revocation: object) -> M:
    """Return the member after a step of its reconciliation; the same object where nothing changes."""
    after = replace(
        member,
        state=state,
        member_epoch=epoch,
        previous_member_epoch=member.member_epoch,
        assigned=assigned,
        pending_revocation=pending_revocation,
    )
    return member if after == member else after


def count(counts: dict[str, int], key: str | None, change: int) -> None:
    """Add to the count of a key; a count of 0 goes. An empty key, or None, is not counted."""
    if not key:
        return
    value = counts.get(key, 0) + change
    if value:
        counts[key] = value
    else:
        counts.pop(key, None)
