"""The share coordinator's shard: the states of the share partitions in one partition of ``__share_group_state``.

Pure: every method returns a `CoordinatorResult`, or raises `ApiError` with the error of the one share partition that it
is about. States change in `replay` alone. The rules are those of Kafka 4.4's ``ShareCoordinatorShard``.

Two epochs fence writers. The leader epoch is that of the partition: a new leader reads the state first, and a
leader before it is refused from then on. The state epoch is the group's: it grows when the share partition begins anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Final, NamedTuple, TypeVar

from kbroker.cores.coordinator.result import CoordinatorRecord, CoordinatorResult, Token
from kbroker.cores.share_coordinator.batches import merge
from kbroker.cores.share_coordinator.records import (
    Snapshot,
    Update,
    read_record,
    snapshot_record,
    tombstone,
    update_record,
)
from kbroker.cores.share_coordinator.settings import ShareCoordinatorSettings
from kbroker.cores.share_state import (
    UNINITIALIZED_EPOCH,
    UNINITIALIZED_START_OFFSET,
    UNKNOWN_COUNT,
    SharePartitionKey,
    SharePartitionState,
    StateSummary,
)
from kbroker.errors import ApiError, ErrorCode
from kbroker.types import Uuid

R = TypeVar("R")

_NOT_INITIALIZED = StateSummary(UNINITIALIZED_EPOCH, UNINITIALIZED_EPOCH, UNINITIALIZED_START_OFFSET, UNKNOWN_COUNT)


class NeededOffsets:
    """Latest snapshot of each share partition. Offsets only grow, so the first of them is the one written first."""

    def __init__(self) -> None:
        self._snapshots: OrderedDict[SharePartitionKey, int] = OrderedDict()
        self._end: int | None = None

    def on_snapshot(self, key: SharePartitionKey, offset: int) -> None:
        """A snapshot at ``offset`` takes the place of all earlier records of the share partition."""
        self._snapshots[key] = offset
        self._snapshots.move_to_end(key)
        self._end = offset + 1

    def on_tombstone(self, key: SharePartitionKey, offset: int) -> None:
        """The share partition is forgotten; nobody needs the tombstone once all before it are gone."""
        self._snapshots.pop(key, None)
        self._end = offset + 1

    def first_needed(self) -> int | None:
        """The first offset that is still needed; None if nothing has been written."""
        if self._snapshots:
            return next(iter(self._snapshots.values()))
        return self._end


class _ShareState(NamedTuple):
    """A share partition's state in memory."""

    state: Snapshot
    leader_epoch: int
    """The highest that was seen; that of ``state`` goes back where an update names none."""
    updates: int = 0
    """Updates since the last snapshot."""


