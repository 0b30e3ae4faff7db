"""A client's batch whose records have to be looked at, because its topic or its timestamps ask for it."""

from __future__ import annotations

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
    max_timestamp = header.max_timestamp
    if _must_examine(view, header, now_ms, config, topic_partition):
        max_timestamp, is_numbered = _examine(view, header, now_ms, config, topic_partition)
        if not is_numbered and header.compression_type is not CompressionType.NONE:
            view, header = _numbered(view, header)

    log_append_time = -1
    if config.message_timestamp_type == CREATE_TIME:
        header = set_timestamp(view, 0, header, TimestampType.CREATE_TIME, max_timestamp)
    else:
        log_append_time = max_timestamp = now_ms
        header = set_timestamp(view, 0, header, TimestampType.LOG_APPEND_TIME, now_ms)

    if config.compression_type != "producer":
        target = CompressionType.from_name(config.compression_type)
        if target is not header.compression_type:
            view, header = _transcoded(view, header, target, config, topic_partition)
    if len(view) > config.max_message_bytes:
        raise too_large(len(view), config, topic_partition)
    if len(view) > config.segment_bytes:
        raise too_large_for_segment(len(view), config, topic_partition)

    patch_in_place(view, 0, next_offset, leader_epoch)
    header = header._replace(base_offset=next_offset, partition_leader_epoch=leader_epoch)
    last_offset = header.last_offset
    return ValidatedBatches(
        view,
        (header,),
        next_offset,
        last_offset,
        max_timestamp,
        last_offset if max_timestamp >= 0 else -1,
        log_append_time,
    )


def _must_examine(
    view: memoryview, header: BatchHeader, now_ms: int, config: LogConfig, topic_partition: TopicPartition
) -> bool:
    """Whether records may break a rule: by their timestamps, or, on a compacted topic, without a key or a number."""
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return True
    if config.message_timestamp_type == CREATE_TIME and (
        header.max_timestamp - now_ms > config.message_timestamp_after_max_ms
        or header.max_timestamp < header.base_timestamp
        or config.message_timestamp_before_max_ms != _MAX_LONG
    ):
        return True
    if not config.compact:
        return False
    payload = _payload(view, header, topic_partition)
    try:
        return not are_keyed(payload, 0, header.records_count)
    except CorruptRecord as error:
        raise _no_records(error, topic_partition) from None


def _examine(
    view: memoryview, header: BatchHeader, now_ms: int, config: LogConfig, topic_partition: TopicPartition
) -> tuple[int, bool]:
    """``LogValidator.validateRecord`` for each record: the latest timestamp, and whether they are numbered from 0 on.

    One after another: a batch may hold far more records than there is memory for as objects.
    """
    payload = _payload(view, header, topic_partition)
    errors: list[tuple[int, str]] = []
    count = 0
    code = ErrorCode.INVALID_RECORD
    create_time = config.message_timestamp_type == CREATE_TIME
    claims_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    compact = config.compact
    max_timestamp = NO_TIMESTAMP
    is_numbered = True
    try:
        for index, record in enumerate(record_batch.iter_payload(payload, header)):
            timestamp = record.timestamp
            if timestamp > max_timestamp:
                max_timestamp = timestamp
            if record.offset != index:
                is_numbered = False
            if compact and record.key is None:
                message = f"a compacted topic takes no record without a key (in {topic_partition})"
            elif create_time and timestamp != NO_TIMESTAMP:
                if earliest <= timestamp <= latest:
                    continue
                code = ErrorCode.INVALID_TIMESTAMP
                message = (
                    f"timestamp {timestamp} of the record at offset {record.offset} is outside [{earliest}, {latest}]"
                )
            elif claims_append_time:
                code = ErrorCode.INVALID_TIMESTAMP
                message = f"a producer may not set the timestamp type {LOG_APPEND_TIME}"
            else:
                continue
            count += 1
            if len(errors) < _MAX_RECORD_ERRORS:
                errors.append((index, message))
    except CorruptRecord as error:
        raise _no_records(error, topic_partition) from None
    if errors:
        message = "One or more records have been rejected due to invalid timestamp"
        if code is not ErrorCode.INVALID_TIMESTAMP:
            message = (
                f"One or more records have been rejected due to {count} record errors in total,"
                f" the first: {errors[0][1]}"
            )
        raise InvalidRecordsError(code, message, errors)
    return max_timestamp, is_numbered


def _payload(view: memoryview, header: BatchHeader, topic_partition: TopicPartition) -> bytes:
    """The records, decompressed."""
    try:
        return record_batch.records_payload(view, 0, header)
    except CorruptRecord as error:
        raise _unreadable(error, topic_partition) from None


def _unreadable(error: CorruptRecord, topic_partition: TopicPartition) -> ApiError:
    return ApiError(ErrorCode.CORRUPT_MESSAGE, f"a batch sent to {topic_partition} cannot be read: {error}")


def _no_records(error: CorruptRecord, topic_partition: TopicPartition) -> ApiError:
    return ApiError(ErrorCode.INVALID_RECORD, f"a batch sent to {topic_partition} cannot be read: {error}")


def _numbered(view: memoryview, header: BatchHeader) -> tuple[memoryview, BatchHeader]:
    """The batch with its records numbered from 0 on, as Kafka does with a compressed batch whose producer did not."""
    rebuilt = record_batch.build_batch(
        list(record_batch.iter_records(view)),
        compression=header.compression_type,
        timestamp_type=header.timestamp_type,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
    )
    view = memoryview(bytearray(rebuilt))
    return view, parse_header(view)


def _transcoded(
    view: memoryview, header: BatchHeader, target: CompressionType, config: LogConfig, topic_partition: TopicPartition
) -> tuple[memoryview, BatchHeader]:
    """The batch in the codec of the topic."""
    try:
        recompressed = record_batch.recompress(view, 0, header, target, _level(target, config))
    except CorruptRecord as error:
        raise _unreadable(error, topic_partition) from None
    view = memoryview(bytearray(recompressed))
    return view, parse_header(view)


def _level(codec: CompressionType, config: LogConfig) -> int | None:
    if codec is CompressionType.GZIP:
        return config.compression_gzip_level
    if codec is CompressionType.LZ4:
        # Kafka's default of 9 stands for the fast compressor, any other level for the high one.
        return 0 if config.compression_lz4_level == 9 else config.compression_lz4_level
    if codec is CompressionType.ZSTD:
        return config.compression_zstd_level
    return None
