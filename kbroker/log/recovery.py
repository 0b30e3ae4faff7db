"""Opening a partition's directory: what is there, what of it is valid, and what has to be made anew.

After a clean stop the files are taken as they are, but for a look at the end of the active segment. After any
other stop the segments from the recovery point on are read whole, and the log is cut at the first batch that
is torn, has a wrong checksum or does not follow the one before it: exactly the longest valid prefix is kept.
Below the recovery point everything was flushed; an index there that turns out wrong is rebuilt when it is used.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from kbroker.log.checkpoints import CorruptCheckpoint
from kbroker.log.disk import Disk
from kbroker.log.leader_epochs import LeaderEpochs
from kbroker.log.log_config import LogConfig
from kbroker.log.open_files import OpenFiles
from kbroker.log.producer_state import ProducerStateManager
from kbroker.log.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    MAX_RELATIVE_OFFSET,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    CorruptSegment,
    Segment,
    file_name,
)
from kbroker.log.sparse_index import CorruptIndex
from kbroker.log.transaction_index import AbortedTxn
from kbroker.wire.batch_header import HEADER_SIZE, BatchHeader, check_crc, parse_header
from kbroker.wire.compression import CorruptRecord
from kbroker.wire.control_batch import parse_end_txn_marker

logger = logging.getLogger(__name__)

TEMPORARY_SUFFIX = ".tmp"
SNAPSHOT_DELETED_SUFFIX = ".checkpoint.deleted"
"""Snapshots of the metadata log that are on their way out; they belong to ``raft_metadata``."""

_CHUNK = 1024 * 1024
MAX_OFFSET = 2**63 - 1


@dataclass(slots=True)
class LoadedLog:
    """What was found, as it is after recovery."""

    segments: list[Segment]
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    indexed: int
    """Up to where (exclusive) the indexes of segments are as durable as the batches."""
    leader_epochs: LeaderEpochs
    cuts: list[str] = field(default_factory=list)
    """Where and why something was cut off, for a person to read."""


def is_offset_name(stem: str) -> bool:
    """Whether a file's stem is the 20 digits of an offset."""
    return len(stem) == 20 and stem.isascii() and stem.isdigit()


