"""THE place where a produced batch is judged, and where batches get their place in the log.

The rules are those of Apache Kafka 4.3's ``ProduceRequest.validateRecords``,
``UnifiedLog.analyzeAndValidateRecords`` and ``LogValidator``, in that order. One rule is deliberately not
kept: Kafka parses (and decompresses) every record of every batch. Here a batch stays opaque. Its checksum,
its header and the header's plausibility are examined, its records only where a rule cannot be decided
without them:

- the topic is compacted: every record needs a key;
- the topic limits how old a timestamp may be (the header holds the latest one, not the earliest);
- the header's timestamps break a rule or contradict each other, so that the records have to say which of them
  is wrong (or that none is, and the header has to be put right, as Kafka does).

So a client that puts garbage under a right checksum has it stored, and its consumers see it. Kafka answers
INVALID_RECORD there. A parse of each record would cost more than all else that is done to a batch, by far.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple

from kbroker.errors import ApiError, ErrorCode
from kbroker.log.log_config import CREATE_TIME, LOG_APPEND_TIME, LogConfig
from kbroker.log.record_walk import are_keyed
from kbroker.types import TopicPartition
from kbroker.wire import record_batch
from kbroker.wire.batch_header import (
    ATTRIBUTES_AT,
    COMPRESSION_MASK,
    CONTROL_FLAG,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_AT,
    NO_PARTITION_LEADER_EPOCH,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_FLAG,
    BatchHeader,
    Buffer,
    TimestampType,
    check_crc,
    crc32c,
    parse_header,
    patch_in_place,
    set_timestamp,
    walk_headers,
)
from kbroker.wire.compression import CompressionType, CorruptRecord
from kbroker.wire.record_batch import MIN_RECORD_SIZE, Record

__all__ = [
    "AppendOrigin",
    "InvalidRecordsError",
    "UnexpectedAppendOffset",
    "ValidatedBatches",
    "check_produce_version",
    "validate_and_assign_offsets",
]

_MAX_LONG = 2**63 - 1
_MAX_RECORD_ERRORS = 1000
"""Bad records that one answer names; a batch may hold more than a hundred thousand of them."""

_PARSE = HEADER.unpack_from


class AppendOrigin(Enum):
    """Who appends, and so how much is to be judged."""

    CLIENT = auto()
    """A Produce request: everything."""
    COORDINATOR = auto()
    """This broker's group or transaction coordinator, markers included: checksum and size."""
    RAFT_LEADER = auto()
    """The metadata log's leader: the batch already bears the epoch; any size."""
    REPLICATION = auto()
    """A leader judged them: checksum, order, and no later epoch than expected; offsets are kept."""


class ValidatedBatches(NamedTuple):
    """What is to be written, and what the log needs to know of it."""

    records: Buffer
    """The bytes to write: the caller's own, patched, unless the codec or the records had to change."""
    batches: Sequence[BatchHeader]
    """Headers as they are in ``records``; empty if a follower was sent nothing that it may append."""
    first_offset: int
    last_offset: int
    max_timestamp: int
    """Latest timestamp, or -1."""
    offset_of_max_timestamp: int
    """Last offset of the batch with that timestamp (as exact as the time index is), or -1."""
    log_append_time_ms: int
    """The append time if the topic stamps batches with it, else -1."""


