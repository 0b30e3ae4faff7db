"""Records of ``__share_group_state``: snapshots of a share partition's state, and updates that follow them.

Kafka's ``ShareCoordinatorRecordHelpers``. A snapshot without a value forgets its share partition.
"""

from __future__ import annotations

from typing import NamedTuple

from kbroker.cores.coordinator.result import CoordinatorRecord
from kbroker.cores.share_state import SharePartitionKey, StateBatch
from kbroker.types import Uuid
from kbroker.wire.compiler import decode
from kbroker.wire.records import share_state as wire
from kbroker.wire.records.versioned import decode_versioned, encode_coordinator_key, encode_versioned, read_version


class Snapshot(NamedTuple):
    """The whole state of a share partition, as one record has it. Times are in ms since the epoch."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    created_ms: int
    written_ms: int
    batches: tuple[StateBatch, ...] = ()


class Update(NamedTuple):
    """A change since the snapshot of that epoch. -1 as the start offset or the leader epoch leaves it as it was."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...] = ()


def snapshot_record(key: SharePartitionKey, snapshot: Snapshot) -> CoordinatorRecord:
    """The record of a whole state."""
    value = wire.ShareSnapshotValue(
        snapshot_epoch=snapshot.snapshot_epoch,
        state_epoch=snapshot.state_epoch,
        leader_epoch=snapshot.leader_epoch,
        start_offset=snapshot.start_offset,
        delivery_complete_count=snapshot.delivery_complete_count,
        create_timestamp=snapshot.created_ms,
        write_timestamp=snapshot.written_ms,
        state_batches=_wire_batches(snapshot.batches),
    )
    return CoordinatorRecord(_encoded(wire.ShareSnapshotKey, key), encode_versioned(value, 0))


def update_record(key: SharePartitionKey, update: Update) -> CoordinatorRecord:
    """The record of a change."""
    value = wire.ShareUpdateValue(
        snapshot_epoch=update.snapshot_epoch,
        leader_epoch=update.leader_epoch,
        start_offset=update.start_offset,
        delivery_complete_count=update.delivery_complete_count,
        state_batches=_wire_batches(update.batches),
    )
    return CoordinatorRecord(_encoded(wire.ShareUpdateKey, key), encode_versioned(value, 0))


def tombstone(key: SharePartitionKey) -> CoordinatorRecord:
    """The record that forgets a share partition."""
    return CoordinatorRecord(_encoded(wire.ShareSnapshotKey, key), None)


def _encoded(key_class: type[wire.ShareSnapshotKey] | type[wire.ShareUpdateKey], key: SharePartitionKey) -> bytes:
    return encode_coordinator_key(key_class(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition))


def read_record(record: CoordinatorRecord) -> tuple[SharePartitionKey, Snapshot | Update | None] | None:
    """The share partition that a record is about, and what it says of it; None in place of that for a tombstone.

    None alone for a kind or a version of record that kbroker does not know; a newer Kafka may have left such.
    `WireError` for a broken record.
    """
    kind = read_version(record.key)
    if kind not in (wire.SNAPSHOT, wire.UPDATE):
        return None
    found, _ = decode(wire.ShareSnapshotKey, 0, record.key, 2)  # a key of an update has the same fields
    key = SharePartitionKey(found.group_id, Uuid(found.topic_id), found.partition)
    if record.value is None:
        return (key, None) if kind == wire.SNAPSHOT else None
    if read_version(record.value) != 0:
        return None
    return key, _read_snapshot(record.value) if kind == wire.SNAPSHOT else _read_update(record.value)


def _read_snapshot(encoded: bytes) -> Snapshot:
    value, _ = decode_versioned(wire.ShareSnapshotValue, encoded)
    return Snapshot(
        value.snapshot_epoch,
        value.state_epoch,
        value.leader_epoch,
        value.start_offset,
        value.delivery_complete_count,
        value.create_timestamp,
        value.write_timestamp,
        _batches(value.state_batches),
    )


def _read_update(encoded: bytes) -> Update:
    value, _ = decode_versioned(wire.ShareUpdateValue, encoded)
    return Update(
        value.snapshot_epoch,
        value.leader_epoch,
        value.start_offset,
        value.delivery_complete_count,
        _batches(value.state_batches),
    )


def _batches(batches: list[wire.StateBatch]) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in batches
    )


def _wire_batches(batches: tuple[StateBatch, ...]) -> list[wire.StateBatch]:
    return [
        wire.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in batches
    ]
