"""Chooses the log to clean next, and how much of it: pure decisions (Apache Kafka 4.3's ``LogCleanerManager``).

The active segment is never cleaned, nor what lies at or above the last stable offset, nor what is not known to be
durable yet. With ``min.compaction.lag.ms`` segments with younger records are left out as well. Of the rest, all from
the offset in ``cleaner-offset-checkpoint`` on is dirty; a log is worth a round when its dirty bytes are more than
``min.cleanable.dirty.ratio`` of all, or when a record is older than ``max.compaction.lag.ms``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from kbroker.log.compaction.job import CompactionJob, SegmentToClean
from kbroker.log.partition_log import PartitionLog
from kbroker.log.segments.sparse_index import CorruptIndex
from kbroker.value_types import dataclass


@dataclass(frozen=True, slots=True)
class LogToClean:
    """A log with something to clean."""

    log: PartitionLog
    first_dirty_offset: int
    first_uncleanable_offset: int
    """Base offset of a segment."""
    clean_bytes: int
    cleanable_bytes: int
    is_overdue: bool
    """A dirty record is older than ``max.compaction.lag.ms``."""

    @property
    def cleanable_ratio(self) -> float:
        """Dirty bytes of all that would be read."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        """Whether a round is worth its while."""
        if not self.cleanable_bytes:
            return False
        return self.is_overdue or self.cleanable_ratio > self.log.config.min_cleanable_dirty_ratio


def log_to_clean(
    log: PartitionLog, checkpoint: int | None, *, last_stable_offset: int, now_ms: int
) -> LogToClean | None:
    """The cleanable part of a log whose cleaner checkpoint is ``checkpoint``; ``None`` if there is none."""
    segments = log.segments
    active = segments[-1].base_offset
    first_dirty = log.log_start_offset
    # A checkpoint outside of the log is one from before a truncation, or a deletion.
    if checkpoint is not None and first_dirty <= checkpoint <= log.log_end_offset:
        first_dirty = checkpoint
    if first_dirty >= active:
        return None
    config = log.config
    bound = min(active, last_stable_offset, log.durability.checkpoint)
    bases = [segment.base_offset for segment in segments]
    first_dirty_index = max(0, bisect_right(bases, first_dirty) - 1)
    end = max(0, bisect_right(bases, bound) - 1)  # the segment that holds the bound, or the active one
    if config.min_compaction_lag_ms > 0:
        for index in range(first_dirty_index, end):
            if segments[index].largest_timestamp > now_ms - config.min_compaction_lag_ms:
                end = index
                break
    if end <= first_dirty_index:
        return None
    oldest = min(
        (timestamp for segment in segments[first_dirty_index:-1] if (timestamp := segment.first_timestamp()) > 0),
        default=now_ms,
    )
    return LogToClean(
        log,
        first_dirty,
        segments[end].base_offset,
        sum(segment.size for segment in segments[:first_dirty_index]),
        sum(segment.size for segment in segments[first_dirty_index:end]),
        oldest < now_ms - config.max_compaction_lag_ms,
    )


def filthiest(logs: Iterable[LogToClean]) -> LogToClean | None:
    """The log to be cleaned first: of those that are due the one with the greatest part of dirty bytes."""
    return max((log for log in logs if log.is_due), key=lambda log: log.cleanable_ratio, default=None)


def make_job(to_clean: LogToClean, *, now_ms: int, map_bytes: int, read_bytes: int) -> CompactionJob:
    """The round as values."""
    log = to_clean.log
    config = log.config
    segments = log.segments
    ends = [segment.base_offset for segment in segments[1:]]
    chosen = []
    for segment, end in zip(segments, ends, strict=False):
        if segment.base_offset >= to_clean.first_uncleanable_offset:
            break
        try:
            entries, time_entries = len(segment.offset_index), len(segment.time_index)
        except CorruptIndex:
            segment.rebuild_indexes()
            entries, time_entries = len(segment.offset_index), len(segment.time_index)
        chosen.append(SegmentToClean(segment.base_offset, end, segment.size, entries, time_entries))
    return CompactionJob(
        directory=log.directory,
        segments=chosen,
        transaction_indexes=[segment.base_offset for segment in segments],
        first_dirty_offset=to_clean.first_dirty_offset,
        first_uncleanable_offset=to_clean.first_uncleanable_offset,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        producers={
            entry.producer_id: (entry.last_data_offset, entry.producer_epoch)
            for entry in log.producers.active_producers.values()
        },
        map_bytes=map_bytes,
        read_bytes=read_bytes,
    )


__all__ = ["LogToClean", "filthiest", "log_to_clean", "make_job"]
