"""A log on the disk: its directory, the flushes that make more of it durable, and what of it is damaged.

One owner (the node's loop) calls all methods; only :meth:`FlushTask.run` may run in another thread. ``OSError`` means
that the disk refused; the log dir is then to go offline.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_right
from collections.abc import Callable, Sequence

from kbroker.errors import ApiError, ErrorCode
from kbroker.log.checkpoint_files import write_partition_metadata
from kbroker.log.damage import Damage, note
from kbroker.log.disk import Disk
from kbroker.log.flushing import Durability, FlushTask
from kbroker.log.loaded_log import LoadedLog
from kbroker.log.log_config import LogConfig
from kbroker.log.log_reader import LogReader
from kbroker.log.producer_state import ProducerStateManager
from kbroker.log.segments.indexed_file import CorruptSegment
from kbroker.log.segments.open_files import OpenFiles
from kbroker.log.segments.segment_list import SegmentList
from kbroker.log.segments.segment_recovery import find_damaged, put_right
from kbroker.types import TopicPartition, Uuid

logger = logging.getLogger(__name__)


class DurableLog(LogReader):
    """The log of one partition, to be read, flushed and closed. ``PartitionLog`` changes it."""

    __slots__ = (
        "_on_disk",
        "before_creation",
        "config",
        "directory",
        "disk",
        "durability",
        "generation",
        "leader_epochs",
        "on_damage",
        "producers",
        "topic_id",
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
        segment_list = SegmentList(disk, files, directory, loaded.segments, config.index_interval_bytes)
        super().__init__(topic_partition, segment_list, loaded.log_start_offset, loaded.log_end_offset)
        self.directory = directory
        self.topic_id = topic_id
        self.config = config
        self.disk = disk
        self.producers = producers
        self.leader_epochs = loaded.leader_epochs
        self.durability = Durability(loaded.recovery_point, loaded.indexed)
        """The part of it that is on the disk."""
        self.generation = 0
        """Changes whenever something that the log held becomes something else: a truncation, a rename."""
        self._on_disk = on_disk
        self.before_creation: Callable[[], None] | None = None
        """Called before the directory is made; may raise ``OSError``."""
        self._damage = loaded.damage
        self.on_damage: Callable[[DurableLog], None] | None = None
        """Called when damage was found in the open log. It is noted durably by then, and part of ``damage``."""

    # -- on and off the disk

    @property
    def is_on_disk(self) -> bool:
        """Whether the directory exists."""
        return self._on_disk

    def ensure_on_disk(self) -> None:
        """Create the directory with ``partition.metadata`` and the first segment's files, unless that was done."""
        if not self._on_disk:
            if self.before_creation is not None:
                self.before_creation()
            self.disk.make_dir(self.directory)
            if self.topic_id is not None:
                write_partition_metadata(self.disk, self.directory, self.topic_id)
            self._segments[-1].create_files()
            self._on_disk = True

    def adopt_topic_id(self, topic_id: Uuid | None) -> None:
        """The log was found without an id: write down whose it is."""
        self.topic_id = topic_id
        if topic_id is not None and self._on_disk:
            self.durability.renamed()
            write_partition_metadata(self.disk, self.directory, topic_id)

    def close(self) -> None:
        """Make everything durable and leave the files as a clean stop does. ``OSError`` if that fails."""
        task = self.begin_close()
        if task is not None:
            task.run()
            self.disk.sync_dir(os.path.dirname(self.directory))
            task.end()

    def begin_close(self) -> FlushTask | None:
        """Do the owner's part of :meth:`close`. The task that it returns is to be run, the log dir itself synced
        (once for all of its logs), and the task ended."""
        if not self._on_disk:
            return None
        self._segments[-1].complete_indexes()
        snapshot = self.producers.take_snapshot(sync=False)
        return self.begin_flush(extra=[snapshot] if snapshot is not None else [], closing=True)

    def release(self) -> None:
        """Drop open files; regions that readers hold stay valid."""
        self._list.release()

    def renamed(self, directory: str) -> None:
        """The partition's directory has another name now; no file is used any more."""
        self.release()
        self.generation += 1
        self.directory = directory
        self._on_disk = False

    # -- flushing

    @property
    def recovery_point(self) -> int:
        """Everything below is durable: after a crash only what follows is verified."""
        return self.durability.recovery_point

    def needs_flush(self, now_ms: int) -> bool:
        """Whether a sealed segment, ``flush.messages`` or ``flush.ms`` ask for a flush."""
        return self.durability.needs_flush(self.log_end_offset, self._bases[-1], self.config, now_ms)

    @property
    def flush_due_ms(self) -> int:
        """The time (milliseconds) at which ``flush.ms`` asks for a flush; far in the future if it does not."""
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
        generation = self.generation
        return self.durability.begin(
            self._list,
            self.leader_epochs,
            self.log_end_offset,
            topic_partition=self.topic_partition,
            is_current=lambda: self.generation == generation,
            on_durable=self._on_durable,
            sealed_only=sealed_only,
            extra=extra,
            closing=closing,
        )

    def _on_durable(self, task: FlushTask) -> None:
        if task.is_current():
            if task.epochs is not None:
                self.leader_epochs.dirty = task.epochs != self.leader_epochs.entries
            self.durability.flushed(task, self.log_end_offset, self._bases[-1])

    # -- damage

    @property
    def damage(self) -> tuple[Damage, ...]:
        """The offsets that are missing, in order: they have not healed, and the log does not start behind them."""
        return tuple(each for each in self._damage if each.end_offset > self.log_start_offset)

    @property
    def is_damaged(self) -> bool:
        """Whether something is missing."""
        return bool(self._damage) and bool(self.damage)

    @property
    def whole_end_offset(self) -> int:
        """The offset up to which nothing is missing: of two copies that are damaged, the one that has more up to there
        is the better one."""
        return min([self.log_end_offset, *(each.start_offset for each in self.damage)])

    @property
    def has_damaged_bytes(self) -> bool:
        """Whether readers of some place get NOT_LEADER_OR_FOLLOWER, until `begin_holes`, or a truncation."""
        return bool(self._damage) and any(each.is_in_log for each in self.damage)

    def damaged(self, error: CorruptSegment) -> ApiError:
        """Note, durably, the damage that a reader, the cleaner or a scrubber came upon, and tell `on_damage` if it is
        news. Returns NOT_LEADER_OR_FOLLOWER; CORRUPT_MESSAGE if the bytes are whole after all. ``OSError``."""
        index = next((i for i, segment in enumerate(self._segments) if segment.path == error.path), -1)
        following = self._bases[index + 1] if index + 1 < len(self._bases) else self.log_end_offset
        found = find_damaged(self._segments[index], error.position, following) if index >= 0 else None
        if found is None:
            return super().damaged(error)
        if put_right(self._segments[index], found):
            return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(error))
        end_offset = following if found.end_offset is None else found.end_offset
        self._segments[index].distrust(found.position)
        name = os.path.basename(error.path)
        size = found.end - found.position
        new = Damage(found.start_offset, end_offset, name, found.position, size, found.reason, 0)
        if not any(each.is_in_log and each[:5] == new[:5] for each in self._damage):
            others = [each for each in self._damage if each.segment != name or each.position != found.position]
            self._damage = note(self.disk, self.directory, [*others, new])
            logger.warning("%s is damaged: %s: %s", self.topic_partition, error.path, new)
            if self.on_damage is not None:
                self.on_damage(self)
        return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(error))

    def doubt(self, offset: int) -> None:
        """Have what is read from the segment that holds an offset verified once more."""
        self._segments[max(bisect_right(self._bases, offset) - 1, 0)].doubt()

    def take_over_damage(self, other: DurableLog) -> None:
        """Note, durably, what a log that this one is a copy of lacks; no damaged bytes were copied. ``OSError``."""
        self._damage = note(self.disk, self.directory, [each._replace(size=0, set_aside=None) for each in other.damage])

    def healed(self) -> None:
        """Forget the damage, durably: the log has from others what it lacked. What was set aside stays. ``OSError``.

        What lies in the files before the log's start stays noted: nothing has come back there.
        """
        first, start = self._bases[0], self.log_start_offset
        before = [each._replace(end_offset=min(each.end_offset, start)) for each in self._damage]
        before = [each for each in before if first < each.end_offset and each.start_offset < each.end_offset <= start]
        if self.durability.cut:
            self.flush()  # or the files could have the damage again after a power cut, and nobody would know of it
        self._damage = note(self.disk, self.directory, before)
