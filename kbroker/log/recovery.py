"""Recovers a partition's directory on opening: keeps what is valid, and makes the rest anew.

After a clean stop the files are taken as they are, but for a look at the end of the active segment. After any
other stop the segments from the recovery point on are read whole, and the log is cut at the first batch that
is torn, has a wrong checksum or does not follow the one before it: exactly the longest valid prefix is kept.
Below the recovery point everything was flushed; an index there that turns out wrong is rebuilt when it is used.

What is cut off is dropped if it is a torn tail: what an append leaves that was not completed. All else is set aside
(``segments/segment_recovery.py``).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection
from functools import partial

from kbroker.log.checkpoint_files import CorruptCheckpoint
from kbroker.log.damage import Damage, note, read_damage
from kbroker.log.disk import Disk
from kbroker.log.leader_epochs import LeaderEpochs
from kbroker.log.log_config import LogConfig
from kbroker.log.producer_replay import replay_producers, snapshot_at
from kbroker.log.producer_state import ProducerStateManager
from kbroker.log.segments.indexed_file import CorruptSegment
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
from kbroker.log.segments.segment_recovery import Cut, keep_end, keep_segment, recover_segment
from kbroker.log.segments.sparse_index import CorruptIndex
from kbroker.log.segments.transaction_index import TransactionIndex
from kbroker.value_types import dataclass, field
from kbroker.wire.batch_header import TRANSACTIONAL_FLAG, BatchHeader

logger = logging.getLogger(__name__)

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
    has_holes: bool = False
    """Whether offsets are missing between segments that were verified."""
    damage: tuple[Damage, ...] = ()
    """What is missing and has not healed."""


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
    clean_offset: int,
    segments_left: Callable[[int], None],
) -> LoadedLog:
    """Open what ``directory`` holds. ``OSError`` if the disk refuses; damage never raises here.

    ``clean_offset``: up to where the log may have been compacted, so that offsets may be missing between its segments
    there. ``segments_left`` hears how many segments are still to be verified; 0 where other work
    takes long, which an exception of its own ends as well.
    """
    names = disk.list_dir(directory)
    replaced = just_replaced(names)
    names = finish_interrupted_work(disk, directory, names)
    flushed = MAX_OFFSET if clean_shutdown else recovery_point
    check = partial(segments_left, 0)
    segments, without_index = open_segments(disk, files, directory, names, config, now_ms, flushed)
    for segment in without_index:
        if clean_shutdown or segment.base_offset < segments[_first_unflushed(segments, recovery_point)].base_offset:
            segment.rebuild_indexes(check)
    recovery = _Recovery(
        disk, directory, segments, now_ms, clean_shutdown, recovery_point, clean_offset, replaced, segments_left
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
        now_ms: int,
        clean_shutdown: bool,
        recovery_point: int,
        clean_offset: int,
        replaced: Collection[int],
        segments_left: Callable[[int], None],
    ) -> None:
        """``replaced``: base offsets of segments that compaction had just put in place of others."""
        self._disk = disk
        self._directory = directory
        self._segments = segments
        self._now_ms = now_ms
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
        self.damage = read_damage(disk, directory)
        self._has_holes = False

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

        Each segment begins where the one before it ends, or compaction has left a hole between them. Where that cannot
        be, the end of the earlier one never reached the disk.
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
                self._before_cut,
                partial(self._segments_left, len(segments) - index),
                end_offset=following,
            )
            if reason is None and following is not None:
                reason = self._misfit(segment, next_offset, following)
            if reason is not None:
                self.cuts.append(reason)
                self._take_out(index + 1, next_offset, "it follows the damage")
                break
        self._segments_left(0)
        while len(segments) > 1 and segments[-1].size == 0 and segments[-1].base_offset != next_offset:
            remove_files(self._disk, segments.pop())
        self.log_end_offset = next_offset

    def _misfit(self, segment: Segment, end: int, following: int) -> str | None:
        """The reason why a segment that ends there cannot be followed by the next one; None if it can."""
        if end > following:
            return f"{segment.path}: it was to be cut at offset {following}, which did not happen"
        if end == following:
            return None
        if segment.base_offset in self._replaced or following <= self._clean_offset:
            self._has_holes = True
            return None
        return f"{segment.path}: it ends at offset {end}, and the next segment begins at {following}"

    def drop_all(self, log_start_offset: int) -> None:
        """Take out all segments of a log that ends before its start."""
        reason = f"the log ends at offset {self.log_end_offset}, before its log start offset {log_start_offset}"
        self.cuts.append(f"{self._directory}: {reason}; all of it is taken out")
        self._take_out(0, log_start_offset, reason)
        self.epochs.clear()

    def _take_out(self, first: int, end_offset: int, reason: str) -> None:
        """Take the segments from number ``first`` on out of the log, which ends at ``end_offset`` then."""
        # The last one comes first: whenever the power fails, what is left is what it was, as far as it goes.
        for segment in reversed(self._segments[first:]):
            if segment.size:
                self._note_damage(segment, 0, max(end_offset, segment.base_offset), reason)
                name = keep_segment(self._disk, segment, end_offset, reason, self._now_ms)
                self.cuts.append(f"{segment.path}: {reason}; it is set aside as {name}")
            else:
                remove_files(self._disk, segment)
        del self._segments[first:]

    def _before_cut(self, cut: Cut) -> str:
        """Set aside what a segment is about to lose, unless it is a torn tail; what is to be said of the cut."""
        segment, reason = cut.segment, cut.reason
        was_flushed = self._clean_shutdown or cut.end_offset < self._recovery_point
        is_last = not any(later.size for later in self._segments if later.base_offset > segment.base_offset)
        if cut.is_torn and is_last and not was_flushed:
            return reason
        self._note_damage(segment, cut.position, cut.end_offset, reason)
        name = keep_end(self._disk, segment, cut.position, cut.end_offset, reason, self._now_ms, self._check)
        return reason if name is None else f"{reason}; what is cut off is set aside as {name}"

    def _note_damage(self, segment: Segment, position: int, start_offset: int, reason: str) -> None:
        end = max([start_offset + 1, self._recovery_point, *(each.base_offset for each in self._segments)])
        name, size = os.path.basename(segment.path), segment.size - position
        found = Damage(start_offset, end, name, position, size, reason, self._now_ms)
        self.damage = note(self._disk, self._directory, [*self.damage, found])

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
            has_holes=self._has_holes,
            damage=self.damage,
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
