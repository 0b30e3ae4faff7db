"""A directory of ``log.dirs``: its lock, the names in it, and its checkpoint files."""

from __future__ import annotations

import logging
import os
import random
import re
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from sys import intern

from kbroker.errors import ApiError, ErrorCode, FatalError
from kbroker.log.checkpoint_files import (
    META_PROPERTIES,
    NO_OTHER_COPY,
    CorruptCheckpoint,
    MetaProperties,
    read_clean_shutdown,
    read_meta_properties,
    read_offsets,
    write_meta_properties,
    write_offsets,
)
from kbroker.log.damage import Damage
from kbroker.log.disk import Disk, DiskLock, DiskUsage
from kbroker.log.full_disk import Room
from kbroker.log.segments.open_files import OpenFiles
from kbroker.types import TopicPartition, Uuid, random_uuid
from kbroker.value_types import NamedTuple

logger = logging.getLogger(__name__)

LOCK_FILE = ".lock"
DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
FUTURE_SUFFIX = "-future"
_MARKED = re.compile(r"^(\S+)-(\d+)\.([0-9a-f]{32})(-delete|-stray|-future)\Z", re.ASCII)
_LOG_NAME = re.compile(r"^([a-zA-Z0-9._-]+)-(\d+)\Z", re.ASCII)
MAX_NAME = 255
"""The bytes that a file system allows a name."""


def parse_marked_name(name: str) -> tuple[TopicPartition, str] | None:
    """Partition and suffix in the name of a directory that is not in use (yet, or any more); None for others."""
    found = _MARKED.match(name) if len(name) <= MAX_NAME else None
    return (TopicPartition(found[1], int(found[2])), found[4]) if found is not None else None


def is_log_dir(names: Collection[str]) -> bool:
    """Whether a directory with these names in it is a log dir itself: some node's, and never a log of this one."""
    return META_PROPERTIES in names or LOCK_FILE in names


def parse_log_dir_name(name: str) -> TopicPartition | None:
    """The partition whose log a directory of this name holds, or ``None``."""
    found = _LOG_NAME.match(name)
    # One string for all partitions of a topic: a node may have ten thousand.
    return TopicPartition(intern(found[1]), int(found[2])) if found is not None else None


def check_unclaimed(disk: Disk, path: str, own: Collection[str] = ()) -> None:
    """``FatalError`` if a directory is not to become a log dir, as there are others in it that are not ``own``."""
    for name in disk.list_dir(path) if disk.is_dir(path) else ():
        inner = os.path.join(path, name)
        if inner not in own and disk.exists(os.path.join(inner, META_PROPERTIES)):
            raise FatalError(f"{path} cannot be a log directory: {name} in it is one, of another node")


