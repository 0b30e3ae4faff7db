"""Judges the records of a client's batch, where its topic or its timestamps ask for it.

That may take long: a few kilobytes can hold a million records, or sixty megabytes of nothing. So it is done in steps
(`examine`), and `validate_records` alone only looks at as much as others can wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, TypeVar

from kbroker.errors import ApiError, ErrorCode
from kbroker.log.log_config import CREATE_TIME, LOG_APPEND_TIME, LogConfig
from kbroker.log.record_walk import STEP_RECORDS, are_keyed, first_above, renumbered
from kbroker.log.validated_batches import InvalidRecordsError, ValidatedBatches, too_large, too_large_for_segment
from kbroker.types import TopicPartition
from kbroker.value_types import NamedTuple
from kbroker.wire import record_batch
from kbroker.wire.batch_header import (
    COMPRESSION_MASK,
    NO_TIMESTAMP,
    BatchHeader,
    TimestampType,
    parse_header,
    patch_in_place,
    set_timestamp,
)
from kbroker.wire.compression import (
    DEFAULT_MAX_DECOMPRESSED,
    CompressionType,
    CorruptRecord,
    DecompressesTooLarge,
    compress,
)

_T = TypeVar("_T")
Steps = Generator[Callable[[], Any] | None, Any, _T]
"""Work in steps. It goes on with the result of the function that it yields, which needs no lock and is fit for a
thread, or gives way to others where it yields None."""

_MAX_LONG = 2**63 - 1
_MAX_RECORD_ERRORS = 1000
"""Bad records that one answer names; a batch may hold more than a hundred thousand of them."""

MOST_RECORDS_AT_ONCE = 1024
MOST_BYTES_AT_ONCE = 128 * 1024
"""Records, or bytes of them decompressed, that are looked at while everybody waits: two or three milliseconds, of which
a connection may have dozens before others have their turn."""


class TakesLong(ApiError):
    """A batch whose records are not looked at while everybody waits: `examine` it first. Nothing has happened to it."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, "the records of a batch are to be looked at in steps")


class _Seen(NamedTuple):
    """An examined batch: as it is to be stored, except for its offsets."""

    view: memoryview
    header: BatchHeader
    max_timestamp: int
    log_append_time: int
    is_converted: bool


class ExaminedRecords(bytearray):
    """The bytes of a batch that has been examined, to be appended once, to a log of the same configuration."""

    __slots__ = ("config", "outcome")

    config: LogConfig | None
    outcome: _Seen | ApiError | None


def examine(
    records: memoryview, now_ms: int, config: LogConfig, topic_partition: TopicPartition
) -> Steps[ExaminedRecords]:
    """Look at the records of a batch for which `validate_records` has raised `TakesLong`, however many they are."""
    header = parse_header(records)
    examined = ExaminedRecords(records[: header.size])
    examined.config = config
    view = memoryview(examined[:])
    try:
        examined.outcome = yield from _look(
            view, header, now_ms, config, topic_partition, _MAX_LONG, DEFAULT_MAX_DECOMPRESSED
        )
    except ApiError as error:
        # Without the frames that it came through: the decompressed records would stay in memory with it.
        error.__context__ = None
        examined.outcome = error.with_traceback(None)
    return examined


def validate_records(
    records: ExaminedRecords | None,
    view: memoryview,
    header: BatchHeader,
    next_offset: int,
    leader_epoch: int,
    now_ms: int,
    config: LogConfig,
    topic_partition: TopicPartition,
) -> ValidatedBatches:
    """A client's batch, sound by its header, on a topic (or with timestamps) that asks for more.

    ``records``: it has been examined. Otherwise `TakesLong` where it has to be.
    """
    if records is not None and records.config is config and records.outcome is not None:
        outcome, records.outcome = records.outcome, None  # an error that is raised must not be kept by its own frames
    else:
        if view.readonly:
            view = memoryview(bytearray(view))
        outcome = _at_once(
            _look(view, header, now_ms, config, topic_partition, MOST_RECORDS_AT_ONCE, MOST_BYTES_AT_ONCE)
        )
    if isinstance(outcome, ApiError):
        try:
            raise outcome
        finally:
            del outcome
    view, header, max_timestamp, log_append_time, is_converted = outcome
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
        header.records_count if is_converted else 0,
    )


