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
from functools import partial

from kbroker.log.checkpoint_files import CorruptCheckpoint
from kbroker.log.disk import Disk
from kbroker.log.leader_epochs import LeaderEpochs
from kbroker.log.log_config import LogConfig
from kbroker.log.producer_replay import replay_producers, snapshot_at
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
from kbroker.log.segments.transaction_index import TransactionIndex
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
    segments_left: Callable[[int], None],
) -> LoadedLog:
    """Open what ``directory`` holds. ``OSError`` if the disk refuses; damage never raises here.

    ``clean_offset``: up to where the log was compacted, so that offsets may be missing between its segments there;
    ``None`` if it never was. ``segments_left`` hears how many segments are still to be verified; 0 where other work
    takes long, which an exception of its own ends as well.
    """
    names = disk.list_dir(directory)
    replaced = just_replaced(names)
    names = finish_interrupted_work(disk, directory, names)
    flushed = MAX_OFFSET if clean_shutdown else recovery_point
    check = partial(segments_left, 0)
    segments, without_index = open_segments(
        disk, files, directory, names, config, now_ms, flushed, clean_offset is not None
    )
    for segment in without_index:
        if clean_shutdown or segment.base_offset < segments[_first_unflushed(segments, recovery_point)].base_offset:
            segment.rebuild_indexes(check)
    recovery = _Recovery(
        disk, directory, segments, clean_shutdown, recovery_point, clean_offset, replaced, segments_left
    )
    if segments:
        recovery.find_end()
    if segments and recovery.log_end_offset < log_start_offset:
        recovery.drop_all(log_start_offset)
    if not segments:
        recovery.log_end_offset = log_start_offset
        segments.append(new_segment(disk, files, directory, log_start_offset, config, now_ms))
        # An empty log remembers its offset by the name of its file alone.
        segments[0].create_files()
    elif not segments[-1].size and not has_indexes(segments[-1].base_offset, names):
        segments[-1].create_files()
    start = max(log_start_offset, segments[0].base_offset)
    recovery.epochs.truncate_from_end(recovery.log_end_offset)
    recovery.epochs.truncate_from_start(start)
    recovery.load_producers(producers, start, _damaged_txn_indexes(segments, names, check), now_ms)
    for cut in recovery.cuts:
        logger.warning("%s", cut)
    return recovery.result(start)


