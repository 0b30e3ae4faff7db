"""Recovers a partition's directory on opening: keeps what is valid, and makes the rest anew.

After a clean stop the files are taken as they are, but for a look at the end of the active segment. After any
other stop the segments from the recovery point on are read whole, and the log is cut at the first batch that
is torn, has a wrong checksum or does not follow the one before it: exactly the longest valid prefix is kept.
Below the recovery point everything was flushed; an index there that turns out wrong is rebuilt when it is used.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection

from kbroker.log.checkpoint_files import CorruptCheckpoint
from kbroker.log.disk import Disk
from kbroker.log.leader_epochs import LeaderEpochs
from kbroker.log.log_config import LogConfig
from kbroker.log.producer_state import ProducerStateManager
from kbroker.log.segments.indexed_file import MAX_RELATIVE_OFFSET, CorruptSegment
from kbroker.log.segments.open_files import OpenFiles
from kbroker.log.segments.segment import Segment
from kbroker.log.segments.segment_files import (
    finish_interrupted_work,
    has_indexes,
    just_replaced,
    new_segment,
    open_segments,
    remove_files,
)
from kbroker.log.segments.sparse_index import CorruptIndex
from kbroker.log.segments.transaction_index import AbortedTxn, TransactionIndex
from kbroker.value_types import dataclass, field
from kbroker.wire.batch_header import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    check_crc,
    parse_header,
)
from kbroker.wire.compression import CorruptRecord
from kbroker.wire.control_batch import parse_end_txn_marker

logger = logging.getLogger(__name__)

_CHUNK = 1024 * 1024
_LARGE = 256 * 1024 * 1024
"""Bytes that may take so long to read that whoever waits is told."""
MAX_OFFSET = 2**63 - 1


@dataclass(slots=True)
class LoadedLog:
    """A log as it is after recovery."""

    segments: list[Segment]
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    indexed: int
    """Offset (exclusive) up to which the indexes of segments are as durable as the batches."""
    leader_epochs: LeaderEpochs
    cuts: list[str] = field(default_factory=list)
    """Places and reasons of cuts, for a person to read."""


class _Seen:
    """Facts about the whole log, gathered from the batches that recovery reads."""

    def __init__(self, epochs: LeaderEpochs) -> None:
        self.epochs = epochs
        self.has_producers = False
        self.has_transactions = False

    def note(self, header: BatchHeader) -> None:
        """Take in the next batch."""
        epoch = header.partition_leader_epoch
        if epoch > self.epochs.latest:
            self.epochs.assign(epoch, header.base_offset)
        if header.producer_id >= 0:
            self.has_producers = True
            if header.attributes & TRANSACTIONAL_FLAG:
                self.has_transactions = True


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
    replaced = just_replaced(names)
    names = finish_interrupted_work(disk, directory, names)
    flushed = MAX_OFFSET if clean_shutdown else recovery_point
    segments, without_index = open_segments(
        disk, files, directory, names, config, now_ms, flushed, clean_offset is not None
    )

    def may_end_early(segment: Segment, following: int) -> bool:
        return (clean_offset is not None and following <= clean_offset) or segment.base_offset in replaced

    for segment in without_index:
        if clean_shutdown or segment.base_offset < segments[_first_unflushed(segments, recovery_point)].base_offset:
            segment.rebuild_indexes()
    cuts: list[str] = []
    known = _read_epochs(disk, directory)
    seen = _Seen(known if known is not None else LeaderEpochs())
    first_recovered: int | None = None
    log_end_offset = 0
    if segments:
        log_end_offset, first_recovered = _find_end(
            disk, segments, seen, known is not None, clean_shutdown, recovery_point, cuts, may_end_early
        )
    if segments and log_end_offset < log_start_offset:
        cuts.append(
            f"{directory}: it ends at offset {log_end_offset}, before its log start offset {log_start_offset};"
            " all of it is dropped"
        )
        for segment in segments:
            remove_files(disk, segment)
        segments = []
        seen.epochs.clear()
    if not segments:
        log_end_offset = log_start_offset
        segments = [new_segment(disk, files, directory, log_start_offset, config, now_ms)]
        # An empty log remembers its offset by the name of its file alone.
        segments[0].create_files()
    elif not segments[-1].size and not has_indexes(segments[-1].base_offset, names):
        segments[-1].create_files()
    start = max(log_start_offset, segments[0].base_offset)
    seen.epochs.truncate_from_end(log_end_offset)
    seen.epochs.truncate_from_start(start)
    damaged = _damaged_txn_indexes(segments, names)
    trusted = min([log_end_offset, *(index.start_offset for index in damaged)])
    for index in damaged:
        index.begin_rebuild()
    _load_producers(producers, segments, seen, start, trusted, log_end_offset, recovery_point, first_recovered, now_ms)
    for index in damaged:
        index.end_rebuild()
    for cut in cuts:
        logger.warning("%s", cut)
    is_whole = clean_shutdown and not cuts
    return LoadedLog(
        segments=segments,
        log_start_offset=start,
        log_end_offset=log_end_offset,
        recovery_point=log_end_offset if is_whole else max(0, min(recovery_point, log_end_offset)),
        indexed=log_end_offset if first_recovered is None else min(first_recovered, log_end_offset),
        leader_epochs=seen.epochs,
        cuts=cuts,
    )


def _find_end(
    disk: Disk,
    segments: list[Segment],
    seen: _Seen,
    epochs_known: bool,
    clean_shutdown: bool,
    recovery_point: int,
    cuts: list[str],
    may_end_early: Callable[[Segment, int], bool],
) -> tuple[int, int | None]:
    """Read what may not be whole, and cut where it is not; the log end, and where the first segment begins that had to
    be recovered, if one had to be."""
    if clean_shutdown:
        if not epochs_known:
            _replay_epochs(segments, seen.note)
        log_end_offset, recovered = _check_tail(disk, segments, seen.note, cuts)
        return log_end_offset, segments[-1].base_offset if recovered else None
    first = _first_to_recover(segments, recovery_point)
    first_recovered = segments[first].base_offset
    if epochs_known:
        # Of what was not flushed, the batches know better; an epoch may be there that no batch has.
        seen.epochs.truncate_from_end(first_recovered)
    else:
        _replay_epochs(segments[:first], seen.note)
    return _recover_from(disk, segments, first, seen.note, cuts, may_end_early), first_recovered


def _read_epochs(disk: Disk, directory: str) -> LeaderEpochs | None:
    """The leader epochs' checkpoint; ``None`` if there is none that can be read."""
    try:
        return LeaderEpochs.read(disk, directory)
    except CorruptCheckpoint as error:
        logger.warning("%s; rebuilding it from the log", error)
        return None


