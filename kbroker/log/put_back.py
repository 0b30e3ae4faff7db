"""Lists what is missing from logs, and what recovery has set aside (``segments/segment_recovery.py``), and puts it back
while no node runs.

Whole batches go back whose offsets the log lacks. The next start then reads the log from there on: producers,
transactions and leader epochs follow from the batches.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

from kbroker.errors import FatalError
from kbroker.log.checkpoint_files import (
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    CorruptCheckpoint,
    read_offsets,
    remove_clean_shutdown,
    write_offsets,
)
from kbroker.log.damage import FILE_NAME, Damage, note, read_damage
from kbroker.log.disk import Disk
from kbroker.log.file_names import LOG_SUFFIX, SET_ASIDE_SUFFIX, file_name, is_offset_name
from kbroker.log.log_config import LogConfig
from kbroker.log.log_dir import parse_log_dir_name
from kbroker.log.segments.batch_walk import Bounds, Whole, walk
from kbroker.log.segments.indexed_file import CorruptSegment
from kbroker.log.segments.open_files import OpenFiles
from kbroker.log.segments.segment_files import make_segment
from kbroker.log.segments.segment_recovery import put_in_place, write_with
from kbroker.log.segments.sparse_index import CorruptIndex
from kbroker.value_types import NamedTuple

_ANY_OFFSET = Bounds(0, 2**63 - 1, epoch=None)


class SetAside(NamedTuple):
    """Bytes that were taken out of a log."""

    path: str
    size: int
    reason: str
    offsets: list[tuple[int, int]]
    """First and last offset of each whole batch that is there."""


def set_aside_in(disk: Disk, directory: str) -> Iterator[SetAside]:
    """Returns what is set aside in a partition's directory, or in those of a log dir."""
    for name in disk.list_dir(directory):
        path = os.path.join(directory, name)
        if parse_log_dir_name(name) is not None and disk.is_dir(path):
            yield from set_aside_in(disk, path)
        elif name.endswith(SET_ASIDE_SUFFIX):
            try:
                reason = str(json.loads(disk.read_bytes(path + ".json"))["reason"])
            except (FileNotFoundError, ValueError, KeyError, TypeError):
                reason = "nothing says why"
            offsets = [(item.header.base_offset, item.header.last_offset) for item in _batches(disk, path, _ANY_OFFSET)]
            yield SetAside(path, disk.size(path), reason, offsets)


def missing_in(disk: Disk, directory: str) -> Iterator[tuple[str, Damage]]:
    """Returns the offsets that are known to be missing in a partition's directory, or in those of a log dir, each with
    the partition's directory. What lies before the log's start is no loss any more."""
    names = disk.list_dir(directory)
    topic_partition = parse_log_dir_name(os.path.basename(directory))
    if topic_partition is not None and FILE_NAME in names:
        try:
            starts = read_offsets(disk, os.path.join(os.path.dirname(directory), LOG_START_OFFSETS)) or {}
        except CorruptCheckpoint:
            starts = {}
        start = max(starts.get(topic_partition, 0), min(_bases(names), default=0))
        for each in read_damage(disk, directory):
            if max(each.start_offset, start) < each.end_offset:
                yield directory, each
    for name in sorted(names):
        path = os.path.join(directory, name)
        if parse_log_dir_name(name) is not None and disk.is_dir(path):
            yield from missing_in(disk, path)


def put_back(disk: Disk, path: str) -> list[tuple[int, int]]:
    """Put whole batches of a file that was set aside back; returns the offsets of each that the log lacked.

    ``FatalError`` if the file is no such file, ``OSError``. The log dir is locked, and no node of it runs.
    """
    directory, name = os.path.split(path)
    topic_partition = parse_log_dir_name(os.path.basename(directory))
    if not name.endswith(SET_ASIDE_SUFFIX) or topic_partition is None:
        raise FatalError(f"{path} is nothing that was set aside: its name does not end in {SET_ASIDE_SUFFIX}")
    bases = _bases(disk.list_dir(directory))
    ordered = sorted(bases | {int(name[:20])})  # a segment that was taken out whole may be one again
    damage, found = read_damage(disk, directory), _batches(disk, path, _ANY_OFFSET)
    wanted = [(each.header.base_offset, each.header.next_offset) for each in found]
    wanted += [(each.start_offset, each.end_offset) for each in damage]
    returned: list[tuple[int, int]] = []
    there: list[tuple[int, int]] = []
    for base, end in zip(ordered, [*ordered[1:], 2**63 - 1], strict=True):
        if any(first < end and base < last for first, last in wanted):
            size = disk.size(os.path.join(directory, file_name(base) + LOG_SUFFIX)) if base in bases else 0
            segment = make_segment(disk, OpenFiles(disk, 8), directory, base, size, LogConfig(), 0)
            try:
                cleaned, own, new = write_with(disk, segment, end, found, LogConfig().index_interval_bytes)
            except (CorruptSegment, CorruptIndex) as error:
                raise FatalError(str(error)) from error
            if cleaned is not None:
                put_in_place(disk, segment)
            returned += new
            there += own + new
    if returned:
        log_dir = os.path.dirname(directory)
        points = read_offsets(disk, os.path.join(log_dir, RECOVERY_POINTS)) or {}
        if topic_partition in points:
            points[topic_partition] = min(points[topic_partition], returned[0][0])
            write_offsets(disk, os.path.join(log_dir, RECOVERY_POINTS), points)
        remove_clean_shutdown(disk, log_dir)
        note(disk, directory, [each for each in damage if not _has(there, each.start_offset, each.end_offset)])
    return returned


def _bases(names: list[str]) -> set[int]:
    """The base offsets of the segments in a directory of these names."""
    return {int(each[:20]) for each in names if each[20:] == LOG_SUFFIX and is_offset_name(each[:20])}


def _batches(disk: Disk, path: str, bounds: Bounds) -> list[Whole]:
    file = disk.open(path)
    return [item for item in walk(file, file.size(), bounds) if isinstance(item, Whole)]


def _has(batches: list[tuple[int, int]], start: int, end: int) -> bool:
    for first, last in sorted(batches):
        if first <= start <= last:
            start = last + 1
    return start >= end