def load(
    disk: Disk,
    files: OpenFiles,
    directory: str,
    config: LogConfig,
    producers: ProducerStateManager,
    *,
    now_ms: int,
    clean_shutdown: bool,
    recovery_point: int,
    log_start_offset: int,
    clean_offset: int | None,
) -> LoadedLog:
    """Open what ``directory`` holds. ``OSError`` if the disk refuses; damage never raises here.

    ``clean_offset``: up to where the log was compacted, so that offsets may be missing between its segments there;
    ``None`` if it never was.
    """
    names = disk.list_dir(directory)
    replaced = _just_replaced(names)
    names = _finish_interrupted_work(disk, directory, names)
    flushed = MAX_OFFSET if clean_shutdown else recovery_point
    compacted = clean_offset is not None
    segments, without_index = _open_segments(disk, files, directory, names, config, now_ms, flushed, compacted)

    def may_end_early(segment: Segment, following: int) -> bool:
        return (clean_offset is not None and following <= clean_offset) or segment.base_offset in replaced

    cuts: list[str] = []

    try:
        found = LeaderEpochs.read(disk, directory)
        epochs_known = found is not None
        epochs = found if found is not None else LeaderEpochs()
    except CorruptCheckpoint as error:
        logger.warning("%s; rebuilding it from the log", error)
        epochs, epochs_known = LeaderEpochs(), False

    transactional = False
    idempotent = False

    def note_batch(header: BatchHeader) -> None:
        nonlocal transactional, idempotent
        epoch = header.partition_leader_epoch
        if epoch > epochs.latest:
            epochs.assign(epoch, header.base_offset)
        if header.producer_id >= 0:
            idempotent = True
            if header.attributes & 0x10:
                transactional = True

    for segment in without_index:
        if clean_shutdown or segment.base_offset < segments[_first_unflushed(segments, recovery_point)].base_offset:
            segment.rebuild_indexes()

    first_recovered: int | None = None
    if not clean_shutdown and segments:
        first = _first_unflushed(segments, recovery_point)
        if first and _end_of(segments[first - 1]) > segments[first].base_offset:
            # The log was cut there, and then rolled, but the cut did not reach the disk.
            first -= 1
        first_recovered = segments[first].base_offset
        if not epochs_known:
            _replay_epochs(segments[:first], note_batch)
        else:
            # Of what was not flushed, the batches know better; an epoch may be there that no batch has.
            epochs.truncate_from_end(segments[first].base_offset)
        log_end_offset = _recover_from(disk, segments, first, note_batch, cuts, may_end_early)
    elif segments:
        if not epochs_known:
            _replay_epochs(segments, note_batch)
        log_end_offset, recovered = _check_tail(disk, segments, note_batch, cuts)
        if recovered:
            first_recovered = segments[-1].base_offset
    else:
        log_end_offset = 0

    if segments and log_end_offset < log_start_offset:
        cuts.append(
            f"{directory}: it ends at offset {log_end_offset}, before its log start offset {log_start_offset};"
            " all of it is dropped"
        )
        for segment in segments:
            _remove(disk, segment)
        segments = []
        epochs.clear()
    if not segments:
        log_end_offset = log_start_offset
        segments = [_new_segment(disk, files, directory, log_start_offset, config, now_ms)]
        if log_start_offset:
            # An empty log remembers its offset by the name of its file alone.
            files.get(segments[0].path, create=True)
    start = max(log_start_offset, segments[0].base_offset)
    epochs.truncate_from_end(log_end_offset)
    epochs.truncate_from_start(start)

    trusted = log_end_offset
    if first_recovered is not None:
        # Snapshots up to the recovery point are durable, as is what they speak of. But where transactions
        # are, the transaction indexes of the segments just read are empty, and are made by replaying them.
        trusted = first_recovered if transactional else max(first_recovered, recovery_point)
    producers.remove_stray_snapshots([segment.base_offset for segment in segments])
    producers.truncate_and_reload(start, max(start, min(trusted, log_end_offset)), now_ms)
    if first_recovered is not None and not idempotent and producers.map_end_offset >= first_recovered:
        # Every batch was just seen, and none has a producer.
        for segment in segments[-2:]:
            _snapshot_at(producers, segment.base_offset)
        producers.update_map_end_offset(log_end_offset)
    else:
        replay_producers(producers, segments, log_end_offset)
    for cut in cuts:
        logger.warning("%s", cut)
    return LoadedLog(
        segments=segments,
        log_start_offset=start,
        log_end_offset=log_end_offset,
        recovery_point=log_end_offset
        if clean_shutdown and not cuts
        else max(0, min(recovery_point, log_end_offset)),
        indexed=log_end_offset if first_recovered is None else min(first_recovered, log_end_offset),
        leader_epochs=epochs,
        cuts=cuts,
    )


def _first_unflushed(segments: list[Segment], recovery_point: int) -> int:
    """Number of the segment that holds the recovery point."""
    first = len(segments) - 1
    while first and segments[first].base_offset > recovery_point:
        first -= 1
    return first


def _end_of(segment: Segment) -> int:
    """The offset after a flushed segment's last batch; its base offset if that cannot be found out."""
    try:
        try:
            return segment.scan_tail()
        except CorruptIndex:
            segment.rebuild_indexes()
            return segment.scan_tail()
    except (CorruptSegment, CorruptIndex) as error:
        logger.warning("%s", error)
        return segment.base_offset


# -- the directory


