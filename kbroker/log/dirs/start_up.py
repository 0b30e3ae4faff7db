"""Opens all logs of a node's log dirs at the start, some dirs side by side, and tells how much is left (KIP-831).

:class:`FoundLogs` chooses among the logs that were found: which are this node's, which are set aside, and which are
left where they are. A node renames only what it can prove to be its own: a log with a readable topic id, in a log dir
that the cluster's metadata knew before this start (:func:`of_another_history`), whose topic id they do not have here
any more. Whatever else they do not explain is left, with a warning, and no log is made in its place.
"""

from __future__ import annotations

import errno
import logging
import os
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from itertools import islice

from kbroker.log import opening
from kbroker.log.checkpoint_files import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    TOPIC_ID_COPY,
    CorruptCheckpoint,
    read_partition_metadata,
    read_topic_id_copy,
    remove_clean_shutdown,
)
from kbroker.log.damage import FILE_NAME as DAMAGE
from kbroker.log.damage import UNKNOWN_END, Damage, note
from kbroker.log.dirs.removals import MarkedDirectories
from kbroker.log.disk import Disk, OsDisk
from kbroker.log.file_names import SEGMENT_SUFFIXES, SET_ASIDE_SUFFIX
from kbroker.log.full_disk import is_no_room
from kbroker.log.leader_epochs import FILE_NAME as LEADER_EPOCHS
from kbroker.log.log_config import LogConfig
from kbroker.log.log_dir import (
    DELETE_SUFFIX,
    FUTURE_SUFFIX,
    STRAY_SUFFIX,
    LogDir,
    is_log_dir,
    parse_log_dir_name,
    parse_marked_name,
)
from kbroker.log.partition_log import PartitionLog
from kbroker.log.segments.segment_recovery import MAX_OFFSET
from kbroker.types import METADATA_TOPIC, TopicPartition, Uuid
from kbroker.value_types import NamedTuple, dataclass, field

logger = logging.getLogger(__name__)


def warn_of_left(path: str, why: str) -> None:
    """Say that nothing proves that a directory is this node's."""
    logger.warning("%s is left where it is: it %s", path, why)


class _ToLoad(NamedTuple):
    """A log that was found in a log dir."""

    log_dir: LogDir
    path: str
    topic_partition: TopicPartition
    recovery_point: int
    log_start_offset: int
    clean_offset: int
    high_watermark: int


MANY_LOGS = 500
"""Logs of a dir that take longer than a moment to open, also after a clean stop."""

_OF_ONE_PATH = (errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.ENOENT, errno.ELOOP)
"""Errors that say something of one log. By any other its disk has failed, unless that is full."""

MOST_THREADS = 4
"""Log dirs that are opened side by side. More would not be faster: they share Python's lock, and so does the event
loop, which waits for each of them. Kafka has two threads a dir (num.recovery.threads.per.data.dir)."""


def takes_long(disk: Disk, log_dirs: Iterable[str]) -> bool:
    """Whether opening the logs may take longer than a moment: there are many, or some are to be verified."""
    for path in log_dirs:
        try:
            names = disk.list_dir(path)
        except OSError:
            continue  # it is not there yet, or it will go offline
        few = MANY_LOGS if CLEAN_SHUTDOWN in names else 0
        if any(islice((True for name in names if _log_in(name) is not None), few, None)):
            return True
    return False


def _log_in(name: str) -> TopicPartition | None:
    """The partition whose log the directory of this name holds, if any that this module opens."""
    found = parse_log_dir_name(name)
    # The metadata log has an owner of its own (node/controller/quorum.py).
    return None if found is None or found.topic == METADATA_TOPIC else found


class OpeningStopped(Exception):
    """The opening of logs was to stop, and did: the next start begins it anew, as after a kill."""


class DirProgress:
    """The logs of one log dir that are still to be opened; one thread opens them one after the other."""

    __slots__ = ("_opening", "logs_left", "path", "segments_left")

    def __init__(self, path: str, logs: int, opening: OpeningProgress) -> None:
        self.path = path
        self.logs_left = logs
        self.segments_left = 0
        """Segments of the present log that are still to be verified."""
        self._opening = opening

    def left(self, segments: int) -> None:
        """Note how many segments of the present log are left. `OpeningStopped` if the node is to stop."""
        self.segments_left = segments
        self._opening.check()

    def opened(self) -> None:
        """Count one more opened log, or one that cannot be opened. `OpeningStopped` if the node is to stop."""
        self.logs_left -= 1
        self.left(0)


