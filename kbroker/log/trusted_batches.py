"""Batches that no client sent: this node's own, and those that a leader has judged."""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.log.log_config import LOG_APPEND_TIME, LogConfig
from kbroker.log.validated_batches import UnexpectedAppendOffset, ValidatedBatches, too_large, too_large_for_segment
from kbroker.types import TopicPartition
from kbroker.wire.batch_header import (
    NO_PARTITION_LEADER_EPOCH,
    BatchHeader,
    Buffer,
    TimestampType,
    check_crc,
    patch_in_place,
    set_timestamp,
    walk_headers,
)
from kbroker.wire.compression import CorruptRecord


def _whole_batches(records: Buffer, topic_partition: TopicPartition) -> list[tuple[int, BatchHeader]]:
    """Every whole batch with its position, its checksum found right."""
    try:
        batches = list(walk_headers(records))
        for position, header in batches:
            check_crc(records, position, header)
    except CorruptRecord as error:
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE, f"records appended to {topic_partition} are damaged: {error}"
        ) from None
    return batches


def assign_to_own(
    records: Buffer,
    next_offset: int,
    leader_epoch: int,
    now_ms: int,
    config: LogConfig,
    topic_partition: TopicPartition,
    raft: bool,
) -> ValidatedBatches:
    """Batches that this node built itself, for a coordinator's partition or the metadata log."""
    batches = _whole_batches(records, topic_partition)
    if not batches or batches[-1][0] + batches[-1][1].size != len(records):
        raise ApiError(ErrorCode.INVALID_RECORD, f"records appended to {topic_partition} are not whole batches")
    view = memoryview(records)
    if view.readonly:
        view = memoryview(bytearray(view))
    append_time = config.message_timestamp_type == LOG_APPEND_TIME
    headers: list[BatchHeader] = []
    offset = next_offset
    max_timestamp = offset_of_max_timestamp = -1
    for position, header in batches:
        if raft:
            if header.partition_leader_epoch != leader_epoch:
                raise ApiError(
                    ErrorCode.INVALID_RECORD,
                    f"the metadata log's leader appends in epoch {leader_epoch} a batch of epoch"
                    f" {header.partition_leader_epoch}",
                )
        elif header.size > config.max_message_bytes:
            raise too_large(header.size, config, topic_partition)
        if append_time:
            header = set_timestamp(view, position, header, TimestampType.LOG_APPEND_TIME, now_ms)
        patch_in_place(view, position, offset, leader_epoch)
        header = header._replace(base_offset=offset, partition_leader_epoch=leader_epoch)
        headers.append(header)
        if header.max_timestamp > max_timestamp:
            max_timestamp = header.max_timestamp
            offset_of_max_timestamp = header.last_offset
        offset = header.next_offset
    if len(view) > config.segment_bytes:
        raise too_large_for_segment(len(view), config, topic_partition)
    return ValidatedBatches(
        view,
        headers,
        next_offset,
        offset - 1,
        max_timestamp,
        offset_of_max_timestamp,
        now_ms if append_time else -1,
    )


def validate_replicated(
    records: Buffer, next_offset: int, leader_epoch: int, topic_partition: TopicPartition
) -> ValidatedBatches:
    """Validate a leader's batches: nothing is changed, and a cut-off batch at the end is left out."""
    headers: list[BatchHeader] = []
    end = 0
    last_offset = -1
    max_timestamp = offset_of_max_timestamp = -1
    for position, header in _whole_batches(records, topic_partition):
        epoch = header.partition_leader_epoch
        if epoch != NO_PARTITION_LEADER_EPOCH and epoch > leader_epoch:
            # KAFKA-18723: the fetch was answered after its sender had lost the leadership
            break
        if header.last_offset <= last_offset:
            raise ApiError(
                ErrorCode.INVALID_RECORD,
                f"records replicated to {topic_partition} are out of order: {header.last_offset} after {last_offset}",
            )
        last_offset = header.last_offset
        headers.append(header)
        end = position + header.size
        if header.max_timestamp > max_timestamp:
            max_timestamp = header.max_timestamp
            offset_of_max_timestamp = last_offset
    if not headers:
        return ValidatedBatches(b"", (), next_offset, next_offset - 1, -1, -1, -1)
    first_offset = headers[0].base_offset
    if first_offset < next_offset:
        raise UnexpectedAppendOffset(
            f"records from offset {first_offset} on were sent to {topic_partition}, which ends at {next_offset}",
            first_offset,
            last_offset,
        )
    return ValidatedBatches(
        records if end == len(records) else memoryview(records)[:end],
        headers,
        first_offset,
        last_offset,
        max_timestamp,
        offset_of_max_timestamp,
        -1,
    )
