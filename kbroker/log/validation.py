"""THE place where a produced batch is judged, and where batches get their place in the log.

The rules are those of Apache Kafka 4.4's ``ProduceRequest.validateRecords``,
``UnifiedLog.analyzeAndValidateRecords`` and ``LogValidator``, in that order. One rule is deliberately not
kept: Kafka parses (and decompresses) every record of every batch. Here a batch stays opaque. Its checksum,
its header and the header's plausibility are examined, its records only where a rule cannot be decided
without them:

- the topic is compacted: every record needs a key;
- the topic limits the size of a record (``max.decompressed.message.bytes``), and the batch is compressed;
- the batch is compressed, and claims more than a million records;
- the topic limits how old a timestamp may be (the header holds the latest one, not the earliest);
- the header's timestamps break a rule or contradict each other, so that the records have to say which of them
  is wrong (or that none is, and the header has to be put right, as Kafka does).

So a client that puts garbage under a right checksum has it stored, and its consumers see it. Kafka answers
INVALID_RECORD there. A parse of each record would cost more than all else that is done to a batch, by far.
"""

from __future__ import annotations

import struct
from enum import Enum, auto

from kbroker.errors import ApiError, ErrorCode
from kbroker.log.log_config import LOG_APPEND_TIME, LogConfig
from kbroker.log.record_validation import ExaminedRecords, validate_records
from kbroker.log.validated_batches import (
    MOST_UNSEEN,
    UnexpectedAppendOffset,
    ValidatedBatches,
    too_large,
    too_large_for_segment,
)
from kbroker.types import TopicPartition
from kbroker.wire.batch_header import (
    ATTRIBUTES_AT,
    COMPRESSION_MASK,
    CONTROL_FLAG,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_AT,
    NO_PARTITION_LEADER_EPOCH,
    TIMESTAMP_TYPE_FLAG,
    BatchHeader,
    Buffer,
    TimestampType,
    check_crc,
    crc32c,
    patch_in_place,
    set_timestamp,
    walk_headers,
)
from kbroker.wire.compression import CompressionType, CorruptRecord, has_linked_blocks
from kbroker.wire.record_windows import MIN_RECORD_SIZE

_PARSE = HEADER.unpack_from
_Fields = tuple[int, ...]
"""A ``BatchHeader``'s values, in its order: a plain tuple is read at half the cost, and most batches need no more."""
_new = tuple.__new__  # a named tuple without its own __new__, which is slower


class AppendOrigin(Enum):
    """The origin of an append, which decides how much is validated (Kafka's ``AppendOrigin``)."""

    CLIENT = auto()
    """A Produce request: everything."""
    COORDINATOR = auto()
    """This broker's group or transaction coordinator, markers included: checksum and size."""
    RAFT_LEADER = auto()
    """The metadata log's leader: the batch already bears the epoch; any size."""
    REPLICATION = auto()
    """A leader judged them: checksum, order, and no later epoch than expected; offsets are kept."""


class NotOneBatch(ApiError):
    """A Produce request has something else than one whole batch of today's format for a partition: INVALID_RECORD.

    Kafka finds that before all else that is wrong with a batch (``ProduceRequest.validateRecords``).
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)


def check_produce_version(records: Buffer, api_version: int) -> None:
    """Check the rule of a Produce request's own version: no zstd before v7 (UNSUPPORTED_COMPRESSION_TYPE).

    All other rules hold for every version that is served, and are checked on append.
    """
    if api_version < 7 and len(records) >= HEADER_SIZE and records[MAGIC_AT] == 2:
        codec = records[ATTRIBUTES_AT + 1] & COMPRESSION_MASK
        if codec == CompressionType.ZSTD:
            raise ApiError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Produce v{api_version} may not carry zstd; v7 and later may"
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
    INVALID_TIMESTAMP, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE; and `TakesLong` where
    the records are to be examined first, in steps.
    """
    if origin is AppendOrigin.CLIENT:
        batch, fields = only_batch(records, topic_partition)
        _check_whole(batch, fields, config, topic_partition)
        _check_header(batch, fields, config, topic_partition)
        if config.header_suffices and fields[12] <= MOST_UNSEEN and _has_plausible_timestamps(fields, now_ms, config):
            return _place(batch, fields, next_offset, leader_epoch)
        header = BatchHeader._make(fields)
        examined = records if isinstance(records, ExaminedRecords) else None
        return validate_records(examined, batch, header, next_offset, leader_epoch, now_ms, config, topic_partition)
    if origin is AppendOrigin.REPLICATION:
        return validate_replicated(records, next_offset, leader_epoch, topic_partition)
    is_raft = origin is AppendOrigin.RAFT_LEADER
    return assign_to_own(records, next_offset, leader_epoch, now_ms, config, topic_partition, is_raft)


def only_batch(records: Buffer, topic_partition: TopicPartition) -> tuple[memoryview, _Fields]:
    """``ProduceRequest.validateRecords``: a Produce request has exactly one batch of format v2 for a partition."""
    try:
        fields = _PARSE(records, 0)
    except struct.error:
        raise _no_batch(records, topic_partition) from None
    if fields[3] != 2 or fields[1] + LOG_OVERHEAD != len(records):
        records = _first_batch(records, fields, topic_partition)
    return memoryview(records), fields


