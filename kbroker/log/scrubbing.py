"""Logs are verified in the background: the batches of one file, and where the work on a log dir has come to."""

from __future__ import annotations

import json
import os
import struct

from kbroker.log.disk import Disk, FileToReadOnce, write_atomically
from kbroker.types import TopicPartition
from kbroker.value_types import NamedTuple
from kbroker.wire.batch_header import ATTRIBUTES_AT, HEADER_SIZE, LOG_OVERHEAD, crc32c

FILE_NAME = "scrub-checkpoint"
_FIELDS = struct.Struct(">qiiBI2xi")
"""Of a batch's header: base offset, length, leader epoch, magic, checksum, last offset delta."""
STEP = 8 * 1024 * 1024
"""Bytes that one step verifies: to wake a thread and to sleep cost as much as to verify one or two MiB."""
_MOST_BATCHES = 2048
"""In one step; small batches take more time than their bytes."""


class SegmentCheck:
    """Verifies the batches of a segment, step by step; a step may run in any thread."""

    def __init__(self, disk: Disk, path: str, size: int, base_offset: int, end_offset: int, buffer: bytearray) -> None:
        """``size`` bytes of the file count, with offsets below ``end_offset``. ``buffer`` is read into."""
        self._file = FileToReadOnce(disk.open(path))
        self._size = size
        self._end_offset = end_offset
        self._epoch = -1
        self._buffer = memoryview(buffer)
        self.position = 0
        """Where the first batch begins that is not verified yet, or is not whole."""
        self.next_offset = base_offset
        """Least offset of that batch."""
        self.problem: str | None = None
        """The reason why what is there is no batch."""

    @property
    def is_done(self) -> bool:
        """Whether all is verified, or something is wrong."""
        return self.problem is not None or self.position >= self._size

    def step(self) -> int:
        """Verify the next batches; how many."""
        end, left = self.position + STEP, _MOST_BATCHES
        while not self.is_done and self.position < end and left > 0:
            left -= self._verify(self._read(self._buffer), left)
        return _MOST_BATCHES - left

    def _read(self, buffer: memoryview) -> memoryview:
        buffer = buffer[: self._size - self.position]
        return buffer[: self._file.read_into(buffer, self.position)]

    def _verify(self, data: memoryview, most: int) -> int:
        """Verify batches that were read; how many."""
        fields, count, at, end = _FIELDS.unpack_from, 0, 0, len(data)
        next_offset, latest_epoch, end_offset = self.next_offset, self._epoch, self._end_offset
        while count < most and end - at >= HEADER_SIZE:
            base_offset, batch_length, epoch, magic, crc, delta = fields(data, at)
            following = at + batch_length + LOG_OVERHEAD
            if magic != 2 or batch_length < HEADER_SIZE - LOG_OVERHEAD or delta < 0:
                self.problem = "the bytes are no batch"
            elif base_offset < next_offset:
                self.problem = f"offset {base_offset} follows {next_offset - 1}"
            elif base_offset + delta >= end_offset:
                self.problem = f"offset {base_offset + delta} is not below {end_offset}, where the segment ends"
            elif epoch < latest_epoch:
                self.problem = f"leader epoch {epoch} follows {latest_epoch}"
            elif following > end:
                if at:
                    break  # it is read again, as a whole
                if self.position + following <= self._size and following > len(self._buffer):
                    return self._verify(self._read(memoryview(bytearray(following))), most)
                self.problem = f"a batch of {following} bytes is cut off after {end}"
            elif crc32c(data[at + ATTRIBUTES_AT : following]) != crc:
                self.problem = f"the checksum of the batch at offset {base_offset} is wrong"
            if self.problem is not None:
                break
            next_offset, latest_epoch, at, count = base_offset + delta + 1, epoch, following, count + 1
        if not at and self.problem is None:
            self.problem = f"a batch is cut off after {end} bytes"
        self.position += at
        self.next_offset, self._epoch = next_offset, latest_epoch
        return count


class Progress(NamedTuple):
    """The scrubber's progress in a log dir."""

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
