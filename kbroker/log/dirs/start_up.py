"""Opens all logs of a node's log dirs at the start, dir beside dir, and tells how far it is."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable

from kbroker.log import opening
from kbroker.log.checkpoint_files import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    CorruptCheckpoint,
    remove_clean_shutdown,
)
from kbroker.log.disk import Disk, OsDisk
from kbroker.log.log_config import LogConfig
from kbroker.log.log_dir import DELETE_SUFFIX, FUTURE_SUFFIX, LogDir, parse_log_dir_name, parse_marked_name
from kbroker.log.partition_log import PartitionLog
from kbroker.log.recovery import MAX_OFFSET
from kbroker.types import METADATA_TOPIC, TopicPartition
from kbroker.value_types import NamedTuple, dataclass, field

logger = logging.getLogger(__name__)


class _ToLoad(NamedTuple):
    """A log that was found in a log dir."""

    log_dir: LogDir
    path: str
    topic_partition: TopicPartition
    recovery_point: int
    log_start_offset: int
    clean_offset: int | None


class _Progress:
    """Tells how far the opening of logs has come: each time to a callback, and every second to people."""

    def __init__(self, total: int, callback: Callable[[int, int], None] | None) -> None:
        self._total = total
        self._callback = callback
        self._done = 0
        self._tell_at = time.monotonic() + 1
        self._lock = threading.Lock()

    def advance(self) -> None:
        """Count one more opened log."""
        with self._lock:
            self._done += 1
            if self._callback is not None:
                self._callback(self._done, self._total)
            if time.monotonic() >= self._tell_at:
                self._tell_at = time.monotonic() + 1
                logger.info("opening logs: %d of %d", self._done, self._total)


@dataclass(slots=True)
class LoadedLogs:
    """The logs that were found."""

    logs: list[tuple[PartitionLog, LogDir]] = field(default_factory=list)
    """A partition may be there twice."""
    dir_of: dict[TopicPartition, LogDir] = field(default_factory=dict)
    """Also of logs that could not be opened."""
    failed: dict[TopicPartition, str] = field(default_factory=dict)
    """Logs that could not be opened: which file, and why."""
    high_watermarks: dict[TopicPartition, int] = field(default_factory=dict)
    doomed: list[str] = field(default_factory=list)
    """Directories that are to be removed."""
    interrupted_moves: dict[TopicPartition, LogDir] = field(default_factory=dict)
    """The log dirs that logs were on their way to."""


def load_logs(
    disk: Disk,
    log_dirs: list[LogDir],
    *,
    now_ms: int,
    log_config: Callable[[TopicPartition], LogConfig],
    producer_id_expiration_ms: int,
    on_progress: Callable[[int, int], None] | None,
) -> LoadedLogs:
    """Open the logs in all dirs that are online; a dir that fails goes offline."""
    loaded = LoadedLogs()
    work: list[_ToLoad] = []
    for log_dir in log_dirs:
        if log_dir.offline is None:
            try:
                work += _scan(disk, log_dir, loaded)
            except OSError as error:
                log_dir.mark_offline(error)
    progress = _Progress(len(work), on_progress)

    def load_dir(log_dir: LogDir) -> None:
        for item in work:
            if item.log_dir is log_dir and log_dir.offline is None:
                log = _load(disk, item, log_config(item.topic_partition), now_ms, producer_id_expiration_ms, loaded)
                if log is not None:
                    loaded.logs.append((log, log_dir))
                progress.advance()

    if len(log_dirs) > 1 and isinstance(disk, OsDisk):
        from concurrent.futures import ThreadPoolExecutor  # here: most nodes have one dir

        with ThreadPoolExecutor(len(log_dirs), thread_name_prefix="kbroker-open") as pool:
            for future in [pool.submit(load_dir, log_dir) for log_dir in log_dirs]:
                future.result()
    else:
        for log_dir in log_dirs:
            load_dir(log_dir)
    for item in work:
        loaded.dir_of.setdefault(item.topic_partition, item.log_dir)
    return loaded


def _scan(disk: Disk, log_dir: LogDir, loaded: LoadedLogs) -> list[_ToLoad]:
    recovery_points = log_dir.read_offsets(RECOVERY_POINTS) or {}
    starts = log_dir.read_offsets(LOG_START_OFFSETS) or {}
    cleaned = log_dir.read_offsets(CLEANER_OFFSETS)
    log_dir.cleaner_offsets = dict(cleaned or {})
    loaded.high_watermarks.update(log_dir.read_offsets(HIGH_WATERMARKS) or {})
    if log_dir.was_clean:
        remove_clean_shutdown(disk, log_dir.path)
    work = []
    for name in disk.list_dir(log_dir.path):
        path = os.path.join(log_dir.path, name)
        marked = parse_marked_name(name)
        if marked is not None:
            tp, suffix = marked
            if suffix in (DELETE_SUFFIX, FUTURE_SUFFIX):
                loaded.doomed.append(path)
            if suffix == FUTURE_SUFFIX:
                loaded.interrupted_moves[tp] = log_dir
            continue
        found = parse_log_dir_name(name)
        # The metadata log has an owner of its own (node/quorum.py).
        if found is not None and found.topic != METADATA_TOPIC and disk.is_dir(path):
            clean = cleaned.get(found) if cleaned is not None else MAX_OFFSET
            work.append(_ToLoad(log_dir, path, found, recovery_points.get(found, 0), starts.get(found, 0), clean))
    return work


def _load(
    disk: Disk,
    item: _ToLoad,
    config: LogConfig,
    now_ms: int,
    producer_id_expiration_ms: int,
    loaded: LoadedLogs,
) -> PartitionLog | None:
    try:
        return opening.open_log(
            item.path,
            item.topic_partition,
            None,
            config,
            disk,
            now_ms=now_ms,
            clean_shutdown=item.log_dir.was_clean,
            recovery_point=item.recovery_point,
            log_start_offset=item.log_start_offset,
            files=item.log_dir.files,
            producer_id_expiration_ms=producer_id_expiration_ms,
            clean_offset=item.clean_offset,
        )
    except CorruptCheckpoint as error:
        logger.error("the log of %s cannot be opened: %s", item.topic_partition, error)
        loaded.failed[item.topic_partition] = str(error)
    except OSError as error:
        item.log_dir.mark_offline(error)
    return None
