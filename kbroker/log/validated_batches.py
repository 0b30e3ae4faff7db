"""The outcome of validating batches: the bytes to write, or the reason against."""

from __future__ import annotations

from collections.abc import Sequence

from kbroker.errors import ApiError, ErrorCode
from kbroker.log.log_config import LogConfig
from kbroker.types import TopicPartition
from kbroker.value_types import NamedTuple
from kbroker.wire.batch_header import BatchHeader, Buffer

MOST_UNSEEN = 1_000_000
"""Records that a compressed batch may have without being looked at. A batch that claims more, as few clients send, is
counted: it would have a whole segment's offsets, and a few bytes can claim them."""


class ValidatedBatches(NamedTuple):
    """Batches to write, and the facts about them that the log needs."""

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
    converted: int = 0
    """Records that were written anew, to be compressed otherwise (``RecordValidationStats.numRecordsConverted``)."""


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


def too_large(size: int, config: LogConfig, topic_partition: TopicPartition) -> ApiError:
    """A batch is larger than its topic allows."""
    return ApiError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"a record batch of {size} bytes for {topic_partition} is larger than max.message.bytes"
        f" ({config.max_message_bytes})",
    )


def too_large_for_segment(size: int, config: LogConfig, topic_partition: TopicPartition) -> ApiError:
    """A batch is larger than a segment may be."""
    return ApiError(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        f"{size} bytes for {topic_partition} do not fit into a segment of {config.segment_bytes}",
    )
