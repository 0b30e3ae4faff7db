"""The records that consumer, share and streams groups have in common: to bytes, and back into a group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from kbroker.cores.coordinator.result import CoordinatorRecord
from kbroker.cores.groups.assignors.spec import Assignment
from kbroker.cores.groups.modern_group import LEAVE_GROUP_MEMBER_EPOCH, NO_ASSIGNMENT_EPOCH, ModernGroup
from kbroker.types import Uuid
from kbroker.value_types import NamedTuple, replace
from kbroker.wire.records.versioned import decode_versioned, encode_coordinator_key, encode_versioned

_VERSION = 0
"""The only version of these values."""

G = TypeVar("G", bound=ModernGroup[Any, Any])
P = TypeVar("P")


def coordinator_record(key: object, value: object) -> CoordinatorRecord:
    """Return a record of ``__consumer_offsets`` from the classes of ``kbroker.wire.records``; None is a tombstone."""
    return CoordinatorRecord(encode_coordinator_key(key), None if value is None else encode_versioned(value, _VERSION))


class CommonRecords(NamedTuple):
    """The classes of ``kbroker.wire.records`` for one kind of group."""

    group: type[Any]
    target_epoch: type[Any]
    target_epoch_value: type[Any]
    target: type[Any]
    current: type[Any]
    member: type[Any]

    def target_epoch_record(self, group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
        """Return the epoch that the target assignment was made for, and when."""
        value = self.target_epoch_value(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
        return coordinator_record(self.target_epoch(group_id=group_id), value)

    def member_removal(self, group_id: str, member_id: str) -> list[CoordinatorRecord]:
        """Return the tombstones of all that is stored of a member; Kafka refuses another order."""
        kinds = (self.current, self.target, self.member)
        return [coordinator_record(kind(group_id=group_id, member_id=member_id), None) for kind in kinds]

    def replay(self, groups: dict[str, G], key: Any, value: bytes | None, new: Callable[[str], G]) -> G | None:
        """Apply a tombstone, or a target's epoch; for another record return its group, which then applies the value.

        A group begins with its first value and ends with its epoch's tombstone. A tombstone without a value before it
        changes nothing. `WireError` for a value that cannot be read.
        """
        group = groups.get(key.group_id)
        if group is None:
            if value is None:
                return None
            group = groups[key.group_id] = new(key.group_id)
        kind = type(key)
        if kind is self.target_epoch:
            group.assignment_epoch, group.assignment_timestamp_ms = NO_ASSIGNMENT_EPOCH, 0
            if value is not None:
                made, _ = decode_versioned(self.target_epoch_value, value)
                group.assignment_epoch, group.assignment_timestamp_ms = made.assignment_epoch, made.assignment_timestamp
        elif value is not None or kind not in (self.group, self.member, self.target, self.current):
            return group
        elif kind is self.group:
            del groups[key.group_id]
        elif kind is self.member:
            group.remove_member(key.member_id)
        elif kind is self.target:
            group.put_target(key.member_id, None)
        elif (member := group.members.get(key.member_id)) is not None:
            left = LEAVE_GROUP_MEMBER_EPOCH
            group.put_member(replace(member, member_epoch=left, previous_member_epoch=left, **group.RELEASED))
        return None


class _Partitions(Protocol):
    @property
    def topic_id(self) -> bytes: ...

    @property
    def partitions(self) -> list[int]: ...


def read_partitions(entries: Iterable[_Partitions]) -> dict[Uuid, frozenset[int]]:
    """Return the partitions of a field of a record, by topic."""
    return {Uuid(each.topic_id): frozenset(each.partitions) for each in entries}


def write_partitions(kind: Callable[..., P], assigned: Assignment | Mapping[Uuid, Mapping[int, int]]) -> list[P]:
    """Return partitions as a field of a message or record with entries of class ``kind``."""
    return [kind(topic_id=topic_id, partitions=sorted(assigned[topic_id])) for topic_id in sorted(assigned)]


def with_epochs(partitions: list[int], epochs: list[int] | None, default: int) -> Iterator[tuple[int, int]]:
    """Return partitions with the epochs in which a member got them; ``default`` where a record has none."""
    known = epochs is not None and len(epochs) == len(partitions)
    return zip(partitions, epochs if known and epochs is not None else [default] * len(partitions), strict=True)
