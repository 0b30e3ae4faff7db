"""A partition's directory as it is found on opening: its segments, and the changes that were left half done."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection

from kbroker.log.disk import Disk
from kbroker.log.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    SET_ASIDE_SUFFIX,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    file_name,
    is_offset_name,
)
from kbroker.log.log_config import LogConfig
from kbroker.log.segments.indexed_file import CorruptSegment
from kbroker.log.segments.open_files import OpenFiles
from kbroker.log.segments.segment import Segment
from kbroker.log.segments.sparse_index import CorruptIndex
from kbroker.wire.batch_header import HEADER_SIZE, parse_header
from kbroker.wire.compression import CorruptRecord

logger = logging.getLogger(__name__)

SNAPSHOT_DELETED_SUFFIX = ".checkpoint.deleted"
"""Snapshots of the metadata log that are on their way out; they belong to ``raft_metadata``."""


_UNFINISHED = (CLEANED_SUFFIX, SWAP_SUFFIX, DELETED_SUFFIX, TEMPORARY_SUFFIX)


def is_settled(names: list[str]) -> bool:
    """Whether no file with these names tells of work that was interrupted."""
    return not any(name.endswith(_UNFINISHED) for name in names)


def just_replaced(names: list[str]) -> set[int]:
    """Base offsets of segments that compaction has put in the place of others whose files are still here.

    Here, what compaction touches is known to be durable before (``CleanerOffsets.before_round``); Apache Kafka may
    replace segments that its checkpoints say nothing of yet.
    """
    present = set(names)
    return {
        _offset_of(name)
        for name in names
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX) or (name.endswith(LOG_SUFFIX) and name + DELETED_SUFFIX in present)
    }


def finish_interrupted_work(disk: Disk, directory: str, names: list[str]) -> list[str]:
    """Remove what was on its way out, and complete a swap of cleaned segments, as Kafka's ``LogLoader`` does."""
    cleaned = [name for name in names if name.endswith(CLEANED_SUFFIX)]
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
    gone: set[str] = set()

    def remove(name: str) -> None:
        disk.remove(os.path.join(directory, name))
        gone.add(name)

    for name in names:
        deleted = name.endswith(DELETED_SUFFIX) and not name.endswith(SNAPSHOT_DELETED_SUFFIX)
        if deleted or (name.startswith("leader-epoch") and name.endswith(TEMPORARY_SUFFIX)):
            remove(name)
        elif name.endswith(SET_ASIDE_SUFFIX + TEMPORARY_SUFFIX):
            remove(name)  # a copy of what is still in the log
    if not cleaned and not swaps:
        return [name for name in names if name not in gone]

    # A .swap at or above a .cleaned file belongs to a split that did not finish (KAFKA-6264).
    least_cleaned = min((_offset_of(name) for name in cleaned), default=None)
    for name in [*swaps, *cleaned]:
        if name.endswith(CLEANED_SUFFIX) or (least_cleaned is not None and _offset_of(name) >= least_cleaned):
            remove(name)
    swaps = [name for name in swaps if name not in gone]
    replaced: list[range] = []
    for name in swaps:
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            base = _offset_of(name)
            replaced.append(range(base, max(_end_of_file(disk, os.path.join(directory, name), base), base + 1)))
    # Each replaces what lies in its own range (and, empty, the segment of its name): between two of them may be others.
    for name in names:
        stem, suffix = os.path.splitext(name)
        if suffix in SEGMENT_SUFFIXES and is_offset_name(stem) and any(int(stem) in each for each in replaced):
            remove(name)
    for name in swaps:
        disk.rename(os.path.join(directory, name), os.path.join(directory, name[: -len(SWAP_SUFFIX)]))
    disk.sync_dir(directory)
    return disk.list_dir(directory)


def _offset_of(name: str) -> int:
    stem = name[:20]
    return int(stem) if is_offset_name(stem) else -1