def _at_once(steps: Steps[_T]) -> _T:
    result = None
    try:
        while True:
            step = steps.send(result)
            result = None if step is None else step()
    except StopIteration as end:
        value: _T = end.value
        return value


def _look(
    view: memoryview,
    header: BatchHeader,
    now_ms: int,
    config: LogConfig,
    topic_partition: TopicPartition,
    most_records: int,
    most_bytes: int,
) -> Steps[_Seen]:
    """``LogValidator.validateMessagesAndAssignOffsets`` of one batch, in steps. ``view`` is changed in place."""
    max_timestamp = header.max_timestamp
    payload: bytes | bytearray | None = None
    is_converted = False
    read = partial(_payload, view, header, topic_partition, most_bytes)
    suspicious = _is_suspicious(header, now_ms, config)
    limited = config.limits_records and header.compression_type is not CompressionType.NONE
    if suspicious or config.compact or limited:
        if header.records_count > most_records:
            raise TakesLong
        payload = yield read
        assert payload is not None
        try:
            if limited:
                yield from _check_sizes(bytes(payload), header, config, topic_partition)
        except CorruptRecord as error:
            raise _no_records(error, topic_partition) from None
    if suspicious or config.compact:
        assert payload is not None
        try:
            if suspicious or not (yield from are_keyed(bytes(payload), 0, header.records_count)):
                max_timestamp, is_numbered = yield from _examine(
                    bytes(payload), header, now_ms, config, topic_partition
                )
                if not is_numbered and header.compression_type is not CompressionType.NONE:
                    # As Kafka does with a compressed batch whose producer did not number its records.
                    payload = yield from renumbered(bytes(payload), header.records_count)
                    compressed = yield partial(compress, header.compression_type, payload)
                    view, header = _assembled(header, compressed)
                    is_converted = True
        except CorruptRecord as error:
            raise _no_records(error, topic_partition) from None

    target = header.compression_type
    if config.compression_type != "producer":
        target = CompressionType.from_name(config.compression_type)
    if target is not header.compression_type and payload is None:
        payload = yield read  # before anything is changed: it may take long, and be begun anew
        assert payload is not None

    log_append_time = -1
    if config.message_timestamp_type == CREATE_TIME:
        header = set_timestamp(view, 0, header, TimestampType.CREATE_TIME, max_timestamp)
    else:
        log_append_time = max_timestamp = now_ms
        header = set_timestamp(view, 0, header, TimestampType.LOG_APPEND_TIME, now_ms)

    if target is not header.compression_type:
        assert payload is not None
        compressed = yield partial(compress, target, payload, _level(target, config))
        attributes = header.attributes & ~COMPRESSION_MASK | target
        view, header = _assembled(header._replace(attributes=attributes), compressed)
        is_converted = True
    if len(view) > config.max_message_bytes:
        raise too_large(len(view), config, topic_partition)
    if len(view) > config.segment_bytes:
        raise too_large_for_segment(len(view), config, topic_partition)
    return _Seen(view, header, max_timestamp, log_append_time, is_converted)


def _check_sizes(
    payload: bytes, header: BatchHeader, config: LogConfig, topic_partition: TopicPartition
) -> Generator[None, None, None]:
    """Refuse a record that is too large when decompressed. Kafka asks for compressed batches alone, as
    ``DefaultRecord.readFrom`` gets ``max.decompressed.message.bytes`` for those."""
    limit = config.max_decompressed_message_bytes
    size = yield from first_above(payload, header.records_count, limit)
    if size is not None:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"a record of {size} bytes in a batch for {topic_partition} is above"
            f" max.decompressed.message.bytes={limit}",
        )


