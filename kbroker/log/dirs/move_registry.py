"""The logs that are on their way to another log dir of the same node, and the log dirs preferred for future logs.

AlterReplicaLogDirs asks for both (KIP-113). One move is a :class:`LogMove`, which says what a crash leaves of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from kbroker.errors import ApiError, ErrorCode
from kbroker.log import opening
from kbroker.log.dirs.log_move import LogMove
from kbroker.log.dirs.marked_directories import MarkedDirectories
from kbroker.log.file_names import SET_ASIDE_SUFFIX
from kbroker.log.log_dir import DELETE_SUFFIX, FUTURE_SUFFIX, STRAY_SUFFIX, LogDir
from kbroker.log.partition_log import PartitionLog
from kbroker.types import TopicPartition

logger = logging.getLogger(__name__)


class LogMoves:
    """All moves of a node: ``LogManager.moves``, with the same owner."""

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
