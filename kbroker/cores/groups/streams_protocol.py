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
from kbroker.cores.groups.groups import Groups
from kbroker.cores.groups.modern_group import LEAVE_GROUP_MEMBER_EPOCH, LEAVE_GROUP_STATIC_MEMBER_EPOCH
from kbroker.cores.groups.modern_protocol import StaticProtocol
from kbroker.cores.groups.records import group_metadata_tombstone
from kbroker.cores.groups.settings import GroupSettings
from kbroker.cores.groups.streams import records as records_of_kind
from kbroker.cores.groups.streams.assignors import TASK_ASSIGNORS
from kbroker.cores.groups.streams.assignors.spec import TaskAssignor
from kbroker.cores.groups.streams.configured_topology import InternalTopic
from kbroker.cores.groups.streams.group import StreamsGroup, StreamsGroupMember
from kbroker.cores.groups.streams.heartbeat import HeartbeatStep, first_target
from kbroker.cores.groups.streams.members import owned_tasks
from kbroker.cores.groups.streams.records import group_record, replay
from kbroker.cores.groups.streams.tasks import Tasks
from kbroker.cores.groups.topics import MetadataHasher
from kbroker.errors import ApiError, ErrorCode
from kbroker.wire.messages.streams_groups import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse

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


class StreamsProtocol(StaticProtocol[StreamsGroup, StreamsGroupMember, Tasks]):
    """Moves streams groups."""

    RECORDS = records_of_kind

    def __init__(
        self,
        groups: Groups,
        settings: Callable[[], GroupSettings],
        group_config: Callable[[str], GroupConfig],
        hasher: MetadataHasher,
        own_assignors: Mapping[str, TaskAssignor] = NO_ASSIGNORS,
    ) -> None:
        super().__init__(groups, groups.streams, settings, group_config, hasher)
        self._assignors = {**TASK_ASSIGNORS, **own_assignors}
        self._initial_delays: DeadlineQueue[str] = DeadlineQueue()

    def _session_timeout_ms(self, group_id: str) -> int:
        return self.group_config(group_id).streams.session_timeout_ms

    def _epoch_without(
        self, group: StreamsGroup, members: Collection[StreamsGroupMember], epoch: int
    ) -> list[CoordinatorRecord]:
        return [group_record(group, epoch)]

    # -- requests ------------------------------------------------------------------------------

    def heartbeat(
        self, request: StreamsGroupHeartbeatRequest, client: ClientContext, now_ms: int
    ) -> CoordinatorResult[StreamsHeartbeatResult]:
        """StreamsGroupHeartbeat of a request whose fields are in order. `ApiError` for the whole."""
        if request.member_epoch in (LEAVE_GROUP_MEMBER_EPOCH, LEAVE_GROUP_STATIC_MEMBER_EPOCH):
            return self._leave(request, now_ms)
        group_id = request.group_id
        config = self.group_config(group_id).streams
        records: list[CoordinatorRecord] = []
        group = self._find_or_create(request, records)
        if request.member_epoch == 0:
            group.check_size(request.member_id, self.settings().streams_max_size, request.instance_id)
        replaced = group.static_members.get(request.instance_id or "")
        owned = owned_tasks(request)
        member = self.find_member(
            group, request.member_id, request, lambda known: owned is not None and known.has_all(owned), records
        )
        step = HeartbeatStep(
            group=group,
            request=request,
            client=client,
            old=member,
            owned=owned,
            replaced_id=None if replaced == request.member_id else replaced,
            records=records,
            config=config,
            hasher=self.hasher,
            assignors=self._assignors,
            now_ms=now_ms,
        )
        step.update_member()
        step.update_topology()
        step.bump_group_epoch()
        if step.group_epoch > group.group_epoch:
            self.groups.rebalances["streams"] += 1
        if not group.members and config.initial_rebalance_delay_ms > 0 and group_id not in self._initial_delays:
            self._initial_delays.schedule(group_id, now_ms + config.initial_rebalance_delay_ms)
        step.update_target(is_delayed=group_id in self._initial_delays)
        if step.reconcile():
            self.schedule_rebalance(group_id, step.new, now_ms)
        self.schedule_session(group_id, request.member_id, now_ms)
        response = step.answer(is_known=group_id in self.groups.streams)
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
        group = self.groups.streams.get(group_id)
        if group is not None:
            return group
        if group_id not in self.groups:
            if joins:
                return StreamsGroup(group_id)
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Streams group {group_id} not found.")
        classic = self.groups.classic.get(group_id)
        if joins and classic is not None and classic.state is ClassicGroupState.EMPTY:
            records.append(group_metadata_tombstone(group_id))
            return StreamsGroup(group_id)
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")

    def _leave(self, request: StreamsGroupHeartbeatRequest, now_ms: int) -> CoordinatorResult[StreamsHeartbeatResult]:
        group = self.groups.streams_group(request.group_id)
        if request.shutdown_application and group.shutdown_request_member_id is None:
            group.shutdown_request_member_id = request.member_id
        result = StreamsHeartbeatResult(
            StreamsGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch, status=[])
        )
        return self.leave_static(group, request, result, now_ms)

    def replay(self, key: object, value: bytes | None) -> None:
        """Apply one record. `WireError` for a value that cannot be read."""
        replay(self.groups.streams, key, value)

    # -- time ----------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """When `on_deadline` is next due, in ms; None if never."""
        members, groups = super().next_deadline(), self._initial_delays.next_deadline()
        if members is None or groups is None:
            return groups if members is None else members
        return min(members, groups)

    def on_deadline(self, now_ms: int) -> CoordinatorResult[None] | None:
        """Handle one deadline that has come; None when there is none (left)."""
        group_id = next(self._initial_delays.pop_due(now_ms), None)
        if group_id is not None:
            return self._assign_after_delay(group_id, now_ms)
        return super().on_deadline(now_ms)

    def _assign_after_delay(self, group_id: str, now_ms: int) -> CoordinatorResult[None]:
        """Make the first target assignment of a group, for the members that came during the initial delay."""
        group = self.groups.streams.get(group_id)
        if group is None or not group.members or group.group_epoch <= group.assignment_epoch:
            return CoordinatorResult(None)
        try:
            records = first_target(group, self.group_config(group_id).streams, self._assignors, self.hasher, now_ms)
        except ApiError as error:
            # The next heartbeat tries again, and is told.
            logger.info("group %s: no assignment after the initial delay: %s", group_id, error)
            return CoordinatorResult(None)
        return CoordinatorResult(None, records)
