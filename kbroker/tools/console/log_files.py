"""Files of a partition's log in directories of nodes on this machine: segments, indexes, snapshots of producers.

Files are only read, and may belong to nodes that run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from kbroker.client.records_io.log_entries import read_entries

MAX_SEGMENTS: Final = 200
"""Segments of one directory that are listed, the newest."""

MAX_ENTRIES: Final = 200
"""Entries of one file that are told."""

_FILE: Final = re.compile(r"(\d{20})\.(log|index|timeindex|txnindex|snapshot)")

_READ_AT_ONCE: Final = 8 << 10
"""Bytes of an index that are read to find its last entry, and again as long as there is none in them."""

_ENTRY_SIZES: Final = {"index": 8, "timeindex": 12, "txnindex": 34}


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file beside a segment, or the segment itself. ``entries``: of an index, None of other files."""

    name: str
    kind: str
    size: int
    entries: int | None


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment with the files of its base offset; ``changed``: ms since 1970."""

    base_offset: int
    size: int
    changed: int
    files: tuple[LogFile, ...]


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """A directory of a partition: its newest segments, the oldest of them first, and how many there are."""

    directory: Path
    segments: list[Segment]
    count: int


def partition_directories(data: Sequence[Path], topic: str, partition: int) -> list[Path]:
    """The directories of a partition below log directories; more than one where several nodes' are given."""
    return [found for each in data if (found := each / f"{topic}-{partition}").is_dir()]


def list_segments(directory: Path) -> PartitionFiles:
    """The segments of a partition's directory. A file that goes meanwhile is left out."""
    found: dict[int, list[LogFile]] = {}
    changed: dict[int, int] = {}
    names = sorted(entry.name for entry in directory.iterdir() if _FILE.fullmatch(entry.name))
    bases = sorted({int(name[:20]) for name in names if name.endswith(".log")})
    shown = set(bases[-MAX_SEGMENTS:])
    for name in names:
        base, kind = int(name[:20]), name[21:]
        if base not in shown:
            continue
        path = directory / name
        try:
            status = path.stat()
            entries = _count_entries(path, kind)
        except OSError:
            continue
        found.setdefault(base, []).append(LogFile(name, kind, status.st_size, entries))
        if kind == "log":
            changed[base] = status.st_mtime_ns // 1_000_000
    segments = [
        Segment(base, next(each.size for each in files if each.kind == "log"), changed[base], tuple(files))
        for base, files in sorted(found.items())
        if base in changed
    ]
    return PartitionFiles(directory, segments, len(bases))


def _count_entries(path: Path, kind: str) -> int | None:
    """Entries of an index. That of the segment that is written is longer: zeros follow its entries."""
    size = _ENTRY_SIZES.get(kind)
    if size is None:
        return None
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            begin = max(end - _READ_AT_ONCE, 0)
            file.seek(begin)
            kept = file.read(end - begin).rstrip(b"\0")
            if kept:
                return -(-(begin + len(kept)) // size)
            end = begin
    return 0


def file_entries(directory: Path, name: str) -> list[dict[str, Any]] | None:
    """The first entries of a file, as ``kbroker dump-log --batches`` has them; None if there is no such file."""
    if not _FILE.fullmatch(name) or not (directory / name).is_file():
        return None
    return list(islice(read_entries(directory / name, records=False), MAX_ENTRIES))
