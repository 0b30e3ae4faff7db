"""The steps of a StreamsGroupHeartbeat: the member, the topology, the group epoch, the target, the member's tasks.

Each step adds records; what is stored of the group changes when they are replayed. Rules: Kafka's
``GroupMetadataManager.streamsGroupHeartbeat`` and what it calls (4.4).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from kbroker.config.streams_group import StreamsGroupConfig
from kbroker.cores.coordinator.result import CoordinatorRecord
from kbroker.cores.groups.assignors.spec import AssignmentKept
from kbroker.cores.groups.client import ClientContext
from kbroker.cores.groups.modern_group import RETRY_ASSIGNMENT_MS, UNSETTLED_INTERVAL_MS
from kbroker.cores.groups.streams.assignors.spec import (
    AssignmentConfigs,
    GroupSpec,
    MemberSpec,
    TaskAssignor,
    TaskAssignorError,
)
from kbroker.cores.groups.streams.configured_topology import ConfiguredTopology, StatusDetail, StreamsStatus, configure
from kbroker.cores.groups.streams.endpoints import endpoints
from kbroker.cores.groups.streams.group import MemberState, StreamsGroup, StreamsGroupMember, TaskOffsets
from kbroker.cores.groups.streams.members import check_tasks, is_new_to_assignor, reported_offsets, with_request
from kbroker.cores.groups.streams.reconciliation import Reconciliation
from kbroker.cores.groups.streams.records import (
    current_record,
    group_record,
    member_record,
    target_epoch_record,
    target_record,
    topology_record,
)
from kbroker.cores.groups.streams.tasks import NO_TASKS, Tasks, write_tasks
from kbroker.cores.groups.streams.topology import StreamsTopology, topology_of_record, topology_record_value
from kbroker.cores.groups.topics import MetadataHasher
from kbroker.errors import ApiError, ErrorCode
from kbroker.value_types import dataclass, field
from kbroker.wire.messages.streams_groups import (
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
)

logger = logging.getLogger(__name__)

_NO_OFFSETS = TaskOffsets()

_SOON = frozenset({StreamsStatus.MISSING_INTERNAL_TOPICS, StreamsStatus.ASSIGNMENT_DELAYED})
"""The statuses that are over in a moment. A missing source topic may be missing for long: the client gives up on
it after two intervals."""


@dataclass(slots=True)
class HeartbeatStep:
    """One heartbeat on its way through the group. ``old`` is the member before, ``new`` after it."""

    group: StreamsGroup
    request: StreamsGroupHeartbeatRequest
    client: ClientContext
    old: StreamsGroupMember
    owned: Tasks | None
    replaced_id: str | None
    """The static member whose place ``old`` has taken."""
    records: list[CoordinatorRecord]
    config: StreamsGroupConfig
    hasher: MetadataHasher
    assignors: Mapping[str, TaskAssignor]
    now_ms: int
    new: StreamsGroupMember = field(init=False)
    topology: ConfiguredTopology = field(init=False)
    group_epoch: int = field(init=False)
    target_epoch: int = field(init=False)
    target: Tasks = NO_TASKS
    statuses: list[StatusDetail] = field(default_factory=list)
    _must_assign: bool = False
    _assignor_fails: bool = False
    _metadata_hash: int = field(init=False)

    def __post_init__(self) -> None:
        self.new = self.old
        self.group_epoch = self.group.group_epoch
        self.target_epoch = self.group.assignment_epoch
        self._metadata_hash = self.group.metadata_hash

    # -- the member and the topology -----------------------------------------------------------

    def update_member(self) -> None:
        """Take the fields of the request over; a change is stored."""
        self.new = with_request(self.old, self.request, self.client)
        if self.new != self.old:
            self.records.append(member_record(self.group.group_id, self.new))
            self._must_assign = is_new_to_assignor(self.old, self.new, self.request.instance_id)

    def update_topology(self) -> None:
        """Take the topology of the first member that has one, and see what topics it lacks. `ApiError`."""
        topology = self._declared_topology()
        if self.group.topology is not None and self.new.topology_epoch < self.group.topology.epoch:
            self._add(
                StreamsStatus.STALE_TOPOLOGY,
                f"The member's topology epoch {self.new.topology_epoch} is behind the group's topology epoch "
                f"{self.group.topology.epoch}.",
            )
        self.topology = self._configured(topology)
        if self.topology.is_ready:
            check_tasks(self.owned, self.topology)
        self._take_offsets(topology)
        if self._validated_epoch() != self.group.validated_topology_epoch:
            self._must_assign = True

    def _declared_topology(self) -> StreamsTopology:
        current, declared = self.group.topology, self.request.topology
        if declared is None:
            if current is None:
                raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "The group has no topology; a member must join again.")
            return current
        if current is not None and current.epoch > declared.epoch:
            return current
        value = topology_record_value(declared)
        topology = topology_of_record(value)
        if current is None:
            self.records.append(topology_record(self.group.group_id, value))
            return topology
        if current != topology:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
        return current

    def _configured(self, topology: StreamsTopology) -> ConfiguredTopology:
        """The topology against the topics; it is looked at again where they have changed."""
        group = self.group
        known = None if group.topology is None else group.configured
        if known is not None and not group.is_metadata_expired(self.now_ms):
            return known
        self._metadata_hash = self.hasher.group_hash(topology.required_topics())
        if self._metadata_hash != group.metadata_hash:
            self._must_assign = True
            known = None
        if known is None:
            known = group.configured = configure(topology, self.hasher.image)
        self.group.trust_metadata(self.now_ms, self.group_epoch)
        return known

    def _take_offsets(self, topology: StreamsTopology) -> None:
        """Keep the offsets that the member reports of the topology's tasks."""
        request = self.request
        if request.task_offsets is None and request.task_end_offsets is None:
            return
        reported = reported_offsets(self.group.task_offsets.get(request.member_id, _NO_OFFSETS), request)
        known = topology.subtopologies
        self.group.task_offsets[request.member_id] = TaskOffsets(
            {task: offset for task, offset in reported.offsets.items() if task.subtopology_id in known},
            {task: offset for task, offset in reported.end_offsets.items() if task.subtopology_id in known},
        )

    def _validated_epoch(self) -> int:
        return self.topology.epoch if self.topology.is_ready else -1

    def bump_group_epoch(self) -> None:
        """Begin a new group epoch if the assignor has to look at something new."""
        configs = assignment_configs(self.config)
        if not self._must_assign and configs == self.group.last_assignment_configs:
            return
        self.group_epoch += 1
        self.records.append(
            group_record(
                self.group,
                self.group_epoch,
                metadata_hash=self._metadata_hash,
                validated_topology_epoch=self._validated_epoch(),
                assignment_configs=configs,
            )
        )
        self.group.trust_metadata(self.now_ms, self.group_epoch)

    # -- the target and the member's tasks -----------------------------------------------------

    def update_target(self, *, is_delayed: bool) -> None:
        """Make the target assignment of the group epoch, unless it is made or it is too early for it. `ApiError`.

        ``is_delayed``: the group is new, and waits for more members.
        """
        group = self.group
        if is_delayed:
            detail = "Assignment delayed due to the configured initial rebalance delay."
            self._add(StreamsStatus.ASSIGNMENT_DELAYED, detail)
            return
        before = dict(group.target)
        if self.replaced_id is not None and self.replaced_id in before:
            before[self.new.member_id] = before.pop(self.replaced_id)
        self.target = before.get(self.new.member_id, NO_TASKS)
        if group.assignment_epoch >= self.group_epoch:
            return
        made_ms, interval_ms = group.assignment_timestamp_ms, self.config.assignment_interval_ms
        if made_ms and made_ms <= self.now_ms < made_ms + interval_ms:
            detail = "Assignment delayed due to the configured assignment interval."
            self._add(StreamsStatus.ASSIGNMENT_DELAYED, detail)
            return
        members = {each: member for each, member in group.members.items() if each != self.replaced_id}
        members[self.new.member_id] = self.new
        if self.now_ms < group.retry_assignment_ms:
            self._keep_assignment()
            return
        try:
            target = _assigned(group, members, self.topology, self.config, self.assignors, self.group_epoch)
        except AssignmentKept:
            group.retry_assignment_ms = self.now_ms + RETRY_ASSIGNMENT_MS
            self._keep_assignment()
            return
        self.records += _target_records(group, before, target, self.group_epoch, self.now_ms)
        self.target_epoch, self.target = self.group_epoch, target[self.new.member_id]

    def _keep_assignment(self) -> None:
        """Go on with what the member has. One that has nothing is told; others would count as rebalancing then."""
        self._assignor_fails = True
        if not self.target.is_empty:
            return
        detail = "Assignment delayed since the assignor has failed; the group keeps the assignment that it has."
        self._add(StreamsStatus.ASSIGNMENT_DELAYED, detail)

    def reconcile(self) -> bool:
        """Move the member towards its target; whether it moved. `ApiError` FENCED_MEMBER_EPOCH."""
        if self.new.is_reconciled_to(self.target_epoch):
            return False
        moved = Reconciliation(self.group, self.new, self.target_epoch, self.target, self.owned).next()
        if moved is self.new:
            return False
        self.new = moved
        self.records.append(current_record(self.group.group_id, moved))
        return True

    # -- the answer ----------------------------------------------------------------------------

    def answer(self, *, is_known: bool) -> StreamsGroupHeartbeatResponse:
        """The response. ``is_known``: there was a group before this heartbeat, whose endpoint epoch lives on."""
        group, new, config = self.group, self.new, self.config
        joins, tasks_changed = self.request.member_epoch == 0, self.old.assigned != new.assigned
        response = StreamsGroupHeartbeatResponse(
            member_id=new.member_id,
            member_epoch=new.member_epoch,
            task_offset_interval_ms=config.task_offset_interval_ms,
            acceptable_recovery_lag=config.acceptable_recovery_lag,
        )
        if joins or tasks_changed:
            response.active_tasks = write_tasks(TaskIds, new.assigned.active)
            response.standby_tasks = write_tasks(TaskIds, new.assigned.standby)
            response.warmup_tasks = write_tasks(TaskIds, new.assigned.warmup)
        if self.old.user_endpoint != new.user_endpoint or (tasks_changed and new.user_endpoint is not None):
            group.endpoint_information_epoch += 1
        if group.endpoint_information_epoch != self.request.endpoint_information_epoch:
            response.partitions_by_user_endpoint = endpoints(group, new, self.replaced_id, self.hasher.image)
        if is_known:
            response.endpoint_information_epoch = group.endpoint_information_epoch
        if self.topology.problem is not None:
            self.statuses.append(self.topology.problem)
        self._add_shutdown()
        self._add_missing_tags()
        response.heartbeat_interval_ms = self._heartbeat_interval_ms()
        response.status = [Status(status_code=each.code, status_detail=each.detail) for each in self.statuses]
        return response

    def _add(self, code: StreamsStatus, detail: str) -> None:
        self.statuses.append(StatusDetail(code, detail))

    def _add_shutdown(self) -> None:
        group = self.group
        if self.request.shutdown_application and group.shutdown_request_member_id is None:
            group.shutdown_request_member_id = self.request.member_id
        if group.shutdown_request_member_id is not None:
            self._add(
                StreamsStatus.SHUTDOWN_APPLICATION,
                f"Streams group member {group.shutdown_request_member_id} encountered a fatal error and requested a "
                "shutdown for the entire application.",
            )

    def _add_missing_tags(self) -> None:
        """Tell a member that lacks tags which the group's standby tasks are to be spread by (version 1 knows it)."""
        missing = [tag for tag in self.config.rack_aware_assignment_tags if tag not in self.new.client_tags]
        if missing and self.client.api_version >= 1:
            self._add(
                StreamsStatus.MISSING_CLIENT_TAGS,
                f"Missing required client tags for rack-aware standby assignment: [{', '.join(missing)}]. Configure "
                "them via 'client.tag.<tagKey>' in your Streams config.",
            )

    def _heartbeat_interval_ms(self) -> int:
        """The time until the member's next heartbeat: short while there is something to come for it."""
        regular_ms = self.config.heartbeat_interval_ms
        waits = self.new.state is MemberState.UNRELEASED_TASKS
        if waits and self.now_ms >= self.group.assignment_timestamp_ms + 2 * regular_ms:
            # Every owner has heard of it. One that is slow to give up must not make a large group send more.
            waits = False
        if self._assignor_fails:
            return regular_ms
        if waits or any(status.code in _SOON for status in self.statuses):
            return min(regular_ms, UNSETTLED_INTERVAL_MS)
        return regular_ms


