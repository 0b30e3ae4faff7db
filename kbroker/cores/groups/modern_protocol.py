"""The part that the protocols of consumer, share and streams groups have in common: members that come, and that go.

Each method returns records; only their replay changes a group. Rules and error texts: Kafka's ``GroupMetadataManager``
(4.4), its ``getOrMaybeSubscribe...Member``, ``throwIf...`` and ``...FenceMember``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Any, Generic, Protocol, TypeVar

from kbroker.config import GroupConfig
from kbroker.cores.coordinator.result import CoordinatorRecord, CoordinatorResult
from kbroker.cores.groups.consumer_timers import ConsumerTimers
from kbroker.cores.groups.groups import Groups
from kbroker.cores.groups.modern_group import LEAVE_GROUP_MEMBER_EPOCH, Member, ModernGroup, StaticMember
from kbroker.cores.groups.settings import GroupSettings
from kbroker.cores.groups.topics import CoordinatorMetadataImage, MetadataHasher
from kbroker.errors import ApiError, ErrorCode
from kbroker.value_types import replace

logger = logging.getLogger(__name__)

G = TypeVar("G", bound=ModernGroup[Any, Any])  # its members are M: a bound cannot say so
M = TypeVar("M", bound=Member)
S = TypeVar("S", bound=StaticMember)
R = TypeVar("R")
OfMember = TypeVar("OfMember", contravariant=True)
OfTarget = TypeVar("OfTarget", contravariant=True)
T = TypeVar("T")


class KindRecords(Protocol[OfMember, OfTarget]):
    """The records of one kind of group, as its module makes them."""

    def member_record(self, group_id: str, member: OfMember, /) -> CoordinatorRecord: ...
    def target_record(self, group_id: str, member_id: str, target: OfTarget, /) -> CoordinatorRecord: ...
    def current_record(self, group_id: str, member: OfMember, /) -> CoordinatorRecord: ...
    def target_epoch_record(self, group_id: str, epoch: int, timestamp_ms: int, /) -> CoordinatorRecord: ...
    def member_removal(self, group_id: str, member_id: str, /) -> list[CoordinatorRecord]: ...


class Heartbeat(Protocol):
    """A heartbeat of a group whose members may be static."""

    member_id: str
    member_epoch: int
    instance_id: str | None


class ModernProtocol(Generic[G, M, T]):
    """Moves the groups of one kind."""

    RECORDS: KindRecords[M, T]

    def __init__(
        self,
        groups: Groups,
        of_kind: dict[str, G],
        settings: Callable[[], GroupSettings],
        group_config: Callable[[str], GroupConfig],
        hasher: MetadataHasher,
    ) -> None:
        """``of_kind`` are those of ``groups`` that the protocol moves; ``group_config`` gives a group's own configs.

        ``hasher`` follows the topics.
        """
        self.groups = groups
        self._of_kind = of_kind
        self.settings = settings
        self.group_config = group_config
        self.hasher = hasher
        self.timers = ConsumerTimers()

    # -- what differs from kind to kind --------------------------------------------------------

    def _session_timeout_ms(self, group_id: str) -> int:
        """Return the time within which members of a group must be heard of."""
        raise NotImplementedError

    def _epoch_without(self, group: G, members: Collection[M], epoch: int) -> list[CoordinatorRecord]:
        """Return the records of the group epoch that begins when members leave."""
        raise NotImplementedError

    # -- the topics ----------------------------------------------------------------------------

    @property
    def topics(self) -> CoordinatorMetadataImage:
        """The latest image."""
        return self.hasher.image

    def doubt_metadata(self, changed: Collection[str]) -> None:
        """Have groups that depend on a changed topic check their hash with the next heartbeat."""
        names = frozenset(changed)
        for group in self._of_kind.values():
            if names and group.depends_on_any(names):
                group.doubt_metadata()

    # -- members -------------------------------------------------------------------------------

    def schedule_session(self, group_id: str, member_id: str, now_ms: int) -> None:
        """Begin a member's session anew."""
        self.timers.schedule("session", group_id, member_id, now_ms + self._session_timeout_ms(group_id))

    def schedule_rebalance(self, group_id: str, member: M, now_ms: int) -> None:
        """Give a member its time to give up what it must, or take the time back."""
        if member.must_give_up:
            deadline_ms = now_ms + member.rebalance_timeout_ms
            self.timers.schedule_rebalance(group_id, member.member_id, member.member_epoch, deadline_ms)
        else:
            self.timers.cancel("rebalance", group_id, member.member_id)

    # -- members that go -----------------------------------------------------------------------

    def fence(self, group: G, members: Collection[M], response: R, now_ms: int) -> CoordinatorResult[R]:
        """Take members out."""
        group_id, epoch = group.group_id, group.group_epoch + 1
        ids = [member.member_id for member in members]
        records = [record for each in ids for record in self.RECORDS.member_removal(group_id, each)]
        records += self._epoch_without(group, members, epoch)
        if len(members) == len(group.members):
            # Nobody is left to make a target for. Without a time, the next member's target waits for no interval.
            records.append(self.RECORDS.target_epoch_record(group_id, epoch, 0))

        def stored(error: ErrorCode | None, later_ms: int) -> CoordinatorResult[None]:
            # Only now: a member stays in if its removal could not be stored, and then its timers must go on.
            now = self._of_kind.get(group_id)
            self.timers.cancel_members(group_id, [each for each in ids if now is None or each not in now.members])
            return CoordinatorResult(None)

        return CoordinatorResult(response, records, on_stored=stored)

    # -- time ----------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """Return when `on_deadline` is next due, in ms; None if never."""
        return self.timers.next_deadline()

    def on_deadline(self, now_ms: int) -> CoordinatorResult[None] | None:
        """Handle one deadline that has come; None when there is none (left)."""
        due = self.timers.pop_due(now_ms)
        if due is None:
            return None
        timer, epoch = due
        group = self._of_kind.get(timer.group_id)
        member = None if group is None else group.members.get(timer.member_id)
        if group is None or member is None or (timer.kind == "rebalance" and member.member_epoch != epoch):
            return CoordinatorResult(None)
        logger.info("group %s: member %s is fenced, its %s time is over", timer.group_id, timer.member_id, timer.kind)
        try:
            result = self.fence(group, [member], None, now_ms)
        except ApiError as error:
            logger.error("group %s: member %s cannot be fenced: %s", timer.group_id, timer.member_id, error)
            return CoordinatorResult(None)
        return self.timers.again_unless_stored(timer, epoch, result)

    def on_loaded(self, now_ms: int) -> None:
        """Give members a full session to be heard of again: replay has rebuilt the groups."""
        for group_id, group in self._of_kind.items():
            for member_id, member in group.members.items():
                self.schedule_session(group_id, member_id, now_ms)
                if member.must_give_up:
                    self.schedule_rebalance(group_id, member, now_ms)


