"""The assignor ``sticky``: tasks stay where they are or were, within an even share; the rest goes to the least loaded.

A process is loaded by its tasks for each of its threads. Tasks are dealt out by subtopology, so that the tasks of one
subtopology spread over the processes. Standby tasks go to other processes than the active task.
Rules: Kafka's ``StickyTaskAssignor`` (4.4). Where it takes any of several equal choices, this takes the first by id.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterable, Iterator, Mapping

from kbroker.cores.groups.streams.assignors.spec import GroupSpec, TaskAssignorError
from kbroker.cores.groups.streams.configured_topology import ConfiguredSubtopology
from kbroker.cores.groups.streams.tasks import TaskId, Tasks
from kbroker.value_types import dataclass, field

logger = logging.getLogger(__name__)


class StickyTaskAssignor:
    """See the module."""

    def assign(self, group: GroupSpec, subtopologies: Mapping[str, ConfiguredSubtopology]) -> Mapping[str, Tasks]:
        """Assign the tasks of a group to its members, those that they have had first."""
        replicas = group.configs.num_standby_replicas
        active = list(_tasks(subtopologies))
        followed = [task for task in active if subtopologies[task.subtopology_id].is_stateful] if replicas else []
        if active and not group.members:
            raise TaskAssignorError("there is no member")
        assignment = _Assignment(group, len(active), len(active) + len(followed) * replicas)
        assignment.assign_active(active)
        assignment.assign_standby(followed, replicas)
        return assignment.tasks()


def _tasks(subtopologies: Mapping[str, ConfiguredSubtopology]) -> Iterator[TaskId]:
    for subtopology_id in sorted(subtopologies):
        for partition in range(subtopologies[subtopology_id].number_of_tasks):
            yield TaskId(subtopology_id, partition)


@dataclass(slots=True)
class _Quota:
    """An even share of tasks for each member; of those that are left, once a member has its share."""

    tasks: int
    members: int

    @property
    def share(self) -> int:
        return -(-self.tasks // self.members) if self.members else 0

    def took(self, count: int) -> None:
        """A member has ``count`` tasks now."""
        if count == self.share:
            self.members -= 1
            self.tasks -= count


@dataclass(slots=True, eq=False)
class _Process:
    """A process with its threads, the members."""

    process_id: str
    tasks: set[TaskId] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=dict)
    """By member: how many tasks it has."""
    count: int = 0

    @property
    def load(self) -> float:
        return self.count / len(self.counts)

    def least_loaded(self) -> str:
        return min(self.counts, key=lambda member_id: (self.counts[member_id], member_id))


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A member with a task's state: as its standby, or on its disk by the offset that it names."""

    member_id: str
    was_standby: bool
    offset: int


