"""Logs are verified in the background: one piece of a file, and where the work on a log dir has come to."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable

from kbroker.log.disk import Disk, DiskFile, write_atomically
from kbroker.types import TopicPartition
from kbroker.value_types import NamedTuple
from kbroker.wire.batch_header import ATTRIBUTES_AT, HEADER_SIZE, LOG_OVERHEAD, crc32c

FILE_NAME = "scrub-checkpoint"
_FIELDS = struct.Struct(">qi4xBI2xi")
"""Of a batch's header: base offset, length, magic, checksum, last offset delta."""
_HAS_ADVICE = hasattr(os, "posix_fadvise")
_PAGE = 64 * 1024
"""At least a page of any machine's."""
_MOST_BATCHES = 512
"""In one piece: the event loop waits for about half a millisecond when the batches are small."""


class Piece(NamedTuple):
    """A part of a segment that was verified."""

    position: int
    """Where it ends, or where the first batch is that is not whole."""
    next_offset: int
    """Least offset of the batch after it."""
    problem: str | None = None
    """The reason why what is there is no batch."""


ReadNow = Callable[[int, int, int], bytearray | None]
"""`Env.read_now`."""


def open_once(disk: Disk, path: str) -> DiskFile:
    """Open a file that :func:`verify_piece` reads."""
    file = disk.open(path)
    if file.fd >= 0 and _HAS_ADVICE:
        os.posix_fadvise(file.fd, 0, 0, os.POSIX_FADV_RANDOM)  # nothing is read ahead, which would stay in memory
    return file


def _read(file: DiskFile, position: int, length: int, read_now: ReadNow) -> bytes | bytearray:
    """Bytes of a file; the page cache is left as it was."""
    fd = file.fd
    data = read_now(fd, position, length) if fd >= 0 and length else None
    if data is not None:
        return data
    read = file.pread(length, position)
    if fd >= 0 and _HAS_ADVICE:
        start = position & -_PAGE  # of whole pages alone
        os.posix_fadvise(fd, start, -(-(position + length - start) // _PAGE) * _PAGE, os.POSIX_FADV_DONTNEED)
    return read


def verify_piece(file: DiskFile, position: int, size: int, next_offset: int, length: int, read_now: ReadNow) -> Piece:
    """Verify batches of a segment of ``size`` bytes from ``position`` on: ``length`` bytes of them, or one batch."""
    data = memoryview(_read(file, position, min(max(length, HEADER_SIZE), size - position), read_now))
    fields, count, at, end = _FIELDS.unpack_from, 0, 0, len(data)
    while end - at >= HEADER_SIZE and count < _MOST_BATCHES:
        base_offset, batch_length, magic, crc, delta = fields(data, at)
        following = at + batch_length + LOG_OVERHEAD
        if magic != 2 or batch_length < HEADER_SIZE - LOG_OVERHEAD or delta < 0:
            return Piece(position + at, next_offset, "the bytes are no batch")
        if base_offset < next_offset:
            return Piece(position + at, next_offset, f"offset {base_offset} follows {next_offset - 1}")
        if following > end:
            break
        if crc32c(data[at + ATTRIBUTES_AT : following]) != crc:
            return Piece(position + at, next_offset, f"the checksum of the batch at offset {base_offset} is wrong")
        next_offset, at, count = base_offset + delta + 1, following, count + 1
    if at:
        return Piece(position + at, next_offset)
    if end >= HEADER_SIZE and position + following <= size and following > length:
        return verify_piece(file, position, size, next_offset, following, read_now)
    return Piece(position, next_offset, f"a batch is cut off after {end} bytes")


class Progress(NamedTuple):
    """How far the scrubber has come in one log dir."""

    next: tuple[TopicPartition, int] | None = None
    """The segment that comes next: partition and least base offset; None between two rounds."""
    began_ms: int = 0
    """When the latest round began; 0 before the first."""
    ended_ms: int = 0
    """When a round last came to its end."""
    done: int = 0
    """Bytes that the latest round has read."""
    total: int = 0
    """Bytes of all segments when it began."""
    found: int = 0
    """Places that the latest round has found damaged."""

    @property
    def share(self) -> float:
        """The part of the latest round that is done, between 0 and 1."""
        return 1.0 if self.began_ms <= self.ended_ms else min(1.0, self.done / max(1, self.total))


def read_progress(disk: Disk, log_dir: str) -> Progress:
    """Returns what :func:`write_progress` wrote; a fresh start if that is not there or cannot be read."""
    try:
        content = json.loads(disk.read_bytes(os.path.join(log_dir, FILE_NAME)))
        next_ = content.pop("next")
        numbers = {name: int(content[name]) for name in ("began_ms", "ended_ms", "done", "total", "found")}
        if next_ is None:
            return Progress(None, **numbers)
        topic, partition, offset = next_
        return Progress((TopicPartition(str(topic), int(partition)), int(offset)), **numbers)
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return Progress()


def write_progress(disk: Disk, log_dir: str, progress: Progress) -> None:
    """Keep how far a log dir is scrubbed; a power cut may lose it, and a round begins again."""
    place = None if progress.next is None else (*progress.next[0], progress.next[1])
    content = progress._asdict() | {"next": place}
    write_atomically(disk, os.path.join(log_dir, FILE_NAME), json.dumps(content).encode(), sync=False)