def _just_replaced(names: list[str]) -> set[int]:
    """Base offsets of segments that compaction has put in the place of others whose files are still here.

    Here, what compaction touches is known to be durable before (``LogManager.cleaning``); Apache Kafka may replace
    segments that its checkpoints say nothing of yet.
    """
    present = set(names)
    return {
        _offset_of(name)
        for name in names
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)
        or (name.endswith(LOG_SUFFIX) and name + DELETED_SUFFIX in present)
    }


def _finish_interrupted_work(disk: Disk, directory: str, names: list[str]) -> list[str]:
    """Remove what was on its way out, and complete a swap of cleaned segments, as Kafka's ``LogLoader`` does."""
    cleaned = [name for name in names if name.endswith(CLEANED_SUFFIX)]
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
    gone: set[str] = set()

    def remove(name: str) -> None:
        disk.remove(os.path.join(directory, name))
        gone.add(name)

    for name in names:
        deleted = name.endswith(DELETED_SUFFIX) and not name.endswith(SNAPSHOT_DELETED_SUFFIX)
        if deleted or (name.endswith(TEMPORARY_SUFFIX) and name.startswith("leader-epoch")):
            remove(name)
    if not cleaned and not swaps:
        return [name for name in names if name not in gone]

    # A .swap at or above a .cleaned file belongs to a split that did not finish (KAFKA-6264).
    least_cleaned = min((_offset_of(name) for name in cleaned), default=None)
    for name in [*swaps, *cleaned]:
        if name.endswith(CLEANED_SUFFIX) or (least_cleaned is not None and _offset_of(name) >= least_cleaned):
            remove(name)
    swaps = [name for name in swaps if name not in gone]
    low, high = None, -1
    replaced: set[int] = set()
    for name in swaps:
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            base = _offset_of(name)
            replaced.add(base)
            low = base if low is None else min(low, base)
            high = max(high, _end_of_file(disk, os.path.join(directory, name), base))
    if low is not None:
        # The swapped-in segments replace all that lies in their range (and, empty, the segment of their name).
        for name in names:
            stem, suffix = os.path.splitext(name)
            if suffix in SEGMENT_SUFFIXES and is_offset_name(stem):
                if low <= int(stem) < high or int(stem) in replaced:
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


def _open_segments(
    disk: Disk,
    files: OpenFiles,
    directory: str,
    names: list[str],
    config: LogConfig,
    now_ms: int,
    flushed: int,
    compacted: bool,
) -> tuple[list[Segment], list[Segment]]:
    """All segments, and those that lack an index file. Empty ones below offset ``flushed`` are removed, but for
    the first of a compacted log: there its name alone says where the log starts."""
    present = set(names)
    stems = sorted(
        name[: -len(LOG_SUFFIX)]
        for name in names
        if name.endswith(LOG_SUFFIX) and is_offset_name(name[: -len(LOG_SUFFIX)])
    )
    for name in names:
        stem, suffix = os.path.splitext(name)
        if suffix in SEGMENT_SUFFIXES and is_offset_name(stem) and stem + LOG_SUFFIX not in present:
            logger.warning("%s belongs to no segment; it is removed", os.path.join(directory, name))
            disk.remove(os.path.join(directory, name))
    segments: list[Segment] = []
    without_index: list[Segment] = []
    for index, stem in enumerate(stems):
        size = disk.size(os.path.join(directory, stem + LOG_SUFFIX))
        segment = Segment(
            disk,
            files,
            directory,
            int(stem),
            index_interval=config.index_interval_bytes,
            size=size,
            created_ms=now_ms,
            exists=True,
        )
        if size == 0:
            keeps_start = compacted and index == 0
            if not keeps_start and index < len(stems) - 1 and int(stems[index + 1]) <= flushed:
                _remove(disk, segment)
                continue
            segment.begin_rebuild()
        elif stem + OFFSET_INDEX_SUFFIX not in present or stem + TIME_INDEX_SUFFIX not in present:
            without_index.append(segment)
        segments.append(segment)
    return segments, without_index


