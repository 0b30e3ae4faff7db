"""Records of ``__share_group_state`` (KIP-932)."""

from __future__ import annotations

from typing import Any

from kbroker.types import ZERO_UUID
from kbroker.wire.errors import WireError
from kbroker.wire.schema import Int8, Int16, Int32, Int64, Str, UuidField, field, message, struct


@message(api_key=0, versions="0")
class ShareSnapshotKey:
    group_id: Str = field("0")
    topic_id: UuidField = field("0", default=ZERO_UUID)
    partition: Int32 = field("0")


@struct
class StateBatch:
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0


@message(api_key=0, versions="0", flexible="0+")
class ShareSnapshotValue:
    snapshot_epoch: Int32 = 0
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Int32 = field(tag=0, default=-1)
    create_timestamp: Int64 = 0
    write_timestamp: Int64 = 0
    state_batches: list[StateBatch] = field()


@message(api_key=1, versions="0")
class ShareUpdateKey:
    group_id: Str = field("0")
    topic_id: UuidField = field("0", default=ZERO_UUID)
    partition: Int32 = field("0")


@message(api_key=1, versions="0", flexible="0+")
class ShareUpdateValue:
    snapshot_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Int32 = field(tag=0, default=-1)
    state_batches: list[StateBatch] = field()


SNAPSHOT, UPDATE = 0, 1
"""Record types of ``__share_group_state``."""


def share_record_classes(record_type: int) -> tuple[type[Any], type[Any]]:
    """Classes of key and value of a record type of ``__share_group_state``; ``WireError`` if it is unknown."""
    if record_type == SNAPSHOT:
        return ShareSnapshotKey, ShareSnapshotValue
    if record_type == UPDATE:
        return ShareUpdateKey, ShareUpdateValue
    raise WireError(f"unknown record type {record_type} in __share_group_state")