class InvalidRecordsError(ApiError):
    """Some records of a batch break a rule, so none is appended.

    ``record_errors`` holds (index in the batch, message), for the field of that name of Produce v8+.
    """

    def __init__(self, code: ErrorCode, message: str, record_errors: Sequence[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = tuple(record_errors)


class UnexpectedAppendOffset(ApiError):
    """A follower was sent offsets that it already has; it may recover if its log is empty."""

    def __init__(self, message: str, first_offset: int, last_offset: int) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        self.first_offset = first_offset
        self.last_offset = last_offset


def check_produce_version(records: Buffer, api_version: int) -> None:
    """What a Produce request's own version forbids: zstd before v7 (UNSUPPORTED_COMPRESSION_TYPE).

    All else about the shape of the records holds for every version that is served and is judged on append.
    """
    if api_version < 7 and len(records) >= HEADER_SIZE and records[MAGIC_AT] == 2:
        codec = records[ATTRIBUTES_AT + 1] & COMPRESSION_MASK
        if codec == CompressionType.ZSTD:
            raise ApiError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"Produce v{api_version} may not carry zstd; v7 and later may",
            )


def validate_and_assign_offsets(
    records: Buffer,
    *,
    next_offset: int,
    leader_epoch: int,
    now_ms: int,
    config: LogConfig,
    topic_partition: TopicPartition,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> ValidatedBatches:
    """Judge ``records`` and give them offsets from ``next_offset`` on (REPLICATION: keep theirs).

    ``records`` is changed in place where possible (a copy is taken of bytes that cannot be). For REPLICATION
    ``leader_epoch`` is the latest epoch that the follower accepts: a batch of a later one and all after it
    are left out. Raises ``ApiError`` with the code for the client: CORRUPT_MESSAGE, INVALID_RECORD,
    INVALID_TIMESTAMP, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE.
    """
    if origin is not AppendOrigin.CLIENT:
        if origin is AppendOrigin.REPLICATION:
            return _validate_replicated(records, next_offset, leader_epoch, topic_partition)
        return _assign_to_own(
            records,
            next_offset,
            leader_epoch,
            now_ms,
            config,
            topic_partition,
            origin is AppendOrigin.RAFT_LEADER,
        )

    size = len(records)
    try:
        fields = _PARSE(records, 0)
    except struct.error:
        raise _no_batch(records, topic_partition) from None
    if fields[3] != 2 or fields[1] + LOG_OVERHEAD != size:
        records = _one_batch(records, fields, topic_partition)
        size = len(records)
    (
        base_offset,
        batch_length,
        _,
        magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        records_count,
    ) = fields

    if base_offset:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"the base offset of a batch sent to {topic_partition} must be 0, not {base_offset}",
        )
    if size > config.max_message_bytes:
        raise _too_large(size, config, topic_partition)
    view = memoryview(records)
    if crc32c(view[21:]) != crc:
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE, f"a batch sent to {topic_partition} does not match its checksum {crc}"
        )

    # LogValidator.validateBatch
    if records_count <= 0 or last_offset_delta + 1 != records_count:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"a batch sent to {topic_partition} claims {records_count} records at offsets 0 to {last_offset_delta}",
        )
    if attributes & CONTROL_FLAG:
        raise ApiError(ErrorCode.INVALID_RECORD, f"clients may not write control records to {topic_partition}")
    if producer_id > -1 and base_sequence < 0:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"a batch of producer {producer_id} sent to {topic_partition} has sequence {base_sequence}",
        )
    codec = attributes & COMPRESSION_MASK
    if codec:
        if codec > CompressionType.ZSTD:
            raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"no codec has the number {codec}")
    elif records_count * MIN_RECORD_SIZE > size - HEADER_SIZE:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"a batch sent to {topic_partition} claims {records_count} records in {size - HEADER_SIZE} bytes",
        )
    if size > config.segment_bytes:
        raise _too_large_for_segment(size, config, topic_partition)

    create_time = config.message_timestamp_type == CREATE_TIME
    if (
        not create_time
        or attributes & TIMESTAMP_TYPE_FLAG
        or max_timestamp - now_ms > config.message_timestamp_after_max_ms
        or max_timestamp < base_timestamp
        or config.message_timestamp_before_max_ms != _MAX_LONG
        or config.compression_type != "producer"
        or config.compact
    ):
        header = BatchHeader._make(fields)
        return _validate_closely(view, header, next_offset, leader_epoch, now_ms, config, topic_partition)

    if view.readonly:
        view = memoryview(bytearray(view))
    patch_in_place(view, 0, next_offset, leader_epoch)
    last_offset = next_offset + last_offset_delta
    header = BatchHeader(
        next_offset,
        batch_length,
        leader_epoch,
        magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        records_count,
    )
    return ValidatedBatches(
        view,
        (header,),
        next_offset,
        last_offset,
        max_timestamp,
        last_offset if max_timestamp >= 0 else -1,
        -1,
    )


