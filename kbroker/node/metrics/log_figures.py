"""Figures of log directories, and of the background work on logs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from kbroker.node.metrics.figures import PAUSE, STRIDE, Figures
from kbroker.observe.metrics import families as f

if TYPE_CHECKING:
    from kbroker.log.log_dir import LogDir
    from kbroker.node.logs.log_cleaner import LogCleaner
    from kbroker.node.logs.log_scrubber import LogScrubber
    from kbroker.node.replicas.replica_manager import ReplicaManager
    from kbroker.runtime.env import Env


class Space(NamedTuple):
    """The file system of a log directory, in bytes."""

    total: int
    free: int


async def spaces(env: Env, log_dirs: list[LogDir]) -> dict[str, Space]:
    """The file systems of log directories by path, those left out that do not tell; asked for in a thread."""

    working = [log_dir for log_dir in log_dirs if log_dir.offline is None]

    def ask() -> dict[str, Space]:
        found = {}
        for log_dir in working:
            with suppress(OSError):
                found[log_dir.path] = Space(*log_dir.usage())
        return found

    return await env.run_blocking(ask)


def figures(
    log_dirs: list[LogDir],
    space: Mapping[str, Space],
    cleaner: LogCleaner | None,
    scrubber: LogScrubber | None,
    manager: ReplicaManager,
) -> Figures:
    """The directories that work, the room in them, logs that cannot be cleaned, and how far the scrubber is."""
    yield f.OFFLINE_LOG_DIRS, [((), sum(log_dir.offline is not None for log_dir in log_dirs))]
    yield f.LOG_DIR_OFFLINE, [((log_dir.path,), log_dir.offline is not None) for log_dir in log_dirs]
    yield f.CORDONED_LOG_DIRS, [((), sum(log_dir.cordoned for log_dir in log_dirs))]
    yield f.LOG_DIR_CORDONED, [((log_dir.path,), log_dir.cordoned) for log_dir in log_dirs]
    yield f.LOG_DIR_TOTAL, [((path,), found.total) for path, found in space.items()]
    yield f.LOG_DIR_FREE, [((path,), found.free) for path, found in space.items()]
    logs = manager.log_manager
    counts, sizes = {log_dir.path: 0 for log_dir in log_dirs}, {log_dir.path: 0 for log_dir in log_dirs}
    for topic_partition, log in list(cleaner.uncleanable.items()) if cleaner is not None else ():
        of_log = logs.log_dir_of(topic_partition)
        if of_log is not None and logs.log_of(topic_partition) is log:
            counts[of_log.path] += 1
            sizes[of_log.path] += log.size
    yield f.UNCLEANABLE, [((path,), count) for path, count in counts.items()]
    yield f.UNCLEANABLE_BYTES, [((path,), size) for path, size in sizes.items()]
    if scrubber is not None:
        yield f.SCRUBBED, [((path,), count) for path, count in scrubber.bytes.items()]
        progress = scrubber.progress.items()
        yield f.SCRUB_PROGRESS, [((path,), each.share) for path, each in progress]
        yield f.SCRUB_END, [((path,), each.ended_ms / 1000) for path, each in progress]
        yield f.SCRUB_DAMAGE, [((path,), each.found) for path, each in progress]
    image, queued = manager.image, 0
    if len(log_dirs) > 1:
        for number, (key, partition) in enumerate(list(manager.partitions.items()), 1):
            if not number % STRIDE:
                yield PAUSE
            own, assigned = logs.log_dir_of(partition.topic_partition), image.topics.partition(*key)
            if own is not None and own.directory_id is not None and assigned is not None:
                queued += assigned.directory(manager.node_id) != own.directory_id
    yield f.QUEUED_ASSIGNMENTS, [((), queued)]
