"""Chooses the segments that a log may drop: pure decisions over facts about its segments, oldest first.

As in Kafka, only whole segments go, only from the start, and none that holds something at or above the high
watermark. The last segment goes only if it is not empty (the log then rolls first).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kbroker.log.log_config import LogConfig
from kbroker.log.segments.segment import Segment
from kbroker.value_types import NamedTuple


class SegmentFacts(NamedTuple):
    """The facts about a segment that retention needs."""

    base_offset: int
    end_offset: int
    """Base offset of the next segment, or the log end offset."""
    size: int
    largest_timestamp: int
    """Greatest record timestamp; of a segment without timestamps, when its file last changed."""


def segment_facts(
    segments: Sequence[Segment], log_end_offset: int, config: LogConfig, now_ms: int
) -> list[SegmentFacts]:
    """Gather the facts about a log's segments, the active one included."""
    ends = [*(segment.base_offset for segment in segments[1:]), log_end_offset]
    # Only a topic with a time limit needs timestamps, which may have to be read.
    timed = config.delete and config.retention_ms >= 0
    facts, largest = [], now_ms
    for segment, end in zip(reversed(segments), reversed(ends), strict=True):
        if timed and segment.size:  # one that compaction has emptied goes with the next
            largest = segment.largest_timestamp
        facts.append(SegmentFacts(segment.base_offset, end, segment.size, largest))
    facts.reverse()
    return facts


def _from_start(segments: Sequence[SegmentFacts], high_watermark: int, breached: Callable[[SegmentFacts], bool]) -> int:
    count = 0
    for segment in segments:
        is_last = count == len(segments) - 1
        if segment.end_offset > high_watermark or (is_last and segment.size == 0) or not breached(segment):
            break
        count += 1
    return count


def breached_by_start_offset(segments: Sequence[SegmentFacts], high_watermark: int, log_start_offset: int) -> int:
    """The number of first segments that lie wholly below the log start offset (DeleteRecords). Never the last one."""
    below = _from_start(segments, high_watermark, lambda segment: segment.end_offset <= log_start_offset)
    return min(below, max(0, len(segments) - 1))


def breached_by_size(segments: Sequence[SegmentFacts], high_watermark: int, retention_bytes: int) -> int:
    """The number of first segments that can go with ``retention_bytes`` or more left; -1 bytes is no limit."""
    excess = sum(segment.size for segment in segments) - retention_bytes
    if retention_bytes < 0 or excess < 0:
        return 0

    def breached(segment: SegmentFacts) -> bool:
        nonlocal excess
        if excess - segment.size < 0:
            return False
        excess -= segment.size
        return True

    return _from_start(segments, high_watermark, breached)


def breached_by_time(segments: Sequence[SegmentFacts], high_watermark: int, retention_ms: int, now_ms: int) -> int:
    """The number of first segments that hold only records older than ``retention_ms``; -1 is no limit."""
    if retention_ms < 0:
        return 0
    return _from_start(segments, high_watermark, lambda segment: now_ms - segment.largest_timestamp > retention_ms)


def deletable(
    segments: Sequence[SegmentFacts], config: LogConfig, *, high_watermark: int, log_start_offset: int, now_ms: int
) -> int:
    """The number of first segments that are to go, by any of the rules that the topic's cleanup policy allows."""
    count = breached_by_start_offset(segments, high_watermark, log_start_offset)
    if config.delete:
        rest = segments[count:]
        count += breached_by_size(rest, high_watermark, config.retention_bytes)
        rest = segments[count:]
        count += breached_by_time(rest, high_watermark, config.retention_ms, now_ms)
    return count