class _Assignment:
    """An assignment in the making."""

    def __init__(self, group: GroupSpec, active: int, all_tasks: int) -> None:
        self._active: dict[str, set[TaskId]] = {member_id: set() for member_id in group.members}
        self._standby: dict[str, set[TaskId]] = {member_id: set() for member_id in group.members}
        self._active_quota = _Quota(active, len(group.members))
        self._quota = _Quota(all_tasks, len(group.members))
        self._processes: dict[str, _Process] = {}
        self._process_of: dict[str, _Process] = {}
        self._was_active: dict[TaskId, str] = {}
        candidates: dict[TaskId, list[_Candidate]] = {}
        for member_id in sorted(group.members):
            spec = group.members[member_id]
            process = self._processes.setdefault(spec.process_id, _Process(spec.process_id))
            process.counts[member_id] = 0
            self._process_of[member_id] = process
            self._was_active.update(dict.fromkeys(spec.current.active, member_id))
            for task in spec.current.standby:
                offset = spec.task_offsets.get(task, 0)
                candidates.setdefault(task, []).append(_Candidate(member_id, True, offset))
            for task, offset in spec.task_offsets.items():
                if task not in spec.current.standby:
                    candidates.setdefault(task, []).append(_Candidate(member_id, False, offset))
        self._has_state = {
            task: [each.member_id for each in sorted(found, key=lambda each: (not each.was_standby, -each.offset))]
            for task, found in candidates.items()
        }

    def tasks(self) -> Mapping[str, Tasks]:
        """The result."""
        return {
            member_id: Tasks(frozenset(active), frozenset(self._standby[member_id]))
            for member_id, active in self._active.items()
        }

    # -- active tasks --------------------------------------------------------------------------

    def assign_active(self, tasks: Iterable[TaskId]) -> None:
        """Give each task to a member."""
        by_partition = sorted(tasks, key=lambda task: (task.partition, task.subtopology_id))
        rest = [task for task in by_partition if not self._take_active(self._was_active.get(task), task)]
        rest = [task for task in rest if not self._take_active(self._best_of(self._has_state.get(task, ())), task)]
        queue = self._queue()
        for task in sorted(rest):
            _, process_id = heapq.heappop(queue)
            process = self._processes[process_id]
            self._put_active(process.least_loaded(), task)
            heapq.heappush(queue, (process.load, process_id))

    def _take_active(self, member_id: str | None, task: TaskId) -> bool:
        """Let a member that knows the task have it, within its share; whether it has."""
        if member_id is None or self._count(member_id) >= self._active_quota.share:
            return False
        self._put_active(member_id, task)
        return True

    def _put_active(self, member_id: str, task: TaskId) -> None:
        self._active[member_id].add(task)
        self._active_quota.took(self._put(member_id, task))

    def _put(self, member_id: str, task: TaskId) -> int:
        process = self._process_of[member_id]
        process.tasks.add(task)
        process.count += 1
        process.counts[member_id] += 1
        count = process.counts[member_id]
        self._quota.took(count)
        return count

    def _count(self, member_id: str) -> int:
        return self._process_of[member_id].counts[member_id]

    def _best_of(self, member_ids: Iterable[str], without: TaskId | None = None) -> str | None:
        """The first member, unless one comes that is less loaded, and its process too; ``without`` is not theirs."""
        best: str | None = None
        for member_id in member_ids:
            process = self._process_of[member_id]
            if without is not None and without in process.tasks:
                continue
            if best is None or (
                process.load < self._process_of[best].load and self._count(member_id) < self._count(best)
            ):
                best = member_id
        return best

    def _queue(self) -> list[tuple[float, str]]:
        queue = [(process.load, process.process_id) for process in self._processes.values()]
        heapq.heapify(queue)
        return queue

    # -- standby tasks -------------------------------------------------------------------------

    def assign_standby(self, tasks: Iterable[TaskId], replicas: int) -> None:
        """Give each task ``replicas`` members that follow it, as far as there are processes."""
        rest: list[tuple[TaskId, int]] = []
        for task in sorted(tasks, key=lambda task: (task.partition, task.subtopology_id), reverse=True):
            for placed in range(replicas):
                if not self._take_standby(task):
                    rest.append((task, replicas - placed))
                    break
        rest.sort(reverse=True)
        queue = self._queue()
        for task, missing in rest:
            for placed in range(missing):
                if not self._put_standby_anywhere(task, queue):
                    logger.info("%d of %d standby tasks of %s find no other process", missing - placed, replicas, task)
                    break

    def _take_standby(self, task: TaskId) -> bool:
        """Let a member that knows the task follow it, within its share; whether one does."""
        known = self._was_active.get(task)
        for member_id in (known, self._best_of(self._has_state.get(task, ()), task)):
            if member_id is None or task in self._process_of[member_id].tasks:
                continue
            if self._count(member_id) < self._quota.share:
                self._standby[member_id].add(task)
                self._put(member_id, task)
                return True
        return False

    def _put_standby_anywhere(self, task: TaskId, queue: list[tuple[float, str]]) -> bool:
        """Let the least loaded process without the task follow it; whether there is one."""
        passed = []
        found = False
        while queue and not found:
            load, process_id = heapq.heappop(queue)
            process = self._processes[process_id]
            if task not in process.tasks:
                member_id = process.least_loaded()
                self._standby[member_id].add(task)
                self._put(member_id, task)
                load = process.load
                found = True
            passed.append((load, process_id))
        for entry in passed:
            heapq.heappush(queue, entry)
        return found
