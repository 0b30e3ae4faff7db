"""A client's batch whose records have to be looked at, because its topic or its timestamps ask for it."""

from __future__ import annotations

from collections.abc import Sequence

from kbroker.errors import ApiError, ErrorCode
from kbroker.log.log_config import CREATE_TIME, LOG_APPEND_TIME, LogConfig
from kbroker.log.record_walk import are_keyed
from kbroker.log.validated_batches import InvalidRecordsError, ValidatedBatches, too_large, too_large_for_segment
from kbroker.types import TopicPartition
from kbroker.wire import record_batch
from kbroker.wire.batch_header import (
    NO_TIMESTAMP,
    BatchHeader,
    TimestampType,
    parse_header,
    patch_in_place,
    set_timestamp,
)
from kbroker.wire.compression import CompressionType, CorruptRecord
from kbroker.wire.record_batch import Record

_MAX_LONG = 2**63 - 1
_MAX_RECORD_ERRORS = 1000
"""Bad records that one answer names; a batch may hold more than a hundred thousand of them."""


def validate_records(
    view: memoryview,
    header: BatchHeader,
    next_offset: int,
    leader_epoch: int,
    now_ms: int,
    config: LogConfig,
    topic_partition: TopicPartition,
) -> ValidatedBatches:
    """A client's batch, sound by its header, on a topic (or with timestamps) that asks for more."""
    if view.readonly:
        view = memoryview(bytearray(view))
    source = header.compression_type
    target = source if config.compression_type == "producer" else CompressionType.from_name(config.compression_type)
    level = _level(target, config)
    create_time = config.message_timestamp_type == CREATE_TIME
    claims_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    max_timestamp = header.max_timestamp
    buffer: memoryview | bytes = view
    suspicious = claims_append_time or (
        create_time
        and (
            max_timestamp - now_ms > config.message_timestamp_after_max_ms
            or max_timestamp < header.base_timestamp
            or config.message_timestamp_before_max_ms != _MAX_LONG
        )
    )
    if suspicious or (config.compact and not _are_keyed(view, header, topic_partition)):
        parsed = _parse(view, header, topic_partition)
        _check_records(parsed, header, now_ms, config, topic_partition)
        max_timestamp = max(record.timestamp for record in parsed)
        if source is not CompressionType.NONE and any(record.offset != index for index, record in enumerate(parsed)):
            # Kafka numbers the records of a compressed batch anew if their producer did not.
            rebuilt = record_batch.build_batch(
                parsed,
                compression=source,
                timestamp_type=header.timestamp_type,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
                is_transactional=header.is_transactional,
            )
            view = memoryview(bytearray(rebuilt))
            buffer = view
            header = parse_header(view)

    if create_time:
        header = set_timestamp(view, 0, header, TimestampType.CREATE_TIME, max_timestamp)
        log_append_time = -1
    else:
        header = set_timestamp(view, 0, header, TimestampType.LOG_APPEND_TIME, now_ms)
        log_append_time = max_timestamp = now_ms

    if target is not source:
        try:
            view = memoryview(bytearray(record_batch.recompress(view, 0, header, target, level)))
        except CorruptRecord as error:
            raise ApiError(
                ErrorCode.CORRUPT_MESSAGE, f"a batch sent to {topic_partition} cannot be read: {error}"
            ) from None
        buffer = view
        header = parse_header(view)
    if len(buffer) > config.max_message_bytes:
        raise too_large(len(buffer), config, topic_partition)
    if len(buffer) > config.segment_bytes:
        raise too_large_for_segment(len(buffer), config, topic_partition)

    patch_in_place(view, 0, next_offset, leader_epoch)
    header = header._replace(base_offset=next_offset, partition_leader_epoch=leader_epoch)
    last_offset = header.last_offset
    return ValidatedBatches(
        buffer,
        (header,),
        next_offset,
        last_offset,
        max_timestamp,
        last_offset if max_timestamp >= 0 else -1,
        log_append_time,
    )


def _level(codec: CompressionType, config: LogConfig) -> int | None:
    if codec is CompressionType.GZIP:
        return config.compression_gzip_level
    if codec is CompressionType.LZ4:
        # Kafka's default of 9 stands for the fast compressor, any other level for the high one.
        return 0 if config.compression_lz4_level == 9 else config.compression_lz4_level
    if codec is CompressionType.ZSTD:
        return config.compression_zstd_level
    return None


def _are_keyed(view: memoryview, header: BatchHeader, topic_partition: TopicPartition) -> bool:
    """What a compacted topic asks of records, and that they are numbered, without looking at anything else."""
    try:
        payload = record_batch.records_payload(view, 0, header)
    except CorruptRecord as error:
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE, f"a batch sent to {topic_partition} cannot be read: {error}"
        ) from None
    try:
        return are_keyed(payload, 0, header.records_count)
    except CorruptRecord as error:
        raise ApiError(ErrorCode.INVALID_RECORD, f"a batch sent to {topic_partition} cannot be read: {error}") from None


def _parse(view: memoryview, header: BatchHeader, topic_partition: TopicPartition) -> list[Record]:
    try:
        payload = record_batch.records_payload(view, 0, header)
    except CorruptRecord as error:
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE, f"a batch sent to {topic_partition} cannot be read: {error}"
        ) from None
    try:
        return list(record_batch.iter_payload(payload, header))
    except CorruptRecord as error:
        raise ApiError(ErrorCode.INVALID_RECORD, f"a batch sent to {topic_partition} cannot be read: {error}") from None


def _check_records(
    parsed: Sequence[Record],
    header: BatchHeader,
    now_ms: int,
    config: LogConfig,
    topic_partition: TopicPartition,
) -> None:
    """``LogValidator.validateRecord`` for each of them."""
    errors: list[tuple[int, str]] = []
    count = 0
    code = ErrorCode.INVALID_RECORD
    create_time = config.message_timestamp_type == CREATE_TIME
    claims_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    compact = config.compact
    for index, record in enumerate(parsed):
        timestamp = record.timestamp
        if compact and record.key is None:
            message = f"a compacted topic takes no record without a key (in {topic_partition})"
        elif create_time and timestamp != NO_TIMESTAMP:
            if earliest <= timestamp <= latest:
                continue
            code = ErrorCode.INVALID_TIMESTAMP
            message = f"timestamp {timestamp} of the record at offset {record.offset} is outside [{earliest}, {latest}]"
        elif claims_append_time:
            code = ErrorCode.INVALID_TIMESTAMP
            message = f"a producer may not set the timestamp type {LOG_APPEND_TIME}"
        else:
            continue
        count += 1
        if len(errors) < _MAX_RECORD_ERRORS:
            errors.append((index, message))
    if errors:
        if code is ErrorCode.INVALID_TIMESTAMP:
            raise InvalidRecordsError(code, "One or more records have been rejected due to invalid timestamp", errors)
        raise InvalidRecordsError(
            code,
            f"One or more records have been rejected due to {count} record errors in total, the first: {errors[0][1]}",
            errors,
        )
