"""The share coordinator's log in a simulated cluster, read from its beginning: how each record of a group ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kbroker.cores.coordinator.result import CoordinatorRecord
from kbroker.cores.share_coordinator.records import Snapshot, Update, read_record
from kbroker.cores.share_state import DeliveryState, SharePartitionKey
from kbroker.sim.cluster_invariants import batches
from kbroker.sim.world import Violation
from kbroker.wire.record_batch import iter_records

if TYPE_CHECKING:
    from kbroker.log.partition_log import PartitionLog

_ENDED = (DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED)


class LoggedStates:
    """The states of one share partition in the order of the log. Deletion of old records may have taken the first."""

    def __init__(self, key: SharePartitionKey) -> None:
        self.start = -1
        self.first = -1
        """The first start offset: below it nothing was ever in delivery."""
        self.records: dict[int, tuple[int, int]] = {}
        """Delivery count and state, by offset."""
        self.passed: list[int] = []
        """Offsets that the start offset has passed, which the log does not say to be ended."""
        self._key = key
        self._state_epoch = -1

    def take(self, value: Snapshot | Update) -> None:
        """Apply a record. `Violation`: the start offset goes back."""
        if isinstance(value, Snapshot) and value.state_epoch > self._state_epoch:
            self.start = self.first = -1
            self.records.clear()
            self._state_epoch = value.state_epoch
        for first, last, state, count in value.batches:
            for offset in range(first, last + 1):
                self.records[offset] = max(self.records.get(offset, (0, 0)), (count, state))
        if value.start_offset == -1 and (isinstance(value, Update) or self.start == -1):
            return
        if value.start_offset < self.start:
            raise Violation(f"{self._key}: the start offset goes back from {self.start} to {value.start_offset}")
        if self.start == -1:
            self.first = value.start_offset
        else:
            passed = range(self.start, value.start_offset)
            self.passed += [offset for offset in passed if self.end(offset)[1] not in _ENDED]
        self.start = value.start_offset

    def end(self, offset: int) -> tuple[int, int]:
        """Delivery count and state of an offset."""
        return self.records.get(offset, (0, DeliveryState.AVAILABLE))


def logged_states(logs: Iterable[PartitionLog]) -> dict[SharePartitionKey, LoggedStates]:
    """The states in partitions of ``__share_group_state``, given as their logs."""
    found: dict[SharePartitionKey, LoggedStates] = {}
    for log in logs:
        for record in _records(log):
            read = read_record(record)
            assert read is not None, "no other kind of record is written"
            key, value = read
            if value is None:
                found.pop(key, None)
            else:
                found.setdefault(key, LoggedStates(key)).take(value)
    return found


def _records(log: PartitionLog) -> Iterator[CoordinatorRecord]:
    for _, _, data in batches(log, log.log_start_offset, log.log_end_offset):
        for record in iter_records(data):
            assert record.key is not None
            yield CoordinatorRecord(bytes(record.key), None if record.value is None else bytes(record.value))
