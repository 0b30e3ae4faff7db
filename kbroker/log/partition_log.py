"""One partition's log: segments in a directory, appended at the end, read by offset, cut at both ends.

Everything here is synchronous, and time is an argument. One owner (the node's loop) calls all methods; only
:meth:`FlushTask.run` may run in another thread.

Errors: ``ApiError`` is for the client that asked. ``OSError`` means that the disk refused; the log dir is then
to go offline. Where it is the log's bytes that are wrong, readers get CORRUPT_MESSAGE with file and position.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kbroker.errors import ApiError, ErrorCode
from kbroker.log import log_reader, timestamp_lookup, truncation
from kbroker.log.checkpoints import write_partition_metadata
from kbroker.log.cleaned_segment import CleanedSegment
from kbroker.log.disk import Disk, DiskFile
from kbroker.log.flushing import NEVER, Durability, FlushTask
from kbroker.log.log_config import LogConfig
from kbroker.log.log_reader import ReadInfo
from kbroker.log.open_files import OpenFiles
from kbroker.log.producer_state import CompletedTxn, ProducerStateManager, VerificationGuard
from kbroker.log.recovery import LoadedLog
from kbroker.log.retention import deletable, segment_facts
from kbroker.log.rolling import RollRules
from kbroker.log.segment import MAX_RELATIVE_OFFSET, CorruptSegment, Segment
from kbroker.log.segment_list import SegmentList
from kbroker.log.timestamp_lookup import TimestampOffset
from kbroker.log.transaction_index import AbortedTxn
from kbroker.log.validated_batches import ValidatedBatches
from kbroker.log.validation import AppendOrigin, validate_and_assign_offsets
from kbroker.types import FileRegion, TopicPartition, Uuid
from kbroker.wire.batch_header import BatchHeader, Buffer
from kbroker.wire.control_batch import EndTxnMarker, parse_end_txn_marker

logger = logging.getLogger(__name__)

TV_UNKNOWN = -1


class AppendInfo(NamedTuple):
    """What became of appended batches."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    """The time stamped on the batches, or -1 if the topic keeps the producer's times."""
    log_start_offset: int
    max_timestamp: int
    duplicate: bool = False
    """Nothing was written: the log has the batch already, at these offsets."""
    first_leader_epoch_start: bool = False
    """The batches began a new leader epoch in this log."""


