"""A streams group: its members, epochs, topology, target assignment, and the holders of tasks.

Nothing here decides: `put_member` and its like are called by the replay of records. What no record keeps (task
offsets, endpoints, a request to shut down) is lost with the coordinator, as in Apache Kafka.

The state of a group is not stored. The first line that is true gives it (``StreamsGroup.maybeUpdateGroupState``):

    EMPTY         no members                                             until one joins
    NOT_READY     topics of the topology are missing, or do not fit      until they are there: a new group epoch
    ASSIGNING     the group epoch is ahead of the target assignment's    until the assignor has made a new one
    RECONCILING   a member does not have its target yet                  until all have: `reconciliation`
    STABLE        otherwise                                              until something changes: a new group epoch

A change of a member, topic or config that the assignor depends on begins a new group epoch (`heartbeat`). A group that
is deleted is in no state. Kafka's ``StreamsGroup`` and ``StreamsGroupMember`` (4.4).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from enum import Enum, IntEnum
from types import MappingProxyType

from kbroker.cores.groups.modern_group import LEAVE_GROUP_STATIC_MEMBER_EPOCH, ModernGroup
from kbroker.cores.groups.streams.configured_topology import ConfiguredTopology
from kbroker.cores.groups.streams.tasks import NO_TASKS, NOTHING_HELD, HeldTasks, TaskId, Tasks
from kbroker.cores.groups.streams.topology import StreamsTopology
from kbroker.value_types import dataclass, field, replace

JOIN_GROUP_MEMBER_EPOCH = 0
"""The epoch of a heartbeat by which a member joins."""
NO_DESCRIPTION = -1
"""The topology epoch of a description that is not stored."""

NO_TAGS: Mapping[str, str] = MappingProxyType({})
NO_OFFSETS: Mapping[TaskId, int] = MappingProxyType({})


class StreamsGroupState(Enum):
    """The state of a group, with the names that tools show. It follows from members and epochs."""

    EMPTY = "Empty"
    """No members."""
    NOT_READY = "NotReady"
    """Topics of the topology are missing, or do not fit."""
    ASSIGNING = "Assigning"
    """The group epoch is ahead of the target assignment."""
    RECONCILING = "Reconciling"
    """Some member does not have its target assignment yet."""
    STABLE = "Stable"
    """Every member has its target assignment."""


class MemberState(IntEnum):
    """The stages of a member's way to its target assignment; the numbers are those of the records."""

    STABLE = 1
    """Has the target assignment of its epoch."""
    UNREVOKED_TASKS = 2
    """Must give up tasks, and say so, before it may go to the next epoch."""
    UNRELEASED_TASKS = 3
    """Is in the target's epoch, and waits for tasks that others have not given up yet."""
    UNKNOWN = 127
    """Written by a newer version."""

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class StreamsGroupMember:
    """A member as its two records describe it; a change makes a new one."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    """The process that the member is a thread of; its threads share the state on its disk."""
    user_endpoint: tuple[str, int] | None = None
    """Host and port at which the application answers interactive queries."""
    client_tags: Mapping[str, str] = field(default_factory=lambda: NO_TAGS)
    assigned: HeldTasks = NOTHING_HELD
    pending_revocation: HeldTasks = NOTHING_HELD

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether there is nothing to do for the target assignment of that epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == epoch

    @property
    def must_give_up(self) -> bool:
        """Whether the member must give up tasks before anything else."""
        return self.state is MemberState.UNREVOKED_TASKS

    @property
    def gives_way(self) -> bool:
        """Whether another member may take the instance id."""
        return self.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH

    def has_all(self, owned: Tasks) -> bool:
        """Whether the member has all of these tasks, not to be given up."""
        return self.assigned.contains(owned)

    def away(self) -> StreamsGroupMember:
        """Return the member after it has left for a while: its tasks are kept for it."""
        held = HeldTasks(dict.fromkeys(self.assigned.active, 0), self.assigned.standby, self.assigned.warmup)
        epoch = LEAVE_GROUP_STATIC_MEMBER_EPOCH
        return replace(self, member_epoch=epoch, pending_revocation=NOTHING_HELD, assigned=held)

    def active_task_epoch(self, task: tuple[str, int]) -> int | None:
        """Since which epoch the member has the active task (perhaps to be given up); None if it has not."""
        task_id = TaskId(*task)
        epoch = self.assigned.active.get(task_id)
        return self.pending_revocation.active.get(task_id) if epoch is None else epoch


@dataclass(frozen=True, slots=True)
class TaskOffsets:
    """The positions of a member's tasks in their changelogs, summed over stores, and those of the changelogs' ends."""

    offsets: Mapping[TaskId, int] = field(default_factory=lambda: NO_OFFSETS)
    end_offsets: Mapping[TaskId, int] = field(default_factory=lambda: NO_OFFSETS)


@dataclass(slots=True)
class _Holders:
    """The members that have a task, by its role, whether or not they are to give it up."""

    active: dict[TaskId, set[str]] = field(default_factory=dict)
    standby: dict[TaskId, set[str]] = field(default_factory=dict)
    warmup: dict[TaskId, set[str]] = field(default_factory=dict)

    def put(self, member: StreamsGroupMember) -> None:
        for holders, task in self._of(member):
            holders.setdefault(task, set()).add(member.member_id)

    def remove(self, member: StreamsGroupMember) -> None:
        for holders, task in self._of(member):
            members = holders.get(task)
            if members is not None:
                members.discard(member.member_id)
                if not members:
                    del holders[task]

    def _of(self, member: StreamsGroupMember) -> Iterator[tuple[dict[TaskId, set[str]], TaskId]]:
        for held in (member.assigned, member.pending_revocation):
            for holders, tasks in zip((self.active, self.standby, self.warmup), held, strict=True):
                for task in tasks:
                    yield holders, task


@dataclass(slots=True, eq=False)
class StreamsGroup(ModernGroup[StreamsGroupMember, Tasks]):
    """A streams group's state."""

    KIND = "streams"
    MEMBER = StreamsGroupMember
    NO_TARGET = NO_TASKS
    RELEASED = MappingProxyType({"assigned": NOTHING_HELD, "pending_revocation": NOTHING_HELD})

    validated_topology_epoch: int = -1
    """The epoch of the topology whose topics have been found to be there; -1 if none has."""
    last_assignment_configs: Mapping[str, str] = field(default_factory=lambda: NO_TAGS)
    stored_description_topology_epoch: int = NO_DESCRIPTION
    failed_description_topology_epoch: int = NO_DESCRIPTION
    topology: StreamsTopology | None = None
    configured: ConfiguredTopology | None = None
    """The topology against the topics of ``metadata_hash``; not stored."""
    task_offsets: dict[str, TaskOffsets] = field(default_factory=dict)
    shutdown_request_member_id: str | None = None
    """The member that asked for the whole application to shut down."""
    endpoint_information_epoch: int = 0
    _holders: _Holders = field(default_factory=_Holders)

    # -- questions -----------------------------------------------------------------------------

    @property
    def state(self) -> StreamsGroupState:
        """See `StreamsGroupState`."""
        if not self.members:
            return StreamsGroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return StreamsGroupState.NOT_READY
        if self.group_epoch > self.assignment_epoch:
            return StreamsGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return StreamsGroupState.STABLE
        return StreamsGroupState.RECONCILING

    @property
    def topology_epoch(self) -> int:
        """The epoch of the topology, -1 before there is one."""
        return -1 if self.topology is None else self.topology.epoch

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic; nobody does in an empty group."""
        return bool(self.members) and self.topology is not None and topic in self.topology.source_topics

    def depends_on_any(self, topics: Set[str]) -> bool:
        """Whether the topology requires one of the topics."""
        return self.topology is not None and not topics.isdisjoint(self.topology.required_topics())

    def has_active(self, task: TaskId) -> bool:
        """Whether any member has the active task, perhaps still to give it up."""
        return task in self._holders.active

    def active_processes(self, task: TaskId) -> set[str]:
        """The process that runs the active task."""
        return self._processes(self._holders.active, task)

    def standby_processes(self, task: TaskId) -> set[str]:
        """The processes with a standby of the task."""
        return self._processes(self._holders.standby, task)

    def warmup_processes(self, task: TaskId) -> set[str]:
        """The processes that warm the task up."""
        return self._processes(self._holders.warmup, task)

    def _processes(self, holders: Mapping[TaskId, set[str]], task: TaskId) -> set[str]:
        return {self.members[member_id].process_id for member_id in holders.get(task, ())}

    # -- changes, by replay only ---------------------------------------------------------------

    def put_member(self, member: StreamsGroupMember) -> None:
        """Add the member, or put it in the place of its older self."""
        old = self.members.get(member.member_id)
        if old is not None:
            self._holders.remove(old)
            self._forget_instance(old.member_id, old.instance_id)
        self.members[member.member_id] = member
        self._holders.put(member)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def remove_member(self, member_id: str) -> None:
        """Remove the member, and free its tasks."""
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._holders.remove(member)
        self._forget_instance(member_id, member.instance_id)
        self.task_offsets.pop(member_id, None)
        if not self.members:
            self.shutdown_request_member_id = None

    def put_topology(self, topology: StreamsTopology | None) -> None:
        """Set, or with None forget, the topology."""
        if topology != self.topology:
            self.configured = None
        self.topology = topology

    def target_of(self, member_id: str) -> Tasks:
        """The member's target assignment, nothing if it has none."""
        return self.target.get(member_id, NO_TASKS)
