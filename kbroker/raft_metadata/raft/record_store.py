"""The batches of the metadata log on this node's disk: a partition log under ``__cluster_metadata-0``."""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Callable, Sequence
from typing import Protocol

from kbroker.errors import ApiError, FatalError
from kbroker.log import opening
from kbroker.log.checkpoint_files import (
    PARTITION_METADATA,
    CorruptCheckpoint,
    read_partition_metadata,
    write_partition_metadata,
)
from kbroker.log.damage import Damage
from kbroker.log.disk import Disk
from kbroker.log.file_names import LOG_SUFFIX
from kbroker.log.log_config import LogConfig
from kbroker.log.partition_log import PartitionLog
from kbroker.log.segments.segment_recovery import keep_bytes
from kbroker.types import METADATA_TOPIC, METADATA_TOPIC_ID, OffsetAndEpoch, TopicPartition
from kbroker.wire.batch_header import LEADER_EPOCH_AT, parse_header
from kbroker.wire.compression import CorruptRecord

logger = logging.getLogger(__name__)

MAX_BATCH_BYTES = 8 * 1024 * 1024
"""Largest batch of the metadata log (``KafkaRaftClient.MAX_BATCH_SIZE_BYTES``)."""


_NOTHING = OffsetAndEpoch(0, 0)


class FlushWork(Protocol):
    """A flush in two steps: ``run`` may block, in any thread; ``end`` is for the owner's thread."""

    def run(self) -> None: ...

    def end(self) -> None: ...


class DamagedLog(FatalError):
    """Records of the metadata log that were to be read are damaged."""


class RecordStore(Protocol):
    """The batches of the metadata log, as a partition log or a double of it keeps them."""

    on_damage: Callable[[], None]
    """Called when damage was found while the log is in use; it is part of ``damage`` by then."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def last_epoch(self) -> int: ...

    @property
    def damage(self) -> Sequence[Damage]:
        """The places where the log was found damaged; until :meth:`healed`, or until the log begins behind them."""
        ...

    def healed(self) -> None: ...

    def append(self, data: bytearray) -> None:
        """Append batches whose offsets and epochs are in place."""
        ...

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that holds ``offset``; at least one if there is any."""
        ...

    def doubt(self, offset: int) -> None:
        """Have what is read at ``offset`` verified once more."""
        ...

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch:
        """The end of the largest epoch not above ``epoch``; (-1, -1) for an epoch above all, or an empty log."""
        ...

    def begin_flush(self) -> FlushWork | None:
        """The work that makes all appended batches durable, while appends may go on; None if they are."""
        ...

    def truncate_to(self, offset: int) -> None: ...

    def restart_at(self, offset: int) -> None:
        """Drop all batches and go on at ``offset``; a snapshot holds the records below."""
        ...

    def delete_before(self, offset: int, now_ms: int) -> None:
        """Drop the batches below ``offset``, whose records a snapshot holds."""
        ...

    def close(self) -> bool:
        """Close the files; whether all of the log is on the disk."""
        ...


def _check_topic_id(disk: Disk, directory: str) -> None:
    """Make ``partition.metadata`` anew if it is damaged: the topic's id is the same in every cluster."""
    try:
        found = read_partition_metadata(disk, directory)
        why = "the id is not that of the metadata log"
    except CorruptCheckpoint as error:
        found, why = None, str(error)
    if found != METADATA_TOPIC_ID:
        logger.warning("%s: %s; it is made anew", os.path.join(directory, PARTITION_METADATA), why)
        write_partition_metadata(disk, directory, METADATA_TOPIC_ID, sync=True)


