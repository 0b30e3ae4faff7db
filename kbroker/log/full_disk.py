"""Room on a disk that runs full: a reserve for what a node must write, and how it is known that there is room again.

Files without a meaning (``.reserve.0`` and so on) keep the last bytes of a directory's file system. Whoever meets a
full disk gives some of them up, and writes on: a log that is being rolled is rolled whole, checkpoints are written, a
node starts. From then on the directory is full, and its owner has clients write nothing more there, until the files can
be made again.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from kbroker.log.disk import Buffer, Disk, DiskFile, DiskUsage

logger = logging.getLogger(__name__)

T = TypeVar("T")

_RESERVE = ".reserve."
_FORMER = ".reserve-"
"""Up to release 0.2: the name of a log, too, as a topic may be called ``.reserve``."""
_PIECES = 4
FOR_METADATA = 1
"""Pieces that are left to the metadata log: without it a node cannot start."""
_PIECE_BYTES = 512 * 1024
_FOR_VOTES = 64 * 1024
"""Bytes that are left to the files of elections: a node that cannot write those ends."""
_ROOM = 4
"""Times the reserve that must be free for a full disk to count as one with room again."""


def is_no_room(error: BaseException) -> bool:
    """Whether the disk, or the quota of its user, is full: a write is refused, and all before is sound."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def unless_full() -> Iterator[None]:
    """Have what is written inside left out where the disk is full: it can be made anew."""
    try:
        yield
    except OSError as error:
        if not is_no_room(error):
            raise


class Room:
    """The room in one directory. Any thread may call; ``on_full`` hears of it in that thread."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._lock = threading.Lock()
        self.is_full = False
        """Whether clients may write nothing here."""
        self.on_full: Callable[[], None] = lambda: None

    def disk(self, *, keep: int = FOR_METADATA) -> Disk:
        """The disk, which is written also when it is full, while more than ``keep`` pieces of the reserve are left."""
        return _RoomyDisk(self._disk, self, keep)

    def fill_reserve(self) -> bool:
        """Make the missing files of the reserve; whether there is room for them. ``OSError`` for another reason."""
        with self._lock:
            self._rename_former()
            usage = self._disk.usage(self._directory)
            size = _piece_bytes(usage)
            if self.is_full and usage.usable < _ROOM * _PIECES * size:
                return False
            for path in self._paths():
                if self._disk.exists(path) and self._disk.size(path) >= size:
                    continue
                try:
                    self._disk.take_room(path, size)
                except OSError as error:
                    # A part is kept: the last bytes are the metadata log's, whoever is the first to write.
                    if not is_no_room(error) or not self._disk.exists(path) or not self._disk.size(path):
                        self._disk.remove(path)
                    if not is_no_room(error):
                        raise
                    self._note(error)
                    return False
            if self.is_full:
                self.is_full = False
                logger.info("log dir %s has room again", self._directory)
            return True

    def ran_out(self, error: BaseException) -> None:
        """Note that ``error`` says that the disk is full."""
        with self._lock:
            self._note(error)

    def give_way(self, error: BaseException, keep: int) -> bool:
        """Note that ``error`` says that the disk is full, and give up a piece of the reserve; whether there was one."""
        with self._lock:
            self._note(error)
            left = [path for path in self._paths() if self._disk.exists(path)]
            if len(left) <= keep:
                return False
            self._disk.remove(left[-1])
            return True

    def check(self, keep: int) -> None:
        """Raise ``OSError`` if all that is left of a full disk is for those who ``keep`` fewer pieces."""
        if self.is_full and keep:
            usage = self._disk.usage(self._directory)
            if usage.usable < keep * _piece_bytes(usage) and not any(map(self._disk.exists, self._paths()[:keep])):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._directory)

    def check_votes(self, size: int) -> None:
        """Raise ``OSError`` if a write of ``size`` bytes would leave a full disk no room for the files of elections."""
        if self.is_full and not any(map(self._disk.exists, self._paths())):
            usage = self._disk.usage(self._directory)
            if usage.usable < size + _FOR_VOTES:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._directory)

    def insist(self, write: Callable[[], T], keep: int) -> T:
        """Write, and give way to it if the disk is full; what ``write`` returns."""
        while True:
            try:
                return write()
            except OSError as error:
                if not is_no_room(error) or not self.give_way(error, keep):
                    raise

    def _note(self, error: BaseException) -> None:
        if not self.is_full:
            self.is_full = True
            logger.warning(
                "log dir %s is full: nothing is written for clients there until there is room: %s",
                self._directory,
                error,
            )
            self.on_full()

    def _rename_former(self) -> None:
        for number, path in enumerate(self._paths()):
            former = os.path.join(self._directory, f"{_FORMER}{number}")
            if self._disk.exists(former) and not self._disk.is_dir(former):
                try:
                    self._disk.rename(former, path)
                except OSError as error:
                    if not is_no_room(error):
                        raise
                    self._disk.remove(former)  # a full disk may have no room for a new name; now it has

    def _paths(self) -> list[str]:
        return [os.path.join(self._directory, f"{_RESERVE}{number}") for number in range(_PIECES)]


def _piece_bytes(usage: DiskUsage) -> int:
    return max(4096, min(_PIECE_BYTES, usage.total // 256))


class _RoomyDisk:
    """A `Disk` whose writes are insisted on. Whatever needs no room is the disk's own."""

    def __init__(self, disk: Disk, room: Room, keep: int) -> None:
        self._disk = disk
        self._room = room
        self._keep = keep
        self.exists, self.is_dir, self.size = disk.exists, disk.is_dir, disk.size
        self.list_dir, self.list_dirs = disk.list_dir, disk.list_dirs
        self.modified_ms, self.set_modified_ms = disk.modified_ms, disk.set_modified_ms
        self.link, self.is_shared, self.is_own_dir = disk.link, disk.is_shared, disk.is_own_dir
        self.remove, self.remove_tree, self.sync_dir = disk.remove, disk.remove_tree, disk.sync_dir
        self.read_bytes, self.usage, self.lock = disk.read_bytes, disk.usage, disk.lock
        self.take_room = disk.take_room

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        file = self._room.insist(partial(self._disk.open, path, create=create), self._keep)
        return _RoomyFile(file, self._room, self._keep)

    def make_dirs(self, path: str) -> None:
        self._room.check(self._keep)
        self._room.insist(partial(self._disk.make_dirs, path), self._keep)

    def make_dir(self, path: str) -> None:
        self._room.check(self._keep)
        self._room.insist(partial(self._disk.make_dir, path), self._keep)

    def rename(self, old: str, new: str) -> None:
        self._room.insist(partial(self._disk.rename, old, new), self._keep)

    def write_bytes(self, path: str, data: Buffer, *, sync: bool = False) -> None:
        self._room.check(self._keep)
        self._room.insist(partial(self._disk.write_bytes, path, data, sync=sync), self._keep)


class _RoomyFile:
    """A file whose writes are insisted on."""

    __slots__ = ("__weakref__", "_file", "_keep", "_room", "fd", "pread")

    def __init__(self, file: DiskFile, room: Room, keep: int) -> None:
        self._file = file
        self._room = room
        self._keep = keep
        self.fd = file.fd
        self.pread = file.pread  # the others are seldom used, and a bound method each costs memory

    def size(self) -> int:
        return self._file.size()

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        if self._room.is_full:
            self._room.check(self._keep)
        try:
            self._file.write_at(position, buffers)
        except OSError as error:
            if not is_no_room(error):
                raise
            self._room.insist(partial(self._file.write_at, position, buffers), self._keep)