def _check_whole(batch: memoryview, fields: _Fields, config: LogConfig, topic_partition: TopicPartition) -> None:
    """``UnifiedLog.analyzeAndValidateRecords``: where the batch begins, its size, its checksum."""
    base_offset, crc = fields[0], fields[4]
    if base_offset:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"the base offset of a batch sent to {topic_partition} must be 0, not {base_offset}",
        )
    if len(batch) > config.max_message_bytes:
        raise too_large(len(batch), config, topic_partition)
    if crc32c(batch[ATTRIBUTES_AT:]) != crc:
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE, f"a batch sent to {topic_partition} does not match its checksum {crc}"
        )


def _check_header(batch: memoryview, fields: _Fields, config: LogConfig, topic_partition: TopicPartition) -> None:
    """``LogValidator.validateBatch``: whether the header can be true, and is a client's; and the size of a segment."""
    _, _, _, _, _, attributes, last_offset_delta, _, _, producer_id, _, base_sequence, records_count = fields
    size = len(batch)
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
        # Apache Kafka says UNKNOWN_SERVER_ERROR of it.
        if codec == CompressionType.LZ4 and size > HEADER_SIZE + 4 and has_linked_blocks(batch, HEADER_SIZE):
            raise ApiError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"a batch for {topic_partition} is lz4 whose blocks are not independent, which Kafka does not read",
            )
    elif records_count * MIN_RECORD_SIZE > size - HEADER_SIZE:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"a batch sent to {topic_partition} claims {records_count} records in {size - HEADER_SIZE} bytes",
        )
    if size > config.segment_bytes:
        raise too_large_for_segment(size, config, topic_partition)


def _has_plausible_timestamps(fields: _Fields, now_ms: int, config: LogConfig) -> bool:
    """Whether the header's timestamps are a producer's, agree with each other, and are not from the future."""
    attributes, base_timestamp, max_timestamp = fields[5], fields[7], fields[8]
    return (
        max_timestamp - now_ms <= config.message_timestamp_after_max_ms
        and max_timestamp >= base_timestamp
        and not attributes & TIMESTAMP_TYPE_FLAG
    )


def _place(batch: memoryview, fields: _Fields, next_offset: int, leader_epoch: int) -> ValidatedBatches:
    """The batch in its place, its records untouched."""
    if batch.readonly:
        batch = memoryview(bytearray(batch))
    patch_in_place(batch, 0, next_offset, leader_epoch)
    placed = _new(BatchHeader, (next_offset, fields[1], leader_epoch, *fields[3:]))
    last_offset = next_offset + fields[6]
    max_timestamp = fields[8]
    offset_of_max_timestamp = last_offset if max_timestamp >= 0 else -1
    return _new(
        ValidatedBatches, (batch, (placed,), next_offset, last_offset, max_timestamp, offset_of_max_timestamp, -1, 0)
    )


def _no_batch(records: Buffer, topic_partition: TopicPartition) -> ApiError:
    """Fewer bytes than a header. Kafka sees no batch in them, or damage if the length says so."""
    if len(records) >= LOG_OVERHEAD:
        length = int.from_bytes(records[8:12], "big", signed=True)
        magic = records[MAGIC_AT] if len(records) > MAGIC_AT else 2
        if length < 14 or magic > 2 or (length + LOG_OVERHEAD <= len(records) and magic == 2):
            return ApiError(
                ErrorCode.CORRUPT_MESSAGE, f"{len(records)} bytes sent to {topic_partition} are no record batch"
            )
        if magic < 2 and length + LOG_OVERHEAD <= len(records):
            return _old_format(magic, topic_partition)
    return NotOneBatch(f"a Produce request has no whole record batch for {topic_partition}")


def _old_format(magic: int, topic_partition: TopicPartition) -> ApiError:
    return NotOneBatch(f"a Produce request holds records of format v{magic} for {topic_partition}; only v2 is taken")


def _first_batch(records: Buffer, fields: tuple[int, ...], topic_partition: TopicPartition) -> Buffer:
    """The exactly one v2 batch, without the beginning of another that Kafka's reader does not see."""
    length, magic = fields[1], fields[3]
    if length < 14 or not 0 <= magic <= 2:
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE, f"a batch sent to {topic_partition} has length {length} and magic {magic}"
        )
    end = length + LOG_OVERHEAD
    if end > len(records):
        raise NotOneBatch(f"a Produce request has no whole record batch for {topic_partition}")
    if magic != 2:
        raise _old_format(magic, topic_partition)
    rest = memoryview(records)[end:]
    if len(rest) >= LOG_OVERHEAD:
        following = int.from_bytes(rest[8:12], "big", signed=True)
        if following < 14 or (len(rest) > MAGIC_AT and rest[MAGIC_AT] > 2):
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"what follows a batch sent to {topic_partition} is no batch")
        if len(rest) > MAGIC_AT and following + LOG_OVERHEAD <= len(rest):
            raise NotOneBatch(
                f"a Produce request must hold exactly one record batch for {topic_partition}, not several"
            )
    if end < HEADER_SIZE:
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE, f"a batch of {end} bytes sent to {topic_partition} is below its overhead"
        )
    return memoryview(records)[:end]


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
        view, headers, next_offset, offset - 1, max_timestamp, offset_of_max_timestamp, now_ms if append_time else -1
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
