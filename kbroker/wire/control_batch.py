"""Control batches: what brokers write for one another between a log's records, and consumers never see."""

from __future__ import annotations

import struct
from enum import IntEnum

from kbroker.value_types import NamedTuple
from kbroker.wire.batch_header import NO_PARTITION_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Buffer
from kbroker.wire.compression import CorruptRecord
from kbroker.wire.record_batch import Record, build_batch, iter_records

_TWO_INT16 = struct.Struct(">hh")
_INT16_INT32 = struct.Struct(">hi")


class ControlRecordType(IntEnum):
    """The type of a control record: int16 in its key, after the key's version."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTxnMarker(NamedTuple):
    """The record of a control batch that ends a transaction."""

    commit: bool
    coordinator_epoch: int
    timestamp: int


def build_control_batch(
    control_type: ControlRecordType,
    value: bytes,
    *,
    timestamp_ms: int,
    base_offset: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    is_transactional: bool = False,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytes:
    """A batch of one control record (transaction markers, and the records of KRaft logs and snapshots)."""
    key = _TWO_INT16.pack(0, control_type)
    return build_batch(
        [Record(0, timestamp_ms, key, value)],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=is_transactional,
        is_control=True,
        partition_leader_epoch=partition_leader_epoch,
    )


def build_end_txn_marker(
    *,
    commit: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytes:
    """The control batch that ends a producer's transaction in one partition."""
    return build_control_batch(
        ControlRecordType.COMMIT if commit else ControlRecordType.ABORT,
        _INT16_INT32.pack(0, coordinator_epoch),
        timestamp_ms=timestamp_ms,
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        partition_leader_epoch=partition_leader_epoch,
    )


def parse_control_record(record: Record) -> int:
    """The type in a control record's key: a ``ControlRecordType``, or a number that a newer Kafka gave."""
    if record.key is None or len(record.key) < _TWO_INT16.size:
        raise CorruptRecord("a control record's key is too short to say its type")
    version, control_type = _TWO_INT16.unpack_from(record.key)
    if version < 0:
        raise CorruptRecord(f"a control record's key has version {version}")
    return int(control_type)


def parse_end_txn_marker(buf: Buffer, pos: int = 0) -> EndTxnMarker | None:
    """The transaction marker in the control batch at ``pos``; None if compaction has emptied the batch.

    ``CorruptRecord`` if the batch holds some other control record.
    """
    for record in iter_records(buf, pos):
        control_type = parse_control_record(record)
        if control_type not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
            raise CorruptRecord(f"control type {control_type} does not end a transaction")
        if record.value is None or len(record.value) < _INT16_INT32.size:
            raise CorruptRecord("a transaction marker's value is too short")
        version, coordinator_epoch = _INT16_INT32.unpack_from(record.value)
        if version < 0:
            raise CorruptRecord(f"a transaction marker's value has version {version}")
        return EndTxnMarker(control_type == ControlRecordType.COMMIT, int(coordinator_epoch), record.timestamp)
    return None