class OpeningProgress:
    """The progress of opening all logs of a node: threads write it, and anybody reads it (KIP-831)."""

    def __init__(self) -> None:
        self.dirs: list[DirProgress] = []
        """Empty until it is known what there is."""
        self.total = 0
        self._is_stopped = False

    def begin(self, logs: Mapping[str, int]) -> None:
        """Note the number of logs in each log dir."""
        self.total = sum(logs.values())
        self.dirs = [DirProgress(path, count, self) for path, count in logs.items()]

    def stop(self) -> None:
        """Have the threads give up before the next log, and before the next piece of a segment that they verify."""
        self._is_stopped = True

    def check(self) -> None:
        """`OpeningStopped` if the node is to stop."""
        if self._is_stopped:
            raise OpeningStopped

    def __str__(self) -> str:
        """For people: how much is left."""
        if not self.dirs:
            return "opening logs"
        logs = sum(each.logs_left for each in self.dirs)
        text = f"opening logs: {logs} of {self.total} are left"
        segments = sum(each.segments_left for each in self.dirs)
        if segments:
            text += f"; {segments} segments that were not flushed are left to verify in those at work"
        return text


@dataclass(slots=True)
class LoadedLogs:
    """The logs that were found."""

    logs: list[tuple[PartitionLog, LogDir]] = field(default_factory=list)
    """A partition may be there twice."""
    dir_of: dict[TopicPartition, LogDir] = field(default_factory=dict)
    """Also of logs that could not be opened."""
    failed: dict[TopicPartition, str] = field(default_factory=dict)
    """Logs that could not be opened: which file, and why."""
    nameless: set[TopicPartition] = field(default_factory=set)
    """Those of them whose topic id cannot be told."""
    left: set[str] = field(default_factory=set)
    """Directories that have a log's name and are none; in ``failed``, too, as they are in its way."""
    high_watermarks: dict[TopicPartition, int] = field(default_factory=dict)
    doomed: list[str] = field(default_factory=list)
    """Directories that are to be removed."""
    unfinished: list[tuple[str, TopicPartition, LogDir]] = field(default_factory=list)
    """Directories of logs that were on their way to a log dir."""
    interrupted_moves: dict[TopicPartition, LogDir] = field(default_factory=dict)
    """The log dirs that logs were on their way to."""


def load_logs(
    disk: Disk,
    log_dirs: list[LogDir],
    *,
    now_ms: int,
    log_config: Callable[[TopicPartition], LogConfig],
    producer_id_expiration_ms: int,
    progress: OpeningProgress,
    leaves_holes: bool,
) -> LoadedLogs:
    """Open the logs in all dirs that are online; a dir that fails goes offline. `OpeningStopped` if told so."""
    loaded = LoadedLogs()
    work: list[_ToLoad] = []
    for log_dir in log_dirs:
        if log_dir.offline is None:
            try:
                work += _scan(disk, log_dir, loaded)
            except OSError as error:
                log_dir.mark_offline(error)
    found = {item.topic_partition for item in work}
    for path, tp, log_dir in loaded.unfinished:
        if tp in found:
            loaded.doomed.append(path)
            loaded.interrupted_moves[tp] = log_dir
        else:
            warn_of_left(path, "was on its way here, and the log that it was copied from is not there")
    counts = Counter(item.log_dir.path for item in work)
    progress.begin({log_dir.path: counts[log_dir.path] for log_dir in log_dirs})

    def load_dir(log_dir: LogDir, own: DirProgress) -> None:
        for item in (each for each in work if each.log_dir is log_dir):
            if log_dir.offline is None:
                config = log_config(item.topic_partition)
                log = _load(item, config, now_ms, producer_id_expiration_ms, loaded, own, leaves_holes)
                if log is not None:
                    loaded.logs.append((log, log_dir))
            own.opened()

    pairs = list(zip(log_dirs, progress.dirs, strict=True))
    if len(log_dirs) > 1 and isinstance(disk, OsDisk):
        from concurrent.futures import ThreadPoolExecutor  # here: most nodes have one dir

        with ThreadPoolExecutor(min(len(log_dirs), MOST_THREADS), thread_name_prefix="kbroker-open") as pool:
            for future in [pool.submit(load_dir, *pair) for pair in pairs]:
                future.result()
    else:
        for pair in pairs:
            load_dir(*pair)
    for item in work:
        if item.path not in loaded.left:
            loaded.dir_of.setdefault(item.topic_partition, item.log_dir)
    return loaded