def _end_of_file(disk: Disk, path: str, base_offset: int) -> int:
    """The offset after the last batch of a segment file that has another name for now."""
    file = disk.open(path)
    size = file.size()
    position, end = 0, base_offset
    while position + HEADER_SIZE <= size:
        try:
            header = parse_header(file.pread(HEADER_SIZE, position), 0)
        except CorruptRecord:
            break
        position += header.size
        end = max(end, header.next_offset)
    return end


def make_segment(
    disk: Disk, files: OpenFiles, directory: str, base_offset: int, size: int, config: LogConfig, now_ms: int
) -> Segment:
    """Returns the segment of a log at ``base_offset``; one without a ``size`` may have no files yet."""
    interval = config.index_interval_bytes
    return Segment(
        disk, files, directory, base_offset, index_interval=interval, size=size, created_ms=now_ms, exists=True
    )


def open_segments(
    disk: Disk, directory: str, names: list[str], before: list[str], segment_at: Callable[[int, int], Segment]
) -> tuple[list[Segment], list[Segment]]:
    """All segments, and those that lack an index file. One whose ``.log`` is gone is empty, if its indexes name offsets
    that it had, and nobody was about to remove it: ``before`` has the names before interrupted work was finished."""
    present = set(names)
    of_segments = [name for name in names if name[20:] in SEGMENT_SUFFIXES and is_offset_name(name[:20])]
    stems = {name[:20] for name in of_segments if name[20:] == LOG_SUFFIX}
    for name in of_segments:
        stem = name[:20]
        if stem not in stems:
            was_removed = any(each.startswith(stem + LOG_SUFFIX) for each in before)
            if segment_at(int(stem), 0).named_end() > int(stem) and not was_removed:
                disk.open(os.path.join(directory, stem + LOG_SUFFIX), create=True)
                stems.add(stem)
            else:
                logger.warning("%s belongs to no segment; it is removed", os.path.join(directory, name))
                disk.remove(os.path.join(directory, name))
    segments: list[Segment] = []
    without_index: list[Segment] = []
    for stem in sorted(stems):
        size = disk.size(os.path.join(directory, stem + LOG_SUFFIX)) if stem + LOG_SUFFIX in present else 0
        segments.append(segment_at(int(stem), size))
        if not has_indexes(segments[-1].base_offset, present):
            without_index.append(segments[-1])
    return segments, without_index


def has_indexes(base_offset: int, names: Collection[str]) -> bool:
    """Whether a segment's index files are among a directory's names."""
    stem = file_name(base_offset)
    return stem + OFFSET_INDEX_SUFFIX in names and stem + TIME_INDEX_SUFFIX in names


def remove_files(disk: Disk, segment: Segment) -> None:
    """Remove a segment's files, whichever there are."""
    segment.close_files()
    stem = segment.path[: -len(LOG_SUFFIX)]
    for suffix in reversed(SEGMENT_SUFFIXES):
        disk.remove(stem + suffix)  # the log last: indexes without one are those of a log that was lost


def first_unflushed(segments: list[Segment], recovery_point: int) -> int:
    """Returns the number of the segment that holds the recovery point."""
    first = len(segments) - 1
    while first and segments[first].base_offset > recovery_point:
        first -= 1
    return first


def first_to_recover(segments: list[Segment], recovery_point: int, check: Callable[[], None]) -> int:
    """Returns the number of the first segment that is to be read after a kill."""
    first = first_unflushed(segments, recovery_point)
    if first and end_of(segments[first - 1], check) > segments[first].base_offset:
        # The log was cut there, and then rolled, but the cut did not reach the disk.
        return first - 1
    return first


def end_of(segment: Segment, check: Callable[[], None]) -> int:
    """Returns the offset after a flushed segment's last batch; its base offset if that cannot be found out."""
    try:
        try:
            return segment.scan_tail()
        except CorruptIndex:
            segment.rebuild_indexes(check)
            return segment.scan_tail()
    except (CorruptSegment, CorruptIndex) as error:
        logger.warning("%s", error)
        return segment.base_offset