class ShareCoordinator:
    """The core of a shard. ``settings`` is asked at each use; ``partition_count`` counts a topic's partitions (None
    if it does not exist)."""

    replay_alike: Final = None

    def __init__(
        self, settings: Callable[[], ShareCoordinatorSettings], partition_count: Callable[[Uuid], int | None]
    ) -> None:
        self._settings = settings
        self._partition_count = partition_count
        self._held: dict[SharePartitionKey, _ShareState] = {}
        self._needed = NeededOffsets()
        self._next_cold_snapshots_ms: int | None = None

    # -- requests ------------------------------------------------------------------------------

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int, now_ms: int
    ) -> CoordinatorResult[None]:
        """Begin a share partition anew, without batches. FENCED_STATE_EPOCH if it has begun with a higher epoch.

        Nothing where it has begun so: the request came late, and records may have been worked on since.
        """
        _check_key(key)
        _check_epoch("state", state_epoch)
        held = self._held.get(key)
        if held is not None and held.state.state_epoch > state_epoch:
            raise ApiError(ErrorCode.FENCED_STATE_EPOCH)
        self._check_exists(key)
        if held is not None and held.state.state_epoch == state_epoch:
            if start_offset in (held.state.start_offset, UNINITIALIZED_START_OFFSET):
                return CoordinatorResult(None)
        snapshot = Snapshot(
            snapshot_epoch=0 if held is None else held.state.snapshot_epoch + 1,
            state_epoch=state_epoch,
            leader_epoch=UNINITIALIZED_EPOCH,
            start_offset=start_offset,
            delivery_complete_count=UNKNOWN_COUNT if start_offset == UNINITIALIZED_START_OFFSET else 0,
            created_ms=now_ms,
            written_ms=now_ms,
        )
        return CoordinatorResult(None, [snapshot_record(key, snapshot)])

    def write(self, key: SharePartitionKey, changed: SharePartitionState, now_ms: int) -> CoordinatorResult[None]:
        """Take over what a leader has decided. A start offset below the present one leaves that."""
        _check_key(key)
        _check_epoch("leader", changed.leader_epoch)
        _check_epoch("state", changed.state_epoch)
        held = self._initialized(key, "Write")
        if held.leader_epoch > changed.leader_epoch:
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
        if held.state.state_epoch > changed.state_epoch:
            raise ApiError(ErrorCode.FENCED_STATE_EPOCH)
        self._check_exists(key)
        return CoordinatorResult(None, [self._change(key, held, changed, held.state.leader_epoch, now_ms)])

    def read(self, key: SharePartitionKey, leader_epoch: int, now_ms: int) -> CoordinatorResult[SharePartitionState]:
        """Read for a leader. If its epoch is new it is kept first, so that no earlier leader writes after that."""
        _check_key(key)
        _check_epoch("leader", leader_epoch)
        held = self._initialized(key, "Read")
        if held.leader_epoch > leader_epoch:
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
        self._check_exists(key)
        state = held.state
        response = SharePartitionState(
            state.state_epoch, leader_epoch, state.start_offset, state.delivery_complete_count, state.batches
        )
        if held.leader_epoch == leader_epoch:
            return CoordinatorResult(response)
        return CoordinatorResult(
            response, [self._change(key, held, response._replace(batches=()), leader_epoch, now_ms)]
        )

    def read_summary(self, key: SharePartitionKey) -> StateSummary:
        """Read the state without its batches. It is all zero, and the offset -1, before it is initialized."""
        _check_key(key)
        self._check_exists(key)
        held = self._held.get(key)
        if held is None:
            return _NOT_INITIALIZED
        state = held.state
        return StateSummary(state.state_epoch, state.leader_epoch, state.start_offset, state.delivery_complete_count)

    def delete(self, key: SharePartitionKey) -> CoordinatorResult[None]:
        """Forget a share partition."""
        _check_key(key)
        self._check_exists(key)
        return CoordinatorResult(None, [tombstone(key)] if key in self._held else [])

    def on_topics_deleted(self, topic_ids: frozenset[Uuid]) -> CoordinatorResult[None]:
        """Forget the share partitions of topics that are gone."""
        return CoordinatorResult(None, [tombstone(key) for key in self._held if key.topic_id in topic_ids])

    def first_needed_offset(self) -> int | None:
        """The offset below which the shard's partition may be deleted; None if there is nothing to delete."""
        return self._needed.first_needed()

    @property
    def held(self) -> Collection[SharePartitionKey]:
        """The share partitions whose state it keeps."""
        return self._held.keys()

    # -- rules ---------------------------------------------------------------------------------

    def _initialized(self, key: SharePartitionKey, what: str) -> _ShareState:
        held = self._held.get(key)
        if held is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{what} operation on uninitialized share partition not allowed.")
        return held

    def _check_exists(self, key: SharePartitionKey) -> None:
        count = self._partition_count(key.topic_id)
        if count is None or key.partition >= count:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _change(
        self, key: SharePartitionKey, held: _ShareState, changed: SharePartitionState, leader_epoch: int, now_ms: int
    ) -> CoordinatorRecord:
        """The record of a change: an update, or a snapshot after as many updates as one may have."""
        state = held.state
        start_offset = max(changed.start_offset, state.start_offset)
        if changed.start_offset < state.start_offset:
            count = state.delivery_complete_count
        elif changed.start_offset == state.start_offset:
            count = max(changed.delivery_complete_count, state.delivery_complete_count)
        else:
            count = changed.delivery_complete_count
        if held.updates < self._settings().updates_per_snapshot:
            batches = merge(changed.batches, start_offset)
            return update_record(key, Update(state.snapshot_epoch, leader_epoch, start_offset, count, batches))
        return snapshot_record(
            key,
            Snapshot(
                state.snapshot_epoch + 1,
                state.state_epoch,
                leader_epoch,
                start_offset,
                count,
                created_ms=now_ms,
                written_ms=now_ms,
                batches=merge((*state.batches, *changed.batches), start_offset),
            ),
        )

    # -- the core's interface ------------------------------------------------------------------

    def replay(self, record: CoordinatorRecord, now_ms: int, *, offset: int, producer_id: int) -> None:
        """Apply a record of the log. `WireError`: it is broken."""
        read = read_record(record)
        if read is None:
            return
        key, value = read
        if value is None:
            self._held.pop(key, None)
            self._needed.on_tombstone(key, offset)
        elif isinstance(value, Snapshot):
            before = self._held.get(key)
            epoch = value.leader_epoch if before is None else max(before.leader_epoch, value.leader_epoch)
            self._held[key] = _ShareState(value, epoch)
            self._needed.on_snapshot(key, offset)
        else:
            self._replay_update(key, value)

    def _replay_update(self, key: SharePartitionKey, update: Update) -> None:
        held = self._held.get(key)
        if held is None:  # its snapshot is gone: so is what the update changed
            return
        state = held.state
        start_offset = state.start_offset if update.start_offset == -1 else update.start_offset
        state = state._replace(
            start_offset=start_offset,
            leader_epoch=state.leader_epoch if update.leader_epoch == -1 else update.leader_epoch,
            delivery_complete_count=update.delivery_complete_count,
            batches=merge((*state.batches, *update.batches), start_offset),
        )
        self._held[key] = _ShareState(state, max(held.leader_epoch, update.leader_epoch), held.updates + 1)

    def replay_end_transaction(self, producer_id: int, commit: bool) -> None:
        """No record of this topic is written in a transaction."""

    def on_loaded(self, now_ms: int) -> None:
        """Begin to count time."""
        self._next_cold_snapshots_ms = now_ms + self._settings().cold_snapshot_interval_ms

    def on_unloaded(self) -> list[tuple[Token, object]]:
        """Stop being the coordinator. No request waits in the shard."""
        self._next_cold_snapshots_ms = None
        return []

    def next_deadline(self) -> int | None:
        """The time at which snapshots of idle share partitions are due."""
        return self._next_cold_snapshots_ms

    def on_deadline(self, now_ms: int) -> CoordinatorResult[None] | None:
        """Write the state of idle share partitions anew, so that the old records before it can be deleted.

        The states of topics that are gone are dropped: nothing led the shard when that was told, or the record could
        not be stored.
        """
        if self._next_cold_snapshots_ms is None or now_ms < self._next_cold_snapshots_ms:
            return None
        self._next_cold_snapshots_ms = now_ms + self._settings().cold_snapshot_interval_ms
        gone = {key.topic_id for key in self._held if self._partition_count(key.topic_id) is None}
        dropped = self.on_topics_deleted(frozenset(gone)).records
        return CoordinatorResult(None, dropped or self._cold_snapshots(now_ms))

    def _cold_snapshots(self, now_ms: int) -> list[CoordinatorRecord]:
        # Where every state was written anew already, nobody has changed any since: the log does not grow.
        if all(held.state.created_ms != held.state.written_ms for held in self._held.values()):
            return []
        interval_ms = self._settings().cold_snapshot_interval_ms
        return [
            snapshot_record(key, held.state._replace(snapshot_epoch=held.state.snapshot_epoch + 1, written_ms=now_ms))
            for key, held in self._held.items()
            if now_ms - held.state.written_ms >= interval_ms
        ]


def _check_key(key: SharePartitionKey) -> None:
    if key.partition < 0:
        raise ApiError(ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number.")


def _check_epoch(name: str, epoch: int) -> None:
    if epoch < 0:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"The {name} epoch cannot be a negative number.")