def _scan(disk: Disk, log_dir: LogDir, loaded: LoadedLogs) -> list[_ToLoad]:
    recovery_points = log_dir.read_offsets(RECOVERY_POINTS) or {}
    starts = log_dir.read_offsets(LOG_START_OFFSETS) or {}
    cleaned = log_dir.read_offsets(CLEANER_OFFSETS)
    log_dir.cleaner_offsets = dict(cleaned or {})
    marks = log_dir.read_offsets(HIGH_WATERMARKS) or {}
    loaded.high_watermarks.update(marks)
    if log_dir.was_clean:
        remove_clean_shutdown(disk, log_dir.path)
    work = []
    for name in disk.list_dirs(log_dir.path):
        path = os.path.join(log_dir.path, name)
        marked, found = parse_marked_name(name), _log_in(name)
        if marked is not None:
            tp, suffix = marked
            if suffix in (DELETE_SUFFIX, FUTURE_SUFFIX) and not is_log_dir(disk.list_dir(path)):
                if suffix == FUTURE_SUFFIX:
                    loaded.unfinished.append((path, tp, log_dir))
                else:
                    loaded.doomed.append(path)
        elif found is not None:
            point = recovery_points.get(found)
            # Of a log that the checkpoints say nothing of, nobody knows where it was compacted: they are lost, or
            # somebody has moved its directory here. `CheckpointTasks.before_roll` has them speak of all others.
            clean = MAX_OFFSET if point is None or cleaned is None else cleaned.get(found, 0)
            work.append(_ToLoad(log_dir, path, found, point or 0, starts.get(found, 0), clean, marks.get(found, 0)))
    return work


_WITHOUT_SEGMENTS = (PARTITION_METADATA, TOPIC_ID_COPY, DAMAGE, LEADER_EPOCHS)
"""Names, or the beginnings of temporary ones, of a log that has no segment yet, or none after a power cut."""


def _why_no_log(names: list[str]) -> str | None:
    """The reason why a directory with these names in it is no log of this node; ``None`` if it may be one."""
    if is_log_dir(names):
        return "is a log directory itself"
    suffixes = *SEGMENT_SUFFIXES, SET_ASIDE_SUFFIX
    if names and not any(name.startswith(_WITHOUT_SEGMENTS) or name.endswith(suffixes) for name in names):
        return "has no log in it"
    return None


def _load(
    item: _ToLoad,
    config: LogConfig,
    now_ms: int,
    producer_id_expiration_ms: int,
    loaded: LoadedLogs,
    progress: DirProgress,
    leaves_holes: bool,
) -> PartitionLog | None:
    tp = item.topic_partition
    try:
        why = _why_no_log(names := item.log_dir.disk.list_dir(item.path))
        if why is not None:
            warn_of_left(item.path, why)
            loaded.left.add(item.path)
            loaded.failed.setdefault(tp, f"{item.path} {why}")
            return None
        return opening.open_log(
            item.path,
            tp,
            None,
            config,
            item.log_dir.disk,
            now_ms=now_ms,
            clean_shutdown=item.log_dir.was_clean,
            recovery_point=item.recovery_point,
            log_start_offset=item.log_start_offset,
            files=item.log_dir.files,
            producer_id_expiration_ms=producer_id_expiration_ms,
            clean_offset=item.clean_offset,
            high_watermark=item.high_watermark,
            leaves_holes=leaves_holes,
            segments_left=progress.left,
            names=names,
        )
    except (CorruptCheckpoint, OSError) as error:
        if isinstance(error, OSError) and error.errno not in _OF_ONE_PATH and not is_no_room(error):
            item.log_dir.mark_offline(error)
            return None
        logger.error("the log of %s cannot be opened: %s", tp, error)
        loaded.failed[tp] = str(error)
        if isinstance(error, CorruptCheckpoint):
            loaded.nameless.add(tp)
    return None


_NO_ID = "has no readable topic id, and is of no partition that this node has"

NoOthers = Callable[[TopicPartition], bool]
"""Whether no other broker has a replica of a partition."""

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


def _reached(log: PartitionLog) -> tuple[int, int]:
    return log.leader_epochs.latest, log.log_end_offset


