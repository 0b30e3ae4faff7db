"""Locks by name for work on files, among the threads of a process and among processes that share a directory."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kbroker.base.file_lock import HAS_LOCKS, try_lock

_LOOK_SECONDS: Final = 0.01
"""Another process tells nobody when it is done with a file."""


class _Entry:
    __slots__ = ("deletions", "lock", "users")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.deletions = 0
        """The number that were asked for since the first of the users of now came."""


class Overtaken(OSError):
    """A deletion was asked for after the work that waits: there is nothing left to do for it."""


class FileLocks:
    """Locks of paths. A deletion goes before the work that was asked for before it and has not begun."""

    def __init__(self, timeout: float) -> None:
        """A wait of more than ``timeout`` seconds ends in ``TimeoutError``: nobody waits for the outcome then."""
        self._timeout = timeout
        self._guard = threading.Lock()
        self._entries: dict[Path, _Entry] = {}

    @contextmanager
    def held(self, path: Path, *, deletes: bool = False) -> Iterator[None]:
        """Hold the lock of a path. ``TimeoutError``, `Overtaken`, another ``OSError`` if the lock cannot be made."""
        deadline = time.monotonic() + self._timeout
        with self._guard:
            entry = self._entries.setdefault(path, _Entry())
            entry.users += 1
            entry.deletions += deletes
            deletions = entry.deletions
        try:
            if not entry.lock.acquire(timeout=self._timeout):
                raise TimeoutError(f"{path} is in use")
            try:
                with _held_by_process(path.with_name(f"{path.name}.lock"), deadline):
                    if not deletes and entry.deletions != deletions:
                        raise Overtaken(f"{path} is deleted meanwhile")
                    yield
            finally:
                entry.lock.release()
        finally:
            with self._guard:
                entry.users -= 1
                if not entry.users:
                    del self._entries[path]


@contextmanager
def _held_by_process(lock: Path, deadline: float) -> Iterator[None]:
    if not HAS_LOCKS:  # threads alone are kept apart
        yield
        return
    while (fd := _try(lock)) is None:
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{lock} is held by another process")
        time.sleep(_LOOK_SECONDS)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)  # whoever has it open sees that it is not the file of this name any more
        os.close(fd)


def _try(lock: Path) -> int | None:
    """The open file if it is locked now, and still has its name."""
    fd = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if try_lock(fd) and os.path.samestat(os.fstat(fd), lock.stat()):
            return fd
    except FileNotFoundError:
        pass
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    return None