def _new_segment(
    disk: Disk, files: OpenFiles, directory: str, base_offset: int, config: LogConfig, now_ms: int
) -> Segment:
    return Segment(
        disk, files, directory, base_offset, index_interval=config.index_interval_bytes, created_ms=now_ms
    )


def _remove(disk: Disk, segment: Segment) -> None:
    segment.close_files()
    stem = segment.path[: -len(LOG_SUFFIX)]
    for suffix in SEGMENT_SUFFIXES:
        disk.remove(stem + suffix)


# -- the batches


def _recover_from(
    disk: Disk,
    segments: list[Segment],
    first: int,
    note_epoch: Callable[[BatchHeader], None],
    cuts: list[str],
    may_end_early: Callable[[Segment, int], bool],
) -> int:
    """Read the segments from number ``first`` on, cut at the first damage; the log end offset.

    Each segment begins where the one before it ends: a hole between them means that the end of the earlier one
    never reached the disk; unless compaction left it, which ``may_end_early(segment, next one's base)`` tells.
    """
    next_offset = segments[first].base_offset
    for index in range(first, len(segments)):
        segment = segments[index]
        following = segments[index + 1].base_offset if index + 1 < len(segments) else None
        start = max(next_offset, segment.base_offset)
        next_offset, reason = recover_segment(segment, start, note_epoch, end_offset=following)
        if reason is None and following is not None and next_offset > following:
            reason = f"{segment.path}: it was to be cut at offset {following}, which did not happen"
        is_hole = following is not None and next_offset < following
        if reason is None and following is not None and is_hole and not may_end_early(segment, following):
            reason = f"{segment.path}: it ends at offset {next_offset}, and the next segment begins at {following}"
        if reason is not None:
            cuts.append(reason)
            for later in segments[index + 1 :]:
                cuts.append(f"{later.path}: dropped, it follows the damage")
                _remove(disk, later)
            del segments[index + 1 :]
            break
    while len(segments) > 1 and segments[-1].size == 0 and segments[-1].base_offset != next_offset:
        _remove(disk, segments.pop())
    return next_offset


def recover_segment(
    segment: Segment,
    next_offset: int,
    note_epoch: Callable[[BatchHeader], None] | None = None,
    *,
    end_offset: int | None = None,
) -> tuple[int, str | None]:
    """Verify every batch, cut the file at the first bad one and build the indexes anew.

    ``end_offset`` is where the next segment begins. Returns the offset after the last batch kept
    (``next_offset`` if none is), and what was cut off and why.

    The checksum does not cover a batch's base offset. A wrong one shows as an offset that is too low after
    the batch before it; or as a gap, which may be right (compaction leaves some), unless it leads into the
    next segment, or the batches after it go on from before the gap. A segment that goes on without a gap
    into the next one is kept: the next one was begun after a truncation that is undone now.
    """
    start_offset = next_offset
    gap: tuple[int, int] | None = None
    size = segment.size
    segment.begin_rebuild()
    segment.txn_index.reset()
    if size == 0:
        return next_offset, None
    file = segment.log_file()
    position = start = 0
    chunk = memoryview(b"")
    reason: str | None = None
    limit = segment.base_offset + MAX_RELATIVE_OFFSET
    while position < size:
        at = position - start
        if at + HEADER_SIZE > len(chunk):
            chunk, start, at = memoryview(file.pread(_CHUNK, position)), position, 0
        try:
            header = parse_header(chunk, at)
            length = header.batch_length + 12
            if position + length > size:
                raise CorruptRecord(f"a batch of {length} bytes is cut off after {size - position}")
            if at + length > len(chunk):
                chunk, start, at = memoryview(file.pread(max(_CHUNK, length), position)), position, 0
            check_crc(chunk, at, header)
            if (
                header.last_offset_delta < 0
                or header.base_offset < next_offset
                or header.last_offset > limit
                or (end_offset is not None and next_offset < header.base_offset and header.last_offset >= end_offset)
            ):
                reason = f"offsets {header.base_offset} to {header.last_offset} cannot follow {next_offset - 1}"
                if gap is not None and gap[1] <= header.base_offset < next_offset:
                    reason += f"; the batch at {gap[0]} after offset {gap[1] - 1} has a wrong one"
                    position = gap[0]
                raise CorruptRecord(reason)
        except CorruptRecord as error:
            reason = f"{segment.path}: cut at byte {position} of {size}: {error}"
            break
        if header.base_offset > next_offset:
            gap = position, next_offset
        if note_epoch is not None:
            note_epoch(header)
        segment.note_batch(position, header)
        next_offset = header.base_offset + header.last_offset_delta + 1
        position += length
    del chunk
    if position < size:
        file.truncate(position)
        segment.size = position
        if gap is not None and position == gap[0]:
            # What was noted since then was not in the log's order: read the rest once more.
            next_offset, _ = recover_segment(segment, start_offset, note_epoch, end_offset=end_offset)
            return next_offset, reason
    segment.complete_indexes()
    return next_offset, reason


