"""One partition's log: segments in a directory, appended at the end, read by offset, cut at both ends.

Everything here is synchronous, and time is an argument. One owner (the node's loop) calls all methods; only
:meth:`FlushTask.run` may run in another thread.

Errors: ``ApiError`` is for the client that asked. ``OSError`` means that the disk refused; the log dir is then
to go offline. Where it is the log's bytes that are wrong, readers get CORRUPT_MESSAGE with file and position.
"""

from __future__ import annotations

import logging
import os
import threading
import zlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kbroker.errors import ApiError, ErrorCode
from kbroker.log import recovery
from kbroker.log.checkpoints import (
    PARTITION_METADATA,
    CorruptCheckpoint,
    read_partition_metadata,
    write_partition_metadata,
)
from kbroker.log.disk import Disk, DiskFile, OpenFiles
from kbroker.log.leader_epochs import FILE_NAME as LEADER_EPOCHS
from kbroker.log.leader_epochs import LeaderEpochs
from kbroker.log.log_config import LogConfig
from kbroker.log.producer_state import CompletedTxn, ProducerStateManager, VerificationGuard
from kbroker.log.retention import SegmentFacts, deletable
from kbroker.log.segment import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    MAX_RELATIVE_OFFSET,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    CleanedSegment,
    CorruptSegment,
    Segment,
    file_name,
)
from kbroker.log.transaction_index import AbortedTxn, collect_aborted_txns
from kbroker.log.validation import AppendOrigin, ValidatedBatches, validate_and_assign_offsets
from kbroker.types import FileRegion, TopicPartition, Uuid
from kbroker.wire.record_batch import EndTxnMarker, parse_end_txn_marker

logger = logging.getLogger(__name__)

TV_UNKNOWN = -1
_NEVER = 2**63 - 1


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


class ReadInfo(NamedTuple):
    """What a read found: whole batches from the one that holds ``start_offset`` on."""

    start_offset: int
    records: FileRegion | bytes
    """Where the bytes are; bytes themselves where the disk has no descriptors. Empty at the end."""
    first_batch_base_offset: int = -1
    """Base offset of the first batch, which may lie before ``start_offset``; -1 if there is none."""
    segment_base_offset: int = -1
    position: int = -1


class TimestampOffset(NamedTuple):
    """A record found by its timestamp."""

    timestamp: int
    offset: int
    leader_epoch: int | None


class FlushTask:
    """A flush in three steps: begun on the owner's side, run anywhere, ended on the owner's side."""

    __slots__ = (
        "_directory",
        "_disk",
        "_epochs",
        "_files",
        "_generation",
        "_log",
        "_names",
        "_sealed_only",
        "_sync_dirs",
        "offset",
    )

    def __init__(
        self,
        log: PartitionLog,
        offset: int,
        files: list[DiskFile],
        names: list[str],
        epochs: list[tuple[int, int]] | None,
        sync_dirs: list[str],
        sealed_only: bool,
    ) -> None:
        self._log = log
        self._sealed_only = sealed_only
        self._disk = log.disk
        self._directory = log.directory
        self._generation = log.generation
        self._files = files
        self._names = names
        self._epochs = epochs
        self._sync_dirs = sync_dirs
        self.offset = offset
        """Everything below is durable once :meth:`run` has returned."""

    @property
    def topic_partition(self) -> TopicPartition:
        """Whose log it is."""
        return self._log.topic_partition

    def run(self) -> None:
        """Wait for the disk. May run in a thread; ``OSError`` if the disk fails, and then the log is not to
        be trusted any more."""
        with self._log._flush_lock:
            for file in self._files:
                file.sync()
            for path in self._names:
                try:
                    self._disk.open(path).sync()
                except FileNotFoundError:
                    continue  # the segment was deleted meanwhile
            try:
                if self._epochs is not None:
                    LeaderEpochs(self._epochs).write(self._disk, self._directory, sync=True)
                for directory in self._sync_dirs:
                    self._disk.sync_dir(directory)
            except FileNotFoundError:
                if self._disk.exists(self._directory):
                    raise

    def end(self) -> None:
        """Take note that :meth:`run` succeeded."""
        self._log._flushed(self.offset, self._generation, self._sealed_only)


