"""One partition's log, as it changes: appended at the end, rolled into segments, cut at both ends.

Reading is in ``log_reader``, the directory and the flushes are in ``durable_log``.

Everything here is synchronous, and time is an argument. One owner (the node's loop) calls all methods; only
:meth:`FlushTask.run` may run in another thread.

Errors: ``ApiError`` is for the client that asked. ``OSError`` means that the disk refused; the log dir is then
to go offline. Where it is the log's bytes that are wrong, ``on_damage`` hears of it (``durable_log``).
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Sequence

from kbroker.errors import ApiError, ErrorCode
from kbroker.log import truncation
from kbroker.log.disk import Disk
from kbroker.log.flushing import NEVER
from kbroker.log.loaded_log import LoadedLog
from kbroker.log.log_config import LogConfig
from kbroker.log.mended_log import MendedLog
from kbroker.log.producer_entry import BatchMetadata, VerificationGuard
from kbroker.log.producer_replay import recall_batches, replay_producers
from kbroker.log.producer_state import TV_UNKNOWN, CompletedTxn, ProducerStateManager
from kbroker.log.retention import deletable, segment_facts
from kbroker.log.rolling import keeps_all, should_roll
from kbroker.log.segments.cleaned_segment import CleanedSegment
from kbroker.log.segments.indexed_file import MAX_RELATIVE_OFFSET
from kbroker.log.segments.open_files import OpenFiles
from kbroker.log.segments.segment import Segment
from kbroker.log.segments.transaction_index import AbortedTxn
from kbroker.log.validated_batches import ValidatedBatches
from kbroker.log.validation import AppendOrigin, validate_and_assign_offsets
from kbroker.types import TopicPartition, Uuid
from kbroker.value_types import NamedTuple
from kbroker.wire.batch_header import CONTROL_FLAG, LOG_OVERHEAD, TRANSACTIONAL_FLAG, BatchHeader, Buffer
from kbroker.wire.control_batch import EndTxnMarker, parse_end_txn_marker

logger = logging.getLogger(__name__)

_TXN_MARKER_FLAGS = TRANSACTIONAL_FLAG | CONTROL_FLAG


class AppendInfo(NamedTuple):
    """The result of an append."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    """The time stamped on the batches, or -1 if the topic keeps the producer's times."""
    log_start_offset: int
    max_timestamp: int
    duplicate: bool = False
    """Nothing was written: the log has the batch already, at these offsets."""
    converted: int = 0
    """`ValidatedBatches.converted`."""