class _Recovery:
    """A directory while it is opened: its segments, and facts about the whole log from the batches that are read."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        segments: list[Segment],
        clean_shutdown: bool,
        recovery_point: int,
        clean_offset: int | None,
        replaced: Collection[int],
        segments_left: Callable[[int], None],
    ) -> None:
        """``replaced``: base offsets of segments that compaction had just put in place of others."""
        self._disk = disk
        self._directory = directory
        self._segments = segments
        self._clean_shutdown = clean_shutdown
        self._recovery_point = recovery_point
        self._clean_offset = clean_offset
        self._replaced = replaced
        self._segments_left = segments_left
        self._check = partial(segments_left, 0)
        known = _read_epochs(disk, directory)
        self._epochs_known = known is not None
        self.epochs = known if known is not None else LeaderEpochs()
        self._has_producers = False
        self._has_transactions = False
        self._first_recovered: int | None = None
        """The base offset of the first segment that had to be recovered."""
        self.log_end_offset = 0
        self.cuts: list[str] = []

    def _note(self, header: BatchHeader) -> None:
        """Take in the next batch."""
        epoch = header.partition_leader_epoch
        if epoch > self.epochs.latest:
            self.epochs.assign(epoch, header.base_offset)
        if header.producer_id >= 0:
            self._has_producers = True
            if header.attributes & TRANSACTIONAL_FLAG:
                self._has_transactions = True

    # -- the log's end

    def find_end(self) -> None:
        """Read what may not be whole, and cut where it is not."""
        segments = self._segments
        if self._clean_shutdown:
            if not self._epochs_known:
                self._replay_epochs(segments)
            self._check_tail()
            return
        first = _first_to_recover(segments, self._recovery_point, self._check)
        self._first_recovered = segments[first].base_offset
        if self._epochs_known:
            # Of what was not flushed, the batches know better; an epoch may be there that no batch has.
            self.epochs.truncate_from_end(self._first_recovered)
        else:
            self._replay_epochs(segments[:first])
        self._recover_from(first)

    def _replay_epochs(self, segments: list[Segment]) -> None:
        for segment in segments:
            try:
                for _, header in segment.scan(0, before_read=self._check):
                    self._note(header)
            except CorruptSegment as error:
                logger.warning("%s; leader epochs after it are not known", error)

    def _check_tail(self) -> None:
        """After a clean stop: find the log end, and recover the active segment if it is not as it should be."""
        segment = self._segments[-1]
        try:
            self.log_end_offset = segment.scan_tail()
            return
        except CorruptIndex as error:
            logger.warning("%s; rebuilding it", error)
        except CorruptSegment:
            pass
        self._recover_from(len(self._segments) - 1)
        self._first_recovered = self._segments[-1].base_offset

    def _recover_from(self, first: int) -> None:
        """Read the segments from number ``first`` on, and cut at the first damage.

        Each segment begins where the one before it ends: a hole between them means that the end of the earlier one
        never reached the disk, unless compaction left it.
        """
        segments = self._segments
        next_offset = segments[first].base_offset
        total = sum(segment.size for segment in segments[first:])
        done = 0
        for index in range(first, len(segments)):
            segment = segments[index]
            self._segments_left(len(segments) - index)
            if total > _LARGE:
                logger.info("%s: %d of %d bytes that were not flushed are read", segment.path, done, total)
                done += segment.size
            following = segments[index + 1].base_offset if index + 1 < len(segments) else None
            start = max(next_offset, segment.base_offset)
            next_offset, reason = recover_segment(
                segment,
                start,
                self._note,
                end_offset=following,
                before_read=partial(self._segments_left, len(segments) - index),
            )
            if reason is None and following is not None:
                reason = self._misfit(segment, next_offset, following)
            if reason is not None:
                self.cuts.append(reason)
                for later in segments[index + 1 :]:
                    self.cuts.append(f"{later.path}: dropped, it follows the damage")
                    remove_files(self._disk, later)
                del segments[index + 1 :]
                break
        self._segments_left(0)
        while len(segments) > 1 and segments[-1].size == 0 and segments[-1].base_offset != next_offset:
            remove_files(self._disk, segments.pop())
        self.log_end_offset = next_offset

    def _misfit(self, segment: Segment, end: int, following: int) -> str | None:
        """The reason why a segment that ends there cannot be followed by the next one; None if it can."""
        if end > following:
            return f"{segment.path}: it was to be cut at offset {following}, which did not happen"
        if end == following or segment.base_offset in self._replaced:
            return None
        if self._clean_offset is not None and following <= self._clean_offset:
            return None
        return f"{segment.path}: it ends at offset {end}, and the next segment begins at {following}"

    def drop_all(self, log_start_offset: int) -> None:
        """Remove all segments of a log that ends before its start."""
        self.cuts.append(
            f"{self._directory}: it ends at offset {self.log_end_offset}, before its log start offset"
            f" {log_start_offset}; all of it is dropped"
        )
        for segment in self._segments:
            remove_files(self._disk, segment)
        self._segments.clear()
        self.epochs.clear()

    # -- producers

    def load_producers(
        self, producers: ProducerStateManager, log_start_offset: int, damaged: list[TransactionIndex], now_ms: int
    ) -> None:
        """Bring the producers to the log's end, from the latest snapshot on that can be trusted.

        Transaction indexes that are damaged are made anew by that.
        """
        segments, first_recovered = self._segments, self._first_recovered
        trusted = min([self.log_end_offset, *(index.start_offset for index in damaged)])
        for index in damaged:
            index.begin_rebuild()
        if first_recovered is not None:
            # Snapshots up to the recovery point are durable, as is what they speak of. But where transactions
            # are, the transaction indexes of the segments just read are empty, and are made by replaying them.
            recovered = first_recovered if self._has_transactions else max(first_recovered, self._recovery_point)
            trusted = min(trusted, recovered)
        producers.snapshots.remove_strays([segment.base_offset for segment in segments])
        producers.truncate_and_reload(log_start_offset, max(log_start_offset, trusted), now_ms)
        if first_recovered is not None and not self._has_producers and producers.map_end_offset >= first_recovered:
            # Every batch was just seen, and none has a producer.
            for segment in segments[-2:]:
                snapshot_at(producers, segment.base_offset)
            producers.update_map_end_offset(self.log_end_offset)
        else:
            replay_producers(producers, segments, self.log_end_offset, self._check)
        for index in damaged:
            index.end_rebuild()

    def result(self, log_start_offset: int) -> LoadedLog:
        """The log as it is now."""
        end = self.log_end_offset
        is_whole = self._clean_shutdown and not self.cuts
        return LoadedLog(
            segments=self._segments,
            log_start_offset=log_start_offset,
            log_end_offset=end,
            recovery_point=end if is_whole else max(0, min(self._recovery_point, end)),
            indexed=end if self._first_recovered is None else min(self._first_recovered, end),
            leader_epochs=self.epochs,
            cuts=self.cuts,
        )


def _read_epochs(disk: Disk, directory: str) -> LeaderEpochs | None:
    """The leader epochs' checkpoint; ``None`` if there is none that can be read."""
    try:
        return LeaderEpochs.read(disk, directory)
    except CorruptCheckpoint as error:
        logger.warning("%s; rebuilding it from the log", error)
        return None


