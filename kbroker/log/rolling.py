"""Decides when a log begins a new segment (Kafka's ``LogSegment.shouldRoll``)."""

from __future__ import annotations

import zlib

from kbroker.log.log_config import LogConfig
from kbroker.log.segments.indexed_file import MAX_RELATIVE_OFFSET
from kbroker.log.segments.segment import Segment
from kbroker.log.validated_batches import ValidatedBatches
from kbroker.types import TopicPartition


class RollRules:
    """The rules of one configuration, as they hold for one active segment."""

    __slots__ = ("_config", "_index_safe_size", "_max_segment_ms", "_topic_partition", "jitter_ms")

    def __init__(self, config: LogConfig, topic_partition: TopicPartition, base_offset: int) -> None:
        self._config = config
        self._topic_partition = topic_partition
        # Below this size neither index can be full, as it has an entry per interval at most.
        self._index_safe_size = max(0, config.segment_index_bytes // 12 - 2) * (config.index_interval_bytes + 1)
        # So that a record can be compacted in its time, it must not stay in the active segment for longer.
        lag = config.max_compaction_lag_ms
        self._max_segment_ms = min(config.segment_ms, lag) if config.compact and lag > 0 else config.segment_ms
        self.segment_began(base_offset)

    def segment_began(self, base_offset: int) -> None:
        """The active segment is another one."""
        bound = min(self._config.segment_jitter_ms, self._config.segment_ms)
        # Spread over partitions, so that a thousand of them do not roll at once, but the same in every run.
        self.jitter_ms = zlib.crc32(f"{self._topic_partition} {base_offset}".encode()) % bound if bound > 0 else 0
        """Milliseconds by which it rolls earlier than ``segment.ms``."""

    def should_roll(self, segment: Segment, size: int, validated: ValidatedBatches, now_ms: int) -> bool:
        """Before ``size`` bytes of batches are appended: by size, by time, by full indexes, by what an index can
        express.

        Time is the records': a segment rolls when a batch comes that is ``segment.ms`` later than its first;
        only without timestamps is it the clock's.
        """
        if validated.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
            return True
        written = segment.size
        if not written:
            segment.created_ms = now_ms  # the clock runs from the first batch on
            return False
        if written > self._config.segment_bytes - size:
            return True
        first = segment.first_timestamp()
        waited = validated.max_timestamp - first if first >= 0 else now_ms - segment.created_ms
        if waited > self._max_segment_ms - self.jitter_ms:
            return True
        return written >= self._index_safe_size and segment.index_full(self._config.segment_index_bytes)

    def keeps_all(self, segment: Segment, size: int, validated: ValidatedBatches, now_ms: int) -> bool:
        """Whether several batches, of ``size`` bytes together, can be appended without a roll before any of them.

        ``validated`` describes them as if they were one. False may also mean that it is not sure.
        """
        return (
            segment.size > 0  # or what is written first says when the others come too late
            and size <= self._config.segment_bytes
            and segment.size + size < self._index_safe_size
            and not self.should_roll(segment, size, validated, now_ms)
        )
