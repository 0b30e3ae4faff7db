"""Goes through the bytes of a segment that may be damaged: which of them are whole batches of it, and which are not.

A whole batch has its checksum and fits: its offsets and its leader epoch follow those before it. The checksum covers
neither base offset nor leader epoch. A batch whose own are too high shows when the next one goes on from before it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import pairwise

from kbroker.log.disk import DiskFile
from kbroker.value_types import NamedTuple
from kbroker.wire.batch_header import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_AT,
    NO_PARTITION_LEADER_EPOCH,
    BatchHeader,
    Buffer,
    check_crc,
    parse_header,
)
from kbroker.wire.compression import CorruptRecord

CHUNK = 1024 * 1024
_SECTOR = 512
"""Bytes that a disk writes as a whole, at least."""
_LEADING_ZEROS = 4
"""Bytes at the start of nearly every batch that are zeros anyway."""
_LARGE_BATCH = 1024 * 1024
_FRAME = struct.Struct(">qi")
_MAGIC = b"\2"


class Whole(NamedTuple):
    """A batch of the segment, which lies in ``chunk`` from ``at`` on."""

    position: int
    header: BatchHeader
    chunk: Buffer
    at: int


class Damaged(NamedTuple):
    """Bytes between two batches of the segment, or at its end, that are none."""

    position: int
    end: int
    """Position behind the last of them."""
    start_offset: int
    """The offset after the batch before them."""
    end_offset: int | None
    """Base offset of the batch after them; ``None`` if there is none in the file."""
    claimed_offset: int
    """The end of the offsets that they seem to have had; ``start_offset`` if nothing is seen of any."""
    reason: str
    is_torn: bool
    """Whether an append that was not completed leaves such an end: part of a batch, or blank sectors."""


class Bounds(NamedTuple):
    """The offsets and leader epochs that batches from some place on may have."""

    next_offset: int
    limit: int
    """The highest offset that the segment's indexes can express."""
    end_offset: int | None = None
    """Where the next segment begins: no gap leads beyond. A segment that goes on without a gap is kept, as the next
    one was begun after a truncation that is undone now."""
    epoch: int | None = -1
    """The least leader epoch; ``None`` if they do not matter."""
    latest_epoch: int | None = None
    """The highest leader epoch, where it is known."""

    def misfit(self, header: BatchHeader) -> str | None:
        """The reason why a batch cannot come next; ``None`` if it can."""
        last = header.base_offset + header.last_offset_delta
        if (
            header.last_offset_delta < 0
            or header.base_offset < self.next_offset
            or last > self.limit
            or (self.end_offset is not None and self.next_offset < header.base_offset and last >= self.end_offset)
        ):
            return f"offsets {header.base_offset} to {last} cannot follow {self.next_offset - 1}"
        if self.epoch is not None and 0 <= header.partition_leader_epoch < self.epoch:
            return f"leader epoch {header.partition_leader_epoch} cannot follow {self.epoch}"
        if header.partition_leader_epoch < NO_PARTITION_LEADER_EPOCH:
            return f"leader epoch {header.partition_leader_epoch} is none"
        if self.latest_epoch is not None and header.partition_leader_epoch > self.latest_epoch:
            return (
                f"leader epoch {header.partition_leader_epoch} is none of this log, whose latest is {self.latest_epoch}"
            )
        return None


def walk(
    file: DiskFile,
    size: int,
    bounds: Bounds,
    *,
    position: int = 0,
    piece: int = CHUNK,
    before_read: Callable[[], None] = lambda: None,
) -> Iterator[Whole | Damaged]:
    """All bytes of a file from ``position`` to ``size``, in order, ``piece`` bytes or a batch at a time.

    ``before_read`` is called before each.
    """
    held: Whole | None = None
    """The last whole batch, until the next one bears it out."""
    next_offset, epoch = was_next, was_epoch = bounds.next_offset, bounds.epoch
    fixed, latest_epoch = (bounds.limit, bounds.end_offset), bounds.latest_epoch
    end = min(bounds.limit + 1, bounds.limit + 1 if bounds.end_offset is None else bounds.end_offset)
    damaged, reason, claimed = -1, "", 0
    chunk, start = memoryview(b""), position

    def read(length: int) -> memoryview:
        before_read()
        return memoryview(file.pread(min(length, size - position), position))

    while position < size:
        at = position - start
        if at + HEADER_SIZE > len(chunk):
            chunk, start, at = read(piece), position, 0
        misfit: str | None
        following = size
        try:
            header = parse_header(chunk, at)
            length = header.batch_length + LOG_OVERHEAD
            if position + length > size:
                raise CorruptRecord(f"a batch of {length} bytes is cut off after {size - position}")
            if at + length > len(chunk):
                chunk, start, at = read(max(piece, length)), position, 0
            check_crc(chunk, at, header)
            misfit, following = None, position + length
            last = header.base_offset + header.last_offset_delta
            if (
                next_offset == header.base_offset <= last < end
                and (epoch is None or header.partition_leader_epoch == epoch)
                and damaged < 0
            ):
                if held is not None:
                    yield held
                held = Whole(position, header, chunk, at)
                was_next, next_offset, was_epoch = next_offset, last + 1, epoch
                position = following
                continue  # nearly every batch
            bounds = Bounds(next_offset, *fixed, epoch, latest_epoch)
            before = Bounds(was_next, *fixed, was_epoch, latest_epoch)
            misfit = bounds.misfit(header)
            if (
                misfit is not None
                and held is not None
                and header != held.header  # of a log that is there twice
                and before.misfit(header) is None
                and not _goes_on(file, following, bounds)
            ):
                # It goes on from before the last one, whose offset or epoch is too high.
                if damaged < 0:
                    reason = f"{misfit}; the batch at {held.position} after {before.next_offset - 1} has a wrong one"
                damaged, held, bounds, misfit = held.position, None, before, None
                next_offset, epoch = was_next, was_epoch
            elif misfit is None and damaged >= 0 and _has_lost_its_offset(file, position, header):
                misfit = f"its offset {header.base_offset} lay in a sector that is blank"
        except CorruptRecord as error:
            misfit = str(error)
            if damaged < 0:
                claimed = _claimed(chunk, at, next_offset, size - position)
        if misfit is not None:
            if damaged < 0:
                damaged, reason = position, misfit
            if following == size:
                least = (was_next, *fixed, was_epoch) if held is not None else (next_offset, *fixed, epoch)
                following = _next_whole(file, position, size, Bounds(*least, latest_epoch), before_read)
            position = following
            continue
        if held is not None:
            yield held
        if damaged >= 0:
            yield Damaged(damaged, position, next_offset, header.base_offset, header.base_offset, reason, False)
            damaged = -1
        held = Whole(position, header, chunk, at)
        was_next, next_offset, was_epoch = next_offset, header.next_offset, epoch
        if epoch is not None:
            epoch = max(epoch, header.partition_leader_epoch)
        position = following
    if held is not None:
        yield held
    if damaged >= 0:
        torn = _is_torn(file, damaged, size)
        yield Damaged(damaged, size, next_offset, None, max(claimed, next_offset), reason, torn)