def _damaged_txn_indexes(segments: list[Segment], names: Collection[str]) -> list[TransactionIndex]:
    """The transaction indexes that have to be made anew, by replaying the log from the first one's segment on."""
    there = set(names)
    damaged = []
    for segment in segments:
        index = segment.txn_index
        if os.path.basename(index.path) in there:
            try:
                index.sanity_check()
            except CorruptIndex as error:
                logger.warning("%s; rebuilding it", error)
                damaged.append(index)
    return damaged


def _load_producers(
    producers: ProducerStateManager,
    segments: list[Segment],
    seen: _Seen,
    log_start_offset: int,
    trusted: int,
    log_end_offset: int,
    recovery_point: int,
    first_recovered: int | None,
    now_ms: int,
) -> None:
    """Bring the producers to the log's end, from the latest snapshot up to ``trusted`` that can be trusted on."""
    if first_recovered is not None:
        # Snapshots up to the recovery point are durable, as is what they speak of. But where transactions
        # are, the transaction indexes of the segments just read are empty, and are made by replaying them.
        recovered = first_recovered if seen.has_transactions else max(first_recovered, recovery_point)
        trusted = min(trusted, recovered)
    producers.snapshots.remove_strays([segment.base_offset for segment in segments])
    producers.truncate_and_reload(log_start_offset, max(log_start_offset, min(trusted, log_end_offset)), now_ms)
    if first_recovered is not None and not seen.has_producers and producers.map_end_offset >= first_recovered:
        # Every batch was just seen, and none has a producer.
        for segment in segments[-2:]:
            _snapshot_at(producers, segment.base_offset)
        producers.update_map_end_offset(log_end_offset)
    else:
        replay_producers(producers, segments, log_end_offset)


def _first_unflushed(segments: list[Segment], recovery_point: int) -> int:
    """Number of the segment that holds the recovery point."""
    first = len(segments) - 1
    while first and segments[first].base_offset > recovery_point:
        first -= 1
    return first


def _first_to_recover(segments: list[Segment], recovery_point: int) -> int:
    """Number of the first segment that is to be read."""
    first = _first_unflushed(segments, recovery_point)
    if first and _end_of(segments[first - 1]) > segments[first].base_offset:
        # The log was cut there, and then rolled, but the cut did not reach the disk.
        return first - 1
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
    total = sum(segment.size for segment in segments[first:])
    done = 0
    for index in range(first, len(segments)):
        segment = segments[index]
        if total > _LARGE:
            logger.info("%s: %d of %d bytes that were not flushed are read", segment.path, done, total)
            done += segment.size
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
                remove_files(disk, later)
            del segments[index + 1 :]
            break
    while len(segments) > 1 and segments[-1].size == 0 and segments[-1].base_offset != next_offset:
        remove_files(disk, segments.pop())
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
            length = header.batch_length + LOG_OVERHEAD
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


def replay_producers(producers: ProducerStateManager, segments: list[Segment], log_end_offset: int) -> None:
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
                # The log start may lie within a batch, which counts as a whole.
                if header.producer_id >= 0 and header.next_offset > start:
                    replay_batch(producers, segment, position, header)
        except CorruptSegment as error:
            logger.warning("%s; producer state after it in this segment is not known", error)
    producers.update_map_end_offset(log_end_offset)


def _snapshot_at(producers: ProducerStateManager, offset: int) -> None:
    """Write a snapshot there: the next recovery, of the last segments, need not begin where this one did."""
    if producers.map_end_offset < offset:
        producers.update_map_end_offset(offset)
        producers.take_snapshot(sync=False)


def replay_batch(producers: ProducerStateManager, segment: Segment, position: int, header: BatchHeader) -> None:
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


__all__ = ["LoadedLog", "load", "recover_segment", "replay_producers"]
