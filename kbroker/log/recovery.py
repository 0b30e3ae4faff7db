"""Recovers a partition's directory on opening: keeps what is valid, and makes the rest anew.

After a clean stop the files are taken as they are, but for a look at the end of the active segment. After any
other stop the segments from the recovery point on are read whole. Below the recovery point everything was flushed; an
index there that turns out wrong is rebuilt when it is used.

A torn tail is cut off: what an append leaves that was not completed, above all that was known of the log. All else that
is no batch, or is missing, is damage (``damage.py``): its bytes are set aside (``segments/segment_recovery.py``), and
the log has a hole there, which readers pass as they pass one of compaction. Or it is cut there, as in Apache Kafka
(``log.recovery.on.damage``).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection
from functools import partial

from kbroker.log.damage import FILE_NAME as DAMAGE
from kbroker.log.damage import Damage, covers, note, read_damage
from kbroker.log.disk import Disk
from kbroker.log.file_names import TXN_INDEX_SUFFIX, file_name
from kbroker.log.full_disk import unless_full
from kbroker.log.leader_epochs import FILE_NAME as LEADER_EPOCHS
from kbroker.log.leader_epochs import LeaderEpochs, read_epochs, settle
from kbroker.log.loaded_log import Known, LoadedLog
from kbroker.log.log_config import LogConfig
from kbroker.log.producer_replay import damaged_txn_indexes, replay_producers, snapshot_at
from kbroker.log.producer_state import ProducerStateManager
from kbroker.log.segments.batch_walk import Damaged
from kbroker.log.segments.indexed_file import MAX_RELATIVE_OFFSET, CorruptSegment
from kbroker.log.segments.open_files import OpenFiles
from kbroker.log.segments.segment import Segment
from kbroker.log.segments.segment_files import (
    end_of,
    finish_interrupted_work,
    first_to_recover,
    first_unflushed,
    has_indexes,
    is_settled,
    just_replaced,
    make_segment,
    open_segments,
    remove_files,
)
from kbroker.log.segments.segment_recovery import (
    MAX_OFFSET,
    bounds_of,
    empty_batch,
    keep_bytes,
    keep_segment,
    put_in_place,
    recover_segment,
    write_around,
)
from kbroker.log.segments.sparse_index import CorruptIndex
from kbroker.wire.batch_header import NO_PARTITION_LEADER_EPOCH, TRANSACTIONAL_FLAG, BatchHeader

logger = logging.getLogger(__name__)


def load(
    disk: Disk,
    files: OpenFiles,
    directory: str,
    before: list[str],
    config: LogConfig,
    producers: ProducerStateManager,
    known: Known,
    *,
    now_ms: int,
    segments_left: Callable[[int], None],
) -> LoadedLog:
    """Open what ``directory`` holds. ``OSError`` if the disk refuses; damage never raises here.

    ``before`` are the names in it. ``segments_left`` hears how many are still to be verified; 0 where other work takes
    long, which an exception of its own ends as well.
    """
    names, replaced = before, set[int]()
    if not is_settled(before):
        replaced = just_replaced(before)
        for name in before:
            files.forget(os.path.join(directory, name))
        names = finish_interrupted_work(disk, directory, before)
    check = partial(segments_left, 0)

    def segment_at(base_offset: int, size: int) -> Segment:
        return make_segment(disk, files, directory, base_offset, size, config, now_ms)

    segments, without_index = open_segments(disk, directory, names, before, segment_at)
    recovery = _Recovery(disk, directory, names, segments, segment_at, config, known, now_ms, replaced, segments_left)
    if segments:
        recovery.find_missing()
    for segment in without_index:
        unflushed = segments[first_unflushed(segments, known.recovery_point)].base_offset
        if segment.size and (known.clean_shutdown or segment.base_offset < unflushed):
            segment.rebuild_indexes(check)
    if segments:
        recovery.find_end()
    if segments and recovery.log_end_offset < known.log_start_offset:
        recovery.drop_all()
    recovery.settle_end()
    if not segments[-1].size and not has_indexes(segments[-1].base_offset, names):
        segments[-1].create_files()  # an empty log remembers its offset by the name of its file alone
    start = max(known.log_start_offset, segments[0].base_offset)
    recovery.epochs.truncate_from_end(recovery.log_end_offset)
    recovery.epochs.truncate_from_start(start)
    recovery.load_producers(producers, start, now_ms)
    for cut in recovery.cuts:
        logger.warning("%s", cut)
    return recovery.result(start)


class _Recovery:
    """A directory while it is opened: its segments, and facts about the whole log from the batches that are read."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        names: list[str],
        segments: list[Segment],
        segment_at: Callable[[int, int], Segment],
        config: LogConfig,
        known: Known,
        now_ms: int,
        replaced: Collection[int],
        segments_left: Callable[[int], None],
    ) -> None:
        """``replaced``: base offsets of segments that compaction had just put in place of others."""
        self._disk = disk
        self._directory = directory
        self._names = set(names)
        """Those of the files when the recovery began."""
        self._segments = segments
        self._segment_at = segment_at
        self._index_interval = config.index_interval_bytes
        self._compacts = config.compact or known.clean_offset > 0
        self._known = known
        self._now_ms = now_ms
        self._replaced = replaced
        self._leaves_holes = known.holes_below == MAX_OFFSET
        self._segments_left = segments_left
        self._check = partial(segments_left, 0)
        self._known_epochs = read_epochs(disk, directory) if LEADER_EPOCHS in names else None
        self.epochs = self._known_epochs or LeaderEpochs()
        self._damage = read_damage(disk, directory) if DAMAGE in names else ()
        self._known_end = max(known.recovery_point, known.high_watermark)
        """The log has reached this offset, at least."""
        self._known_end = max([self._known_end, *(d.end_offset for d in self._damage if d.end_offset < MAX_OFFSET)])
        self._known_epoch = self.epochs.latest
        # A clean stop leaves it complete. Nothing else tells of a wrong epoch in the last batch.
        self._last_epoch = self._known_epochs.latest if known.clean_shutdown and self._known_epochs else None
        """The latest leader epoch that a batch may have, if that is known."""
        # After a clean stop the log ended at the recovery point, and no epoch began later.
        self._epoch_start = 0 if known.clean_shutdown and known.recovery_point else self.epochs.latest_start
        """The log has reached this offset, too, unless a batch before it has the latest epoch: the file is wrong."""
        self._latest_epoch = -1
        """The leader epoch of the batch that was read last."""
        self._read_end = segments[0].base_offset if segments else 0
        """The offset after the batch that was read last."""
        self._gap = range(0)
        """The offsets that are missing before it."""
        self._has_producers = False
        self._has_transactions = False
        self._first_recovered: int | None = None
        """The base offset of the first segment that had to be recovered."""
        self.log_end_offset = 0
        self.cuts: list[str] = []
        self._has_holes = False

    def _note(self, header: BatchHeader) -> None:
        """Take in the next batch."""
        epoch = header.partition_leader_epoch
        if self._gap and not covers(self._damage, self._gap.start, self._gap.stop):
            self._compacts = True  # more than this is not known of a log's configuration when a node opens it
        self._gap, self._read_end = range(self._read_end, header.base_offset), header.next_offset
        if epoch >= 0:
            self._latest_epoch = epoch
            if epoch != self.epochs.latest:
                if epoch >= self._known_epoch and header.base_offset < self._epoch_start:
                    self._epoch_start = 0
                self.epochs.assign(epoch, header.base_offset)  # the batches know better than the file
        if header.producer_id >= 0:
            self._has_producers = True
            if header.attributes & TRANSACTIONAL_FLAG:
                self._has_transactions = True

    def _is_missing(
        self,
        start: int,
        end: int,
        segment: Segment | None,
        reason: str,
        position: int = 0,
        size: int = 0,
        set_aside: str | None = None,
    ) -> bool:
        """Note, durably and before the log changes, that the offsets from ``start`` on and below ``end`` are missing;
        whether that is news. Offsets that were deleted are not missed."""
        start = max(start, self._known.log_start_offset)
        if start >= end or covers(self._damage, start, end):
            return False
        name = os.path.basename(segment.path) if segment is not None else ""
        found = Damage(start, end, name, position, size, reason, self._now_ms, set_aside)
        self._damage = note(self._disk, self._directory, [*self._damage, found])
        return True

    # -- the log's end

    @property
    def _reached(self) -> int:
        return max(self._known_end, self._epoch_start)

    def find_missing(self) -> None:
        """Note what empty segments had that come before those that are read, by their indexes: compaction may have
        emptied them. They go, but for the first, which says where the log starts."""
        known, segments = self._known, self._segments
        bound = MAX_OFFSET if known.clean_shutdown else known.recovery_point
        for index in reversed(range(len(segments) - 1)):
            segment, following = segments[index], segments[index + 1].base_offset
            if segment.size or following > bound:
                continue
            if segment.named_end() > segment.base_offset:
                reason = f"{segment.path}: it is empty, and the next segment begins at {following}"
                if self._is_missing(segment.base_offset, following, segment, reason):
                    self.cuts.append(reason)
            segment.begin_rebuild()
            if index:
                remove_files(self._disk, segment)
                del segments[index]

    def find_end(self) -> None:
        """Read what may not be whole, and see to what is not."""
        segments = self._segments
        if not segments[-1].size:
            base_offset = segments[-1].base_offset
            # Above what was flushed or committed, an index may speak of what was cut off before the power failed.
            if self._known.clean_shutdown or self._known_end > base_offset:
                named = segments[-1].named_end()
                self._known_end = max(self._known_end, named if named > base_offset else 0)
            segments[-1].begin_rebuild()
        if self._known.clean_shutdown:
            self._check_tail()
            self._settle_epochs(segments, self.log_end_offset)
            return
        first = first_to_recover(segments, self._known.recovery_point, self._check)
        self._first_recovered = segments[first].base_offset
        # Of what was not flushed, the batches know better; an epoch may be there that no batch has.
        self._settle_epochs(segments[:first], self._first_recovered, segments[first])
        self._recover_from(first)

    def _settle_epochs(self, segments: list[Segment], end: int, following: Segment | None = None) -> None:
        """Have the epochs of segments that end there as the batches have them."""
        known = self._known_epochs
        if known is not None:
            known.truncate_from_end(end)
        bounds = self._known.log_start_offset, end
        self.epochs = settle(known, segments, bounds, self._directory, self._check, following)
        if self.epochs is not known:
            self._latest_epoch, self._epoch_start = self.epochs.latest, 0

    def _check_tail(self) -> None:
        """After a clean stop: find the log end, and recover the active segment if it is not as it should be."""
        segment = self._segments[-1]
        try:
            self.log_end_offset = segment.scan_tail()
            last, _ = segment.headers_around(self.log_end_offset)
            is_late = 0 < self._known.recovery_point < self.log_end_offset  # which was the end
            fits = last is None or not self._known_epochs or self._fits_the_epochs(last, self._known_epochs)
            if fits and not is_late:
                return
        except CorruptIndex as error:
            logger.warning("%s; rebuilding it", error)
        except CorruptSegment:
            pass
        self._recover_from(len(self._segments) - 1)
        self._first_recovered = self._segments[-1].base_offset

    def _fits_the_epochs(self, last: BatchHeader, known: LeaderEpochs) -> bool:
        """Whether the last batch has the leader epoch that the checkpoint file says."""
        offset = max(last.base_offset, self._known.log_start_offset)
        return last.partition_leader_epoch == NO_PARTITION_LEADER_EPOCH or (
            last.partition_leader_epoch == known.epoch_for(offset)
        )

    def _recover_from(self, first: int) -> None:
        """Read the segments from number ``first`` on, and take out what is damaged, or cut the log there.

        Each segment begins where the one before it ends, unless compaction or damage has left a hole between them.
        """
        segments = self._segments
        next_offset = self._read_end = segments[first].base_offset
        index = first
        while index < len(segments):
            segment = segments[index]
            left = len(segments) - index
            self._segments_left(left)
            following = segments[index + 1].base_offset if index + 1 < len(segments) else None
            next_offset, found, reached = recover_segment(
                segment,
                bounds_of(
                    segment, max(next_offset, segment.base_offset), following, self._latest_epoch, self._last_epoch
                ),
                self._note,
                partial(self._segments_left, left),
                has_txn_index=file_name(segment.base_offset) + TXN_INDEX_SUFFIX in self._names,
                is_hole=partial(self._is_hole, following=following),
            )
            self._take_out_damaged(index, found, reached, following)
            index += 1
            if following is None:
                break
            is_cut = bool(found) and not self._is_hole(found[-1], following)
            if is_cut or not self._is_followed(segment, next_offset, following):
                self._take_out(index, next_offset, "it follows the damage")
            else:
                next_offset = self._read_end = max(next_offset, following)
        self._segments_left(0)
        while len(segments) > 1 and segments[-1].size == 0 and segments[-1].base_offset != next_offset:
            remove_files(self._disk, segments.pop())
        self.log_end_offset = next_offset
        self._doubt_last_batch()

    def _doubt_last_batch(self) -> None:
        """Take a gap before the very last batch for damage, where only compaction would leave one: no checksum covers a
        base offset, and no batch follows that would contradict it. The batch stays, and others lead that have it."""
        gap, segment = self._gap, self._segments[-1]
        is_known = gap.stop <= self._reached or covers(self._damage, gap.start, gap.stop)
        if not gap or not self._leaves_holes or self._compacts or is_known or not segment.size:
            return
        reason = f"{segment.path}: nothing is there before the last batch, or its base offset {gap.stop} is wrong"
        # The batch counts as missing, too: else a replica that ends where the gap begins would seem to lose as much.
        if self._is_missing(gap.start, self.log_end_offset, segment, reason):
            self.cuts.append(reason)
        self._has_holes = True

    def _is_hole(self, damaged: Damaged, following: int | None) -> bool:
        """Whether damage, in a segment that is followed by one which begins there, leaves a hole and cuts nothing."""
        end = following if damaged.end_offset is None else damaged.end_offset
        return (MAX_OFFSET if end is None else end) <= self._known.holes_below

    def _take_out_damaged(self, index: int, found: list[Damaged], reached: int, following: int | None) -> None:
        """Take damaged bytes out of a segment that was just read, or cut it there. All but a torn tail is set aside."""
        segment, size = self._segments[index], self._segments[index].size
        later = [each for each in self._segments[index + 1 :] if each.size]
        for each in found:
            end_offset, is_torn, is_hole = each.end_offset, False, self._is_hole(each, following)
            if later and not is_hole:
                reached = end_of(later[-1], self._check)
            if end_offset is None and later and is_hole and following is not None:
                end_offset = following
            elif end_offset is None:
                was_known = self._known.clean_shutdown or each.start_offset < self._reached
                is_torn = each.is_torn and not was_known and not later
                if not is_torn:
                    self._known_end = max(self._known_end, each.claimed_offset, reached)
                end_offset = self._reached
            what = "cut" if each.end == size else "damaged"
            reason = f"{segment.path}: {what} at byte {each.position} of {size}: {each.reason}"
            if not is_torn:
                place = each.position, each.end
                aside = keep_bytes(
                    self._disk, segment, *place, (each.start_offset, end_offset), reason, self._now_ms, self._check
                )
                length = 0 if aside is None else each.end - each.position
                self._is_missing(each.start_offset, end_offset, segment, reason, each.position, length, aside)
                reason += f"; what is taken out is set aside as {aside}" if aside is not None else ""
                self._has_holes = True
            self.cuts.append(reason)
        if any(each.end < size for each in found):
            write_around(self._disk, segment, found, self._index_interval, self._check)
            put_in_place(self._disk, segment)
            self._segments[index] = self._segment_at(segment.base_offset, self._disk.size(segment.path))
            self._segments[index].unverified = 0
            return
        if found:
            segment.own_file(found[0].position).truncate(found[0].position)
            segment.size = found[0].position
        if following is None and not found and has_indexes(segment.base_offset, self._names):
            segment.write_indexes()  # it goes on growing
            return
        with unless_full():
            segment.complete_indexes()  # or they stay in memory, until the log is flushed or closed

    def _is_followed(self, segment: Segment, end: int, following: int) -> bool:
        """Whether a segment that ends there can be followed by the next one, perhaps with a hole between them."""
        if end > following:
            self.cuts.append(f"{segment.path}: it was to be cut at offset {following}, which did not happen")
            return False
        if end == following:
            return True
        is_known = segment.base_offset in self._replaced or following <= self._known.clean_offset
        # A follower was sent a gap that no index could express, or the segment could not have had what is missing.
        is_known = is_known or following > segment.base_offset + MAX_RELATIVE_OFFSET + 1
        if not is_known and not covers(self._damage, end, following):
            reason = f"{segment.path}: it ends at offset {end}, and the next segment begins at {following}"
            self.cuts.append(reason)
            later = [each for each in self._segments if each.size and each.base_offset >= following]
            is_hole = following <= self._known.holes_below
            lost_to = following if is_hole else end_of(later[-1], self._check) if later else end
            if later:
                self._is_missing(end, lost_to, segment, reason)
            if not later or not is_hole:
                return False
        self._has_holes = True
        return True

    def drop_all(self) -> None:
        """Take out all segments of a log that ends before its start."""
        start = self._known.log_start_offset
        reason = f"the log ends at offset {self.log_end_offset}, before its log start offset {start}"
        self.cuts.append(f"{self._directory}: {reason}; all of it is taken out")
        self._take_out(0, start, reason)
        self.epochs.clear()

    def settle_end(self) -> None:
        """See that the log has a segment, and that an end which was known and is missing is damage. Where holes stay,
        an empty batch has the log go on there: no offset is given twice, and readers get to the end."""
        segments = self._segments
        end = max(self.log_end_offset, self._known.log_start_offset)
        last, batch, reached = segments[-1] if segments else None, None, self._reached
        if end < reached:
            reason = f"{self._directory}: the log ends at offset {end}, and had reached {reached}"
            if self._is_missing(end, reached, last, reason):
                self.cuts.append(reason)
            if self._leaves_holes:
                batch = header, _ = empty_batch(reached - 1, max(self._known_epoch, self.epochs.latest))
                if last is not None and header.base_offset - last.base_offset > MAX_RELATIVE_OFFSET:
                    last.complete_indexes()
                    last, end = None, header.base_offset
        if last is None:
            last = self._segment_at(end, 0)
            last.begin_rebuild()
            last.create_files()
            segments.append(last)
        if batch is None and not last.size and len(segments) > 1 and self._leaves_holes:
            before, offset = segments[-2], last.base_offset - 1
            is_near = offset - before.base_offset <= MAX_RELATIVE_OFFSET
            if is_near and covers(self._damage, offset, offset + 1) and end_of(before, self._check) <= offset:
                header, data = empty_batch(offset, max(self._known_epoch, self.epochs.latest))
                before.own_file(before.size)
                before.append([data], [header])
                before.complete_indexes()
                self._note(header)
                self._has_holes = True
        if batch is not None:
            header, data = batch
            last.own_file(last.size)
            last.append([data], [header])
            self._note(header)
            end, self._has_holes = reached, True
        self.log_end_offset = end

    def _take_out(self, first: int, end_offset: int, reason: str) -> None:
        """Take the segments from number ``first`` on out of the log, which ends at ``end_offset`` then."""
        # The last one comes first: whenever the power fails, what is left is what it was, as far as it goes.
        for segment in reversed(self._segments[first:]):
            if segment.size:
                name = keep_segment(self._disk, segment, end_offset, reason, self._now_ms)
                self.cuts.append(f"{segment.path}: {reason}; it is set aside as {name}")
            else:
                remove_files(self._disk, segment)
        del self._segments[first:]

    # -- producers

    def load_producers(self, producers: ProducerStateManager, log_start_offset: int, now_ms: int) -> None:
        """Bring the producers to the log's end, from the latest snapshot on that can be trusted.

        Transaction indexes that are damaged are made anew by that.
        """
        segments, first_recovered = self._segments, self._first_recovered
        damaged = damaged_txn_indexes(segments, self._names, first_recovered, self._check)
        trusted = min([self.log_end_offset, *(index.start_offset for index in damaged)])
        for index in damaged:
            index.begin_rebuild()
        if first_recovered is not None:
            # Snapshots up to the recovery point are durable, as is what they speak of. But where transactions
            # are, the transaction indexes of the segments just read are empty, and are made by replaying them.
            recovered = first_recovered if self._has_transactions else max(first_recovered, self._known.recovery_point)
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
        is_whole = self._known.clean_shutdown and not self.cuts
        return LoadedLog(
            segments=self._segments,
            log_start_offset=log_start_offset,
            log_end_offset=end,
            recovery_point=end if is_whole else max(0, min(self._known.recovery_point, end)),
            indexed=end if self._first_recovered is None else min(self._first_recovered, end),
            leader_epochs=self.epochs,
            cuts=tuple(self.cuts),
            has_holes=self._has_holes,
            damage=self._damage,
        )
