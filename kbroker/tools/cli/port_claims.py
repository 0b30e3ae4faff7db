"""Ports of the loopback interface that a process has chosen, and that no other process of this user chooses meanwhile.

Nobody listens at a port between its choice and the start of the node that is to have it, nor while that node is down.
Looking whether it is free says nothing then, so each process keeps the ports that it has chosen as locks on bytes of
one file: the byte at place N for port N. The system takes such locks back when the process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has none: there, a port is only looked at
    fcntl = None  # type: ignore[assignment]

MOST: Final = 4_000
"""Ports that one process keeps: the oldest go when it chooses more, so that others always find some."""

_PLAIN: Final = range(15_000, 32_000)
_ANY: Final = range(2_000, 65_536)
_OUTGOING: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


class PortClaims:
    """The ports that this process has chosen. ``file`` is shared by all processes that are to keep apart."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._descriptor: int | None = None
        self._owner = 0
        self._ports: dict[int, None] = {}
        self._turn = threading.Lock()

    def choose(self, host: str, count: int, *, ports: range, in_row: bool = False) -> list[int] | None:
        """Claim so many of ``ports`` that are free, one after the other if ``in_row``; None if there are too few."""
        length = count if in_row else 1
        found: list[int] = []
        with self._turn:
            for first in _shuffled(ports[: max(0, len(ports) - length + 1)]):
                found += self._claim_row(host, range(first, first + length))
                if len(found) >= count:
                    return found
            for port in found:
                self.release(port)
        return None

    def _claim_row(self, host: str, row: range) -> Sequence[int]:
        """The whole row, or nothing."""
        claimed = []
        for port in row:
            if not self.claim(port):
                break
            claimed.append(port)
            if not _is_free(host, port):
                break
        else:
            return row
        for port in claimed:
            self.release(port)
        return ()

    def claim(self, port: int) -> bool:
        """Keep a port for this process; False if it has been chosen before, here or elsewhere."""
        if self._owner != os.getpid():
            # Locks are not inherited: a process that was forked begins with none.
            self._owner, self._descriptor, self._ports = os.getpid(), self._open(), {}
        if port in self._ports or not self._lock(port):
            return False
        self._ports[port] = None
        while len(self._ports) > MOST:
            self.release(next(iter(self._ports)))
        return True

    def release(self, port: int) -> None:
        """Let others choose a port that this process has claimed."""
        self._ports.pop(port, None)
        if fcntl is not None and self._descriptor is not None:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, port)

    def _open(self) -> int | None:
        # Never closed: a process that closes a file loses all of its locks on it.
        with contextlib.suppress(OSError):
            descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
            if hasattr(os, "getuid") and os.fstat(descriptor).st_uid != os.getuid():
                return None  # somebody else has made it, and may lock all of it
            return descriptor
        return None

    def _lock(self, port: int) -> bool:
        if fcntl is None or self._descriptor is None:
            return True  # without the file a port is only looked at
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except (BlockingIOError, PermissionError):  # of systems that say EACCES
            return False
        except OSError:
            return True  # a file system without locks
        return True


def listening_ports(outgoing: Path = _OUTGOING) -> range:
    """The ports to choose from, none of which the system gives to outgoing connections (Linux tells which those are).

    A client that tries again and again to reach a node that is down may otherwise be given the node's own port, and
    then talks to itself.
    """
    try:
        low, high = map(int, outgoing.read_text().split())
    except (OSError, ValueError):
        return _PLAIN
    if high < _PLAIN.start or low >= _PLAIN.stop:
        return _PLAIN
    below, above = range(_ANY.start, min(low, _ANY.stop)), range(max(high + 1, _ANY.start), _ANY.stop)
    largest = max(below, above, key=len)
    return largest if len(largest) >= 1_000 else _PLAIN


def _shared_file() -> Path:
    user = os.getuid() if hasattr(os, "getuid") else 0
    return Path(tempfile.gettempdir()) / f"kbroker-ports-{user}"


OWN: Final = PortClaims(_shared_file())
"""The claims of this process; all processes of a user keep apart by one file."""


def _shuffled(numbers: range) -> Iterator[int]:
    """All of them, in any order; the first few come at once, and come again later."""
    rng = random.SystemRandom()
    if numbers:
        yield from (rng.choice(numbers) for _ in range(32))
    yield from rng.sample(numbers, len(numbers))


def _is_free(host: str, port: int) -> bool:
    """Whether nobody listens at a port, nor has listened just now."""
    with socket.socket() as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
