"""Logs on their way from one log dir to another of the same node (KIP-113), and the log dirs preferred for future logs.

As in Apache Kafka a second log, in a directory with the suffix ``-future``, follows the first one as a replica would,
and takes its place when it has all. The steps, and what a crash after each leaves:

1. ``copy`` until nothing much is missing: a ``-future`` directory, which the next start removes (the move begins anew);
2. ``begin_close`` and the flush that it asks for, in any thread;
3. ``take_name``: the directory gets the name of a log, so there are two. The next start takes the longer one, which is
   the first one (``LogManager``), and the directory must be synced before
4. ``finish``, which copies what came meanwhile and sets the old directory aside for removal.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kbroker.errors import ApiError, ErrorCode
from kbroker.log import opening
from kbroker.log.dirs.removals import MarkedDirectories
from kbroker.log.file_names import SET_ASIDE_SUFFIX
from kbroker.log.flushing import FlushTask
from kbroker.log.leader_epochs import LeaderEpochs
from kbroker.log.log_dir import DELETE_SUFFIX, FUTURE_SUFFIX, STRAY_SUFFIX, LogDir
from kbroker.log.partition_log import PartitionLog
from kbroker.log.producer_replay import recall_batches
from kbroker.types import TopicPartition

logger = logging.getLogger(__name__)


if TYPE_CHECKING:
    from kbroker.log.log_dir import LogDir
    from kbroker.types import TopicPartition
    from kbroker.wire.messages.offset_for_leader_epoch import HandedOver


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
        if self.target.room.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.target.path)  # its reserve is not for this
        source, future = self.source, self.future
        if not future.log_end_offset and not future.size:
            self._begin(now_ms)
        offset = max(future.log_end_offset, source.log_start_offset)
        if offset >= source.log_end_offset:
            if offset > future.log_end_offset:  # what is missing was deleted meanwhile
                future.truncate_fully_and_start_at(offset, now_ms=now_ms)
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
        future.producers.recall_batches(source.producers)
        future.take_over_damage(source)
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


class LogMoves:
    """All moves of a node, for AlterReplicaLogDirs: ``LogManager.moves``, with the same owner."""

    def __init__(
        self,
        log_dirs: list[LogDir],
        log_dir_of: Callable[[PartitionLog], LogDir],
        marked: MarkedDirectories,
        *,
        adopt: Callable[[PartitionLog, LogDir], None],
        make_anew: Callable[[PartitionLog, int], None],
        mark_offline: Callable[[LogDir, OSError], None],
    ) -> None:
        """``adopt`` gives a log the place of the one that its partition has. ``make_anew`` puts a new log, made at a
        time in ms, in the place of one that was never written, in the preferred log dir."""
        self._log_dirs = log_dirs
        self._log_dir_of = log_dir_of
        self._marked = marked
        self._adopt = adopt
        self._make_anew = make_anew
        self._mark_offline = mark_offline
        self._under_way: dict[TopicPartition, LogMove] = {}
        self._preferred: dict[TopicPartition, LogDir] = {}
        """The log dirs in which logs that do not exist yet are to be made."""
        self.interrupted: dict[TopicPartition, LogDir] = {}
        """The log dirs that logs were on their way to when the node stopped."""

    # -- looking up

    def find_log_dir(self, path: str) -> LogDir:
        """The log dir of this path. LOG_DIR_NOT_FOUND, or KAFKA_STORAGE_ERROR if it is offline."""
        for log_dir in self._log_dirs:
            if log_dir.path == path:
                if log_dir.offline is not None:
                    raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, log_dir.offline)
                return log_dir
        raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is no log dir of this node")

    def of(self, topic_partition: TopicPartition) -> LogMove | None:
        """The move of this partition's log; ``None`` if none is under way."""
        return self._under_way.get(topic_partition)

    def to(self, log_dir: LogDir) -> list[LogMove]:
        """The moves to this log dir that are under way."""
        return [move for move in self._under_way.values() if move.target is log_dir]

    # -- logs that are not made yet

    def prefer(self, topic_partition: TopicPartition, log_dir: LogDir) -> None:
        """Have the log of this partition made in this log dir."""
        self._preferred[topic_partition] = log_dir

    def take_preferred(self, topic_partition: TopicPartition) -> LogDir | None:
        """The log dir preferred for a log that is made now; ``None`` if there is none, or it is offline."""
        log_dir = self._preferred.pop(topic_partition, None)
        return log_dir if log_dir is not None and log_dir.offline is None else None

    # -- moving

    def begin(self, log: PartitionLog, target: LogDir, *, now_ms: int) -> LogMove | None:
        """Begin to move a log to ``target``; ``None`` if it is there, or was never written (its files will be).

        A move to another place is called off. KAFKA_STORAGE_ERROR while any log dir is offline: the log may be in
        there too; or if something has the log's name there. The log's segments must not be held by anyone.
        """
        tp = log.topic_partition
        present = self._under_way.get(tp)
        if present is not None:
            if present.target is target:
                return None
            present.abandon()
        source_dir = self._log_dir_of(log)
        if source_dir is target:
            return None
        offline = [log_dir.path for log_dir in self._log_dirs if log_dir.offline is not None]
        if offline:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp} is not moved while {', '.join(offline)} is offline")
        target.new_path(tp)
        if not log.is_on_disk:
            self.prefer(tp, target)
            self._make_anew(log, now_ms)
            return None
        future = opening.create_log(
            self._marked.future_path(tp, target),
            tp,
            log.topic_id,
            log.config,
            target.disk,
            now_ms=now_ms,
            files=target.files,
            producer_id_expiration_ms=log.producers.producer_id_expiration_ms,
        )
        move = LogMove(log, source_dir, target, future, ended=self._ended, abandoned=self._abandoned)
        self._under_way[tp] = move
        clean = source_dir.cleaner_offsets.get(tp)
        if clean is not None:
            target.cleaner_offsets[tp] = clean  # holes in the new log are no damage either
        return move

    # -- from another node of the machine (``log.hand_over``)

    def begin_hand_over(self, log_dir: LogDir, topic_partition: TopicPartition) -> str:
        """Make an empty directory beside that of a log which was never written, for another node to fill: its path. The
        next start removes it. ``OSError``."""
        path = self._marked.unfinished_path(topic_partition, log_dir)
        log_dir.disk.make_dir(path)
        return path

    def take_over(self, log: PartitionLog, directory: str, handed: HandedOver, *, now_ms: int) -> PartitionLog:
        """Put the log that was handed over in a directory in the place of one that was never written, and return it.

        ``OSError``, or as `opening.open_log`: then the directory is not in use. Its name is to be synced."""
        tp, log_dir, path = log.topic_partition, self._log_dir_of(log), log.directory
        log_dir.new_path(tp)
        log_dir.disk.rename(directory, path)
        try:
            new = opening.open_log(
                path,
                tp,
                log.topic_id,
                log.config,
                log_dir.disk,
                now_ms=now_ms,
                clean_shutdown=True,
                recovery_point=handed.end_offset,
                log_start_offset=handed.log_start_offset,
                files=log_dir.files,
                producer_id_expiration_ms=log.producers.producer_id_expiration_ms,
                clean_offset=max(handed.clean_offset, 0),
                high_watermark=handed.log_start_offset,
            )
            found, wanted = (new.log_end_offset, new.size), (handed.end_offset, handed.size)
            if found != wanted or new.is_damaged:
                raise OSError(errno.EIO, "end and size are {}:{}, not {}:{}".format(*found, *wanted), path)
        except BaseException:
            self.abandon_hand_over(log_dir, tp, path)
            raise
        recall_batches(new)
        # The flusher sees to the indexes. Until then a power cut may leave a part of any of them, so all is read again.
        new.durability.indexed = new.durability.recovery_point = 0
        self._marked.leave(log)
        self._adopt(new, log_dir)
        if new.on_rolled is not None:
            new.on_rolled(new)
        if handed.clean_offset >= 0:
            log_dir.cleaner_offsets[tp] = handed.clean_offset
        return new

    def abandon_hand_over(self, log_dir: LogDir, topic_partition: TopicPartition, directory: str) -> None:
        """Have a directory removed that is not, or not wholly, filled. Fine if it has another name by now."""
        try:
            if log_dir.disk.is_dir(directory):
                self._marked.set_directory_aside(directory, topic_partition, log_dir, DELETE_SUFFIX)
        except OSError as error:
            self._mark_offline(log_dir, error)

    def _ended(self, move: LogMove) -> None:
        """The new log takes the place of the old one.

        If that cannot be renamed, its log dir is offline; the next start takes the longer one of the two.
        """
        tp, source_dir = move.topic_partition, move.source_dir
        del self._under_way[tp]
        source_dir.cleaner_offsets.pop(tp, None)
        self._adopt(move.future, move.target)
        try:
            # What recovery has set aside is not in the new log.
            is_all = not any(SET_ASIDE_SUFFIX in name for name in move.source.disk.list_dir(move.source.directory))
            self._marked.set_aside(move.source, source_dir, DELETE_SUFFIX if is_all else STRAY_SUFFIX)
        except OSError as error:
            self._mark_offline(source_dir, error)
        logger.info("%s was moved from %s to %s", tp, source_dir.path, move.target.path)

    def _abandoned(self, move: LogMove) -> None:
        """The new log is removed, whatever its directory is called by now; or kept where the old one cannot be read."""
        tp = move.topic_partition
        if self._under_way.get(tp) is move:
            del self._under_way[tp]
        move.target.cleaner_offsets.pop(tp, None)
        directory = move.future.directory
        move.future.renamed(directory)
        if move.future.disk.is_dir(directory):
            try:
                suffix = DELETE_SUFFIX if move.source_dir.offline is None else FUTURE_SUFFIX
                self._marked.set_directory_aside(directory, tp, move.target, suffix)
            except OSError as error:
                self._mark_offline(move.target, error)


@contextmanager
def _reading() -> Iterator[None]:
    """Mark a failure as the source's, so that it is not taken for the target's."""
    try:
        yield
    except OSError as error:
        raise SourceFailed(str(error)) from error
