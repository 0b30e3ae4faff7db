"""A log that damage is taken out of, and whose holes are closed, while it is open. ``PartitionLog`` is one.

One owner (the node's loop) calls all methods; the tasks that they return run in any thread, and are ended by the owner.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Iterator
from typing import Any

from kbroker.log.damage import note
from kbroker.log.durable_log import DurableLog
from kbroker.log.holes import HolesTask
from kbroker.log.segments.cleaned_segment import CleanedSegment
from kbroker.log.segments.indexed_file import CorruptSegment
from kbroker.log.segments.segment import OwnCopy, Segment
from kbroker.log.segments.timestamp_lookup import locate_by_time
from kbroker.wire.batch_header import LEADER_EPOCH_AT

logger = logging.getLogger(__name__)

_HEADERS_A_STEP = 128
"""Batches whose headers are looked at in a step."""


class MendedLog(DurableLog):
    """The log of one partition, with what mends it."""

    __slots__ = ("before_truncation", "on_rolled", "segments_held")

    def __init__(self, *args: Any, on_disk: bool) -> None:
        super().__init__(*args, on_disk=on_disk)
        self.on_rolled: Callable[[Any], None] | None = None
        """Called after a roll or a truncation: a segment, or the cut, waits to be flushed, and files to be removed."""
        self.before_truncation: Callable[[Any, int, bool], None] | None = None
        """Called when the log is about to be cut at an offset, and whether ``recovery_point`` or ``log_start_offset``
        was lowered for that: what is written in its place must not pass for durable, or deleted, after a crash."""
        self.segments_held = False
        """The files of the sealed segments are in use: they are compacted, or moved to another log dir. Whoever wants
        to replace or delete some waits."""

    def roll(self, now_ms: int, *, base_offset: int = 0) -> None:
        """Begin a new active segment."""
        raise NotImplementedError

    def replace_segments(self, cleaned: CleanedSegment, now_ms: int) -> bool:
        """Put a segment in the place of those that it stands for."""
        raise NotImplementedError

    def begin_holes(self, now_ms: int) -> HolesTask | None:
        """Have damage that was found in the open log become holes, which readers pass: the task is to be run, in any
        thread, and ended. ``None`` if there is nothing to do, or somebody else is at the segments (`segments_held`)."""
        names = {each.segment for each in self.damage if each.is_in_log}
        if not names or self.segments_held:
            return None
        if os.path.basename(self._segments[-1].path) in names:
            self.roll(now_ms)
        pairs = [each for each in self._sealed() if os.path.basename(each[0].path) in names]
        self.segments_held = True
        generation = self.generation

        def end(task: HolesTask) -> None:
            self.segments_held = False
            if generation != self.generation:
                task.discard()
                return
            there = [each for each in self._damage if each.segment in task.left or not each.is_in_log]
            found = {each.segment for each in task.found}
            # What cannot be found any more was truncated; others have not given it back yet.
            gone = [
                each._replace(size=0)
                for each in self._damage
                if each not in there and each.segment not in found and each.start_offset < each.end_offset
            ]
            self._damage = note(self.disk, self.directory, [*there, *gone, *task.found])
            for cleaned in task.cleaned:
                self.replace_segments(cleaned, now_ms)
            self.disk.sync_dir(self.directory)
            if self.on_rolled is not None:
                self.on_rolled(self)

        return HolesTask(self.disk, pairs, self.config.index_interval_bytes, now_ms, end)

    def has_marker(self, producer_id: int, since_ms: int) -> Generator[None, None, bool]:
        """Whether a transaction of a producer ended at this time or later, before its open one began here.
        :class:`CorruptSegment`, :class:`CorruptIndex`, ``OSError``.

        The search goes in steps: what it passes may be gigabytes.
        """
        end = self.producers.active_producers[producer_id].current_txn_first_offset or 0
        for segment in self._segments[: self._list.index_of(end) + 1]:
            if segment.size and segment.max_timestamp >= since_ms:
                located = locate_by_time(segment, since_ms)
                for count, (_, header) in enumerate(segment.scan(0 if located is None else located.position), 1):
                    if not count % _HEADERS_A_STEP:
                        yield
                    if header.base_offset >= end:
                        return False
                    if header.is_control and header.producer_id == producer_id and header.max_timestamp >= since_ms:
                        return True
        return False

    def begin_own_copy(self, offset: int) -> OwnCopy | None:
        """Returns the copy of a file that another log has, too, and that ``truncate_to(offset)`` would cut into; None
        if there is none.

        To be run in any thread, for it may be a gigabyte, and then given to `end_own_copy`.
        """
        segment = self._segments[self._list.index_of(offset)]
        if not max(segment.base_offset, self.log_start_offset) < offset < self.log_end_offset:
            return None
        return OwnCopy(self.disk, segment, segment.size) if self.disk.is_shared(segment.path) else None

    def end_own_copy(self, copy: OwnCopy) -> None:
        """Have a segment go on in its copy, unless it has become another one meanwhile. ``OSError``."""
        segment = copy.segment
        if segment in self._segments and segment.size == copy.size and self.disk.is_shared(segment.path):
            copy.end(self._list.files)
        else:
            copy.drop()

    def put_epochs_right(self, leader_epoch: int) -> None:
        """Do as `putting_epochs_right`, in one go. ``OSError``."""
        for step in self.putting_epochs_right(leader_epoch):
            if step is not None:
                step()

    def putting_epochs_right(self, leader_epoch: int) -> Iterator[Callable[[], object] | None]:
        """Give batches at the end whose leader epoch is later than this one, the latest that there is, this one. No
        checksum covers it, and a follower would take none of them. ``OSError``.

        In steps; one that is given is to be called, in any thread, as it may take long. It ends when the log is cut.
        """
        generation = self.generation
        start = next((start for epoch, start in self.leader_epochs.entries if epoch > leader_epoch), None)
        if start is None or start >= self.log_end_offset:
            return  # at most it was heard of
        for segment in self._segments[self._list.index_of(start) :]:
            if (located := segment.locate(start)) is None:
                continue
            if self.disk.is_shared(segment.path):
                copy = OwnCopy(self.disk, segment, segment.size)
                while not copy.is_whole:
                    yield copy.step
                self.end_own_copy(copy)
            file = segment.log_file()
            try:
                for count, (position, header) in enumerate(segment.scan(located.position), 1):
                    if not count % _HEADERS_A_STEP:
                        yield None
                    if generation != self.generation:
                        return
                    if header.partition_leader_epoch > leader_epoch:
                        file.write_at(position + LEADER_EPOCH_AT, [leader_epoch.to_bytes(4, "big")])
                        logger.warning(
                            "%s: the batch at byte %d had leader epoch %d, which is still to come; it has %d now",
                            segment.path,
                            position,
                            header.partition_leader_epoch,
                            leader_epoch,
                        )
            except CorruptSegment as error:
                self.damaged(error)
            yield file.sync
        if generation != self.generation:
            return
        self.leader_epochs.truncate_from_end(start)
        self.leader_epochs.assign(leader_epoch, start)

    def _sealed(self) -> Iterator[tuple[Segment, int]]:
        """The sealed segments, each with the base offset of the next one."""
        return zip(self._segments, self._bases[1:], strict=False)
