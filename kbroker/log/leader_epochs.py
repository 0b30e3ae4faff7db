"""The start offset of each leader epoch: ``leader-epoch-checkpoint`` (KIP-101, KIP-279).

A follower that finds its log to differ from the leader's asks where its last epoch ended, and cuts there.
The file is written when the log is flushed: it is then complete below the recovery point, and what lies
beyond is found again in the batch headers, each of which carries its leader epoch. The file has no checksum: whoever
opens a log compares the two.
"""

from __future__ import annotations

import logging
import os
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from kbroker.log.checkpoint_files import CorruptCheckpoint, read_checkpoint, write_checkpoint
from kbroker.log.disk import Disk
from kbroker.log.segments.indexed_file import CorruptSegment
from kbroker.types import OffsetAndEpoch

if TYPE_CHECKING:
    from kbroker.log.segments.segment import Segment

logger = logging.getLogger(__name__)

FILE_NAME = "leader-epoch-checkpoint"
UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1

_writing: WeakValueDictionary[str, threading.RLock] = WeakValueDictionary()
"""By directory, while its file is written: a flush and a cut may do so at once, under the same temporary name. A cut on
the event loop waits for no other directory."""
_looking = threading.Lock()


class LeaderEpochs:
    """Epochs with the offset at which each began. Both columns grow strictly."""

    __slots__ = ("_epochs", "_start_offsets", "dirty", "latest")

    def __init__(self, entries: Sequence[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._start_offsets: list[int] = []
        self.latest = UNDEFINED_EPOCH
        """The newest epoch, or -1."""
        self.dirty = False
        """Whether something changed since the file was read or written."""
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)
        self.dirty = False

    def __len__(self) -> int:
        return len(self._epochs)

    @property
    def entries(self) -> list[tuple[int, int]]:
        """``(epoch, start offset)``, oldest first."""
        return list(zip(self._epochs, self._start_offsets, strict=True))

    @property
    def latest_start(self) -> int:
        """The offset at which the newest epoch began, or 0."""
        return self._start_offsets[-1] if self._start_offsets else 0

    @property
    def earliest(self) -> tuple[int, int] | None:
        """The oldest epoch and its start offset."""
        return (self._epochs[0], self._start_offsets[0]) if self._epochs else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that ``epoch`` begins at ``start_offset``; answer whether that was news.

        Entries that contradict it (a greater or equal epoch, or one that begins there or later) go, as in
        Kafka: an epoch under which nothing was written leaves no trace.
        """
        epochs, offsets = self._epochs, self._start_offsets
        if epochs and epoch == epochs[-1] and start_offset >= offsets[-1]:
            return False
        while epochs and (epochs[-1] >= epoch or offsets[-1] >= start_offset):
            epochs.pop()
            offsets.pop()
        epochs.append(epoch)
        offsets.append(start_offset)
        self.latest = epoch
        self.dirty = True
        return True

    def maybe_assign(self, epoch: int, start_offset: int) -> bool:
        """:meth:`assign`, but an epoch that is not newer than the latest changes nothing."""
        return epoch > self.latest and self.assign(epoch, start_offset)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> OffsetAndEpoch:
        """The end of the largest epoch not above ``epoch``: the answer of OffsetForLeaderEpoch.

        The end is the next epoch's start, or ``log_end_offset`` for the newest. For an epoch newer than all,
        the answer is undefined (-1, -1). One older than all ends where the oldest begins, under its own
        name, since its records were removed.
        """
        epochs, offsets = self._epochs, self._start_offsets
        if epoch == UNDEFINED_EPOCH or not epochs or epoch > epochs[-1]:
            return OffsetAndEpoch(UNDEFINED_OFFSET, UNDEFINED_EPOCH)
        if epoch == epochs[-1]:
            return OffsetAndEpoch(log_end_offset, epoch)
        index = bisect_right(epochs, epoch)
        if index == 0:
            return OffsetAndEpoch(offsets[0], epoch)
        return OffsetAndEpoch(offsets[index], epochs[index - 1])

    def epoch_for(self, offset: int) -> int | None:
        """The epoch under which ``offset`` was, or would be, written; ``None`` before the oldest entry."""
        index = bisect_right(self._start_offsets, offset)
        return self._epochs[index - 1] if index else None

    def truncate_from_end(self, end_offset: int) -> None:
        """The log now ends at ``end_offset``: drop epochs that began there or later."""
        while self._start_offsets and self._start_offsets[-1] >= end_offset:
            self._epochs.pop()
            self._start_offsets.pop()
            self.latest = self._epochs[-1] if self._epochs else UNDEFINED_EPOCH
            self.dirty = True

    def truncate_from_start(self, start_offset: int) -> None:
        """The log now starts at ``start_offset``: the epoch that holds it begins there, older ones go."""
        index = bisect_right(self._start_offsets, start_offset)
        if index and (index > 1 or self._start_offsets[0] < start_offset):
            del self._epochs[: index - 1]
            del self._start_offsets[: index - 1]
            self._start_offsets[0] = start_offset
            self.dirty = True

    def clear(self) -> None:
        """Forget all."""
        if self._epochs:
            self._epochs.clear()
            self._start_offsets.clear()
            self.latest = UNDEFINED_EPOCH
            self.dirty = True

    def write(self, disk: Disk, directory: str, *, sync: bool, is_wanted: Callable[[], bool] = lambda: True) -> None:
        """Write the checkpoint file of a partition's directory, if that is still wanted when nobody else writes it."""
        lines = [f"{epoch} {offset}" for epoch, offset in self.entries]
        with _looking:
            writing = _writing.setdefault(directory, threading.RLock())
        with writing:
            if is_wanted():
                write_checkpoint(disk, os.path.join(directory, FILE_NAME), lines, sync=sync)
        self.dirty = False

    @classmethod
    def read(cls, disk: Disk, directory: str) -> LeaderEpochs | None:
        """Read the checkpoint file; ``None`` if there is none, or an empty one. ``CorruptCheckpoint`` if it cannot be
        right."""

        def parse(words: list[str]) -> tuple[int, int]:
            epoch, offset = map(int, words)
            if epoch < 0 or offset < 0:
                raise ValueError(words)
            return epoch, offset

        path = os.path.join(directory, FILE_NAME)
        entries = read_checkpoint(disk, path, parse)
        epochs = cls(entries or ())
        if entries and epochs.entries != entries:
            raise CorruptCheckpoint(f"{path}: its epochs and offsets do not grow")
        return None if entries is None else epochs


def read_epochs(disk: Disk, directory: str) -> LeaderEpochs | None:
    """Returns what a partition's checkpoint file says; ``None`` if there is none that can be read."""
    try:
        return LeaderEpochs.read(disk, directory)
    except CorruptCheckpoint as error:
        logger.warning("%s; rebuilding it from the log", error)
        return None


def settle(
    known: LeaderEpochs | None,
    segments: Sequence[Segment],
    bounds: tuple[int, int],
    directory: str,
    before_read: Callable[[], None],
    following: Segment | None = None,
) -> LeaderEpochs:
    """Returns ``known`` if the batches between the ``bounds`` have these epochs in their headers; else those of the
    batches, which are all read then, with ``before_read`` called before each piece. The segments end where they do; the
    first batch of the ``following`` one tells whether the last of them is of a later epoch than it can be."""
    if not segments:
        return known if known is not None else LeaderEpochs()
    if known is not None and _agree(known, segments, *bounds):
        return known
    epochs, latest = LeaderEpochs(), UNDEFINED_EPOCH
    for segment in segments if following is None else (*segments, following):
        try:
            for _, header in segment.scan(0, before_read=before_read):
                epoch = header.partition_leader_epoch
                if known is not None and 0 <= epoch < latest:
                    return known  # epochs never go back: it is a batch that is wrong
                if (epoch > latest and segment is not following) or 0 <= epoch < latest:
                    epochs.assign(epoch, header.base_offset)
                    latest = epoch
                if segment is following:
                    break
        except CorruptSegment as error:
            logger.warning("%s; leader epochs after it are not known", error)
    if known is not None:
        epochs.dirty = True
        path = os.path.join(directory, FILE_NAME)
        logger.warning("%s: the batches have other leader epochs; rebuilding it from the log", path)
    return epochs


def _agree(epochs: LeaderEpochs, segments: Sequence[Segment], log_start_offset: int, end_offset: int) -> bool:
    """Whether the batches beside each start, and the last one, have these epochs: as epochs never go back in a log,
    all others have them, too."""
    segments = [segment for segment in segments if segment.size]
    bases = [segment.base_offset for segment in segments]
    for offset in (*(start for _, start in epochs.entries), end_offset):
        index = bisect_left(bases, offset) - 1
        if index < 0:
            continue  # the log begins there, and the end of this epoch tells of it
        around = segments[index].headers_around(offset)
        if around[1] is None and offset < end_offset and index + 1 < len(segments):
            around = around[0], segments[index + 1].headers_around(offset)[1]
        for header in around:
            if header is None or header.last_offset < log_start_offset or header.partition_leader_epoch < 0:
                continue
            if epochs.epoch_for(max(header.base_offset, log_start_offset)) != header.partition_leader_epoch:
                return False
    return True
