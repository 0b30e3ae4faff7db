"""The protocol of share groups (KIP-932): changes of a group by ShareGroupHeartbeat and by time.

Each method returns records; only their replay changes a group. Rules: Kafka's ``GroupMetadataManager`` (its share half,
4.4).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

from kbroker.config import GroupConfig
from kbroker.cores.coordinator.result import CoordinatorRecord, CoordinatorResult
from kbroker.cores.groups.assignors.simple import SimpleAssignor
from kbroker.cores.groups.assignors.spec import Assignment, AssignmentKept, GroupSpec, MemberSpec, ShareAssignor
from kbroker.cores.groups.client import ClientContext
from kbroker.cores.groups.groups import Groups
from kbroker.cores.groups.modern_group import (
    LEAVE_GROUP_MEMBER_EPOCH,
    NOTHING_ASSIGNED,
    RETRY_ASSIGNMENT_MS,
    UNSETTLED_INTERVAL_MS,
)
from kbroker.cores.groups.modern_protocol import ModernProtocol
from kbroker.cores.groups.record_maker import write_partitions
from kbroker.cores.groups.settings import GroupSettings
from kbroker.cores.groups.share import records as records_of_kind
from kbroker.cores.groups.share.records import (
    RecordKey,
    current_record,
    group_epoch_record,
    member_record,
    replay,
    states_record,
    target_epoch_record,
    target_record,
)
from kbroker.cores.groups.share.requests import (
    StateInitialization,
    initialization,
    lacking_states,
    missing_states,
    waits_for_assignment,
    with_initializing,
)
from kbroker.cores.groups.share_group import ShareGroup, ShareGroupMember, TopicsById
from kbroker.cores.groups.topics import MetadataHasher
from kbroker.errors import ApiError, ErrorCode
from kbroker.types import Uuid
from kbroker.value_types import replace
from kbroker.wire.messages.share_groups import HeartbeatAssignment as WireAssignment
from kbroker.wire.messages.share_groups import (
    HeartbeatTopicPartitions,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

logger = logging.getLogger(__name__)

ASSIGNOR = SimpleAssignor()


class ShareProtocol(ModernProtocol[ShareGroup, ShareGroupMember, Assignment]):
    """Moves share groups."""

    RECORDS = records_of_kind

    def __init__(
        self,
        groups: Groups,
        settings: Callable[[], GroupSettings],
        group_config: Callable[[str], GroupConfig],
        hasher: MetadataHasher,
        own_assignor: ShareAssignor | None = None,
    ) -> None:
        """``own_assignor`` takes the place of Kafka's."""
        super().__init__(groups, groups.share, settings, group_config, hasher)
        self._own_assignor = own_assignor
        self._wanted: list[StateInitialization] = []

    def _session_timeout_ms(self, group_id: str) -> int:
        return self.group_config(group_id).share.session_timeout_ms

    def _epoch_without(
        self, group: ShareGroup, members: Collection[ShareGroupMember], epoch: int
    ) -> list[CoordinatorRecord]:
        metadata_hash = self.hasher.group_hash(group.names_after(members, None))
        return [group_epoch_record(group.group_id, epoch, metadata_hash)]

    def replay(self, key: RecordKey, value: bytes | None, now_ms: int) -> None:
        """Apply a record of a share group."""
        replay(self.groups.share, key, value, now_ms)

    def take_wanted(self) -> list[StateInitialization]:
        """The states to be initialized for groups since the last call; `GroupCoordinator` hears of the outcome."""
        wanted, self._wanted = self._wanted, []
        return wanted

    # -- requests ------------------------------------------------------------------------------

    def heartbeat(
        self, request: ShareGroupHeartbeatRequest, client: ClientContext, now_ms: int
    ) -> CoordinatorResult[ShareGroupHeartbeatResponse]:
        """ShareGroupHeartbeat of a request whose fields are in order. `ApiError` for the whole."""
        if request.member_epoch == LEAVE_GROUP_MEMBER_EPOCH:
            group = self.groups.share_group(request.group_id)
            member = group.member(request.member_id)
            response = ShareGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)
            return self.fence(group, [member], response, now_ms)
        joins = request.member_epoch == 0
        group = self._group_of(request.group_id, joins=joins)
        group.check_size(request.member_id, self.settings().share_max_size)
        existing = group.member_or_new(request.member_id) if joins else group.member(request.member_id)
        _check_member_epoch(existing, request.member_epoch)
        step = _Step(self, group, existing, _with_request(existing, request, client), now_ms)
        step.run(self.group_config(group.group_id).share.assignment_interval_ms)
        return self._answer(request, step)

    def _answer(
        self, request: ShareGroupHeartbeatRequest, step: _Step
    ) -> CoordinatorResult[ShareGroupHeartbeatResponse]:
        group_id, member = step.group.group_id, step.new
        config = self.group_config(group_id).share
        self.schedule_session(group_id, member.member_id, step.now_ms)
        response = ShareGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            heartbeat_interval_ms=step.heartbeat_interval_ms(
                config.heartbeat_interval_ms, config.assignment_interval_ms
            ),
        )
        is_full = request.subscribed_topic_names is not None
        if request.member_epoch == 0 or is_full or member.assigned != step.old.assigned:
            response.assignment = WireAssignment(
                topic_partitions=write_partitions(HeartbeatTopicPartitions, member.assigned)
            )
        wanted = step.wanted

        def stored(error: ErrorCode | None, later_ms: int) -> CoordinatorResult[None]:
            if error is None and wanted is not None:
                self._wanted.append(wanted)
            return CoordinatorResult(None)

        return CoordinatorResult(response, step.records, on_stored=None if wanted is None else stored)

    def _group_of(self, group_id: str, *, joins: bool) -> ShareGroup:
        group = self.groups.share.get(group_id)
        if group is not None:
            return group
        if group_id in self.groups:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
        if not joins:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
        return ShareGroup(group_id)

    def empty_group(self, group_id: str) -> ShareGroup:
        """The share group of that id, a new one if there is none. `ApiError` NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND."""
        group = self._group_of(group_id, joins=True)
        if group.members:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)
        return group

    # -- time ----------------------------------------------------------------------------------

    def on_loaded(self, now_ms: int) -> None:
        """Give members a full session, and begin again what was begun: replay has rebuilt the groups."""
        super().on_loaded(now_ms)
        for group in self.groups.share.values():
            group.states_changed_ms = 0

    # -- for the step of a member ----------------------------------------------------------------

    def count_rebalance(self) -> None:
        """Count a group epoch that a member's heartbeat begins."""
        self.groups.rebalances["share"] += 1

    def group_hash(self, names: Collection[str]) -> int:
        """The metadata hash of topics."""
        return self.hasher.group_hash(names)

    def assign(
        self, members: Mapping[str, MemberSpec], assignable: Mapping[Uuid, frozenset[int]]
    ) -> Mapping[str, Assignment]:
        """The assignor's answer. `AssignmentKept`."""
        spec = GroupSpec.of(members)
        if self._own_assignor is None:
            return ASSIGNOR.assign(spec, assignable)
        return self._own_assignor.assign(spec, assignable, self.topics)

    def missing(self, group: ShareGroup, lacking: TopicsById, state_epoch: int, now_ms: int) -> _Missing | None:
        """Those of the ``lacking`` states that are missing, as the record and the request that make them; None if there
        is none."""
        topics = missing_states(group, lacking, now_ms, self.settings().share_initialize_retry_interval_ms)
        if not topics:
            return None
        record = states_record(group.group_id, with_initializing(group.states, topics))
        return record, initialization(group, topics, state_epoch)


