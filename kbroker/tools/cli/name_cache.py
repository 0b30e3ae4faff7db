"""Names of a cluster that a shell was offered a moment ago, in files of the user's cache directory.

Asking a cluster costs the imports of a client and a connection, for each press of Tab. A file is never in the way: one
that cannot be read, written or trusted counts as none.
"""

from __future__ import annotations

import os
import stat
import time
import zlib
from collections.abc import Sequence
from typing import Final

from kbroker.tools.cli.user_directories import user_directory

SECONDS: Final = 60.0
"""Names that are older are asked for anew."""

_MOST_FILES: Final = 16
_MOST_BYTES: Final = 1 << 20


def directory() -> str:
    """The directory, by the rule of XDG: below ``$XDG_CACHE_HOME`` if that is an absolute path, else ``~/.cache``."""
    return os.path.join(user_directory("XDG_CACHE_HOME", ".cache"), "names")


def recall(key: Sequence[object], now: float | None = None) -> list[str] | None:
    """The names that were remembered for ``key`` a minute ago at most; None if there are none.

    ``now``: the time in seconds, if it is not the clock's.
    """
    now = time.time() if now is None else now
    if not _can_be():
        return None
    try:
        file = os.open(_path(key), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            found = os.fstat(file)
            is_own = found.st_uid == os.geteuid() and stat.S_ISREG(found.st_mode)
            if not is_own or found.st_size > _MOST_BYTES or not 0 <= now - found.st_mtime <= SECONDS:
                return None
            first, *names = os.read(file, _MOST_BYTES).decode().split("\n")[:-1]
        finally:
            os.close(file)
    except (OSError, ValueError):
        return None
    return names if first == _text(key) else None


def remember(key: Sequence[object], names: Sequence[str]) -> None:
    """Keep names, which contain no end of a line, for the next minute."""
    if not _can_be():
        return
    text = "".join(f"{line}\n" for line in (_text(key), *names)).encode()
    if len(text) > _MOST_BYTES:
        return
    path = _path(key)
    temporary = f"{path}.{os.getpid()}"
    try:
        os.makedirs(directory(), mode=0o700, exist_ok=True)
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            is_whole = os.write(file, text) == len(text)
        finally:
            os.close(file)
        if is_whole:
            os.replace(temporary, path)
            _forget_old()
        else:  # the disk is full
            os.unlink(temporary)
    except OSError:
        return


def _can_be() -> bool:
    """Whether there is a home for the directory, and a system that tells whose a file is (Windows does not)."""
    return os.path.isabs(directory()) and hasattr(os, "geteuid") and hasattr(os, "O_NOFOLLOW")


def _forget_old() -> None:
    """Remove all but the files that were written last, also those that a process has left half-way."""
    with os.scandir(directory()) as entries:
        by_age = sorted((entry.stat(follow_symlinks=False).st_mtime, entry.path) for entry in entries)
    for _, path in by_age[:-_MOST_FILES]:
        os.unlink(path)


def _text(key: Sequence[object]) -> str:
    return repr(tuple(key))


def _path(key: Sequence[object]) -> str:
    # Two keys may have one file: its first line tells whose it is.
    return os.path.join(directory(), f"{zlib.crc32(_text(key).encode('utf-8', 'surrogateescape')):08x}")
