"""Tasks of a Kafka Streams topology, and the sets of them that a member has or is to have.

Kafka's ``TaskId``, ``TasksTuple`` and ``TasksTupleWithEpochs`` (4.4).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeVar


class TaskId(NamedTuple):
    """The work on one partition of each source topic of a subtopology."""

    subtopology_id: str
    partition: int


class WireTaskIds(Protocol):
    """Partitions of one subtopology, in any message or record."""

    @property
    def subtopology_id(self) -> str: ...

    @property
    def partitions(self) -> list[int]: ...


W = TypeVar("W", bound=WireTaskIds)

NO_EPOCHS: Mapping[TaskId, int] = MappingProxyType({})


class Tasks(NamedTuple):
    """Tasks by role: processed (active), kept up to date for a takeover (standby), or being caught up (warm-up)."""

    active: Set[TaskId] = frozenset()
    standby: Set[TaskId] = frozenset()
    warmup: Set[TaskId] = frozenset()

    @property
    def is_empty(self) -> bool:
        """Whether there is no task."""
        return not (self.active or self.standby or self.warmup)


class HeldTasks(NamedTuple):
    """Tasks that a member has; active ones with the member epoch in which it got each (KIP-1251)."""

    active: Mapping[TaskId, int] = NO_EPOCHS
    standby: Set[TaskId] = frozenset()
    warmup: Set[TaskId] = frozenset()

    @property
    def is_empty(self) -> bool:
        """Whether there is no task."""
        return not (self.active or self.standby or self.warmup)

    def shares_any_with(self, tasks: Tasks) -> bool:
        """Whether a task is in both, in the same role."""
        return not (
            tasks.active.isdisjoint(self.active)
            and tasks.standby.isdisjoint(self.standby)
            and tasks.warmup.isdisjoint(self.warmup)
        )

    def is_exactly(self, tasks: Tasks) -> bool:
        """Whether these are the tasks that are here, in the same roles."""
        return tasks.active == self.active.keys() and tasks[1:] == self[1:]

    def contains(self, tasks: Tasks) -> bool:
        """Whether all of the tasks are here, in the same role."""
        return tasks.active <= self.active.keys() and tasks.standby <= self.standby and tasks.warmup <= self.warmup


NO_TASKS = Tasks()
NOTHING_HELD = HeldTasks()


def read_tasks(entries: Iterable[WireTaskIds] | None) -> frozenset[TaskId]:
    """The tasks of a field of a message or record."""
    return frozenset(
        TaskId(entry.subtopology_id, partition) for entry in entries or () for partition in entry.partitions
    )


def partitions_by_subtopology(tasks: Iterable[TaskId]) -> dict[str, list[int]]:
    """The tasks as messages and records have them: in the order of subtopologies, then of partitions."""
    grouped: dict[str, list[int]] = {}
    for task in sorted(tasks):
        grouped.setdefault(task.subtopology_id, []).append(task.partition)
    return grouped


def write_tasks(kind: type[W], tasks: Iterable[TaskId]) -> list[W]:
    """The tasks as a field of a message or record with entries of class ``kind``."""
    entries = []
    for subtopology_id, partitions in partitions_by_subtopology(tasks).items():
        entries.append(kind(subtopology_id=subtopology_id, partitions=partitions))  # type: ignore[call-arg]
    return entries
