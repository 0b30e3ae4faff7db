"""Judges the records of a client's batch, where its topic or its timestamps ask for it.

That may take long: a few kilobytes can hold a million records, or gigabytes of nothing. So it is done in steps
(`examine`), a window of the records at a time, and `validate_records` alone only looks at as much as others can wait
for.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial

from kbroker.errors import ApiError, ErrorCode
from kbroker.log.log_config import CREATE_TIME, LOG_APPEND_TIME, LogConfig
from kbroker.log.record_walk import STEP_RECORDS, are_keyed, first_above, renumbered
from kbroker.log.validated_batches import (
    MOST_UNSEEN,
    InvalidRecordsError,
    ValidatedBatches,
    too_large,
    too_large_for_segment,
)
from kbroker.types import TopicPartition
from kbroker.value_types import NamedTuple
from kbroker.wire.batch_header import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    TimestampType,
    parse_header,
    patch_in_place,
    set_timestamp,
)
from kbroker.wire.compression import (
    PIECE_BYTES,
    CompressionType,
    Compressor,
    CorruptCompression,
    CorruptRecord,
    compress,
)
from kbroker.wire.record_batch import assemble, records_of
from kbroker.wire.record_windows import RecordWindows, Steps, Window, run_steps

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


class _ExaminedBatch(NamedTuple):
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
    outcome: _ExaminedBatch | ApiError | None


def examine(
    records: memoryview, now_ms: int, config: LogConfig, topic_partition: TopicPartition
) -> Steps[ExaminedRecords]:
    """Look at the records of a batch for which `validate_records` has raised `TakesLong`, however many they are."""
    header = parse_header(records)
    examined = ExaminedRecords(records[: header.size])
    examined.config = config
    view = memoryview(examined[:])
    try:
        examined.outcome = yield from _look(view, header, now_ms, config, topic_partition, at_once=False)
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
        outcome = run_steps(_look(view, header, now_ms, config, topic_partition, at_once=True))
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


def _look(
    view: memoryview,
    header: BatchHeader,
    now_ms: int,
    config: LogConfig,
    topic_partition: TopicPartition,
    *,
    at_once: bool,
) -> Steps[_ExaminedBatch]:
    """``LogValidator.validateMessagesAndAssignOffsets`` of one batch, in steps. ``view`` is changed in place."""
    codec = target = header.compression_type
    if config.compression_type != "producer":
        target = CompressionType.from_name(config.compression_type)
    is_suspicious = _is_suspicious(header, now_ms, config)
    is_compressed = codec is not CompressionType.NONE
    is_walked = (
        is_suspicious
        or config.compact
        or (is_compressed and (config.limits_records or header.records_count > MOST_UNSEEN))
    )
    max_timestamp, is_numbered = header.max_timestamp, True
    windows: RecordWindows | None = None
    try:
        if is_walked or target is not codec:
            if at_once and (
                len(view) > MOST_BYTES_AT_ONCE or (is_walked and header.records_count > MOST_RECORDS_AT_ONCE)
            ):
                raise TakesLong
            windows = RecordWindows(view, 0, header, MOST_BYTES_AT_ONCE if at_once else PIECE_BYTES)
            if at_once:  # before anything is changed: it may take long, and be begun anew
                windows.begin()
                if windows.whole is None:
                    raise TakesLong
            if is_walked:
                max_timestamp, is_numbered = yield from _walk(
                    windows, header, now_ms, config, topic_partition, is_suspicious=is_suspicious
                )
    except CorruptRecord as error:
        raise _unreadable(error, topic_partition) from None

    log_append_time = -1
    if config.message_timestamp_type == CREATE_TIME:
        header = set_timestamp(view, 0, header, TimestampType.CREATE_TIME, max_timestamp)
    else:
        log_append_time = max_timestamp = now_ms
        header = set_timestamp(view, 0, header, TimestampType.LOG_APPEND_TIME, now_ms)

    # As Kafka does with a compressed batch whose producer did not number its records.
    renumber = is_compressed and not is_numbered
    if renumber or target is not codec:
        assert windows is not None
        compressor = partial(_compressed, windows, target, config, topic_partition, renumber=renumber)
        try:
            compressed = yield from compressor(None if target is codec else _level(target, config))
        except CorruptRecord as error:
            raise _unreadable(error, topic_partition) from None
        header = header._replace(attributes=header.attributes & ~COMPRESSION_MASK | target)
        view = memoryview(bytearray(assemble(header, compressed)))
        header = parse_header(view)
    _check_size(len(view), config, topic_partition)
    return _ExaminedBatch(view, header, max_timestamp, log_append_time, renumber or target is not codec)


def _walk(
    windows: RecordWindows,
    header: BatchHeader,
    now_ms: int,
    config: LogConfig,
    topic_partition: TopicPartition,
    *,
    is_suspicious: bool,
) -> Steps[tuple[int, bool]]:
    """Look at the records: their latest timestamp, and whether they are numbered from 0 on."""
    is_sound = not is_suspicious
    are_sizes_checked = header.compression_type is not CompressionType.NONE and (
        config.limits_records or not (is_suspicious or config.compact)
    )
    if is_sound or are_sizes_checked:
        window = windows.whole or (yield from windows.next())  # most batches are one window
        while window is not None:
            is_last = window.first + window.records_count >= header.records_count  # only here nobody has counted them
            if are_sizes_checked and (is_last or config.limits_records):
                yield from _check_sizes(window, config, topic_partition)
            if is_sound and config.compact:
                is_sound = yield from are_keyed(window.data, window.stop, window.records_count, window.first)
            window = None if windows.whole else (yield from windows.next())
        if is_sound:
            return header.max_timestamp, True
        windows.rewind()
    return (yield from _examine(windows, header, now_ms, config, topic_partition))


def _compressed(
    windows: RecordWindows,
    target: CompressionType,
    config: LogConfig,
    topic_partition: TopicPartition,
    level: int | None,
    *,
    renumber: bool,
) -> Steps[bytes]:
    """The records compressed anew, no more of them than are allowed."""
    yield windows.begin
    whole = windows.whole
    if whole is not None:
        records = (yield from renumbered(whole.data, whole.records_count, 0)) if renumber else whole.data
        compressed: bytes = yield partial(compress, target, records, level)
        return compressed
    compressor = Compressor(target, level)
    parts = []
    size = HEADER_SIZE
    windows.rewind()
    while (window := (yield from windows.next())) is not None:
        data: Buffer | None = window.data
        if renumber:
            data = yield from renumbered(window.data, window.records_count, window.first)
        while data is not None:
            parts.append((yield partial(compressor.add, data)))
            size += len(parts[-1])
            _check_size(size, config, topic_partition)
            data = yield from windows.rest()
    parts.append((yield compressor.finish))
    return b"".join(parts)


def _check_size(size: int, config: LogConfig, topic_partition: TopicPartition) -> None:
    if size > config.max_message_bytes:
        raise too_large(size, config, topic_partition)
    if size > config.segment_bytes:
        raise too_large_for_segment(size, config, topic_partition)


def _check_sizes(window: Window, config: LogConfig, topic_partition: TopicPartition) -> Generator[None, None, None]:
    """Refuse a record that is too large when decompressed. Kafka asks for compressed batches alone, as
    ``DefaultRecord.readFrom`` gets ``max.decompressed.message.bytes`` for those."""
    limit = config.max_decompressed_message_bytes
    size = yield from first_above(window.data, window.stop, window.records_count, limit)
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
    windows: RecordWindows, header: BatchHeader, now_ms: int, config: LogConfig, topic_partition: TopicPartition
) -> Steps[tuple[int, bool]]:
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
    while (window := (yield from windows.next())) is not None:
        for index, record in enumerate(records_of(window, header), window.first):
            if not ~index & STEP_RECORDS - 1:
                yield None
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


def _unreadable(error: CorruptRecord, topic_partition: TopicPartition) -> ApiError:
    code = ErrorCode.CORRUPT_MESSAGE if isinstance(error, CorruptCompression) else ErrorCode.INVALID_RECORD
    return ApiError(code, f"a batch sent to {topic_partition} cannot be read: {error}")


def _level(codec: CompressionType, config: LogConfig) -> int | None:
    if codec is CompressionType.GZIP:
        return config.compression_gzip_level
    if codec is CompressionType.LZ4:
        # Kafka's default of 9 stands for the fast compressor, any other level for the high one.
        return 0 if config.compression_lz4_level == 9 else config.compression_lz4_level
    if codec is CompressionType.ZSTD:
        return config.compression_zstd_level
    return None