def _no_batch(records: Buffer, topic_partition: TopicPartition) -> ApiError:
    """Fewer bytes than a header. Kafka sees no batch in them, or damage if the length says so."""
    if len(records) >= LOG_OVERHEAD:
        length = int.from_bytes(records[8:12], "big", signed=True)
        magic = records[MAGIC_AT] if len(records) > MAGIC_AT else 2
        if length < 14 or magic > 2 or (length + LOG_OVERHEAD <= len(records) and magic == 2):
            return ApiError(
                ErrorCode.CORRUPT_MESSAGE,
                f"{len(records)} bytes sent to {topic_partition} are no record batch",
            )
        if magic < 2 and length + LOG_OVERHEAD <= len(records):
            return _old_format(magic, topic_partition)
    return ApiError(ErrorCode.INVALID_RECORD, f"a Produce request has no whole record batch for {topic_partition}")


def _old_format(magic: int, topic_partition: TopicPartition) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_RECORD,
        f"a Produce request holds records of format v{magic} for {topic_partition}; only v2 is taken",
    )


def _one_batch(records: Buffer, fields: tuple[int, ...], topic_partition: TopicPartition) -> Buffer:
    """The exactly one v2 batch, without the beginning of another that Kafka's reader does not see."""
    length, magic = fields[1], fields[3]
    if length < 14 or not 0 <= magic <= 2:
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE,
            f"a batch sent to {topic_partition} has length {length} and magic {magic}",
        )
    end = length + LOG_OVERHEAD
    if end > len(records):
        raise ApiError(ErrorCode.INVALID_RECORD, f"a Produce request has no whole record batch for {topic_partition}")
    if magic != 2:
        raise _old_format(magic, topic_partition)
    rest = memoryview(records)[end:]
    if len(rest) >= LOG_OVERHEAD:
        following = int.from_bytes(rest[8:12], "big", signed=True)
        if following < 14 or (len(rest) > MAGIC_AT and rest[MAGIC_AT] > 2):
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"what follows a batch sent to {topic_partition} is no batch")
        if len(rest) > MAGIC_AT and following + LOG_OVERHEAD <= len(rest):
            raise ApiError(
                ErrorCode.INVALID_RECORD,
                f"a Produce request must hold exactly one record batch for {topic_partition}, not several",
            )
    if end < HEADER_SIZE:
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE,
            f"a batch of {end} bytes sent to {topic_partition} is below its overhead",
        )
    return memoryview(records)[:end]


def _too_large(size: int, config: LogConfig, topic_partition: TopicPartition) -> ApiError:
    return ApiError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"a record batch of {size} bytes for {topic_partition} is larger than max.message.bytes"
        f" ({config.max_message_bytes})",
    )


def _too_large_for_segment(size: int, config: LogConfig, topic_partition: TopicPartition) -> ApiError:
    return ApiError(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        f"{size} bytes for {topic_partition} do not fit into a segment of {config.segment_bytes}",
    )


def _validate_closely(
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
        raise _too_large(len(buffer), config, topic_partition)
    if len(buffer) > config.segment_bytes:
        raise _too_large_for_segment(len(buffer), config, topic_partition)

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


def _assign_to_own(
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
            raise _too_large(header.size, config, topic_partition)
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
        raise _too_large_for_segment(len(view), config, topic_partition)
    return ValidatedBatches(
        view,
        headers,
        next_offset,
        offset - 1,
        max_timestamp,
        offset_of_max_timestamp,
        now_ms if append_time else -1,
    )


def _validate_replicated(
    records: Buffer, next_offset: int, leader_epoch: int, topic_partition: TopicPartition
) -> ValidatedBatches:
    """What a leader sent: nothing is changed, and a cut-off batch at the end is left out."""
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