def assignment_configs(config: StreamsGroupConfig) -> dict[str, str]:
    """The configs that an assignment depends on, as the group's record keeps them."""
    configs = {"num.standby.replicas": str(config.num_standby_replicas)}
    if config.rack_aware_assignment_tags:
        configs["rack.aware.assignment.tags"] = ",".join(config.rack_aware_assignment_tags)
    return configs


def first_target(
    group: StreamsGroup,
    config: StreamsGroupConfig,
    assignors: Mapping[str, TaskAssignor],
    hasher: MetadataHasher,
    now_ms: int,
) -> list[CoordinatorRecord]:
    """The records of the target assignment when the initial delay is over. `ApiError`."""
    if group.topology is None:
        return []
    topology = group.configured or configure(group.topology, hasher.image)
    if topology.is_ready and group.validated_topology_epoch != topology.epoch:
        # The topics have come since the last heartbeat. The next one says so, with a new group epoch.
        return [target_epoch_record(group.group_id, group.group_epoch, 0)]
    try:
        target = _assigned(group, group.members, topology, config, assignors, group.group_epoch)
    except AssignmentKept:
        group.retry_assignment_ms = now_ms + RETRY_ASSIGNMENT_MS
        return []
    return _target_records(group, group.target, target, group.group_epoch, now_ms)


def _assigned(
    group: StreamsGroup,
    members: Mapping[str, StreamsGroupMember],
    topology: ConfiguredTopology,
    config: StreamsGroupConfig,
    assignors: Mapping[str, TaskAssignor],
    epoch: int,
) -> Mapping[str, Tasks]:
    """Returns the target of ``members``, which are the group's after the step under way; no tasks while the topology is
    not ready. `ApiError` UNKNOWN_SERVER_ERROR when Kafka's own assignor has no answer; `AssignmentKept`.
    """
    configs = AssignmentConfigs(config.num_standby_replicas, config.rack_aware_assignment_tags)
    if config.missing_assignor is not None:
        logger.warning(
            "group %s: there is no assignor %s, which the group names, and %s assigns its tasks",
            group.group_id,
            config.missing_assignor,
            config.assignor,
        )
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
    try:
        assigned = assignors[config.assignor].assign(GroupSpec(specs, configs), topology.subtopologies)
    except TaskAssignorError as error:
        message = f"Failed to compute a new target assignment for epoch {epoch}: {error}"
        logger.error("group %s: %s", group.group_id, message)
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, message)
    return {member_id: assigned.get(member_id, NO_TASKS) for member_id in members}


def _target_records(
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
