"""A file system of a few MB that runs full. To mount it takes root on Linux; a test is skipped where that is not
allowed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROUNDS = int(os.environ.get("KBROKER_FULL_DISKS", "1"))
MIB = 1 << 20
ROOM = (8 + ROUNDS) * MIB


@contextmanager
def mounted(path: Path) -> Iterator[Path]:
    """A directory on a file system of its own."""
    path.mkdir()
    if not sys.platform.startswith("linux"):
        pytest.skip("mounting a tmpfs is Linux' way")
    command = ["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "kbroker-test", str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no command to mount a file system")
    if done.returncode:
        pytest.skip(f"a file system cannot be mounted here: {done.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


def take_all_but(small: Path, leave: int) -> Path:
    """A file that leaves so many bytes free."""
    ballast = small / "ballast"
    free = os.statvfs(small).f_bavail * os.statvfs(small).f_frsize
    ballast.write_bytes(bytes(max(0, free - leave)))
    return ballast
