"""The only place of ``kbroker.log`` that touches the operating system's files.

:class:`Disk` is what the log asks of a file system; :class:`OsDisk` is the real one and
``kbroker.log.fake_disk.FakeDisk`` the one of tests and simulations, where power fails and calls go wrong.

What the interface leaves out, on purpose: permissions beyond those of creation, memory maps (a map cannot report
an I/O error other than by a signal), and locks inside files. Errors are ``OSError`` with
their ``errno``; nothing here retries. A ``sync`` that failed must not be repeated and trusted: the kernel may
have dropped the dirty pages. What to do then is the caller's decision (the log dir goes offline).
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar, Protocol

from kbroker.value_types import NamedTuple

try:
    import fcntl
except ImportError:  # pragma: no cover - not a POSIX system
    fcntl = None  # type: ignore[assignment]

try:
    import resource
except ImportError:  # pragma: no cover - not a POSIX system
    resource = None  # type: ignore[assignment]

Buffer = bytes | bytearray | memoryview

_IOV_MAX = 512
"""Buffers given to one vectored write; well under the 1,024 that Linux and macOS allow."""

_HAS_ADVICE = hasattr(os, "posix_fadvise") and hasattr(os, "RWF_NOWAIT")
_LARGEST_PAGE = 64 * 1024
"""Bytes of a page on any machine, at the most."""


class DiskUsage(NamedTuple):
    """Bytes of a file system: all of it, and what this user may still write."""

    total: int
    usable: int


class DiskFile(Protocol):
    """A file open for reading and writing at positions; it has no cursor of its own."""

    @property
    def fd(self) -> int:
        """The descriptor for ``sendfile``, or -1 where there is none and bytes must be read."""
        ...

    def size(self) -> int:
        """Length in bytes."""
        ...

    def pread(self, length: int, position: int) -> bytes:
        """Up to ``length`` bytes at ``position``; fewer only at the end of the file."""
        ...

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        """Write all buffers one after the other from ``position``; on ``OSError`` a prefix may be there."""
        ...

    def truncate(self, size: int) -> None:
        """Cut, or extend with zeros, to ``size`` bytes."""
        ...

    def sync(self) -> None:
        """Make content and length durable (``fdatasync``). May run in another thread. Never fails for want of room."""
        ...

    def close(self) -> None:
        """Give the descriptor back now. Files that readers may share are dropped, not closed."""
        ...


class DiskLock(Protocol):
    """A lock held by this process until ``release``."""

    def release(self) -> None: ...

    def check(self) -> None:
        """Raise ``OSError`` if the file that is locked is not the one of that name any more."""
        ...


class Disk(Protocol):
    """A file system. Paths are text; directories of a path must exist unless said otherwise."""

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        """Open for reading and writing; ``FileNotFoundError`` if absent and not ``create``."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def is_own_dir(self, path: str) -> bool:
        """Whether a path is a directory, and not a link to one, that this process's user has made."""
        ...

    def list_dir(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        ...

    def list_dirs(self, path: str) -> list[str]:
        """Names in a directory of those that are directories, or links to some, sorted."""
        ...

    def size(self, path: str) -> int:
        """Length of a file in bytes."""
        ...

    def modified_ms(self, path: str) -> int:
        """Wall-clock milliseconds of the last change to a file's content."""
        ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Give a file that was copied the time of its source (:meth:`modified_ms`)."""
        ...

    def make_dirs(self, path: str) -> None:
        """Create a directory and its parents; fine if it exists."""
        ...

    def make_dir(self, path: str) -> None:
        """Create a directory in one that is there; fine if it exists."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Atomically give a file or directory another name, replacing a file of that name."""
        ...

    def link(self, path: str, other: str) -> None:
        """Give a file a second name; ``FileExistsError`` if that is taken, ``OSError`` on another file system."""
        ...

    def is_shared(self, path: str) -> bool:
        """Whether a file has other names, so that it is not to be changed in place; no if it does not exist."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; fine if it does not exist."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all in it; fine if it does not exist."""
        ...

    def sync_dir(self, path: str) -> None:
        """Make names created, renamed and removed in this directory durable."""
        ...

    def read_bytes(self, path: str) -> bytes:
        """A whole file."""
        ...

    def write_bytes(self, path: str, data: Buffer, *, sync: bool = False) -> None:
        """Create or replace a file's content; not atomic (see :func:`write_atomically`)."""
        ...

    def take_room(self, path: str, size: int) -> None:
        """Create or replace a file by one that takes ``size`` bytes of the disk, whatever they are."""
        ...

    def usage(self, path: str) -> DiskUsage:
        """The bytes of the file system that holds ``path``."""
        ...

    def lock(self, path: str) -> DiskLock:
        """Lock a file (created if absent); ``BlockingIOError`` if someone holds it."""
        ...


def write_atomically(disk: Disk, path: str, data: Buffer, *, sync: bool = True) -> None:
    """Replace a file so that after a crash it holds the old content or the new, never a mixture.

    The temporary name is Kafka's: the path with ``.tmp`` at the end.
    """
    temporary = path + ".tmp"
    try:
        disk.write_bytes(temporary, data, sync=sync)
        disk.rename(temporary, path)
    except OSError:
        with suppress(OSError):
            disk.remove(temporary)  # a full disk needs the room
        raise
    if sync:
        disk.sync_dir(os.path.dirname(path))


class OsFile:
    """A real file. The descriptor is closed when the last reference goes: a reader that holds a
    ``FileRegion`` with this object as its owner keeps it valid, whatever became of the name."""

    __slots__ = ("__weakref__", "fd")

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def pread(self, length: int, position: int) -> bytes:
        data = os.pread(self.fd, length, position)
        if len(data) == length or not data:
            return data
        parts = [data]
        got = len(data)
        while got < length:
            more = os.pread(self.fd, length - got, position + got)
            if not more:
                break
            parts.append(more)
            got += len(more)
        return b"".join(parts)

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        if len(buffers) == 1:
            buffer = buffers[0]
            written = os.pwrite(self.fd, buffer, position)
            if written == len(buffer):
                return
            self._write_rest(position, [buffer], written)
            return
        for start in range(0, len(buffers), _IOV_MAX):
            group = buffers[start : start + _IOV_MAX]
            total = sum(map(len, group))
            if hasattr(os, "pwritev"):
                written = os.pwritev(self.fd, group, position)
            else:
                written = os.pwrite(self.fd, b"".join(group), position)
            if written != total:
                self._write_rest(position, group, written)
            position += total

    def _write_rest(self, position: int, buffers: Sequence[Buffer], written: int) -> None:
        """A short write: the disk is full, a limit is met or a signal came. Go on until an error says."""
        rest = memoryview(b"".join(buffers))[written:]
        position += written
        while rest:
            done = os.pwrite(self.fd, rest, position)
            rest = rest[done:]
            position += done

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fd, size)

    def sync(self) -> None:
        try:
            _data_sync(self.fd)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):  # written data is lost, unlike where a write is refused
                raise OSError(errno.EIO, f"{error.strerror} while flushing") from error
            raise

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        fd = self.fd
        if fd >= 0:
            self.fd = -1
            os.close(fd)