def _is_suspicious(header: BatchHeader, now_ms: int, config: LogConfig) -> bool:
    """Whether the timestamps of records may break a rule."""
    return header.timestamp_type is TimestampType.LOG_APPEND_TIME or (
        config.message_timestamp_type == CREATE_TIME
        and (
            header.max_timestamp - now_ms > config.message_timestamp_after_max_ms
            or header.max_timestamp < header.base_timestamp
            or config.message_timestamp_before_max_ms != _MAX_LONG
        )
    )


def _examine(
    payload: bytes, header: BatchHeader, now_ms: int, config: LogConfig, topic_partition: TopicPartition
) -> Generator[None, None, tuple[int, bool]]:
    """``LogValidator.validateRecord`` for each record: the latest timestamp, and whether they are numbered from 0 on.

    One after another: a batch may hold far more records than there is memory for as objects. ``CorruptRecord`` if they
    are none.
    """
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
    for index, record in enumerate(record_batch.iter_payload(payload, header)):
        if not ~index & STEP_RECORDS - 1:
            yield
        timestamp = record.timestamp
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        if record.offset != index:
            is_numbered = False
        if compact and record.key is None:
            message = "a compacted topic takes no record without a key (in {topic_partition})"
        elif create_time and timestamp != NO_TIMESTAMP:
            if earliest <= timestamp <= latest:
                continue
            code = ErrorCode.INVALID_TIMESTAMP
            message = "timestamp {timestamp} of the record at offset {offset} is outside [{earliest}, {latest}]"
        elif claims_append_time:
            code = ErrorCode.INVALID_TIMESTAMP
            message = f"a producer may not set the timestamp type {LOG_APPEND_TIME}"
        else:
            continue
        count += 1
        if len(errors) < _MAX_RECORD_ERRORS:
            message = message.format(
                topic_partition=topic_partition,
                timestamp=timestamp,
                offset=record.offset,
                earliest=earliest,
                latest=latest,
            )
            errors.append((index, message))
    if errors:
        message = "One or more records have been rejected due to invalid timestamp"
        if code is not ErrorCode.INVALID_TIMESTAMP:
            message = (
                f"One or more records have been rejected due to {count} record errors in total,"
                f" the first: {errors[0][1]}"
            )
        raise InvalidRecordsError(code, message, errors)
    return max_timestamp, is_numbered


def _payload(view: memoryview, header: BatchHeader, topic_partition: TopicPartition, most_bytes: int) -> bytes:
    """The records, decompressed. `TakesLong` if they are more than ``most_bytes`` but might be looked at in steps."""
    if len(view) > most_bytes and most_bytes < DEFAULT_MAX_DECOMPRESSED:
        raise TakesLong
    try:
        return record_batch.records_payload(view, 0, header, most_bytes)
    except DecompressesTooLarge as error:
        if most_bytes < DEFAULT_MAX_DECOMPRESSED:
            raise TakesLong from None
        raise _unreadable(error, topic_partition) from None
    except CorruptRecord as error:
        raise _unreadable(error, topic_partition) from None


def _assembled(header: BatchHeader, payload: bytes) -> tuple[memoryview, BatchHeader]:
    view = memoryview(bytearray(record_batch.assemble(header, payload)))
    return view, parse_header(view)


def _unreadable(error: CorruptRecord, topic_partition: TopicPartition) -> ApiError:
    return ApiError(ErrorCode.CORRUPT_MESSAGE, f"a batch sent to {topic_partition} cannot be read: {error}")


def _no_records(error: CorruptRecord, topic_partition: TopicPartition) -> ApiError:
    return ApiError(ErrorCode.INVALID_RECORD, f"a batch sent to {topic_partition} cannot be read: {error}")


def _level(codec: CompressionType, config: LogConfig) -> int | None:
    if codec is CompressionType.GZIP:
        return config.compression_gzip_level
    if codec is CompressionType.LZ4:
        # Kafka's default of 9 stands for the fast compressor, any other level for the high one.
        return 0 if config.compression_lz4_level == 9 else config.compression_lz4_level
    if codec is CompressionType.ZSTD:
        return config.compression_zstd_level
    return None