class PartitionStore:
    """A :class:`RecordStore` on the node's disk."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.on_damage: Callable[[], None] = lambda: None
        log.on_damage = lambda _: self.on_damage()

    @classmethod
    def open(
        cls,
        directory: str,
        disk: Disk,
        *,
        segment_bytes: int,
        now_ms: int,
        snapshot_offsets: Sequence[int] = (),
        known_end: OffsetAndEpoch = _NOTHING,
        latest_epoch: int | None = None,
    ) -> PartitionStore:
        """Open or create the log in ``directory``. It is cut where it is torn or damaged: it never has holes.

        ``snapshot_offsets``: the end offsets of the snapshots. The log begins at the oldest one that its files reach,
        or at the latest if something below that is damaged or missing: nothing there is needed, and most of it is not
        verified. ``known_end``: the end that the log had on the disk; what is torn below is damage. No batch is of
        a later epoch than the elections' ``latest_epoch``.
        """
        latest = snapshot_offsets[-1] if snapshot_offsets else 0
        start = latest
        config = LogConfig(
            segment_bytes=segment_bytes,
            max_message_bytes=MAX_BATCH_BYTES,
            retention_ms=-1,
            retention_bytes=-1,
            cleanup_policy=frozenset({"delete"}),
            file_delete_delay_ms=0,
        )
        if not disk.is_dir(directory):
            disk.make_dir(directory)
            # ``quorum-state`` will be in it, and must not be lost with it.
            disk.sync_dir(os.path.dirname(directory))
        else:
            bases = [name[: -len(LOG_SUFFIX)] for name in disk.list_dir(directory) if name.endswith(LOG_SUFFIX)]
            first = min((int(base) for base in bases if base.isdecimal()), default=latest)
            start = min((offset for offset in (0, *snapshot_offsets) if offset >= first), default=latest)
            if bases:
                _check_topic_id(disk, directory)
        log = opening.open_log(
            directory,
            TopicPartition(METADATA_TOPIC, 0),
            METADATA_TOPIC_ID,
            config,
            disk,
            now_ms=now_ms,
            clean_shutdown=False,
            recovery_point=latest,
            log_start_offset=start,
            high_watermark=known_end.offset,
            holes_below=latest,
        )
        store = cls(log)
        if latest_epoch is not None and log.log_end_offset == known_end.offset:
            if log.leader_epochs.latest > max(known_end.epoch, latest_epoch):
                store._correct_last_epoch(known_end.epoch)
        reaches = log.log_end_offset >= latest
        is_joined = not reaches or start == latest or store._is_joined(latest)
        is_damaged = any(each.start_offset < latest for each in log.damage)
        if is_damaged and (reaches or known_end.offset <= latest):
            store._tell_of_damage_before(latest)
        if reaches and (is_damaged or not is_joined):  # or a fetched snapshot was about to take the place
            log.maybe_increment_log_start_offset(latest)
        return store

    def _correct_last_epoch(self, epoch: int) -> None:
        """Give the last batch its leader epoch again, which no checksum covers: a voter that seems to know a later
        epoch than the others would win elections, whatever it lacks."""
        log = self.log
        *_, segment = (segment for segment in log.segments if segment.size)
        *_, (position, header) = segment.scan(0)
        wrong = header.partition_leader_epoch
        logger.warning(
            "%s: the batch at %d has leader epoch %d, which never was; it is %d", segment.path, position, wrong, epoch
        )
        file = segment.log_file()
        file.write_at(position + LEADER_EPOCH_AT, [struct.pack(">i", epoch)])
        file.sync()
        log.leader_epochs.truncate_from_end(header.base_offset)
        log.leader_epochs.maybe_assign(epoch, header.base_offset)

    def _tell_of_damage_before(self, offset: int) -> None:
        logger.warning(
            "%s: the log begins at offset %d, as the snapshot there has what is damaged before it: nothing of that is"
            " lost",
            self.log.directory,
            offset,
        )

    def _is_joined(self, offset: int) -> bool:
        """Whether each segment that begins at ``offset`` or below goes on where the one before it ends."""
        try:
            for segment in self.log.segments[1:]:
                base = segment.base_offset
                if self.log.log_start_offset < base <= offset:
                    if parse_header(self.read(base - 1, 1), 0).base_offset >= base:
                        return False
        except (FatalError, CorruptRecord):
            return False
        return True

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def last_epoch(self) -> int:
        return max(self.log.leader_epochs.latest, 0)

    @property
    def damage(self) -> Sequence[Damage]:
        return self.log.damage

    def healed(self) -> None:
        self.log.healed()

    def append(self, data: bytearray) -> None:
        # The time matters only for rolling by age, which this log does not do.
        self.log.append_as_follower(memoryview(data), now_ms=0)

    def read(self, offset: int, max_bytes: int) -> bytes:
        log = self.log
        try:
            try:
                return bytes(log.read_bytes(offset, max_bytes, max_offset=log.log_end_offset))
            except ApiError:  # the damage is known from now on, and what is before it can be read
                return bytes(log.read_bytes(offset, max_bytes, max_offset=log.log_end_offset))
        except ApiError as error:
            raise DamagedLog(f"the metadata log is damaged at or after offset {offset}: {error.message}") from error

    def doubt(self, offset: int) -> None:
        self.log.doubt(offset)

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch:
        return self.log.leader_epochs.end_offset_for(epoch, self.log.log_end_offset)

    def begin_flush(self) -> FlushWork | None:
        return self.log.begin_flush()

    def truncate_to(self, offset: int) -> None:
        self.log.truncate_to(offset)
        self._remove_expired(0)

    def restart_at(self, offset: int) -> None:
        self.log.truncate_fully_and_start_at(offset)
        self._remove_expired(0)

    def delete_before(self, offset: int, now_ms: int) -> None:
        log = self.log
        damage = [each for each in log.damage if each.is_in_log and each.end_offset <= offset]
        for each in damage:
            segment = next(segment for segment in log.segments if segment.path == each.path(log.directory))
            place, offsets = (each.position, each.position + each.size), (each.start_offset, each.end_offset)
            keep_bytes(log.disk, segment, *place, offsets, each.reason, now_ms, lambda: None)
        if damage:
            self._tell_of_damage_before(offset)
        log.maybe_increment_log_start_offset(offset)
        if log.active_segment.base_offset < offset:
            log.roll(now_ms)
        log.delete_old_segments(now_ms)
        self._remove_expired(now_ms)

    def _remove_expired(self, now_ms: int) -> None:
        for path in self.log.take_expired_files(now_ms)[0]:
            self.log.disk.remove(path)

    def close(self) -> bool:
        try:
            self.log.close()
        except OSError:
            self.log.release()  # the next start reads what is not flushed, however this one ends
            return False
        return True