def _data_sync(fd: int) -> None:
    if hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    elif hasattr(fcntl, "F_FULLFSYNC"):  # macOS, where ``fsync`` leaves the data in the drive's cache
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fsync(fd)


class FileToReadOnce:
    """A file that is read in order and leaves the page cache as it was: what was not in memory does not stay there."""

    def __init__(self, file: DiskFile) -> None:
        """``file`` is nobody else's."""
        self._file = file
        if file.fd >= 0 and _HAS_ADVICE:
            os.posix_fadvise(file.fd, 0, 0, os.POSIX_FADV_RANDOM)  # nothing is read ahead

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill ``buffer`` from ``position`` on; the number of bytes, fewer only at the end of the file."""
        fd, length = self._file.fd, len(buffer)
        if fd >= 0 and _HAS_ADVICE:
            with suppress(OSError):
                if os.preadv(fd, [buffer], position, os.RWF_NOWAIT) == length:
                    return length
        data = self._file.pread(length, position)
        buffer[: len(data)] = data
        if fd >= 0 and _HAS_ADVICE:
            start = position & -_LARGEST_PAGE  # whole pages alone are dropped
            os.posix_fadvise(fd, start, position + length + _LARGEST_PAGE - start, os.POSIX_FADV_DONTNEED)
        return len(data)


class _OsLock:
    """A POSIX record lock, the kind that Java's ``FileChannel.tryLock`` takes, so that Apache Kafka and
    kbroker exclude each other; the table excludes a second broker in this process, which POSIX does not."""

    _held: ClassVar[set[tuple[int, int]]] = set()

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        info = os.fstat(self._fd)
        self._key = (info.st_dev, info.st_ino)
        if self._key in self._held:
            # Closing the descriptor would drop this process's lock on the file, so it is left to leak.
            raise BlockingIOError(f"{path} is locked by another broker in this process")
        try:
            if fcntl is not None:
                fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            raise BlockingIOError(f"{path} is locked by another process") from error
        self._held.add(self._key)

    def check(self) -> None:
        info = os.stat(self._path)
        if (info.st_dev, info.st_ino) != self._key:
            raise FileNotFoundError(errno.ENOENT, "another file has its name", self._path)

    def release(self) -> None:
        if self._fd >= 0:
            self._held.discard(self._key)
            os.close(self._fd)
            self._fd = -1


class OsDisk:
    """The machine's file system."""

    def open(self, path: str, *, create: bool = False) -> OsFile:
        flags = os.O_RDWR | os.O_CLOEXEC
        if create:
            flags |= os.O_CREAT
        return OsFile(os.open(path, flags, 0o644))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def is_own_dir(self, path: str) -> bool:
        try:
            found = os.lstat(path)
        except (OSError, ValueError):
            return False
        return stat.S_ISDIR(found.st_mode) and (not hasattr(os, "geteuid") or found.st_uid == os.geteuid())

    def list_dir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def list_dirs(self, path: str) -> list[str]:
        with os.scandir(path) as entries:  # which asks for each only where the file system does not say
            return sorted(each.name for each in entries if each.is_dir(follow_symlinks=False) or self.is_dir(each.path))

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def make_dirs(self, path: str) -> None:
        try:
            self.make_dir(path)
        except FileNotFoundError:
            os.makedirs(path, 0o700, exist_ok=True)

    def make_dir(self, path: str) -> None:
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            if not stat.S_ISDIR(os.stat(path).st_mode):
                raise

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def link(self, path: str, other: str) -> None:
        os.link(path, other)

    def is_shared(self, path: str) -> bool:
        try:
            return os.stat(path).st_nlink > 1
        except FileNotFoundError:
            return False

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass

    def remove_tree(self, path: str) -> None:
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            pass

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def read_bytes(self, path: str) -> bytes:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(fd).st_size
            data = os.read(fd, size + 1)
            while len(data) < size:
                more = os.read(fd, size - len(data))
                if not more:
                    break
                data += more
            return data
        except OSError as error:
            error.filename = path  # as an error in opening has it
            raise
        finally:
            os.close(fd)

    def write_bytes(self, path: str, data: Buffer, *, sync: bool = False) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            rest = memoryview(data)
            while rest:
                written = os.write(fd, rest)
                rest = rest[written:]
            if sync:
                _data_sync(fd)
        finally:
            os.close(fd)

    def take_room(self, path: str, size: int) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            with suppress(AttributeError, OSError):  # macOS; what is in the way is told by writing
                os.posix_fallocate(fd, 0, size)
                if os.fstat(fd).st_blocks * 512 >= size:  # ZFS only promises
                    return
        finally:
            os.close(fd)
        self.write_bytes(path, random.Random(size).randbytes(size))  # zeros may take no room

    def usage(self, path: str) -> DiskUsage:
        info = os.statvfs(path)
        return DiskUsage(info.f_blocks * info.f_frsize, info.f_bavail * info.f_frsize)

    def lock(self, path: str) -> _OsLock:
        return _OsLock(path)


class ReadOnlyDisk(OsDisk):
    """The machine's file system for those who only look: files of a running broker, or of another user."""

    def open(self, path: str, *, create: bool = False) -> OsFile:
        if create:
            raise PermissionError(f"{path} is not to be written")
        return OsFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))


def raise_file_limit(wanted: int = 1 << 16) -> int:
    """Raise this process's limit of open files towards ``wanted``; answer what it is now."""
    if resource is None:  # pragma: no cover
        return 512
    limits: Any = resource
    soft, hard = limits.getrlimit(limits.RLIMIT_NOFILE)
    target = wanted if hard == limits.RLIM_INFINITY else min(wanted, hard)
    if soft != limits.RLIM_INFINITY and soft < target:
        try:
            limits.setrlimit(limits.RLIMIT_NOFILE, (target, hard))
            soft = target
        except (OSError, ValueError):  # macOS refuses more than kern.maxfilesperproc
            pass
    return wanted if soft == limits.RLIM_INFINITY else int(soft)
