"""The interface of an assignor of tasks (KIP-1357): members as they are, the topology, and the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from kbroker.cores.groups.streams.configured_topology import ConfiguredSubtopology
from kbroker.cores.groups.streams.tasks import TaskId, Tasks
from kbroker.value_types import dataclass


class TaskAssignorError(Exception):
    """The assignor found no assignment."""


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """A member, the tasks that it has now, and how far it says it has read their changelogs (summed over stores)."""

    process_id: str
    instance_id: str | None
    rack_id: str | None
    client_tags: Mapping[str, str]
    current: Tasks
    task_offsets: Mapping[TaskId, int]
    task_end_offsets: Mapping[TaskId, int]


class AssignmentConfigs(NamedTuple):
    """The group's configs for its assignor."""

    num_standby_replicas: int = 0
    rack_aware_assignment_tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """The group's members by id, and its configs."""

    members: Mapping[str, MemberSpec]
    configs: AssignmentConfigs


class TaskAssignor(Protocol):
    """Decides which member runs which task."""

    def assign(self, group: GroupSpec, subtopologies: Mapping[str, ConfiguredSubtopology]) -> Mapping[str, Tasks]:
        """Active and standby tasks by member id; every task is active once. `TaskAssignorError` if that cannot be.

        :class:`AssignmentKept` from an assignor that is not Kafka's.
        """