class LogDir:
    """A directory of ``log.dirs``."""

    __slots__ = (
        "before_creation",
        "broker_epoch",
        "cleaner_offsets",
        "cordoned",
        "directory_id",
        "disk",
        "files",
        "lock",
        "offline",
        "path",
        "room",
        "was_clean",
        "write_lock",
        "write_numbers",
        "written",
    )

    def __init__(self, disk: Disk, path: str, open_files: int) -> None:
        """``open_files``: how many files of its logs may be open."""
        self.path = path
        self.room = Room(disk, path)
        """Clients may write nothing while it is full."""
        self.disk = self.room.disk()
        self.files = OpenFiles(self.disk, open_files)
        """The open files of its logs: of its own, so that dirs can be opened side by side."""
        self.before_creation = self.check_present
        """`PartitionLog.before_creation` of all its logs."""
        self.directory_id: Uuid | None = None
        self.lock: DiskLock | None = None
        self.was_clean = False
        """Whether the last stop left its marker."""
        self.broker_epoch = -1
        """The broker epoch in that marker, or -1."""
        self.cordoned = False
        """Whether it gets no new logs (KIP-1066)."""
        self.offline: str | None = None
        """The reason why the directory is not used any more, or ``None``."""
        self.written: dict[str, Mapping[TopicPartition, int]] = {}
        """The content of the checkpoint files that are there, by their names."""
        self.write_lock = threading.Lock()
        """Held while a checkpoint file is written."""
        self.write_numbers: dict[str, int] = {}
        """By checkpoint file, which of the manager's tasks wrote it last."""
        self.cleaner_offsets: dict[TopicPartition, int] = {}
        """The (exclusive) clean offset of each log that was ever compacted."""

    def usage(self) -> DiskUsage:
        """The bytes of the directory's file system. ``OSError`` if it fails, too."""
        return self.disk.usage(self.path)

    def marked_path(self, topic_partition: TopicPartition, suffix: str, rng: random.Random) -> str:
        """A path in this directory for a log that is not in use: unique, and not too long."""
        end = f"-{topic_partition.partition}.{rng.randbytes(16).hex()}{suffix}"
        return os.path.join(self.path, topic_partition.topic[: MAX_NAME - len(end)] + end)

    def new_path(self, topic_partition: TopicPartition) -> str:
        """The directory of a log that is to be made here. KAFKA_STORAGE_ERROR if something else has its name."""
        path = os.path.join(self.path, str(topic_partition))
        if self.disk.exists(path):
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is in the way of the log of {topic_partition}")
        return path

    def check_present(self) -> None:
        """Raise ``OSError`` if the directory is gone, or is another by now: its lock is not the file that we hold."""
        if self.lock is not None:
            try:
                self.lock.check()
            except OSError as error:
                reason = error.strerror or str(error)
                raise OSError(f"it was removed, or its disk unmounted ({LOCK_FILE}: {reason})") from error

    def mark_offline(self, error: BaseException) -> None:
        """Note that the directory failed: nothing is written there any more, and its next start verifies all."""
        if self.offline is None:
            self.offline = f"{self.path}: {error}"
            logger.error("log dir %s is offline: %s", self.path, error)

    def open(self, cluster_id: str | None, node_id: int | None, rng: random.Random, *, may_be_new: bool = True) -> None:
        """Create, lock and identify it. It goes offline if the disk fails; ``FatalError`` if it is someone else's, or
        new where it may not be."""
        disk, path = self.disk, self.path
        try:
            if not may_be_new:
                if not disk.exists(os.path.join(path, META_PROPERTIES)):
                    raise FatalError(f"no meta.properties in {path}: format the node first (kbroker format)")
            elif not disk.is_dir(path):
                disk.make_dirs(path)
                disk.sync_dir(os.path.dirname(path) or ".")
            self._read_owner(cluster_id, node_id)  # a directory of someone else gets no lock file either
            try:
                self.lock = disk.lock(os.path.join(path, LOCK_FILE))
            except BlockingIOError:
                raise FatalError(
                    f"log dir {path} is in use by another broker (its {LOCK_FILE} file is locked)"
                ) from None
            properties = self._read_owner(cluster_id, node_id)
            if properties is None and cluster_id is not None and node_id is not None:
                check_unclaimed(disk, path)
                properties = MetaProperties(cluster_id, node_id, random_uuid(rng))
                write_meta_properties(disk, path, properties)
            if properties is not None:
                self.directory_id = properties.directory_id
                self.room.fill_reserve()
            epoch = read_clean_shutdown(disk, path)
            if epoch is not None:
                self.was_clean, self.broker_epoch = True, epoch
        except CorruptCheckpoint as error:
            self.mark_offline(CorruptCheckpoint(f"{error}; {NO_OTHER_COPY}"))
        except OSError as error:
            self.mark_offline(error)

    def _read_owner(self, cluster_id: str | None, node_id: int | None) -> MetaProperties | None:
        found = read_meta_properties(self.disk, self.path)
        if found is not None and cluster_id is not None and found.cluster_id != cluster_id:
            raise FatalError(f"log dir {self.path} belongs to cluster {found.cluster_id}, not to {cluster_id}")
        if found is not None and node_id is not None and found.node_id != node_id:
            raise FatalError(f"log dir {self.path} belongs to node {found.node_id}, not to node {node_id}")
        return found

    def unlock(self) -> None:
        """Let others have it."""
        if self.lock is not None:
            self.lock.release()
            self.lock = None

    def read_offsets(self, name: str) -> dict[TopicPartition, int] | None:
        """The offsets in a checkpoint file; ``None`` if it is absent, empty or damaged."""
        try:
            offsets = read_offsets(self.disk, os.path.join(self.path, name))
        except CorruptCheckpoint as error:
            # Nothing is lost: without a recovery point all is verified, without a start all is kept.
            logger.warning("%s; it is left out", error)
            return None
        if offsets is not None:
            self.written[name] = offsets
        return offsets

    def write_offsets(self, name: str, offsets: Mapping[TopicPartition, int], number: int) -> None:
        """Write a checkpoint file if it changes, in any thread; unless a later ``number`` was quicker."""
        with self.write_lock:
            if number > self.write_numbers.get(name, 0):
                self.write_numbers[name] = number
                if self.written.get(name) != offsets:
                    write_offsets(self.disk, os.path.join(self.path, name), offsets)
                    self.written[name] = offsets


def metadata_directory_id(own: LogDir, log_dirs: Sequence[LogDir], properties: MetaProperties) -> Uuid:
    """Returns the id of the metadata log's directory ``own``, by which the voters know the node. ``properties`` are the
    first of the node's directories."""
    directory_id = own.directory_id or properties.directory_id or log_dirs[0].directory_id  # in this order
    if directory_id is None:
        raise FatalError(f"{os.path.join(log_dirs[0].path, META_PROPERTIES)}: directory.id is missing")
    return directory_id


class LogDescription(NamedTuple):
    """A log in a log directory; one that ``is_future`` is on its way there, and lacks ``offset_lag`` records."""

    topic_partition: TopicPartition
    size: int
    offset_lag: int = 0
    is_future: bool = False
    damage: Sequence[Damage] = ()


class LogDirDescription(NamedTuple):
    """A log directory: its file system's bytes, the logs in it, and whether it gets no new ones.

    ``logs`` are described as they are read, once: a node with 100,000 of them serves others in between.
    """

    path: str
    offline: bool
    total_bytes: int
    usable_bytes: int
    logs: Iterable[LogDescription]
    cordoned: bool = False
