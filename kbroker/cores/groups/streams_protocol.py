"""The streams group protocol of KIP-1071: changes of a group by StreamsGroupHeartbeat and by time.

Each method returns records; only their replay changes what is stored of a group. Rules: Kafka's
``GroupMetadataManager`` (its streams half, 4.4).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from kbroker.config import GroupConfig
from kbroker.cores.coordinator.deadlines import DeadlineQueue
from kbroker.cores.coordinator.result import CoordinatorRecord, CoordinatorResult
from kbroker.cores.groups.classic_group import ClassicGroupState
from kbroker.cores.groups.client import ClientContext
from kbroker.cores.groups.consumer_members import find_static_member
from kbroker.cores.groups.consumer_timers import ConsumerTimers
from kbroker.cores.groups.groups import Groups
from kbroker.cores.groups.modern_group import LEAVE_GROUP_MEMBER_EPOCH, LEAVE_GROUP_STATIC_MEMBER_EPOCH
from kbroker.cores.groups.records import group_metadata_tombstone
from kbroker.cores.groups.settings import GroupSettings
from kbroker.cores.groups.streams.assignors import TASK_ASSIGNORS
from kbroker.cores.groups.streams.assignors.spec import TaskAssignor
from kbroker.cores.groups.streams.configured_topology import InternalTopic
from kbroker.cores.groups.streams.group import MemberState, StreamsGroup, StreamsGroupMember
from kbroker.cores.groups.streams.heartbeat import HeartbeatStep, first_target
from kbroker.cores.groups.streams.members import away, check_group_size, find_member, owned_tasks
from kbroker.cores.groups.streams.records import (
    current_record,
    group_record,
    member_removal,
    replay,
    target_epoch_record,
)
from kbroker.cores.groups.topics import CoordinatorMetadataImage, MetadataHasher
from kbroker.errors import ApiError, ErrorCode
from kbroker.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse

logger = logging.getLogger(__name__)
R = TypeVar("R")

NO_ASSIGNORS: Mapping[str, TaskAssignor] = MappingProxyType({})


class StreamsHeartbeatResult(NamedTuple):
    """The answer to a heartbeat, and the internal topics that are to be created."""

    response: StreamsGroupHeartbeatResponse
    missing_topics: tuple[InternalTopic, ...] = ()
    topology_epoch: int = -1
    """The epoch of the group's topology, if its description is worth asking for: -1 for a member that leaves."""
    stored_description_epoch: int = -1
    failed_description_epoch: int = -1