def _check_tail(
    disk: Disk, segments: list[Segment], note_epoch: Callable[[BatchHeader], None], cuts: list[str]
) -> tuple[int, bool]:
    """After a clean stop: find the log end, and recover the active segment if it is not as it should be."""
    segment = segments[-1]
    try:
        return segment.scan_tail(), False
    except CorruptIndex as error:
        logger.warning("%s; rebuilding it", error)
    except CorruptSegment:
        pass
    next_offset = _recover_from(disk, segments, len(segments) - 1, note_epoch, cuts, lambda segment, following: True)
    return next_offset, True


def _replay_epochs(segments: list[Segment], note_epoch: Callable[[BatchHeader], None]) -> None:
    for segment in segments:
        try:
            for _, header in segment.scan(0):
                note_epoch(header)
        except CorruptSegment as error:
            logger.warning("%s; leader epochs after it are not known", error)


# -- producers


def replay_producers(
    producers: ProducerStateManager, segments: list[Segment], log_end_offset: int
) -> None:
    """Bring the producers from ``map_end_offset`` to the log's end by the batch headers (and the markers)."""
    start = producers.map_end_offset
    for index, segment in enumerate(segments):
        next_base = segments[index + 1].base_offset if index + 1 < len(segments) else log_end_offset
        if next_base <= start or not segment.size:
            continue
        if index >= len(segments) - 2:
            _snapshot_at(producers, segment.base_offset)
        try:
            located = segment.locate(max(start, segment.base_offset))
            if located is None:
                continue
            for position, header in segment.scan(located.position):
                if header.producer_id >= 0 and header.base_offset >= start:
                    replay_batch(producers, segment, position, header)
        except CorruptSegment as error:
            logger.warning("%s; producer state after it in this segment is not known", error)
    producers.update_map_end_offset(log_end_offset)


def _snapshot_at(producers: ProducerStateManager, offset: int) -> None:
    """So that the next recovery, of the last segments, need not begin where this one did."""
    if producers.map_end_offset < offset:
        producers.update_map_end_offset(offset)
        producers.take_snapshot(sync=False)


def replay_batch(
    producers: ProducerStateManager, segment: Segment, position: int, header: BatchHeader
) -> None:
    """Take in one batch that the log holds already."""
    marker = None
    if header.is_control and header.is_transactional:
        try:
            marker = parse_end_txn_marker(segment.batch_bytes(position, header))
        except CorruptRecord:
            return
    completed = producers.update(header, marker)
    if completed is not None:
        last_stable_offset = producers.last_stable_offset(completed)
        index = segment.txn_index
        if completed.is_aborted and (index.last_offset is None or index.last_offset < completed.last_offset):
            index.append(AbortedTxn.of(completed, last_stable_offset))
        producers.complete_txn(completed)


__all__ = ["LoadedLog", "file_name", "is_offset_name", "load", "recover_segment", "replay_producers"]
