"""A round of compaction as values: its input, its result, and the ways in which it cannot be done.

The node has no more of it in memory: rounds are made in another process (``kbroker.node.logs.compaction_worker``).
"""

from __future__ import annotations

from kbroker.log.segments.cleaned_segment import CleanedSegment
from kbroker.value_types import dataclass, field


class CompactionFailed(Exception):
    """A compaction failed with an unexpected error; the message is its traceback."""


class NoWorker(Exception):
    """The process that is to compact a log cannot be started. Neither the log nor its disk is to blame."""


@dataclass(frozen=True, slots=True)
class SegmentToClean:
    """A segment as it is when the job is made; it is not written any more."""

    base_offset: int
    next_offset: int
    """Base offset of the next segment."""
    size: int
    index_entries: int = 0
    time_index_entries: int = 0


@dataclass(frozen=True, slots=True)
class CompactionJob:
    """The input of a round of compaction: plain values, so that it can be sent to another process."""

    directory: str
    segments: list[SegmentToClean]
    """From the log's first one up to ``first_uncleanable_offset``."""
    transaction_indexes: list[int]
    """Base offsets of all segments that may hold entries about transactions in ``segments``: the later ones too."""
    first_dirty_offset: int
    """Below, no key occurs twice."""
    first_uncleanable_offset: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    producers: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Producer id -> last data offset (or -1) and epoch, of those that the log still remembers."""
    map_bytes: int = 128 * 1024 * 1024
    """The memory of the offset map. When it is full, the round ends there."""
    read_bytes: int = 1024 * 1024


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """The output of a round."""

    end_offset: int
    """The first offset that is still dirty."""
    segments: list[CleanedSegment]
    bytes_read: int
    bytes_written: int
    map_full: bool = False
