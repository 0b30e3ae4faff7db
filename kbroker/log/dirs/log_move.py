"""A log on its way from one log dir to another of the same node, while it is written and read (KIP-113).

As in Apache Kafka a second log, in a directory with the suffix ``-future``, follows the first one as a replica would,
and takes its place when it has all. The steps, and what a crash after each leaves:

1. ``copy`` until nothing much is missing: a ``-future`` directory, which the next start removes (the move begins anew);
2. ``begin_close`` and the flush that it asks for, in any thread;
3. ``take_name``: the directory gets the name of a log, so there are two. The next start takes the longer one, which is
   the first one (``LogManager``), and the directory must be synced before
4. ``finish``, which copies what came meanwhile and sets the old directory aside for removal.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kbroker.log import opening
from kbroker.log.flushing import FlushTask
from kbroker.log.leader_epochs import LeaderEpochs
from kbroker.log.partition_log import PartitionLog

if TYPE_CHECKING:
    from kbroker.log.log_dir import LogDir
    from kbroker.types import TopicPartition


class MoveInterrupted(Exception):
    """The log is not what it was any more: it was truncated, deleted, or its move was called off. Or one of the two log
    dirs has failed."""


class SourceFailed(Exception):
    """The log dir that the log is to leave cannot be read; the cause is the ``OSError``."""


class LogMove:
    """The move of a log. ``LogMoves.begin`` makes it; the event loop owns it, as it owns the logs."""

    def __init__(
        self,
        source: PartitionLog,
        source_dir: LogDir,
        target: LogDir,
        future: PartitionLog,
        *,
        ended: Callable[[LogMove], None],
        abandoned: Callable[[LogMove], None],
    ) -> None:
        """``ended`` puts the new log in the place of the old one; or else ``abandoned`` removes the new one."""
        self._ended = ended
        self._abandoned = abandoned
        self._generation = source.generation
        self.source = source
        self.source_dir = source_dir
        self.target = target
        self.future = future
        """The new log."""
        self.over = False
        source.segments_held = True

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition of the log."""
        return self.source.topic_partition

    @property
    def lag(self) -> int:
        """Offsets that the new log lacks."""
        return max(0, self.source.log_end_offset - self.future.log_end_offset)

    def check(self) -> None:
        """``MoveInterrupted`` if nothing can come of it any more."""
        failed = self.source_dir.offline is not None or self.target.offline is not None
        if self.over or failed or self.source.generation != self._generation:
            raise MoveInterrupted(str(self.topic_partition))

    def copy(self, max_bytes: int, now_ms: int) -> int:
        """Bring some batches over; their bytes, 0 when nothing is missing.

        :class:`SourceFailed`, ``OSError`` of the target, or ``ApiError`` if a batch is damaged.
        """
        self.check()
        source, future = self.source, self.future
        if not future.log_end_offset and not future.size:
            self._begin(now_ms)
        offset = max(future.log_end_offset, source.log_start_offset)
        if offset >= source.log_end_offset:
            return 0
        with _reading():
            data = source.read_bytes(offset, max_bytes)
        if not data:
            return 0  # the rest of the log was compacted away
        future.append_as_follower(data, now_ms=now_ms)
        return len(data)

    def _begin(self, now_ms: int) -> None:
        source = self.source
        start = source.log_start_offset
        if start < source.log_end_offset:
            with _reading():
                first = source.read(start, 1).first_batch_base_offset
            start = min(start, first) if first >= 0 else start
        if start:
            self.future.truncate_fully_and_start_at(start, now_ms=now_ms)
        else:
            self.future.ensure_on_disk()

    def begin_close(self) -> FlushTask | None:
        """Everything that was copied is to be durable: run what this returns."""
        self.check()
        return self.future.begin_close()

    def take_name(self, now_ms: int) -> None:
        """Give the new directory the log's name."""
        self.check()
        source, future, disk, tp = self.source, self.future, self.future.disk, self.topic_partition
        path = os.path.join(self.target.path, str(tp))
        old, end = future.directory, future.log_end_offset
        future.release()
        disk.rename(old, path)
        future.renamed(path)
        self.future = opening.open_log(
            path,
            tp,
            source.topic_id,
            source.config,
            disk,
            now_ms=now_ms,
            clean_shutdown=True,
            recovery_point=end,
            files=self.target.files,
            producer_id_expiration_ms=source.producers.producer_id_expiration_ms,
        )

    def finish(self, now_ms: int) -> PartitionLog:
        """The new log, complete and in its place; the other directory is named for removal."""
        while self.copy(1 << 20, now_ms):
            pass
        source, future = self.source, self.future
        future.leader_epochs = LeaderEpochs(source.leader_epochs.entries)
        future.leader_epochs.dirty = True
        future.maybe_increment_log_start_offset(source.log_start_offset)
        future.producers.take_over_verification(source.producers)
        if future.flushes_by_config:
            future.flush()  # what was acknowledged as durable has to be so here
        self.over = True
        self._ended(self)
        return future

    def abandon(self) -> None:
        """Remove the new log; the old one goes on."""
        if not self.over:
            self.over = True
            self.source.segments_held = False
            self._abandoned(self)


@contextmanager
def _reading() -> Iterator[None]:
    """Mark a failure as the source's, so that it is not taken for the target's."""
    try:
        yield
    except OSError as error:
        raise SourceFailed(str(error)) from error