class FoundLogs:
    """Chooses among the logs that a start has found. ``LogManager`` owns it, and the two tables that it fills."""

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
        self.nameless: set[TopicPartition] = set()
        """Logs that could not be opened because their topic id cannot be told; until :meth:`sort_out`."""

    def add(self, log: PartitionLog, log_dir: LogDir) -> None:
        """Take in a log that was opened."""
        other = self._logs.get(log.topic_partition)
        if other is not None and other.topic_id != log.topic_id:
            # One is of a topic that was deleted while its log dir was offline. Which, `sort_out` is told.
            self.contested.append((log, log_dir))
        else:
            self._adopt_longer(log, log_dir)

    def sort_out(self, is_own: IsOwn, is_only: NoOthers) -> list[TopicPartition]:
        """Keep the logs that are the node's own, and set the others aside or leave them; the partitions of those.

        A log of a partition that is here, and of which nothing tells whether it is of this topic or an earlier one of
        the name, is set aside, and made anew from another replica, unless this one ``is_only``.
        """
        gone: list[TopicPartition] = []
        for tp, log in sorted(self._logs.items()):
            if not is_own(tp, log.topic_id):
                self._correct_topic_id(log, is_own)
            if log.topic_id is None and log.log_end_offset and self._dir_of[tp].was_clean and is_own(tp, None):
                path = os.path.join(log.directory, PARTITION_METADATA)
                if is_only(tp):
                    logger.warning("%s is missing; the log is taken for that of the topic of its name", path)
                else:
                    self._begin_anew(tp, f"{path} is missing", log.config, log)
            elif not is_own(tp, log.topic_id) and (log.topic_id is not None or log.log_end_offset):
                log_dir = self._dir_of[tp]
                del self._logs[tp], self._dir_of[tp]
                self._put_away(log, log_dir)
                gone.append(tp)
        for tp in [tp for tp in self._failed if tp in self._dir_of and tp not in self._logs and not is_own(tp, None)]:
            del self._dir_of[tp]  # that it cannot be opened was said; it is left, and is no concern of a clean stop
            gone.append(tp)
        for tp in self.nameless & self._failed.keys() & self._dir_of.keys():
            if tp not in self._logs and not is_only(tp):
                self._begin_anew(tp, self._failed[tp], LogConfig())
        self.nameless.clear()
        contested, self.contested = self.contested, []
        for log, log_dir in sorted(contested, key=lambda found: found[0].topic_id is None):
            tp = log.topic_partition
            if is_own(tp, log.topic_id) and (log.topic_id is not None or tp not in self._logs):
                self._adopt_longer(log, log_dir)  # there may be one that does not know its topic
            else:
                self._put_away(log, log_dir)
                gone.append(tp)
        return gone

    def _correct_topic_id(self, log: PartitionLog, is_own: IsOwn) -> None:
        """Believe the second place of a topic id, which has a checksum, if the partition of that topic is here."""
        known = read_topic_id_copy(log.disk, log.directory)
        if known is not None and known != log.topic_id and is_own(log.topic_partition, known):
            path = os.path.join(log.directory, PARTITION_METADATA)
            logger.warning("%s: the id is not that of %s beside it; it is made anew", path, TOPIC_ID_COPY)
            log.adopt_topic_id(known)

    def _begin_anew(self, tp: TopicPartition, reason: str, config: LogConfig, log: PartitionLog | None = None) -> None:
        """Set a log aside whose topic is not known, and begin an empty one that counts as damaged: other replicas have
        all of it."""
        log_dir = self._dir_of[tp]
        path = os.path.join(log_dir.path, str(tp))
        logger.warning("%s; the log is set aside, and fetched again from another replica", reason)
        try:
            if log is not None:
                del self._logs[tp]
                self._marked.set_aside(log, log_dir, STRAY_SUFFIX)
            else:
                self._marked.set_directory_aside(path, tp, log_dir, STRAY_SUFFIX)
            log_dir.disk.make_dir(path)
            lost = Damage(0, UNKNOWN_END, PARTITION_METADATA, 0, 0, reason, 0)
            note(log_dir.disk, path, [lost])
            anew = opening.open_log(path, tp, None, config, log_dir.disk, now_ms=0, files=log_dir.files)
        except OSError as error:
            self._mark_offline(log_dir, error)
            return
        self._failed.pop(tp, None)
        self._adopt(anew, log_dir)

    def _adopt_longer(self, log: PartitionLog, log_dir: LogDir) -> None:
        tp = log.topic_partition
        other = self._logs.get(tp)
        if other is not None:
            # The node stopped at the last step of a move: both have what was durable, one perhaps more. Or it was cut
            # back since, in a later leader epoch, which the other one has not heard of.
            other_dir = self._dir_of[tp]
            if _reached(log) <= _reached(other):
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
