"""Opens a partition's log from its directory, or makes a new one."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial

from kbroker.errors import ApiError, ErrorCode
from kbroker.log import old_formats, recovery
from kbroker.log.checkpoint_files import (
    PARTITION_METADATA,
    CorruptCheckpoint,
    read_partition_metadata,
    read_topic_id_copy,
    write_partition_metadata,
)
from kbroker.log.disk import Disk
from kbroker.log.file_names import LOG_SUFFIX
from kbroker.log.full_disk import unless_full
from kbroker.log.leader_epochs import LeaderEpochs
from kbroker.log.loaded_log import Known, LoadedLog
from kbroker.log.log_config import LogConfig
from kbroker.log.partition_log import PartitionLog
from kbroker.log.producer_state import ProducerStateManager
from kbroker.log.segments.open_files import OpenFiles
from kbroker.log.segments.segment import Segment
from kbroker.log.segments.segment_recovery import MAX_OFFSET
from kbroker.types import TopicPartition, Uuid

logger = logging.getLogger(__name__)

_PRODUCER_ID_EXPIRATION_MS = 24 * 60 * 60 * 1000


def open_log(
    directory: str | os.PathLike[str],
    topic_partition: TopicPartition,
    topic_id: Uuid | None,
    config: LogConfig,
    disk: Disk,
    *,
    now_ms: int,
    clean_shutdown: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    files: OpenFiles | None = None,
    producer_id_expiration_ms: int = _PRODUCER_ID_EXPIRATION_MS,
    clean_offset: int = 0,
    high_watermark: int = 0,
    leaves_holes: bool = False,
    holes_below: int = -1,
    segments_left: Callable[[int], None] = lambda count: None,
    names: list[str] | None = None,
) -> PartitionLog:
    """Open a partition's directory, or begin an empty log there if it does not exist.

    ``clean_shutdown`` says that the last stop left its marker; otherwise what was written at or after
    ``recovery_point`` is verified. ``clean_offset`` tells up to where the log may have been compacted: offsets may be
    missing between segments there. The log has reached ``high_watermark``, too. ``leaves_holes`` keeps all whole
    batches; else the log is cut at the first damage that does not end at ``holes_below`` or before. ``segments_left``
    hears how many are still to be verified, before each and at the end; an exception of its own ends the opening as a
    kill does. ``names`` are those in the directory, if they were just listed. ``ApiError(INCONSISTENT_TOPIC_ID)`` if
    the directory holds another topic's data; ``CorruptCheckpoint`` if ``partition.metadata`` is wrong after a clean
    stop, or a message of an old format is; ``OSError``.
    """
    path = os.fspath(directory)
    files = files if files is not None else OpenFiles(disk)
    if names is None and disk.is_dir(path):
        names = disk.list_dir(path)
    if names is None:
        log = create_log(
            path,
            topic_partition,
            topic_id,
            config,
            disk,
            now_ms=now_ms,
            files=files,
            producer_id_expiration_ms=producer_id_expiration_ms,
        )
        if log_start_offset:
            log.truncate_fully_and_start_at(log_start_offset, now_ms=now_ms)
        return log
    topic_id = _agree_on_topic_id(disk, path, topic_id, clean_shutdown)
    holes_below = MAX_OFFSET if leaves_holes else holes_below
    names = old_formats.upgrade(disk, files, path, names, clean_offset > 0, partial(segments_left, 0))
    producers = ProducerStateManager(
        topic_partition, path, disk, producer_id_expiration_ms=producer_id_expiration_ms, names=names
    )
    loaded = recovery.load(
        disk,
        files,
        path,
        names,
        config,
        producers,
        Known(clean_shutdown, recovery_point, log_start_offset, clean_offset, high_watermark, holes_below),
        now_ms=now_ms,
        segments_left=segments_left,
    )
    log = PartitionLog(path, topic_partition, topic_id, config, disk, files, producers, loaded, on_disk=True)
    log.durability.cut = not clean_shutdown or bool(loaded.cuts)
    log.durability.is_named = clean_shutdown
    if loaded.segments[-1].size and disk.is_shared(loaded.segments[-1].path):
        log.roll(now_ms)  # another log has the segment, too: this one does not go on in it
    if loaded.has_holes:
        with unless_full():
            log.flush()  # what is below the recovery point is not taken for damage at the next start, whatever it knows
    return log


def _agree_on_topic_id(disk: Disk, path: str, expected: Uuid | None, clean_shutdown: bool) -> Uuid | None:
    """The topic id of the directory's data. A directory without one gets the expected id, which is written there."""
    damage = None
    try:
        found = read_partition_metadata(disk, path)
    except CorruptCheckpoint as error:
        found, damage = None, error
    if found is None:
        found = read_topic_id_copy(disk, path)
        if found is not None:
            logger.warning("%s; it is made anew", damage or f"{os.path.join(path, PARTITION_METADATA)} is missing")
            write_partition_metadata(disk, path, found, sync=True)
    if found is None and damage is not None:
        logs = [os.path.join(path, name) for name in disk.list_dir(path) if name.endswith(LOG_SUFFIX)]
        if clean_shutdown and any(map(disk.size, logs)):
            raise damage
        # It is durable from the first flush on, so probably nothing here ever was flushed.
        logger.warning("%s; it is written anew once the topic is known", damage)
    if found is None:
        if expected is not None:
            write_partition_metadata(disk, path, expected)
        return expected
    if expected is not None and found != expected:
        raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{path} holds the data of another topic of the same name")
    return found


def create_log(
    directory: str,
    topic_partition: TopicPartition,
    topic_id: Uuid | None,
    config: LogConfig,
    disk: Disk,
    *,
    now_ms: int,
    files: OpenFiles,
    producer_id_expiration_ms: int = _PRODUCER_ID_EXPIRATION_MS,
) -> PartitionLog:
    """An empty log that touches the disk only when it is first written (``ensure_on_disk``): a topic of a thousand
    partitions is there at once, and one lost in a crash before that was empty."""
    producers = ProducerStateManager(
        topic_partition, directory, disk, producer_id_expiration_ms=producer_id_expiration_ms, names=()
    )
    segment = Segment(disk, files, directory, 0, index_interval=config.index_interval_bytes, created_ms=now_ms)
    loaded = LoadedLog([segment], 0, 0, 0, 0, LeaderEpochs())
    return PartitionLog(directory, topic_partition, topic_id, config, disk, files, producers, loaded, on_disk=False)