class StreamsProtocol:
    """Moves streams groups. ``group_config`` gives a group's own configs; ``hasher`` follows the topics."""

    def __init__(
        self,
        groups: Groups,
        settings: Callable[[], GroupSettings],
        group_config: Callable[[str], GroupConfig],
        hasher: MetadataHasher,
        own_assignors: Mapping[str, TaskAssignor] = NO_ASSIGNORS,
    ) -> None:
        self._groups = groups
        self._settings = settings
        self._group_config = group_config
        self._hasher = hasher
        self._assignors = {**TASK_ASSIGNORS, **own_assignors}
        self._timers = ConsumerTimers()
        self._initial_delays: DeadlineQueue[str] = DeadlineQueue()

    def on_topics(self, changed: Collection[str]) -> None:
        """Follow the metadata: groups of a changed topic check their topology with the next heartbeat."""
        names = frozenset(changed)
        for group in self._groups.streams.values():
            if group.topology is not None and not names.isdisjoint(group.topology.required_topics()):
                group.doubt_metadata()

    # -- requests ------------------------------------------------------------------------------

    def heartbeat(
        self, request: StreamsGroupHeartbeatRequest, client: ClientContext, now_ms: int
    ) -> CoordinatorResult[StreamsHeartbeatResult]:
        """StreamsGroupHeartbeat of a request whose fields are in order. `ApiError` for the whole."""
        if request.member_epoch in (LEAVE_GROUP_MEMBER_EPOCH, LEAVE_GROUP_STATIC_MEMBER_EPOCH):
            return self._leave(request)
        group_id, settings = request.group_id, self._settings()
        config = self._group_config(group_id).streams
        records: list[CoordinatorRecord] = []
        group = self._find_or_create(request, records)
        if request.member_epoch == 0:
            check_group_size(group, request.member_id, request.instance_id, settings.streams_max_size)
        replaced = group.static_members.get(request.instance_id or "")
        owned = owned_tasks(request)
        member = find_member(group, request, owned, records)
        step = HeartbeatStep(
            group=group,
            request=request,
            client=client,
            old=member,
            owned=owned,
            replaced_id=None if replaced == request.member_id else replaced,
            records=records,
            config=config,
            hasher=self._hasher,
            assignors=self._assignors,
            now_ms=now_ms,
        )
        step.update_member()
        step.update_topology()
        step.bump_group_epoch()
        if step.group_epoch > group.group_epoch:
            self._groups.rebalances["streams"] += 1
        if not group.members and config.initial_rebalance_delay_ms > 0 and group_id not in self._initial_delays:
            self._initial_delays.schedule(group_id, now_ms + config.initial_rebalance_delay_ms)
        step.update_target(is_delayed=group_id in self._initial_delays)
        if step.reconcile():
            self._schedule_rebalance(group_id, step.new, now_ms)
        self._timers.schedule("session", group_id, request.member_id, now_ms + config.session_timeout_ms)
        response = step.answer(is_known=group_id in self._groups.streams)
        missing = () if step.topology.is_ready else step.topology.missing_topics
        return CoordinatorResult(
            StreamsHeartbeatResult(
                response,
                missing,
                step.topology.epoch,
                group.stored_description_topology_epoch,
                group.failed_description_topology_epoch,
            ),
            records,
        )

    def _find_or_create(self, request: StreamsGroupHeartbeatRequest, records: list[CoordinatorRecord]) -> StreamsGroup:
        """The group; for a member that joins, a new one. An empty classic group of the same id gives way."""
        group_id, joins = request.group_id, request.member_epoch == 0
        group = self._groups.streams.get(group_id)
        if group is not None:
            return group
        if group_id not in self._groups:
            if joins:
                return StreamsGroup(group_id)
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Streams group {group_id} not found.")
        classic = self._groups.classic.get(group_id)
        if joins and classic is not None and classic.state is ClassicGroupState.EMPTY:
            records.append(group_metadata_tombstone(group_id))
            return StreamsGroup(group_id)
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")

    def _leave(self, request: StreamsGroupHeartbeatRequest) -> CoordinatorResult[StreamsHeartbeatResult]:
        group = self._groups.streams_group(request.group_id)
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            member = find_static_member(group, request.member_id, request.instance_id)
        if request.shutdown_application and group.shutdown_request_member_id is None:
            group.shutdown_request_member_id = request.member_id
        result = StreamsHeartbeatResult(
            StreamsGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch, status=[])
        )
        if request.member_epoch == LEAVE_GROUP_MEMBER_EPOCH:
            return self._fence(group, member, result)
        # It comes back within its session, under a new member id: its tasks are kept for it.
        return CoordinatorResult(result, [current_record(group.group_id, away(member))])

    # -- members that go -----------------------------------------------------------------------

    def _fence(self, group: StreamsGroup, member: StreamsGroupMember, response: R) -> CoordinatorResult[R]:
        """Take a member out."""
        group_id, epoch = group.group_id, group.group_epoch + 1
        records = member_removal(group_id, member.member_id)
        records.append(group_record(group, epoch))
        if len(group.members) == 1:
            # Nobody is left to make a target for. Without a time, the next member's target waits for no interval.
            records.append(target_epoch_record(group_id, epoch, 0))

        def stored(error: ErrorCode | None, later_ms: int) -> CoordinatorResult[None]:
            # Only now: a member stays in if its removal could not be stored, and then its timers must go on.
            now = self._groups.streams.get(group_id)
            if now is None or member.member_id not in now.members:
                self._timers.cancel_members(group_id, [member.member_id])
            return CoordinatorResult(None)

        return CoordinatorResult(response, records, on_stored=stored)

    def _schedule_rebalance(self, group_id: str, member: StreamsGroupMember, now_ms: int) -> None:
        if member.state is MemberState.UNREVOKED_TASKS:
            deadline_ms = now_ms + member.rebalance_timeout_ms
            self._timers.schedule_rebalance(group_id, member.member_id, member.member_epoch, deadline_ms)
        else:
            self._timers.cancel("rebalance", group_id, member.member_id)

    def replay(self, key: object, value: bytes | None) -> None:
        """Apply one record. `WireError` for a value that cannot be read."""
        replay(self._groups.streams, key, value)

    # -- time ----------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """When `on_deadline` is next due, in ms; None if never."""
        members, groups = self._timers.next_deadline(), self._initial_delays.next_deadline()
        if members is None or groups is None:
            return groups if members is None else members
        return min(members, groups)

    def on_deadline(self, now_ms: int) -> CoordinatorResult[None] | None:
        """Handle one deadline that has come; None when there is none (left)."""
        group_id = next(self._initial_delays.pop_due(now_ms), None)
        if group_id is not None:
            return self._assign_after_delay(group_id, now_ms)
        due = self._timers.pop_due(now_ms)
        if due is None:
            return None
        timer, epoch = due
        group = self._groups.streams.get(timer.group_id)
        member = None if group is None else group.members.get(timer.member_id)
        if group is None or member is None or (timer.kind == "rebalance" and member.member_epoch != epoch):
            return CoordinatorResult(None)
        logger.info("group %s: member %s is fenced, its %s time is over", timer.group_id, timer.member_id, timer.kind)
        return self._timers.again_unless_stored(timer, epoch, self._fence(group, member, None))

    def _assign_after_delay(self, group_id: str, now_ms: int) -> CoordinatorResult[None]:
        """Make the first target assignment of a group, for the members that came during the initial delay."""
        group = self._groups.streams.get(group_id)
        if group is None or not group.members or group.group_epoch <= group.assignment_epoch:
            return CoordinatorResult(None)
        try:
            records = first_target(group, self._group_config(group_id).streams, self._assignors, self._hasher, now_ms)
        except ApiError as error:
            # The next heartbeat tries again, and is told.
            logger.info("group %s: no assignment after the initial delay: %s", group_id, error)
            return CoordinatorResult(None)
        return CoordinatorResult(None, records)

    def on_loaded(self, now_ms: int) -> None:
        """Replay has rebuilt the groups: their members get a full session to be heard of again."""
        for group_id, group in self._groups.streams.items():
            timeout_ms = self._group_config(group_id).streams.session_timeout_ms
            for member in group.members.values():
                self._timers.schedule("session", group_id, member.member_id, now_ms + timeout_ms)
                if member.state is MemberState.UNREVOKED_TASKS:
                    self._schedule_rebalance(group_id, member, now_ms)

    @property
    def topics(self) -> CoordinatorMetadataImage:
        """The latest image."""
        return self._hasher.image