_Missing = tuple[CoordinatorRecord, StateInitialization]


class _Step:
    """A member's heartbeat on its way through its group. ``old`` is the member before, ``new`` after it."""

    def __init__(
        self, protocol: ShareProtocol, group: ShareGroup, old: ShareGroupMember, new: ShareGroupMember, now_ms: int
    ) -> None:
        self._protocol = protocol
        self.group = group
        self.old = old
        self.new = new
        self.now_ms = now_ms
        self.records: list[CoordinatorRecord] = []
        self.wanted: StateInitialization | None = None
        self._lacks_states = False
        """Whether subscribed partitions have no state yet."""
        self._epoch = group.group_epoch
        self._target_epoch = group.assignment_epoch

    def run(self, assignment_interval_ms: int) -> None:
        """Store the member, follow the metadata, make a target, give the member its part, and ask for states."""
        group = self.group
        bump = False
        if self.new != self.old or self.old.member_id not in group.members:
            self.records.append(member_record(group.group_id, self.new))
            bump = self.new.subscribed_topic_names != self.old.subscribed_topic_names
        if group.assignment_epoch >= group.group_epoch:
            bump = bump or waits_for_assignment(group, self._protocol.topics)
        names = group.names_after([self.old] if self.old.member_id in group.members else (), self.new)
        bump = self._follow_metadata(names, bump)
        target = self._target(assignment_interval_ms)
        self._reconcile(target, bump)
        lacking = lacking_states(group, names, self._protocol.topics)
        self._lacks_states = bool(lacking)
        missing = self._protocol.missing(group, lacking, self._epoch, self.now_ms)
        if missing is not None:
            record, self.wanted = missing
            self.records.append(record)

    def _follow_metadata(self, names: Collection[str], bump: bool) -> bool:
        """Begin a group epoch if there is a reason to; whether there was."""
        group = self.group
        if not bump and not group.is_metadata_expired(self.now_ms):
            return False
        metadata_hash = self._protocol.group_hash(names)
        bump = bump or metadata_hash != group.metadata_hash
        if bump:
            self._epoch += 1
            self.records.append(group_epoch_record(group.group_id, self._epoch, metadata_hash))
            self._protocol.count_rebalance()
        group.trust_metadata(self.now_ms, self._epoch)
        return bump

    def _target(self, assignment_interval_ms: int) -> Assignment:
        """The member's part of the target, which is made anew for a new group epoch."""
        group, new = self.group, self.new
        if group.assignment_epoch >= self._epoch or not group.may_assign(assignment_interval_ms, self.now_ms):
            return group.target.get(new.member_id, NOTHING_ASSIGNED)
        specs = {
            member.member_id: MemberSpec(
                member_id=member.member_id,
                rack_id=member.rack_id,
                subscribed_topic_ids=frozenset(self._topic_ids(member)),
                assigned=group.target.get(member.member_id, NOTHING_ASSIGNED),
            )
            for member in {**group.members, new.member_id: new}.values()
        }
        assignable = {topic_id: topic.partitions for topic_id, topic in group.states.initialized.items()}
        try:
            target = self._protocol.assign(specs, assignable)
        except AssignmentKept:
            group.retry_assignment_ms = self.now_ms + RETRY_ASSIGNMENT_MS
            return group.target.get(new.member_id, NOTHING_ASSIGNED)
        self.records += [target_record(group.group_id, *changed) for changed in group.changed_targets(target)]
        self.records.append(target_epoch_record(group.group_id, self._epoch, self.now_ms))
        self._target_epoch = self._epoch
        return target[new.member_id]

    def _reconcile(self, target: Assignment, subscription_changed: bool) -> None:
        """Give the member its part at once: others may read the same partitions, so nobody gives up anything first."""
        member = self.new
        is_behind = member.member_epoch != self._target_epoch
        if not is_behind and not subscription_changed:
            return
        subscribed = set(self._topic_ids(member))
        assigned = {topic_id: partitions for topic_id, partitions in target.items() if topic_id in subscribed}
        moved = replace(member, assigned=assigned)
        if is_behind:
            moved = replace(moved, member_epoch=self._target_epoch, previous_member_epoch=member.member_epoch)
        if moved != member:
            self.new = moved
            self.records.append(current_record(self.group.group_id, moved))

    def _topic_ids(self, member: ShareGroupMember) -> list[Uuid]:
        found = (self._protocol.topics.by_name(name) for name in member.subscribed_topic_names)
        return [topic.id for topic in found if topic is not None]

    def heartbeat_interval_ms(self, regular_ms: int, assignment_interval_ms: int) -> int:
        """The time until the member's next heartbeat: soon, if there is something to come for the group."""
        soon_ms = min(regular_ms, UNSETTLED_INTERVAL_MS)
        if self._target_epoch < self._epoch:
            due_ms = self.group.assignment_due_ms(assignment_interval_ms, self.now_ms)
            due_ms = max(due_ms, self.group.retry_assignment_ms)
            return min(regular_ms, max(soon_ms, due_ms - self.now_ms))
        return soon_ms if self._lacks_states else regular_ms


def _with_request(
    member: ShareGroupMember, request: ShareGroupHeartbeatRequest, client: ClientContext
) -> ShareGroupMember:
    """The member with the fields of the request; a heartbeat has only those that differ from the last one."""
    names = request.subscribed_topic_names
    updated = replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=client.client_id,
        client_host=client.client_host,
        subscribed_topic_names=member.subscribed_topic_names if names is None else frozenset(names),
    )
    return member if updated == member else updated


def _check_member_epoch(member: ShareGroupMember, epoch: int) -> None:
    """`ApiError` FENCED_MEMBER_EPOCH unless the member is where it should be, one reply behind, or starts over."""
    current, previous = member.member_epoch, member.previous_member_epoch
    if epoch in (0, current) or (epoch < current and epoch == previous):
        return
    if epoch > current:
        reason = f"a greater member epoch ({epoch}) than the one known by the group coordinator ({current})."
    else:
        reason = (
            f"a smaller member epoch ({epoch}) than the one known by the group coordinator ({current}), and it does "
            f"not match the previous member epoch ({previous})."
        )
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The share group member has {reason} The member must abandon all its partitions and rejoin.",
    )
