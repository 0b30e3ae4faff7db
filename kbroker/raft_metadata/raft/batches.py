"""Batches of the metadata log and its snapshots: metadata records and control records to bytes and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kbroker.raft_metadata.metadata_version import (
    CORDONED_DIRECTORIES,
    DIRECTORIES,
    ELIGIBLE_LEADER_REPLICAS,
    MIGRATION,
)
from kbroker.value_types import NamedTuple
from kbroker.wire.batch_header import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    check_crc,
    walk_headers,
)
from kbroker.wire.control_batch import ControlRecordType, parse_control_record
from kbroker.wire.errors import WireError
from kbroker.wire.primitives import encode_varint
from kbroker.wire.record_batch import Record, assemble, build_batch, iter_records
from kbroker.wire.records import control, metadata
from kbroker.wire.schema import struct_spec

_CONTROL_TYPES: dict[type[Any], ControlRecordType] = {
    control.LeaderChangeMessage: ControlRecordType.LEADER_CHANGE,
    control.SnapshotHeaderRecord: ControlRecordType.SNAPSHOT_HEADER,
    control.SnapshotFooterRecord: ControlRecordType.SNAPSHOT_FOOTER,
    control.KRaftVersionRecord: ControlRecordType.KRAFT_VERSION,
    control.VotersRecord: ControlRecordType.KRAFT_VOTERS,
}


class MetadataBatch(NamedTuple):
    """A decoded batch. ``records`` are metadata records, or control records if ``is_control``; an iterator of them, if
    they are decoded as they are read."""

    base_offset: int
    last_offset: int
    epoch: int
    timestamp: int
    is_control: bool
    records: Iterable[object]
    size: int


def _highest_version(cls: type[Any]) -> int:
    return struct_spec(cls).versions.highest


_OF_PARTITIONS = (metadata.PartitionRecord, metadata.PartitionChangeRecord)


def record_version(record: object, metadata_version: int) -> int:
    """The version in which Kafka writes a record at a level of ``metadata.version``."""
    if isinstance(record, _OF_PARTITIONS):
        if metadata_version >= ELIGIBLE_LEADER_REPLICAS:
            return 2
        return 1 if metadata_version >= DIRECTORIES else 0
    if isinstance(record, metadata.BrokerRegistrationChangeRecord):
        if record.cordoned_log_dirs is not None:
            return 3
        if record.log_dirs:
            return 2
        return 1 if record.in_controlled_shutdown else 0
    if isinstance(record, metadata.RegisterBrokerRecord):
        if metadata_version >= CORDONED_DIRECTORIES:
            return 4
        if metadata_version >= DIRECTORIES:
            return 3
        return 2 if metadata_version >= MIGRATION else 1
    return _highest_version(type(record))


class BatchEncoder:
    """Encodes metadata records as a batch, some at a time: the bytes of ``build_batch``, in a third of the time."""

    def __init__(self, timestamp_ms: int, metadata_version: int) -> None:
        self.count = 0
        self._timestamp_ms = timestamp_ms
        self._level = metadata_version
        self._parts: list[bytes] = []

    def add(self, records: Iterable[Any]) -> None:
        """Encode further records."""
        add, level, delta = self._parts.append, self._level, self.count
        for record in records:
            value = metadata.encode_metadata_record(record, record_version(record, level))
            # Attributes, the time after the first record's, the offset; no key; no headers.
            body = b"\0\0" + encode_varint(delta) + b"\1" + encode_varint(len(value)) + value + b"\0"
            add(encode_varint(len(body)))
            add(body)
            delta += 1
        self.count = delta

    def whole(self, base_offset: int, epoch: int) -> bytes:
        """Returns the batch of all records, with offsets and leader epoch in place."""
        count, time = self.count, self._timestamp_ms
        producer = NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE
        header = BatchHeader(base_offset, 0, epoch, 2, 0, 0, count - 1, time, time, *producer, count)
        return assemble(header, b"".join(self._parts))


def encode_records(
    records: Sequence[Any], *, base_offset: int, epoch: int, timestamp_ms: int, metadata_version: int
) -> bytes:
    """Encode metadata records as a batch, with offsets and leader epoch in place."""
    batch = BatchEncoder(timestamp_ms, metadata_version)
    batch.add(records)
    return batch.whole(base_offset, epoch)


def encode_control_records(records: Sequence[Any], *, base_offset: int, epoch: int, timestamp_ms: int) -> bytes:
    """Encode control records as a batch, with offsets and leader epoch in place."""
    return build_batch(
        [
            Record(
                0,
                timestamp_ms,
                control.encode_control_key(_CONTROL_TYPES[type(record)]),
                control.encode_control_value(record),
            )
            for record in records
        ],
        base_offset=base_offset,
        partition_leader_epoch=epoch,
        is_control=True,
    )


def decode_batches(data: bytes | memoryview, *, lazily: bool = False) -> Iterator[MetadataBatch]:
    """The batches in ``data``, each with its CRC checked; ``WireError`` for anything that is not one.

    Their records may be decoded ``lazily``, as they are read.
    """
    for position, header in walk_headers(data):
        check_crc(data, position, header)
        records = _decode_records(data[position : position + header.size], is_control=header.is_control)
        yield MetadataBatch(
            header.base_offset,
            header.last_offset,
            header.partition_leader_epoch,
            header.max_timestamp,
            header.is_control,
            records if lazily else list(records),
            header.size,
        )


def _decode_records(batch: bytes | memoryview, *, is_control: bool) -> Iterator[object]:
    for record in iter_records(batch):
        if record.value is None:
            raise WireError(f"the metadata record at offset {record.offset} has no value")
        if is_control:
            kind = parse_control_record(record)
            if kind in _CONTROL_TYPES.values():
                yield control.decode_control_value(kind, record.value)
        else:
            yield metadata.decode_metadata_record(record.value)[0]