def _damaged_txn_indexes(
    segments: list[Segment], names: Collection[str], check: Callable[[], None]
) -> list[TransactionIndex]:
    """The transaction indexes that have to be made anew, by replaying the log from the first one's segment on."""
    there = set(names)
    damaged = []
    for segment in segments:
        index = segment.txn_index
        if os.path.basename(index.path) in there:
            check()
            try:
                index.sanity_check()
            except CorruptIndex as error:
                logger.warning("%s; rebuilding it", error)
                damaged.append(index)
    return damaged


def _first_unflushed(segments: list[Segment], recovery_point: int) -> int:
    """Number of the segment that holds the recovery point."""
    first = len(segments) - 1
    while first and segments[first].base_offset > recovery_point:
        first -= 1
    return first


def _first_to_recover(segments: list[Segment], recovery_point: int, check: Callable[[], None]) -> int:
    """Number of the first segment that is to be read."""
    first = _first_unflushed(segments, recovery_point)
    if first and _end_of(segments[first - 1], check) > segments[first].base_offset:
        # The log was cut there, and then rolled, but the cut did not reach the disk.
        return first - 1
    return first


def _end_of(segment: Segment, check: Callable[[], None]) -> int:
    """The offset after a flushed segment's last batch; its base offset if that cannot be found out."""
    try:
        try:
            return segment.scan_tail()
        except CorruptIndex:
            segment.rebuild_indexes(check)
            return segment.scan_tail()
    except (CorruptSegment, CorruptIndex) as error:
        logger.warning("%s", error)
        return segment.base_offset


def recover_segment(
    segment: Segment,
    next_offset: int,
    note_epoch: Callable[[BatchHeader], None] | None = None,
    *,
    end_offset: int | None = None,
    before_read: Callable[[], None] = lambda: None,
) -> tuple[int, str | None]:
    """Verify every batch, cut the file at the first bad one and build the indexes anew.

    ``end_offset`` is where the next segment begins. ``before_read`` is called before each piece of the file is read; an
    exception of its own leaves the segment as a kill does. Returns the offset after the last batch kept
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
            before_read()
            chunk, start, at = memoryview(file.pread(_CHUNK, position)), position, 0
        try:
            header = parse_header(chunk, at)
            length = header.batch_length + LOG_OVERHEAD
            if position + length > size:
                raise CorruptRecord(f"a batch of {length} bytes is cut off after {size - position}")
            if at + length > len(chunk):
                before_read()
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
            next_offset, _ = recover_segment(
                segment, start_offset, note_epoch, end_offset=end_offset, before_read=before_read
            )
            return next_offset, reason
    segment.complete_indexes()
    return next_offset, reason