class PartitionLog:
    """The log of one partition. Made by ``opening``."""

    __slots__ = (
        "_bases",
        "_list",
        "_on_disk",
        "_rolling",
        "_segments",
        "before_truncation",
        "config",
        "cuts",
        "directory",
        "disk",
        "durability",
        "flushes_by_config",
        "generation",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "on_rolled",
        "producers",
        "segments_held",
        "topic_id",
        "topic_partition",
    )

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
        self.directory = directory
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.disk = disk
        self.producers = producers
        self.leader_epochs = loaded.leader_epochs
        self.log_start_offset = loaded.log_start_offset
        """Offset of the first record that may be read."""
        self.log_end_offset = loaded.log_end_offset
        """Offset that the next record gets."""
        self.durability = Durability(loaded.recovery_point, loaded.indexed)
        """What of it is on the disk."""
        self.cuts = loaded.cuts
        """What recovery cut off on opening, and why."""
        self.on_rolled: Callable[[PartitionLog], None] | None = None
        """Called after a roll or a truncation: a segment, or the cut, waits to be flushed, and files to be removed."""
        self.before_truncation: Callable[[PartitionLog], None] | None = None
        """Called when ``recovery_point`` or ``log_start_offset`` was lowered because the end of the log is
        about to be cut: what is written in its place must not pass for durable, or deleted, after a crash."""
        self._list = SegmentList(disk, files, directory, loaded.segments, config.index_interval_bytes)
        # The list's own, a step nearer.
        self._segments = self._list.segments
        self._bases = self._list.bases
        self._on_disk = on_disk
        self.generation = 0
        """Changes whenever something that the log held becomes something else: a truncation, a rename."""
        self.segments_held = False
        """The files of the sealed segments are in use: they are compacted, or moved to another log dir. Whoever wants
        to replace or delete some waits."""
        self.config = config
        self.update_config(config)

    # -- on and off the disk

    @property
    def is_on_disk(self) -> bool:
        """Whether the directory exists."""
        return self._on_disk

    def ensure_on_disk(self) -> None:
        """Create the directory with ``partition.metadata``, unless that was done."""
        if not self._on_disk:
            self.disk.make_dirs(self.directory)
            if self.topic_id is not None:
                write_partition_metadata(self.disk, self.directory, self.topic_id)
            self._on_disk = True

    def adopt_topic_id(self, topic_id: Uuid | None) -> None:
        """The log was found without an id: write down whose it is."""
        self.topic_id = topic_id
        if topic_id is not None and self._on_disk:
            write_partition_metadata(self.disk, self.directory, topic_id)

    def update_config(self, config: LogConfig) -> None:
        """The topic's configuration changed; it holds from the next append on."""
        self.config = config
        self.flushes_by_config = config.flush_messages < NEVER or config.flush_ms < NEVER
        self._rolling = RollRules(config, self.topic_partition, self._bases[-1])
        self._list.index_interval = config.index_interval_bytes
        for segment in self._segments:
            segment.set_index_interval(config.index_interval_bytes)

    def close(self) -> None:
        """Make everything durable and leave the files as a clean stop does. ``OSError`` if that fails."""
        task = self.begin_close()
        if task is not None:
            task.run()
            self.disk.sync_dir(os.path.dirname(self.directory))
            task.end()

    def begin_close(self) -> FlushTask | None:
        """The part of :meth:`close` that is the owner's. What it returns is to be run, the log dir itself
        synced (once for all of its logs), and the task ended."""
        if not self._on_disk:
            return None
        self._segments[-1].complete_indexes()
        snapshot = self.producers.take_snapshot(sync=False)
        return self.begin_flush(extra=[snapshot] if snapshot is not None else [], closing=True)

    def release(self) -> None:
        """Drop open files; regions that readers hold stay valid."""
        self._list.release()

    # -- facts

    @property
    def active_segment(self) -> Segment:
        """The segment that is appended to."""
        return self._segments[-1]

    @property
    def segments(self) -> Sequence[Segment]:
        """All segments, oldest first; to be read only."""
        return self._segments

    @property
    def recovery_point(self) -> int:
        """Everything below is durable: after a crash only what follows is verified."""
        return self.durability.recovery_point

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        segments = self._segments
        if len(segments) == 1:
            return segments[0].size
        return sum(segment.size for segment in segments)

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the earliest transaction begins that is open, or whose marker is not yet below the high
        watermark; ``None`` if all is decided."""
        return self.producers.first_unstable_offset

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Transactions whose markers are below become stable."""
        self.producers.on_high_watermark_updated(high_watermark)

    @property
    def largest_timestamp(self) -> int:
        """Greatest timestamp of any record, or -1."""
        return max(segment.max_timestamp for segment in self._segments)

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
                if header.attributes & 0x20:
                    marker = parse_end_txn_marker(validated.records, position)
                    if markers is None:
                        markers = [None] * len(validated.batches)
                    markers[index] = marker
                duplicate = self.producers.check(
                    header,
                    origin=origin,
                    verification_guard=verification_guard,
                    marker=marker,
                    transaction_version=transaction_version,
                )
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
            position += header.batch_length + 12
        return self._append(validated, now_ms, markers)

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
            if header.attributes & 0x30 == 0x30 and header.producer_id >= 0:
                if markers is None:
                    markers = [None] * len(validated.batches)
                markers[index] = parse_end_txn_marker(validated.records, position)
            position += header.batch_length + 12
        return self._append(validated, now_ms, markers)

    def append_together(self, judged: Sequence[ValidatedBatches], now_ms: int) -> None:
        """Write what `GatheredBatches` has judged, in one write unless it takes a new segment. ``OSError`` as above."""
        size, max_timestamp = 0, -1
        headers: list[BatchHeader] = []
        buffers: list[Buffer] = []
        for records, batches, _, _, timestamp, _, _ in judged:
            size += len(records)
            headers += batches
            buffers.append(records)
            if timestamp > max_timestamp:
                max_timestamp = timestamp
        together = ValidatedBatches(b"", headers, judged[0].first_offset, judged[-1].last_offset, max_timestamp, -1, -1)
        if not self._on_disk:
            self.ensure_on_disk()
        if self._rolling.keeps_all(self._segments[-1], size, together, now_ms):
            self._write(together, buffers, now_ms, None)
        else:
            for each in judged:
                self._append(each, now_ms, None)

    def _append(
        self, validated: ValidatedBatches, now_ms: int, markers: list[EndTxnMarker | None] | None
    ) -> AppendInfo:
        if not self._on_disk:
            self.ensure_on_disk()
        if self._rolling.should_roll(self._segments[-1], len(validated.records), validated, now_ms):
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
        began = has_producers = False
        for base_offset, _, leader_epoch, _, _, _, _, _, _, producer_id, _, _, _ in batches:
            if leader_epoch > latest:
                began = epochs.assign(leader_epoch, base_offset)
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
            began,
        )

    def _complete(self, completed: CompletedTxn, segment: Segment) -> None:
        last_stable_offset = self.producers.last_stable_offset(completed)
        if completed.is_aborted:
            segment.txn_index.append(AbortedTxn.of(completed, last_stable_offset))
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
            # An empty segment that begins too early: the new one takes its place.
            self._list.discard(self._list.pop())
        else:
            active.seal()
            if self.durability.cut:
                # Or, after a crash, the next segment might follow what was cut off. Seldom: a cut asks for a flush.
                self.flush()
        self.producers.update_map_end_offset(base_offset)
        self.producers.take_snapshot(sync=False)
        self.add_segment(base_offset, now_ms)
        if self.on_rolled is not None:
            self.on_rolled(self)

    def add_segment(self, base_offset: int, now_ms: int) -> None:
        """A new, empty active segment."""
        self._list.add(base_offset, now_ms)
        self._rolling.segment_began(base_offset)
        self.durability.names_flushed = False

    # -- reading

    def read(
        self, offset: int, max_bytes: int, *, max_offset: int | None = None, min_one_message: bool = True
    ) -> ReadInfo:
        """Batches from the one that holds ``offset`` on, up to ``max_bytes`` and below ``max_offset``.

        With ``min_one_message`` the first batch comes even if it alone is larger. A read stays in one
        segment, and ends where a batch does if such a place is known (else in a batch, which clients drop).
        OFFSET_OUT_OF_RANGE outside of the log; empty at or beyond ``max_offset``.
        """
        end_offset = self.log_end_offset
        if offset > end_offset or offset < self.log_start_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {self.topic_partition} is not in [{self.log_start_offset}, {end_offset}]",
            )
        bound = end_offset if max_offset is None or max_offset > end_offset else max_offset
        if offset >= bound:
            return ReadInfo(offset, b"")
        try:
            return log_reader.read(self._list, offset, max_bytes, bound, end_offset, min_one_message)
        except CorruptSegment as error:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error

    def read_bytes(
        self, offset: int, max_bytes: int, *, max_offset: int | None = None, min_one_message: bool = True
    ) -> bytes:
        """:meth:`read`, and the bytes themselves."""
        records = self.read(offset, max_bytes, max_offset=max_offset, min_one_message=min_one_message).records
        if isinstance(records, FileRegion):
            file: DiskFile = records.owner  # type: ignore[assignment]
            return file.pread(records.length, records.position)
        return records

    def aborted_transactions(self, offset: int, info: ReadInfo) -> list[AbortedTxn]:
        """The aborted transactions that a reader of ``info``, from ``offset`` on, has to skip."""
        return log_reader.aborted_transactions(self._list, offset, info, self.log_end_offset)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record whose timestamp is at least ``timestamp`` (milliseconds), or ``None``."""
        try:
            return timestamp_lookup.offset_for_timestamp(self._list, timestamp, self.log_start_offset)
        except CorruptSegment as error:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """The first record that has the greatest timestamp of all, or ``None`` without timestamps."""
        try:
            return timestamp_lookup.offset_of_max_timestamp(self._list)
        except CorruptSegment as error:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error

    # -- cutting

    def truncate_to(self, offset: int, *, now_ms: int = 0) -> bool:
        """Drop everything from ``offset`` on; answer whether there was something.

        A batch that holds ``offset`` goes whole, and the log then ends where that batch began.
        """
        return truncation.truncate_to(self, self._list, offset, now_ms)

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int = 0) -> None:
        """Drop everything; the log is empty and goes on at ``offset``."""
        truncation.truncate_fully_and_start_at(self, self._list, offset, now_ms)

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
        gone = self._list.take_first(count)
        self.maybe_increment_log_start_offset(self._bases[0])
        paths: list[str] = []
        for segment in gone:
            paths += segment.rename_to_deleted()
            snapshot = self.producers.mark_snapshot_for_deletion(segment.base_offset)
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
            snapshot = self.producers.mark_snapshot_for_deletion(segment.base_offset)
            if snapshot is not None:
                paths.append(snapshot)
        self._list.delete_later(paths, now_ms + self.config.file_delete_delay_ms)
        return True

    def take_expired_files(self, now_ms: int) -> tuple[list[str], bool]:
        """Files that were renamed long enough ago, for the caller to remove; and whether others still wait."""
        return self._list.take_expired(now_ms)

    # -- flushing

    def needs_flush(self, now_ms: int) -> bool:
        """Whether a sealed segment, ``flush.messages`` or ``flush.ms`` ask for a flush."""
        return self.durability.needs_flush(self.log_end_offset, self._bases[-1], self.config, now_ms)

    @property
    def flush_due_ms(self) -> int:
        """When ``flush.ms`` asks for a flush of what is not durable yet; far in the future if it does not."""
        return self.durability.due_ms(self.log_end_offset, self.config.flush_ms)

    def flush(self) -> None:
        """Make all that was appended durable. On ``OSError`` the log must not be trusted any more."""
        task = self.begin_flush()
        if task is not None:
            task.run()
            task.end()

    def begin_flush(
        self, *, sealed_only: bool = False, extra: Sequence[str] = (), closing: bool = False
    ) -> FlushTask | None:
        """Prepare a flush up to the log end, or of the sealed segments; ``None`` if all is durable."""
        if not self._on_disk:
            return None
        return self.durability.begin(self, self._list, sealed_only=sealed_only, extra=extra, closing=closing)

    # -- removal

    def renamed(self, directory: str) -> None:
        """The partition's directory has another name now; no file is used any more."""
        self.release()
        self.generation += 1
        self.directory = directory
        self._on_disk = False


__all__ = [
    "AppendInfo",
    "FlushTask",
    "PartitionLog",
    "ReadInfo",
    "TimestampOffset",
]