def _goes_on(file: DiskFile, position: int, bounds: Bounds) -> bool:
    """Whether the batch at ``position`` may come next."""
    try:
        return bounds.misfit(parse_header(file.pread(HEADER_SIZE, position))) is None
    except CorruptRecord:
        return False


def _has_lost_its_offset(file: DiskFile, position: int, header: BatchHeader) -> bool:
    """Whether a batch behind damage may have had another offset: what lies before the checksum's part of its header was
    in a sector that was lost, and the next batch does not bear it out."""
    lost = -position % _SECTOR
    if not _LEADING_ZEROS < lost < _FRAME.size or any(file.pread(lost, position)):
        return False
    following = file.pread(_FRAME.size, position + header.size)
    return len(following) < _FRAME.size or _FRAME.unpack(following)[0] != header.next_offset


def _claimed(chunk: Buffer, at: int, next_offset: int, size: int) -> int:
    """The end of the offsets of a damaged batch, if it begins as the next one would; of no more than its bytes hold."""
    try:
        header = parse_header(chunk, at)
    except CorruptRecord:
        if len(chunk) - at < _FRAME.size or _FRAME.unpack_from(chunk, at)[0] != next_offset:
            return -1
        return next_offset + 1
    if header.base_offset != next_offset:
        return -1
    return next_offset + 1 + max(0, min(header.last_offset_delta, size))


def _is_torn(file: DiskFile, position: int, size: int) -> bool:
    """Whether the bytes up to the end of a file are part of a batch, or have a sector that is blank."""
    head = file.pread(HEADER_SIZE, position)
    try:
        if position + parse_header(head).size > size:
            return True
    except CorruptRecord:
        if position + HEADER_SIZE > size:
            return True
    for start in range(position, size, CHUNK):
        data = file.pread(min(CHUNK, size - start), start)
        bounds = [0, *range(-start % _SECTOR or _SECTOR, len(data), _SECTOR), len(data)]
        if any(not data[first:last].strip(b"\0") for first, last in pairwise(bounds)):
            return True
    return False


def _next_whole(file: DiskFile, position: int, size: int, bounds: Bounds, before_read: Callable[[], None]) -> int:
    """Position of the next whole batch behind ``position``; ``size`` if there is none."""
    try:
        following = position + parse_header(file.pread(HEADER_SIZE, position)).size
        if _is_whole(file, following, size, bounds):
            return following
    except CorruptRecord:
        pass
    start = position + 1
    while start + HEADER_SIZE <= size:
        before_read()
        chunk = file.pread(min(CHUNK, size - start), start)
        found = chunk.find(_MAGIC, MAGIC_AT)
        while found >= 0 and found - MAGIC_AT + HEADER_SIZE <= len(chunk):
            at = found - MAGIC_AT
            base, length = _FRAME.unpack_from(chunk, at)
            if bounds.next_offset <= base <= bounds.limit and HEADER_SIZE - LOG_OVERHEAD <= length <= size - start - at:
                if _is_whole(file, start + at, size, bounds):
                    return start + at
            found = chunk.find(_MAGIC, found + 1)
        start += max(1, len(chunk) - HEADER_SIZE + 1)
    return size


def _is_whole(file: DiskFile, position: int, size: int, bounds: Bounds) -> bool:
    try:
        header = parse_header(file.pread(HEADER_SIZE, position))
        end = position + header.size
        if end > size or bounds.misfit(header) is not None:
            return False
        if header.size > _LARGE_BATCH and end < size:
            parse_header(file.pread(HEADER_SIZE, end))  # or garbage could have much of the file read again and again
        check_crc(file.pread(header.size, position), 0, header)
    except CorruptRecord:
        return False
    return True
