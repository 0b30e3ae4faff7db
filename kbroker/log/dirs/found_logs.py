"""The logs that a start has found: which are this node's, which are set aside, and which are left where they are.

A node renames only what it can prove to be its own: a log with a readable topic id, in a log dir that the cluster's
metadata knew before this start (:func:`of_another_history`), whose topic id they do not have here any more. Whatever
else they do not explain is left, with a warning, and no log is made in its place.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Container

from kbroker.log.checkpoint_files import CorruptCheckpoint, read_partition_metadata
from kbroker.log.dirs.marked_directories import MarkedDirectories
from kbroker.log.dirs.start_up import warn_of_left
from kbroker.log.disk import Disk
from kbroker.log.log_dir import STRAY_SUFFIX, LogDir, parse_log_dir_name
from kbroker.log.partition_log import PartitionLog
from kbroker.types import METADATA_TOPIC, TopicPartition, Uuid

logger = logging.getLogger(__name__)

_NO_ID = "has no readable topic id, and is of no partition that this node has"

IsOwn = Callable[[TopicPartition, Uuid | None], bool]
"""Whether a log of this partition, with this topic id if it has one, belongs here."""


def of_another_history(disk: Disk, log_dir: LogDir, topic_ids: Container[Uuid]) -> bool:
    """Whether a log dir that is new to the metadata has logs, and none of a topic that they know. ``OSError``.

    Then these metadata are not those that the logs were made under: nothing says that their topics were deleted.
    """
    names = (parse_log_dir_name(name) for name in disk.list_dir(log_dir.path))
    found = [tp for tp in names if tp is not None and tp.topic != METADATA_TOPIC]
    ids = {_topic_id(disk, os.path.join(log_dir.path, str(tp))) for tp in found} - {None}
    return bool(ids) and not any(topic_id in topic_ids for topic_id in ids)


def _topic_id(disk: Disk, directory: str) -> Uuid | None:
    try:
        return read_partition_metadata(disk, directory) if disk.is_dir(directory) else None
    except CorruptCheckpoint:
        return None


class FoundLogs:
    """Chooses among them. ``LogManager`` owns it, and the two tables that it fills."""

    def __init__(
        self,
        logs: dict[TopicPartition, PartitionLog],
        dir_of: dict[TopicPartition, LogDir],
        failed: dict[TopicPartition, str],
        marked: MarkedDirectories,
        *,
        adopt: Callable[[PartitionLog, LogDir], None],
        mark_offline: Callable[[LogDir, OSError], None],
    ) -> None:
        self._logs = logs
        self._dir_of = dir_of
        self._failed = failed
        self._marked = marked
        self._adopt = adopt
        self._mark_offline = mark_offline
        self.contested: list[tuple[PartitionLog, LogDir]] = []
        """Logs of another topic of the name than the one that was adopted; until :meth:`sort_out`."""

    def add(self, log: PartitionLog, log_dir: LogDir) -> None:
        """Take in a log that was opened."""
        other = self._logs.get(log.topic_partition)
        if other is not None and other.topic_id != log.topic_id:
            # One is of a topic that was deleted while its log dir was offline. Which, `sort_out` is told.
            self.contested.append((log, log_dir))
        else:
            self._adopt_longer(log, log_dir)

    def sort_out(self, is_own: IsOwn) -> list[TopicPartition]:
        """Keep the logs that are the node's own, and set the others aside or leave them; the partitions of those."""
        gone: list[TopicPartition] = []
        for tp, log in sorted(self._logs.items()):
            if not is_own(tp, log.topic_id) and (log.topic_id is not None or log.log_end_offset):
                log_dir = self._dir_of[tp]
                del self._logs[tp], self._dir_of[tp]
                self._put_away(log, log_dir)
                gone.append(tp)
        for tp in [tp for tp in self._failed if tp in self._dir_of and tp not in self._logs and not is_own(tp, None)]:
            del self._dir_of[tp]  # that it cannot be opened was said; it is left, and is no concern of a clean stop
            gone.append(tp)
        contested, self.contested = self.contested, []
        for log, log_dir in sorted(contested, key=lambda found: found[0].topic_id is None):
            tp = log.topic_partition
            if is_own(tp, log.topic_id) and (log.topic_id is not None or tp not in self._logs):
                self._adopt_longer(log, log_dir)  # there may be one that does not know its topic
            else:
                self._put_away(log, log_dir)
                gone.append(tp)
        return gone

    def _adopt_longer(self, log: PartitionLog, log_dir: LogDir) -> None:
        tp = log.topic_partition
        other = self._logs.get(tp)
        if other is not None:
            # The node stopped at the last step of a move: both have what was durable, one perhaps more.
            other_dir = self._dir_of[tp]
            if log.log_end_offset <= other.log_end_offset:
                log, log_dir, other, other_dir = other, other_dir, log, log_dir
            logger.warning(
                "the log of %s is in two log dirs; %s, up to offset %d, is kept, and %s, up to offset %d, is not used",
                tp,
                log_dir.path,
                log.log_end_offset,
                other_dir.path,
                other.log_end_offset,
            )
            self._put_away(other, other_dir)
        self._adopt(log, log_dir)

    def _put_away(self, log: PartitionLog, log_dir: LogDir) -> None:
        """Rename the directory of a log whose topic is known, for a person to look at (suffix ``-stray``, as Kafka
        does); leave that of another, and have no other log take its name."""
        tp = log.topic_partition
        log_dir.cleaner_offsets.pop(tp, None)
        if log_dir.offline is not None:
            self._marked.leave(log)  # the next start looks again
            return
        if log.topic_id is None:
            warn_of_left(log.directory, _NO_ID)
            self._failed.setdefault(tp, f"{log.directory} {_NO_ID}")
            self._marked.leave(log)
            return
        logger.warning("%s/%s is not a log of this node any more; it is renamed", log_dir.path, tp)
        try:
            self._marked.set_aside(log, log_dir, STRAY_SUFFIX)
        except OSError as error:
            self._mark_offline(log_dir, error)