class PartitionLog(MendedLog):
    """The log of one partition, to be read and written. Made by ``opening``."""

    __slots__ = ("before_roll", "cuts", "flushes_by_config")

    def __init__(
        self,
        directory: str,
        topic_partition: TopicPartition,
        topic_id: Uuid | None,
        config: LogConfig,
        disk: Disk,
        files: OpenFiles,
        producers: ProducerStateManager,
        loaded: LoadedLog,
        *,
        on_disk: bool,
    ) -> None:
        super().__init__(directory, topic_partition, topic_id, config, disk, files, producers, loaded, on_disk=on_disk)
        self.cuts = loaded.cuts
        """The places at which recovery cut off the end on opening, and why."""
        self.before_roll: Callable[[PartitionLog], None] | None = None
        """Called when the log is about to have another segment, which a recovery may find without the end of this
        one."""
        self.update_config(config)

    def update_config(self, config: LogConfig) -> None:
        """The topic's configuration changed; it holds from the next append on."""
        self.config = config
        self.flushes_by_config = config.flush_messages < NEVER or config.flush_ms < NEVER
        self._list.index_interval = config.index_interval_bytes
        for segment in self._segments:
            segment.set_index_interval(config.index_interval_bytes)

    @property
    def first_unstable_offset(self) -> int | None:
        """Start of the earliest transaction that is open, or whose marker is not below the high watermark yet.

        Never below the log start: what is gone decides nothing, though the transaction may have begun there. ``None``
        if all are decided.
        """
        first = self.producers.first_unstable_offset
        return first if first is None or first > self.log_start_offset else self.log_start_offset

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Transactions whose markers are below become stable."""
        self.producers.on_high_watermark_updated(high_watermark)

    # -- appending

    def append_as_leader(
        self,
        records: memoryview | bytearray | bytes,
        leader_epoch: int,
        *,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verification_guard: VerificationGuard | None = None,
        transaction_version: int = TV_UNKNOWN,
    ) -> AppendInfo:
        """Judge batches, give them the next offsets, and write them.

        ``records`` should be writable: it is patched in place. ``ApiError`` if they are refused (nothing is
        written then), ``OSError`` if the disk refuses (nothing that a reader could see).
        """
        validated = validate_and_assign_offsets(
            records,
            next_offset=self.log_end_offset,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
            config=self.config,
            topic_partition=self.topic_partition,
            origin=origin,
        )
        markers: list[EndTxnMarker | None] | None = None
        position = 0
        for index, header in enumerate(validated.batches):
            if header.producer_id >= 0:
                marker = None
                if header.attributes & CONTROL_FLAG:
                    marker = parse_end_txn_marker(validated.records, position)
                    if markers is None:
                        markers = [None] * len(validated.batches)
                    markers[index] = marker
                try:
                    duplicate = self.producers.check(
                        header,
                        origin=origin,
                        verification_guard=verification_guard,
                        marker=marker,
                        transaction_version=transaction_version,
                    )
                except ApiError as error:
                    duplicate = self._find_recalled(header, error)
                if duplicate is not None:
                    append_time = duplicate.timestamp if validated.log_append_time_ms >= 0 else -1
                    return AppendInfo(
                        duplicate.first_offset,
                        duplicate.last_offset,
                        append_time,
                        self.log_start_offset,
                        duplicate.timestamp,
                        True,
                    )
            position += header.batch_length + LOG_OVERHEAD
        return self._append(validated, now_ms, markers)

    def _find_recalled(self, header: BatchHeader, error: ApiError) -> BatchMetadata:
        """Returns the batch that one which seems out of order repeats, where no snapshot had it and the log has;
        ``error`` if there is none."""
        producers = self.producers
        if error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and producers.is_from_snapshot:
            producers.is_from_snapshot = False
            recall_batches(self)
            entry = producers.active_producers.get(header.producer_id)
            if entry is not None:
                found = entry.find_duplicate(header.producer_epoch, header.base_sequence, header.last_sequence)
                if found is not None:
                    return found
        raise error

    def append_as_follower(
        self, records: memoryview | bytearray | bytes, *, now_ms: int, leader_epoch: int = 2**31 - 1
    ) -> AppendInfo | None:
        """Write what the leader sent, offsets and epochs as they are; ``None`` if nothing of it may be.

        Batches of an epoch later than ``leader_epoch`` are left out. ``ApiError`` if they do not continue
        this log.
        """
        validated = validate_and_assign_offsets(
            records,
            next_offset=self.log_end_offset,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
            config=self.config,
            topic_partition=self.topic_partition,
            origin=AppendOrigin.REPLICATION,
        )
        if not validated.batches:
            return None
        markers: list[EndTxnMarker | None] | None = None
        position = 0
        for index, header in enumerate(validated.batches):
            if header.attributes & _TXN_MARKER_FLAGS == _TXN_MARKER_FLAGS and header.producer_id >= 0:
                if markers is None:
                    markers = [None] * len(validated.batches)
                markers[index] = parse_end_txn_marker(validated.records, position)
            position += header.batch_length + LOG_OVERHEAD
        return self._append(validated, now_ms, markers)

    def append_together(self, judged: Sequence[ValidatedBatches], now_ms: int) -> None:
        """Write what `GatheredBatches` has judged, in one write unless it takes a new segment. ``OSError`` as above."""
        size, max_timestamp = 0, -1
        headers: list[BatchHeader] = []
        buffers: list[Buffer] = []
        for records, batches, _, _, timestamp, _, _, _ in judged:
            size += len(records)
            headers += batches
            buffers.append(records)
            if timestamp > max_timestamp:
                max_timestamp = timestamp
        together = ValidatedBatches(b"", headers, judged[0].first_offset, judged[-1].last_offset, max_timestamp, -1, -1)
        if not self._on_disk:
            self.ensure_on_disk()
        if keeps_all(self.config, self.topic_partition, self._segments[-1], size, together, now_ms):
            self._write(together, buffers, now_ms, None)
        else:
            for each in judged:
                self._append(each, now_ms, None)

    def _append(
        self, validated: ValidatedBatches, now_ms: int, markers: list[EndTxnMarker | None] | None
    ) -> AppendInfo:
        if not self._on_disk:
            self.ensure_on_disk()
        size = len(validated.records)
        if should_roll(self.config, self.topic_partition, self._segments[-1], size, validated, now_ms):
            # A follower's gap goes into the new segment: segments without a hole between them can be told
            # from a segment whose end never reached the disk. Unless an index could not express the gap.
            gap = validated.last_offset - self.log_end_offset > MAX_RELATIVE_OFFSET
            self.roll(now_ms, base_offset=validated.first_offset if gap else 0)
        return self._write(validated, (validated.records,), now_ms, markers)

    def _write(
        self,
        validated: ValidatedBatches,
        buffers: Sequence[Buffer],
        now_ms: int,
        markers: list[EndTxnMarker | None] | None,
    ) -> AppendInfo:
        """Append to the active segment what ``validated`` describes and ``buffers`` hold."""
        segment, batches = self._segments[-1], validated.batches
        segment.append(buffers, batches)
        durability = self.durability
        if durability.first_unflushed_ms < 0:
            durability.first_unflushed_ms = now_ms
        epochs = self.leader_epochs
        latest = epochs.latest
        has_producers = False
        for base_offset, _, leader_epoch, _, _, _, _, _, _, producer_id, _, _, _ in batches:
            if leader_epoch > latest:
                epochs.assign(leader_epoch, base_offset)
                latest = epochs.latest
            if producer_id >= 0:
                has_producers = True
        end = validated.last_offset + 1
        producers = self.producers
        if has_producers:
            for index, header in enumerate(batches):
                if header.producer_id >= 0:
                    completed = producers.update(header, markers[index] if markers is not None else None)
                    if completed is not None:
                        self._complete(completed, segment)
        producers.update_map_end_offset(end)
        self.log_end_offset = end
        return AppendInfo(
            validated.first_offset,
            validated.last_offset,
            validated.log_append_time_ms,
            self.log_start_offset,
            validated.max_timestamp,
            False,
            validated.converted,
        )

    def _complete(self, completed: CompletedTxn, segment: Segment) -> None:
        last_stable_offset = self.producers.last_stable_offset(completed)
        if completed.is_aborted:
            try:
                segment.txn_index.append(AbortedTxn.of(completed, last_stable_offset))
            except OSError as error:
                # The marker is in the file, and nothing else knows: room alone would not mend that.
                raise OSError(errno.EIO, error.strerror, segment.txn_index.path) from error
        self.producers.complete_txn(completed)

    def roll(self, now_ms: int, *, base_offset: int = 0) -> None:
        """Begin a new active segment at the log end (or at ``base_offset``, if that is higher).

        Nothing happens if the active segment is empty and begins there already.
        """
        self.ensure_on_disk()
        active = self._segments[-1]
        base_offset = max(base_offset, self.log_end_offset)
        if not active.size:
            if active.base_offset == base_offset:
                return
        else:
            if self.before_roll is not None:
                self.before_roll(self)
            active.seal()
            if self.durability.cut:
                # Or, after a crash, the next segment might follow what was cut off. Seldom: a cut asks for a flush.
                self.flush()
        self.producers.update_map_end_offset(base_offset)
        self.producers.take_snapshot(sync=False)
        self._list.add(base_offset, now_ms)
        if not active.size:  # an empty one that begins too early: the new one takes its place
            new = self._list.pop()
            self._list.discard(self._list.pop())
            self._list.restore(new)
        self.durability.names += 1
        if self.on_rolled is not None:
            self.on_rolled(self)

    # -- cutting

    def truncate_to(self, offset: int, *, now_ms: int = 0) -> bool:
        """Drop everything from ``offset`` on; answer whether there was something.

        A batch that holds ``offset`` goes whole. The log then ends where the last batch does that stays, also if
        ``offset`` is in a gap: nothing would tell the next start of an end in there.
        """
        if offset < 0:
            raise ValueError(f"cannot truncate {self.topic_partition} to {offset}")
        if offset >= self.log_end_offset:
            self.leader_epochs.truncate_from_end(offset)
            return False
        cut = truncation.find_cut(self._list, offset, self._damage) if offset > self.log_start_offset else None
        if cut is None or cut.end_offset < self.log_start_offset:
            # Nothing that may be read is left; the batch that goes may be the first one.
            self.truncate_fully_and_start_at(min(offset, self.log_start_offset), now_ms=now_ms)
            return True
        self._begin_truncation(cut.end_offset)
        truncation.cut_off(self._list, self.producers, cut)
        self.log_end_offset = cut.end_offset
        self.leader_epochs.truncate_from_end(cut.end_offset)
        self.producers.truncate_and_reload(self.log_start_offset, cut.end_offset, now_ms)
        replay_producers(self.producers, self._segments, cut.end_offset)
        if self.on_rolled is not None:
            self.on_rolled(self)
        return True

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int = 0) -> None:
        """Drop everything; the log is empty and goes on at ``offset``."""
        self.ensure_on_disk()
        self._begin_truncation(min(offset, self.log_start_offset))
        self.leader_epochs.clear()
        self.producers.truncate_fully_and_start_at(offset)
        if truncation.start_at(self._list, offset, now_ms):
            self.durability.names += 1
        self.log_start_offset = self.log_end_offset = offset
        if self.on_rolled is not None:
            self.on_rolled(self)

    def _begin_truncation(self, offset: int) -> None:
        """The end is about to be cut at ``offset``: no checkpoint may claim more before it is."""
        self.generation += 1
        before = self.durability.recovery_point, self.log_start_offset
        lowered = self.durability.truncated(offset)
        if self.log_start_offset > offset:
            self.log_start_offset = offset
            lowered = True
        if self.before_truncation is not None:
            try:
                self.before_truncation(self, offset, lowered)
            except OSError:
                self.durability.recovery_point, self.log_start_offset = before  # the next attempt has it written
                raise
        if self.leader_epochs.dirty or self.leader_epochs.latest_start > offset:
            # The file may have an epoch that began behind the cut, also where the one in memory has it no more.
            self.leader_epochs.truncate_from_end(offset)
            if self._on_disk:
                self.leader_epochs.write(self.disk, self.directory, sync=True)

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Records below ``offset`` may not be read any more; answer whether that moved anything.

        OFFSET_OUT_OF_RANGE above the log end (the caller checks the high watermark). Segments that lie wholly
        below go with the next :meth:`delete_old_segments`.
        """
        if offset > self.log_end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {self.topic_partition} is above its end {self.log_end_offset}",
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)
        self.producers.on_log_start_offset_incremented(offset)
        return True

    def flush_again(self, now_ms: int) -> None:
        """Have a flush done once more that could not write all because the disk is full. What was synced stays so."""
        if self.durability.first_unflushed_ms < 0:
            self.durability.first_unflushed_ms = now_ms
        if self.on_rolled is not None:
            self.on_rolled(self)

    # -- retention

    def delete_old_segments(self, now_ms: int, *, high_watermark: int | None = None) -> int:
        """Drop first segments that retention or DeleteRecords allow to go; how many.

        Their files are renamed at once and removed ``file.delete.delay.ms`` later
        (:meth:`take_expired_files`); readers that hold a region of them are not disturbed.
        """
        if not self._on_disk or self.segments_held:
            return 0
        bound = self.log_end_offset if high_watermark is None else min(high_watermark, self.log_end_offset)
        count = deletable(
            segment_facts(self._segments, self.log_end_offset, self.config, now_ms),
            self.config,
            high_watermark=bound,
            log_start_offset=self.log_start_offset,
            now_ms=now_ms,
        )
        if not count:
            return 0
        if count == len(self._segments):
            self.roll(now_ms)
        # The new start must be durable in a file's name before the old names go.
        self.durability.renamed()
        gone = self._list.take_first(count)
        self.maybe_increment_log_start_offset(self._bases[0])
        paths: list[str] = []
        for segment in gone:
            paths += segment.rename_to_deleted()
            snapshot = self.producers.snapshots.mark_for_deletion(segment.base_offset)
            if snapshot is not None:
                paths.append(snapshot)
        self._list.delete_later(paths, now_ms + self.config.file_delete_delay_ms)
        logger.info("%s: %d segments up to offset %d are deleted", self.topic_partition, count, self._bases[0])
        return count

    def replace_segments(self, cleaned: CleanedSegment, now_ms: int) -> bool:
        """Put a segment that compaction wrote in the place of those that it stands for, if they are still there.

        A log with several such segments takes the first one first. Readers that hold a region of the old ones are
        not disturbed. The caller syncs the directory.
        """
        old = self._list.find_replaced(cleaned)
        if old is None:
            return False
        paths = self._list.replace(old, cleaned, now_ms)
        for segment in old[1:]:
            snapshot = self.producers.snapshots.mark_for_deletion(segment.base_offset)
            if snapshot is not None:
                paths.append(snapshot)
        self._list.delete_later(paths, now_ms + self.config.file_delete_delay_ms)
        return True

    def take_expired_files(self, now_ms: int) -> tuple[list[str], bool]:
        """Files that were renamed long enough ago, for the caller to remove; and whether others still wait."""
        return self._list.take_expired(now_ms)