class StaticProtocol(ModernProtocol[G, S, T]):
    """Moves the groups of a kind whose members may have instance ids."""

    def find_member(
        self,
        group: G,
        member_id: str,
        request: Heartbeat,
        has_no_more: Callable[[S], bool],
        records: list[CoordinatorRecord],
    ) -> S:
        """Return the member of a heartbeat, a new one if it joins. `ApiError` where it is not who or where it says.

        ``has_no_more``: whether it says what it has, and the member has all of that here. A static member that comes
        back takes the place of its older self: ``records`` get the replacement.
        """
        joins = request.member_epoch == 0
        if request.instance_id is None:
            member: S = group.member_or_new(member_id) if joins else group.member(member_id)
        elif joins:
            return self.subscribe_static(group, member_id, request.instance_id, records)
        else:
            member = group.find_static(member_id, request.instance_id)
        _check_epoch(group.KIND, member, request.member_epoch, has_no_more)
        return member

    def subscribe_static(
        self, group: G, member_id: str, instance_id: str, records: list[CoordinatorRecord], *, is_classic: bool = False
    ) -> S:
        """Return a static member that joins: a new one, or in the place of the one that has its instance id.

        `ApiError` UNRELEASED_INSTANCE_ID where that one has not left (KIP-848: both of the new protocol).
        """
        existing: S | None = group.static_member(instance_id)
        if existing is None:
            member: S = group.member_or_new(member_id)
            return member
        if not is_classic and not existing.gives_way:
            if existing.member_id == member_id:
                return existing  # the answer to its first heartbeat was lost, or it was fenced
            raise ApiError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance "
                f"id is owned by {existing.member_id} member.",
            )
        member = replace(existing, member_id=member_id, member_epoch=0, previous_member_epoch=0)
        group_id, of_kind = group.group_id, self.RECORDS
        records += of_kind.member_removal(group_id, existing.member_id)
        records.append(of_kind.member_record(group_id, member))
        target = group.target.get(existing.member_id, group.NO_TARGET)
        records.append(of_kind.target_record(group_id, member_id, target))
        records.append(of_kind.current_record(group_id, member))
        return member

    def leave_static(self, group: G, request: Heartbeat, response: R, now_ms: int) -> CoordinatorResult[R]:
        """Take out a member that leaves; one that leaves for a while keeps what it has, for its next member id."""
        if request.instance_id is None:
            return self.fence(group, [group.member(request.member_id)], response, now_ms)
        member: S = group.find_static(request.member_id, request.instance_id)
        if request.member_epoch == LEAVE_GROUP_MEMBER_EPOCH:
            return self.fence(group, [member], response, now_ms)
        return CoordinatorResult(response, [self.RECORDS.current_record(group.group_id, member.away())])


def _check_epoch(kind: str, member: M, epoch: int, has_no_more: Callable[[M], bool]) -> None:
    """Refuse a member that is not where it should be, unless it asks to start over with 0: FENCED_MEMBER_EPOCH."""
    current = member.member_epoch
    if epoch in (0, current):
        return
    relation = "greater" if epoch > current else "smaller"
    # It did not get the reply that brought the epoch, if it has nothing that it should not have.
    if epoch == member.previous_member_epoch and epoch < current and has_no_more(member):
        return
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The {kind} group member has a {relation} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({current}). The member must abandon all its partitions and rejoin.",
    )
