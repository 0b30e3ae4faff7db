"""A file under a name of its own until it is whole, which one process at a time writes."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from kbroker.base.file_lock import try_lock
from kbroker.errors import FatalError

_WITHOUT_LOCKS: Final = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.ENOSYS})
"""Errors of file systems that have no locks."""

_TRIES: Final = 10


class Taken(Exception):
    """Another process has locked the file."""


@contextmanager
def partial_file(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """A new ``PATH.partial``, which is locked until the block ends; the block gives it its name, or leaves it.

    One that a process has left over is replaced; what a link of this name points to is not touched. ``FatalError`` if
    another process writes it, ``OSError`` if it cannot be made.
    """
    partial = path.with_name(f"{path.name}.partial")
    try:
        descriptor = _new(partial)
    except Taken:
        raise FatalError(f"another export to {path} is under way: wait for its end, or name another file") from None
    with open(descriptor, "wb") as file:
        yield partial, file


def _new(partial: Path) -> int:
    for _ in range(_TRIES):
        _remove_left_over(partial)
        try:
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            continue  # another was quicker
        try:
            lock(descriptor)
            if _has_name(descriptor, partial):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # another took it for one that was left over
    raise Taken


def _remove_left_over(partial: Path) -> None:
    if partial.is_symlink():
        partial.unlink()
        return
    try:
        descriptor = _opened(partial)
    except FileNotFoundError:
        return
    try:
        lock(descriptor)
        if _has_name(descriptor, partial):
            partial.unlink()
    finally:
        os.close(descriptor)


def _opened(path: Path) -> int:
    """Open a file to lock it, without waiting for whoever writes if it is a pipe."""
    flags = os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(path, os.O_RDWR | flags)  # NFS gives a lock of one's own only to who may write
    except PermissionError:
        return os.open(path, os.O_RDONLY | flags)


def lock(descriptor: int) -> None:
    """Lock a file until it is closed, where its file system has locks; ``Taken`` if another process has locked it."""
    try:
        if try_lock(descriptor):
            return
    except OSError as error:
        if error.errno in _WITHOUT_LOCKS:
            return
        raise
    raise Taken


def _has_name(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False
