"""Files in a partition's directory that keep what recovery took out of a log and cannot explain.

``<20 digits>.log.<position>.set-aside`` has the bytes that stood in the segment of that name from ``position`` on, as
they were. The file of the same name with ``.json`` behind it says why they were taken out, and where the log was cut.
No log opens these files, Apache Kafka's neither, and they are removed with the directory alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress

from kbroker.log.disk import Disk, write_atomically
from kbroker.log.file_names import SET_ASIDE_SUFFIX, TEMPORARY_SUFFIX
from kbroker.log.segments.segment import Segment
from kbroker.log.segments.segment_files import remove_files

_CHUNK = 1024 * 1024


def keep_segment(disk: Disk, segment: Segment, offset: int, reason: str, now_ms: int) -> str:
    """Set a whole segment aside, durably; the name of the file. Its indexes go, as they can be made anew.

    ``offset`` is where the log ends without it.
    """
    path = _note(disk, segment, 0, offset, reason, now_ms)
    segment.close_files()
    disk.rename(segment.path, path)
    disk.sync_dir(os.path.dirname(path))
    remove_files(disk, segment)
    return os.path.basename(path)


def keep_end(
    disk: Disk,
    segment: Segment,
    position: int,
    offset: int,
    reason: str,
    now_ms: int,
    before_read: Callable[[], None],
) -> str | None:
    """Set the bytes of a segment from ``position`` on aside, durably; the name of the file, ``None`` if all are zeros.

    The caller cuts them off then, and ``offset`` is where the log ends. ``before_read`` is called before each piece of
    the file is read.
    """
    source = segment.log_file()
    copy, is_blank = segment.path + SET_ASIDE_SUFFIX + TEMPORARY_SUFFIX, True
    try:
        disk.write_bytes(copy, b"")
        target = disk.open(copy)
        for start in range(position, segment.size, _CHUNK):
            before_read()
            data = source.pread(min(_CHUNK, segment.size - start), start)
            is_blank = is_blank and not any(data)
            target.write_at(start - position, [data])
        if is_blank:
            disk.remove(copy)
            return None
        target.sync()
        path = _note(disk, segment, position, offset, reason, now_ms)
    except OSError:
        with suppress(OSError):
            disk.remove(copy)  # a full disk needs the room
        raise
    disk.rename(copy, path)
    disk.sync_dir(os.path.dirname(path))
    return os.path.basename(path)


def _note(disk: Disk, segment: Segment, position: int, offset: int, reason: str, now_ms: int) -> str:
    """Write down why bytes are set aside; the path that they are to have."""
    path = first = f"{segment.path}.{position}"
    count = 1
    while disk.exists(path + SET_ASIDE_SUFFIX):
        count += 1
        path = f"{first}-{count}"
    path += SET_ASIDE_SUFFIX
    content = {
        "version": 0,
        "segment": os.path.basename(segment.path),
        "position": position,
        "size": segment.size - position,
        "log_end_offset": offset,
        "reason": reason,
        "time_ms": now_ms,
    }
    write_atomically(disk, path + ".json", json.dumps(content, indent=1).encode() + b"\n")
    return path
