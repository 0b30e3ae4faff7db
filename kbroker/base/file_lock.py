"""The lock of an open file, by which processes that share a directory keep apart (``flock``)."""

from __future__ import annotations

from typing import Final

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has none: nothing keeps two processes apart there
    fcntl = None  # type: ignore[assignment]

HAS_LOCKS: Final = fcntl is not None


def try_lock(descriptor: int) -> bool:
    """Lock a file until it is closed; False if another process has locked it. ``OSError`` if it cannot be locked."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