class PartitionLog:
    """The log of one partition. Make one with :meth:`open`, or :meth:`create` for one that has no files yet."""

    __slots__ = (
        "_bases",
        "_cut",
        "_files",
        "_first_unflushed_ms",
        "_flush_lock",
        "_index_safe_size",
        "_max_segment_ms",
        "_names_flushed",
        "_on_disk",
        "_pending_deletes",
        "_roll_jitter",
        "_segments",
        "before_truncation",
        "config",
        "cuts",
        "directory",
        "disk",
        "flushes_by_config",
        "generation",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "on_rolled",
        "producers",
        "recovery_point",
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
        loaded: recovery.LoadedLog,
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
        self.recovery_point = loaded.recovery_point
        """Everything below is durable: after a crash only what follows is verified."""
        self.cuts = loaded.cuts
        """What recovery cut off on opening, and why."""
        self.on_rolled: Callable[[PartitionLog], None] | None = None
        """Called after a roll: a segment waits to be flushed."""
        self.before_truncation: Callable[[PartitionLog], None] | None = None
        """Called when ``recovery_point`` or ``log_start_offset`` was lowered because the end of the log is
        about to be cut: what is written in its place must not pass for durable, or deleted, after a crash."""
        self._files = files
        self._segments = loaded.segments
        self._bases = [segment.base_offset for segment in loaded.segments]
        self._on_disk = on_disk
        self._names_flushed = False
        self._flush_lock = threading.Lock()
        self.generation = 0
        """Changes whenever something that the log held becomes something else: a truncation, a rename."""
        self.segments_held = False
        """The files of the sealed segments are in use: they are compacted, or moved to another log dir. Whoever wants
        to replace or delete some waits."""
        self._cut = False
        """The end was cut, or may have been by an earlier process, and that is not durable yet."""
        self._first_unflushed_ms = -1
        self._pending_deletes: list[tuple[int, list[str]]] | None = None
        self.config = config
        self.update_config(config)

    # -- opening and closing

    @classmethod
    def open(
        cls,
        directory: str | os.PathLike[str],
        topic_partition: TopicPartition,
        topic_id: Uuid | None,
        config: LogConfig,
        disk: Disk,
        *,
        now_ms: int,
        clean_shutdown: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        files: OpenFiles | None = None,
        producer_id_expiration_ms: int = 24 * 60 * 60 * 1000,
        clean_offset: int | None = None,
    ) -> PartitionLog:
        """Open a partition's directory, or begin an empty log there if it does not exist.

        ``clean_shutdown`` says that the last stop left its marker; otherwise what was written at or after
        ``recovery_point`` is verified. ``clean_offset`` tells up to where the log was compacted, if ever: offsets
        may be missing between segments there. ``ApiError(INCONSISTENT_TOPIC_ID)`` if the directory holds another
        topic's data; ``CorruptCheckpoint`` if ``partition.metadata`` is wrong after a clean stop; ``OSError``.
        """
        path = os.fspath(directory)
        files = files if files is not None else OpenFiles(disk)
        if not disk.is_dir(path):
            log = cls.create(
                path,
                topic_partition,
                topic_id,
                config,
                disk,
                now_ms=now_ms,
                files=files,
                producer_id_expiration_ms=producer_id_expiration_ms,
            )
            if log_start_offset:
                log.truncate_fully_and_start_at(log_start_offset, now_ms=now_ms)
            return log
        try:
            found = read_partition_metadata(disk, path)
        except CorruptCheckpoint as error:
            if clean_shutdown:
                raise
            # It is durable from the first flush on, so probably nothing here ever was flushed.
            logger.warning("%s; it is written anew once the topic is known", error)
            found = None
        if found is not None and topic_id is not None and found != topic_id:
            raise ApiError(
                ErrorCode.INCONSISTENT_TOPIC_ID, f"{path} holds the data of another topic of the same name"
            )
        if found is None and topic_id is not None:
            write_partition_metadata(disk, path, topic_id)
        producers = ProducerStateManager(
            topic_partition, path, disk, producer_id_expiration_ms=producer_id_expiration_ms
        )
        loaded = recovery.load(
            disk,
            files,
            path,
            config,
            producers,
            now_ms=now_ms,
            clean_shutdown=clean_shutdown,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            clean_offset=clean_offset,
        )
        topic_id = topic_id if topic_id is not None else found
        log = cls(path, topic_partition, topic_id, config, disk, files, producers, loaded, on_disk=True)
        log._cut = not clean_shutdown or bool(loaded.cuts)
        return log

    @classmethod
    def create(
        cls,
        directory: str,
        topic_partition: TopicPartition,
        topic_id: Uuid | None,
        config: LogConfig,
        disk: Disk,
        *,
        now_ms: int,
        files: OpenFiles,
        producer_id_expiration_ms: int = 24 * 60 * 60 * 1000,
    ) -> PartitionLog:
        """An empty log that touches the disk only when it is first written (:meth:`ensure_on_disk`): a topic
        of a thousand partitions is there at once, and one lost in a crash before that was empty."""
        producers = ProducerStateManager(
            topic_partition, directory, disk, producer_id_expiration_ms=producer_id_expiration_ms
        )
        segment = Segment(
            disk, files, directory, 0, index_interval=config.index_interval_bytes, created_ms=now_ms
        )
        loaded = recovery.LoadedLog([segment], 0, 0, 0, LeaderEpochs())
        return cls(
            directory, topic_partition, topic_id, config, disk, files, producers, loaded, on_disk=False
        )

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
        self.flushes_by_config = config.flush_messages < _NEVER or config.flush_ms < _NEVER
        # Below this size neither index can be full, as it has an entry per interval at most.
        self._index_safe_size = max(0, config.segment_index_bytes // 12 - 2) * (config.index_interval_bytes + 1)
        self._roll_jitter = self._jitter(self._segments[-1].base_offset)
        # So that a record can be compacted in its time, it must not stay in the active segment for longer.
        lag = config.max_compaction_lag_ms
        self._max_segment_ms = min(config.segment_ms, lag) if config.compact and lag > 0 else config.segment_ms
        for segment in self._segments:
            segment.set_index_interval(config.index_interval_bytes)

    def _jitter(self, base_offset: int) -> int:
        """How much earlier than ``segment.ms`` the active segment rolls: spread over partitions, so that a
        thousand of them do not roll at once, but the same in every run."""
        bound = min(self.config.segment_jitter_ms, self.config.segment_ms)
        if bound <= 0:
            return 0
        return zlib.crc32(f"{self.topic_partition} {base_offset}".encode()) % bound

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
        for segment in self._segments:
            self._files.forget(segment.path)

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

    def _append(
        self, validated: ValidatedBatches, now_ms: int, markers: list[EndTxnMarker | None] | None
    ) -> AppendInfo:
        batches = validated.batches
        segment = self._segments[-1]
        if not self._on_disk:
            self.ensure_on_disk()
        if self._should_roll(segment, len(validated.records), validated, now_ms):
            # A follower's gap goes into the new segment: segments without a hole between them can be told
            # from a segment whose end never reached the disk. Unless an index could not express the gap.
            gap = validated.last_offset - self.log_end_offset > MAX_RELATIVE_OFFSET
            self.roll(now_ms, base_offset=validated.first_offset if gap else 0)
            segment = self._segments[-1]
        segment.append((validated.records,), batches)
        if self._first_unflushed_ms < 0:
            self._first_unflushed_ms = now_ms
        epochs = self.leader_epochs
        began = False
        for header in batches:
            if header.partition_leader_epoch > epochs.latest:
                began = epochs.assign(header.partition_leader_epoch, header.base_offset)
        end = validated.last_offset + 1
        producers = self.producers
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

    def _should_roll(self, segment: Segment, size: int, validated: ValidatedBatches, now_ms: int) -> bool:
        """Kafka's ``LogSegment.shouldRoll``: by size, by time, by full indexes, by what an index can express.

        Time is the records': a segment rolls when a batch comes that is ``segment.ms`` later than its first;
        only without timestamps is it the clock's.
        """
        config = self.config
        if validated.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
            return True
        written = segment.size
        if not written:
            segment.created_ms = now_ms  # the clock runs from the first batch on
            return False
        if written > config.segment_bytes - size:
            return True
        first = segment.first_timestamp()
        waited = validated.max_timestamp - first if first >= 0 else now_ms - segment.created_ms
        if waited > self._max_segment_ms - self._roll_jitter:
            return True
        return written >= self._index_safe_size and segment.index_full(config.segment_index_bytes)

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
            self._discard(self._segments.pop())
            self._bases.pop()
        else:
            active.seal()
        self.producers.update_map_end_offset(base_offset)
        self.producers.take_snapshot(sync=False)
        self._add_segment(base_offset, now_ms)
        if self.on_rolled is not None:
            self.on_rolled(self)

    def _add_segment(self, base_offset: int, now_ms: int) -> None:
        segment = Segment(
            self.disk,
            self._files,
            self.directory,
            base_offset,
            index_interval=self.config.index_interval_bytes,
            created_ms=now_ms,
        )
        # The file exists from now on: its name is what an empty log remembers its offset by.
        self._files.get(segment.path, create=True)
        self._segments.append(segment)
        self._bases.append(base_offset)
        self._roll_jitter = self._jitter(base_offset)
        self._names_flushed = False

    def _discard(self, segment: Segment) -> None:
        self._files.forget(segment.path)
        segment.offset_index.reset()
        segment.time_index.reset()
        stem = segment.path[: -len(LOG_SUFFIX)]
        for suffix in SEGMENT_SUFFIXES:
            self.disk.remove(stem + suffix)

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
                f"offset {offset} of {self.topic_partition} is not in"
                f" [{self.log_start_offset}, {end_offset}]",
            )
        bound = end_offset if max_offset is None or max_offset > end_offset else max_offset
        if offset >= bound:
            return ReadInfo(offset, b"")
        try:
            return self._read(offset, max_bytes, bound, min_one_message)
        except CorruptSegment as error:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error

    def _read(self, offset: int, max_bytes: int, bound: int, min_one_message: bool) -> ReadInfo:
        segments = self._segments
        last = len(segments) - 1
        index = last
        if offset < segments[last].base_offset:
            index = max(0, bisect_right(self._bases, offset) - 1)
        located = segments[index].locate(offset)
        while located is None:
            # The end of a segment may hold no batch for the offset: the last ones were compacted away.
            index += 1
            if index > last or segments[index].base_offset >= bound:
                return ReadInfo(offset, b"")
            located = segments[index].locate(offset)
        segment = segments[index]
        end = segment.size
        segment_end = self.log_end_offset if index == last else segments[index + 1].base_offset
        if bound < segment_end:
            stop = segment.locate(bound)
            if stop is not None:
                end = stop.position
        position, first_size, base_offset, _ = located
        available = end - position
        if available <= 0:
            return ReadInfo(offset, b"")
        if available > max_bytes:
            if first_size > max_bytes:
                if not min_one_message:
                    return ReadInfo(offset, b"")
                available = first_size
            else:
                cut = segment.cut_position(position, position + max_bytes)
                available = cut - position if cut > position else max_bytes
        else:
            segment.expect_read_at(end)
        file = segment.log_file()
        fd = file.fd
        records = (
            FileRegion(fd, position, available, file) if fd >= 0 else file.pread(available, position)
        )
        return ReadInfo(offset, records, base_offset, segment.base_offset, position)

    def read_bytes(
        self, offset: int, max_bytes: int, *, max_offset: int | None = None, min_one_message: bool = True
    ) -> bytes:
        """:meth:`read`, and the bytes themselves."""
        records = self.read(
            offset, max_bytes, max_offset=max_offset, min_one_message=min_one_message
        ).records
        if isinstance(records, FileRegion):
            file: DiskFile = records.owner  # type: ignore[assignment]
            return file.pread(records.length, records.position)
        return records

    def aborted_transactions(self, offset: int, info: ReadInfo) -> list[AbortedTxn]:
        """The aborted transactions that a reader of ``info``, from ``offset`` on, has to skip."""
        length = len(info.records)
        if not length:
            return []
        index = max(0, bisect_right(self._bases, offset) - 1)
        segment = next(s for s in self._segments if s.base_offset == info.segment_base_offset)
        upper = segment.offset_at(info.position + length)
        if upper is None:
            following = self._bases[bisect_right(self._bases, segment.base_offset) :]
            upper = following[0] if following else self.log_end_offset
        return collect_aborted_txns((s.txn_index for s in self._segments[index:]), offset, upper)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record whose timestamp is at least ``timestamp`` (milliseconds), or ``None``."""
        try:
            for segment in self._segments:
                if segment.size and segment.max_timestamp >= timestamp:
                    found = segment.find_timestamp(timestamp, self.log_start_offset)
                    if found is not None:  # else it lies below the log start, or compaction took it
                        return _timestamp_offset(found)
        except CorruptSegment as error:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        return None

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """The first record that has the greatest timestamp of all, or ``None`` without timestamps."""
        try:
            best: Segment | None = None
            for segment in self._segments:
                if segment.size and (best is None or segment.max_timestamp > best.max_timestamp):
                    best = segment
            return _timestamp_offset(best.find_max_timestamp()) if best is not None else None
        except CorruptSegment as error:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error

    # -- cutting

    def truncate_to(self, offset: int, *, now_ms: int = 0) -> bool:
        """Drop everything from ``offset`` on; answer whether there was something.

        A batch that holds ``offset`` goes whole, and the log then ends where that batch began.
        """
        if offset < 0:
            raise ValueError(f"cannot truncate {self.topic_partition} to {offset}")
        if offset >= self.log_end_offset:
            self.leader_epochs.truncate_from_end(offset)
            return False
        if offset <= self.log_start_offset:
            self.truncate_fully_and_start_at(offset, now_ms=now_ms)
            return True
        kept = self._segments[bisect_right(self._bases, offset) - 1]
        try:
            located = kept.locate(offset)
        except CorruptSegment as error:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        end = offset if located is None else min(offset, located.base_offset)
        if end < self.log_start_offset:
            # The batch that goes is also the first one: nothing that may be read is left.
            self.truncate_fully_and_start_at(offset, now_ms=now_ms)
            return True
        self._begin_truncation(end)
        while self._segments[-1] is not kept:
            segment = self._segments.pop()
            self._bases.pop()
            self.producers.remove_snapshot(segment.base_offset)
            self._discard(segment)
        if located is not None:
            kept.truncate_at(located)
        self.log_end_offset = end
        self.leader_epochs.truncate_from_end(end)
        self.producers.truncate_and_reload(self.log_start_offset, end, now_ms)
        recovery.replay_producers(self.producers, self._segments, end)
        return True

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int = 0) -> None:
        """Drop everything; the log is empty and goes on at ``offset``."""
        self.ensure_on_disk()
        self._begin_truncation(min(offset, self.log_start_offset))
        self.leader_epochs.clear()
        self.producers.truncate_fully_and_start_at(offset)
        # The new file first: whenever the power fails, there is a file that names an offset.
        old = self._segments
        same = next((segment for segment in old if segment.base_offset == offset), None)
        self._segments, self._bases = [], []
        if same is None:
            self._add_segment(offset, now_ms)
        else:
            same.begin_rebuild()
            same.txn_index.reset()
            same.set_size(0)
            self._segments, self._bases = [same], [offset]
        for segment in reversed(old):
            if segment is not same:
                self._discard(segment)
        self.log_start_offset = self.log_end_offset = offset

    def _begin_truncation(self, offset: int) -> None:
        self.generation += 1
        self._names_flushed = False
        self._cut = True
        if self.recovery_point > offset or self.log_start_offset > offset:
            self.recovery_point = min(self.recovery_point, offset)
            self.log_start_offset = min(self.log_start_offset, offset)
            if self.before_truncation is not None:
                self.before_truncation(self)

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
        (:meth:`delete_expired_files`); readers that hold a region of them are not disturbed.
        """
        if not self._on_disk or self.segments_held:
            return 0
        bound = self.log_end_offset if high_watermark is None else min(high_watermark, self.log_end_offset)
        count = deletable(
            self._facts(now_ms),
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
        gone = self._segments[:count]
        del self._segments[:count], self._bases[:count]
        self.maybe_increment_log_start_offset(self._bases[0])
        paths: list[str] = []
        for segment in gone:
            paths += segment.rename_to_deleted()
            snapshot = self.producers.mark_snapshot_for_deletion(segment.base_offset)
            if snapshot is not None:
                paths.append(snapshot)
        self._delete_later(paths, now_ms)
        logger.info(
            "%s: %d segments up to offset %d are deleted", self.topic_partition, count, self._bases[0]
        )
        return count

    def replace_segments(self, cleaned: CleanedSegment, now_ms: int) -> bool:
        """Put a segment that compaction wrote in the place of those that it stands for, if they are still there.

        The files change their names in an order that leaves, wherever the power fails, the old segments or the
        new one (``recovery``); a log with several such segments takes the first one first. Readers that hold a
        region of the old ones are not disturbed. The caller syncs the directory.
        """
        first = bisect_right(self._bases, cleaned.base_offset) - 1
        old = self._segments[first : first + len(cleaned.replaces)]
        if [segment.base_offset for segment in old] != cleaned.replaces or old[-1] is self._segments[-1]:
            return False
        stem = os.path.join(self.directory, file_name(cleaned.base_offset))
        present = [
            stem + suffix for suffix in SEGMENT_SUFFIXES if self.disk.exists(stem + suffix + CLEANED_SUFFIX)
        ]
        for path in present:
            self.disk.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX)
        paths: list[str] = []
        for segment in old:
            paths += segment.rename_to_deleted()
            if segment.base_offset != cleaned.base_offset:
                snapshot = self.producers.mark_snapshot_for_deletion(segment.base_offset)
                if snapshot is not None:
                    paths.append(snapshot)
        for path in present:
            self.disk.rename(path + SWAP_SUFFIX, path)
        new = Segment(
            self.disk,
            self._files,
            self.directory,
            cleaned.base_offset,
            index_interval=self.config.index_interval_bytes,
            size=cleaned.size,
            created_ms=now_ms,
            exists=True,
        )
        self._segments[first : first + len(old)] = [new]
        self._bases[first : first + len(old)] = [cleaned.base_offset]
        self._delete_later(paths, now_ms)
        return True

    def _delete_later(self, paths: list[str], now_ms: int) -> None:
        if self._pending_deletes is None:
            self._pending_deletes = []
        self._pending_deletes.append((now_ms + self.config.file_delete_delay_ms, paths))

    def _facts(self, now_ms: int) -> list[SegmentFacts]:
        ends = [*self._bases[1:], self.log_end_offset]
        # Only a topic with a time limit needs timestamps, which may have to be read.
        timed = self.config.delete and self.config.retention_ms >= 0
        return [
            SegmentFacts(
                segment.base_offset,
                end,
                segment.size,
                segment.largest_timestamp if timed and segment.size else now_ms,
            )
            for segment, end in zip(self._segments, ends, strict=True)
        ]

    def delete_expired_files(self, now_ms: int) -> bool:
        """Remove files that were renamed long enough ago; answer whether some still wait."""
        pending = self._pending_deletes
        if not pending:
            return False
        while pending and pending[0][0] <= now_ms:
            for path in pending[0][1]:
                self.disk.remove(path)
            del pending[0]
        return bool(pending)

    # -- flushing

    def needs_flush(self, now_ms: int) -> bool:
        """Whether a sealed segment, ``flush.messages`` or ``flush.ms`` ask for a flush."""
        recovery_point = self.recovery_point
        if recovery_point >= self.log_end_offset:
            return False
        if recovery_point < self._bases[-1]:
            return True
        config = self.config
        if self.log_end_offset - recovery_point >= config.flush_messages:
            return True
        return self._first_unflushed_ms >= 0 and now_ms - self._first_unflushed_ms >= config.flush_ms

    @property
    def flush_due_ms(self) -> int:
        """When ``flush.ms`` asks for a flush of what is not durable yet; far in the future if it does not."""
        first = self._first_unflushed_ms
        if first < 0 or self.recovery_point >= self.log_end_offset:
            return _NEVER
        return first + self.config.flush_ms

    def flush(self) -> None:
        """Make all that was appended durable. On ``OSError`` the log must not be trusted any more."""
        task = self.begin_flush()
        if task is not None:
            task.run()
            task.end()

    def begin_flush(
        self, *, sealed_only: bool = False, extra: Sequence[str] = (), closing: bool = False
    ) -> FlushTask | None:
        """Prepare a flush up to the log end, or of the sealed segments; ``None`` if all is durable.

        The indexes of the active segment are left out: after a crash it is read in any case.
        """
        if not self._on_disk:
            return None
        offset = self._bases[-1] if sealed_only else self.log_end_offset
        write_epochs = self.leader_epochs.dirty
        if offset <= self.recovery_point and not self._cut and not (closing and (write_epochs or extra)):
            return None
        files: list[DiskFile] = []
        names: list[str] = list(extra)
        for segment, end in zip(self._segments, self._bases[1:], strict=False):
            if end > self.recovery_point or (self._cut and end == self.recovery_point):
                snapshot = os.path.join(self.directory, file_name(end) + SNAPSHOT_SUFFIX)
                names += [segment.path, *segment.index_paths(), snapshot]
        active = self._segments[-1]
        if active.size and not sealed_only:
            files.append(active.log_file())
        elif self._cut and not sealed_only:
            names.append(active.path)  # there may be no file yet
        if active.size and not sealed_only:
            if closing:
                names += active.index_paths()
        epochs = self.leader_epochs.entries if write_epochs else None
        sync_dirs: list[str] = []
        if closing or not self._names_flushed:
            names.append(os.path.join(self.directory, PARTITION_METADATA))
            sync_dirs = [self.directory]
            if not closing:  # or whoever closes all logs does that for all
                sync_dirs.append(os.path.dirname(self.directory))
        self.leader_epochs.dirty = False
        if not sealed_only:
            self._first_unflushed_ms = -1
        return FlushTask(self, offset, files, names, epochs, sync_dirs, sealed_only)

    def _flushed(self, offset: int, generation: int, sealed_only: bool) -> None:
        if generation != self.generation:
            return  # what was made durable is in part not the log any more
        self.recovery_point = max(self.recovery_point, min(offset, self.log_end_offset))
        if self._bases[-1] <= offset:
            self._names_flushed = True
            if not sealed_only:
                self._cut = False

    # -- removal

    def renamed(self, directory: str) -> None:
        """The partition's directory has another name now; no file is used any more."""
        self.release()
        self.generation += 1
        self.directory = directory
        self._on_disk = False


def _timestamp_offset(found: tuple[int, int, int] | None) -> TimestampOffset | None:
    if found is None:
        return None
    timestamp, offset, epoch = found
    return TimestampOffset(timestamp, offset, epoch if epoch >= 0 else None)


__all__ = [
    "LEADER_EPOCHS",
    "AppendInfo",
    "FlushTask",
    "PartitionLog",
    "ReadInfo",
    "TimestampOffset",
]
