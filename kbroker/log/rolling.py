"""Decides when a log begins a new segment (Kafka's ``LogSegment.shouldRoll``)."""

from __future__ import annotations

import zlib

from kbroker.log.log_config import LogConfig
from kbroker.log.segments.indexed_file import MAX_RELATIVE_OFFSET
from kbroker.log.segments.segment import Segment
from kbroker.log.validated_batches import ValidatedBatches
from kbroker.types import TopicPartition


def should_roll(
    config: LogConfig, tp: TopicPartition, segment: Segment, size: int, validated: ValidatedBatches, now_ms: int
) -> bool:
    """Before ``size`` bytes of batches are appended: by size, by time, by full indexes, by what an index can express.

    Time is the records': a segment rolls when a batch comes that is ``segment.ms`` later than its first; only without
    timestamps is it the clock's.
    """
    if validated.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
        return True
    written = segment.size
    if not written:
        segment.created_ms = now_ms  # the clock runs from the first batch on
        return False
    if written > config.segment_bytes - size:
        return True
    first = segment.first_timestamp()
    waited = validated.max_timestamp - first if first >= 0 else now_ms - segment.created_ms
    if waited > config.longest_segment_ms - (config.segment_jitter_ms and _jitter_ms(config, tp, segment)):
        return True
    return written >= config.index_safe_size and segment.index_full(config.segment_index_bytes)


def _jitter_ms(config: LogConfig, tp: TopicPartition, segment: Segment) -> int:
    """Milliseconds by which a segment rolls earlier than ``segment.ms``."""
    bound = min(config.segment_jitter_ms, config.segment_ms)
    # Spread over partitions, so that a thousand of them do not roll at once, but the same in every run.
    return zlib.crc32(f"{tp} {segment.base_offset}".encode()) % bound if bound > 0 else 0


def keeps_all(
    config: LogConfig, tp: TopicPartition, segment: Segment, size: int, validated: ValidatedBatches, now_ms: int
) -> bool:
    """Whether several batches, of ``size`` bytes together, can be appended without a roll before any of them.

    ``validated`` describes them as if they were one. False may also mean that it is not sure.
    """
    return (
        segment.size > 0  # or what is written first says when the others come too late
        and size <= config.segment_bytes
        and segment.size + size < config.index_safe_size
        and not should_roll(config, tp, segment, size, validated, now_ms)
    )
