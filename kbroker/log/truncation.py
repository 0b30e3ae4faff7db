"""How the end of a log is cut off, in an order that leaves a log wherever the power fails."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from kbroker.errors import ApiError, ErrorCode
from kbroker.log import recovery
from kbroker.log.segment import CorruptSegment

if TYPE_CHECKING:
    from kbroker.log.partition_log import PartitionLog
    from kbroker.log.segment_list import SegmentList


def truncate_to(log: PartitionLog, segment_list: SegmentList, offset: int, now_ms: int) -> bool:
    """Drop everything from ``offset`` on, and the batch that holds it; answer whether there was something."""
    if offset < 0:
        raise ValueError(f"cannot truncate {log.topic_partition} to {offset}")
    if offset >= log.log_end_offset:
        log.leader_epochs.truncate_from_end(offset)
        return False
    if offset <= log.log_start_offset:
        truncate_fully_and_start_at(log, segment_list, offset, now_ms)
        return True
    segments = segment_list.segments
    kept = segments[bisect_right(segment_list.bases, offset) - 1]
    try:
        located = kept.locate(offset)
    except CorruptSegment as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    end = offset if located is None else min(offset, located.base_offset)
    if end < log.log_start_offset:
        # The batch that goes is also the first one: nothing that may be read is left.
        truncate_fully_and_start_at(log, segment_list, offset, now_ms)
        return True
    _begin(log, end)
    if segments[-1] is not kept:
        while segments[-1] is not kept:
            segment = segment_list.pop()
            log.producers.remove_snapshot(segment.base_offset)
            segment_list.discard(segment)
        # Or, after a crash, they might follow what is written in their place.
        log.disk.sync_dir(log.directory)
    if located is not None:
        kept.truncate_at(located)
    else:
        kept.set_size(kept.size)  # it goes on from its end
    log.log_end_offset = end
    log.leader_epochs.truncate_from_end(end)
    log.producers.truncate_and_reload(log.log_start_offset, end, now_ms)
    recovery.replay_producers(log.producers, segments, end)
    if log.on_rolled is not None:
        log.on_rolled(log)
    return True


def truncate_fully_and_start_at(log: PartitionLog, segment_list: SegmentList, offset: int, now_ms: int) -> None:
    """Drop everything; the log is empty and goes on at ``offset``."""
    log.ensure_on_disk()
    _begin(log, min(offset, log.log_start_offset))
    log.leader_epochs.clear()
    log.producers.truncate_fully_and_start_at(offset)
    # The new file first: whenever the power fails, there is a file that names an offset.
    old = segment_list.clear()
    same = next((segment for segment in old if segment.base_offset == offset), None)
    if same is None:
        log.add_segment(offset, now_ms)
    else:
        same.begin_rebuild()
        same.txn_index.reset()
        same.set_size(0)
        segment_list.restore(same)
    for segment in reversed(old):
        if segment is not same:
            segment_list.discard(segment)
    log.log_start_offset = log.log_end_offset = offset
    if log.on_rolled is not None:
        log.on_rolled(log)


def _begin(log: PartitionLog, offset: int) -> None:
    log.generation += 1
    lowered = log.durability.truncated(offset)
    if log.log_start_offset > offset:
        log.log_start_offset = offset
        lowered = True
    if lowered and log.before_truncation is not None:
        log.before_truncation(log)
