"""``.snapshot`` files: the producers of a partition at one offset (Kafka's ``ProducerSnapshot``, version 1)."""

from __future__ import annotations

import os
import struct
from collections.abc import Collection, Iterable
from contextlib import suppress

from kbroker.log.disk import Disk
from kbroker.log.file_names import DELETED_SUFFIX, SNAPSHOT_SUFFIX, file_name, is_offset_name
from kbroker.log.producer_entry import BatchMetadata, ProducerStateEntry
from kbroker.wire.batch_header import NO_SEQUENCE, crc32c

_SNAPSHOT_VERSION = 1
_SNAPSHOT_HEADER = struct.Struct(">hI")  # version, CRC32C of all that follows
_COUNT = struct.Struct(">i")
# producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, txn first offset
_ENTRY = struct.Struct(">qhiqiqiq")


class CorruptSnapshot(Exception):
    """A ``.snapshot`` file is not what Kafka or kbroker wrote; the state is rebuilt from older ones."""


def encode_snapshot(entries: Iterable[ProducerStateEntry]) -> bytes:
    """The content of a ``.snapshot`` file (Kafka's ``ProducerSnapshot``, version 1)."""
    body = bytearray(_COUNT.size)
    count = 0
    for entry in entries:
        last = entry.batches[-1] if entry.batches else BatchMetadata(NO_SEQUENCE, -1, 0, 0)
        first_offset = entry.current_txn_first_offset
        body += _ENTRY.pack(
            entry.producer_id,
            entry.producer_epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            -1 if first_offset is None else first_offset,
        )
        count += 1
    _COUNT.pack_into(body, 0, count)
    return _SNAPSHOT_HEADER.pack(_SNAPSHOT_VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[ProducerStateEntry]:
    """The entries of a ``.snapshot`` file, each with its last batch; ``CorruptSnapshot`` if it is damaged."""
    start = _SNAPSHOT_HEADER.size
    if len(data) < start + _COUNT.size:
        raise CorruptSnapshot(f"{len(data)} bytes are too few")
    version, crc = _SNAPSHOT_HEADER.unpack_from(data)
    if version != _SNAPSHOT_VERSION:
        raise CorruptSnapshot(f"version {version} is unknown")
    computed = crc32c(memoryview(data)[start:])
    if crc != computed:
        raise CorruptSnapshot(f"the checksum is {crc}, the bytes give {computed}")
    (count,) = _COUNT.unpack_from(data, start)
    start += _COUNT.size
    if not 0 <= count <= (len(data) - start) // _ENTRY.size:
        raise CorruptSnapshot(f"{count} entries cannot be in {len(data) - start} bytes")
    entries = []
    for index in range(count):
        (producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp, coordinator_epoch, first_offset) = (
            _ENTRY.unpack_from(data, start + index * _ENTRY.size)
        )
        entry = ProducerStateEntry(
            producer_id, epoch, coordinator_epoch, timestamp, first_offset if first_offset >= 0 else None
        )
        if last_offset >= 0:
            entry.batches.append(BatchMetadata(last_sequence, last_offset, offset_delta, timestamp))
        entries.append(entry)
    return entries


class SnapshotFiles:
    """Knows which there are, writes and removes them. ``OSError`` as from the disk."""

    __slots__ = ("_directory", "_disk", "offsets")

    def __init__(self, directory: str, disk: Disk, names: Collection[str] | None = None) -> None:
        """``names`` are those in the directory, if they were just listed."""
        self._directory = directory
        self._disk = disk
        if names is None:
            names = disk.list_dir(directory) if disk.is_dir(directory) else ()
        found = (name.removesuffix(SNAPSHOT_SUFFIX) for name in names if name.endswith(SNAPSHOT_SUFFIX))
        self.offsets = tuple(sorted(int(stem) for stem in found if is_offset_name(stem)))
        """Offsets in the names of the files, ascending."""

    @property
    def latest(self) -> int | None:
        """Offset up to which (exclusive) the latest snapshot reflects the log."""
        return self.offsets[-1] if self.offsets else None

    def path(self, offset: int) -> str:
        """The path of the snapshot at an offset."""
        return os.path.join(self._directory, file_name(offset) + SNAPSHOT_SUFFIX)

    def write(self, offset: int, content: bytes, *, sync: bool) -> str:
        """Write the snapshot at ``offset``; its path."""
        path = self.path(offset)
        try:
            self._disk.write_bytes(path, content, sync=sync)
        except OSError:
            with suppress(OSError):
                self._disk.remove(path)  # a part of one would be taken for damage
            raise
        self.offsets = tuple(sorted({*self.offsets, offset}))
        return path

    def read(self, offset: int) -> bytes:
        """The content of the snapshot at ``offset``; ``FileNotFoundError``."""
        return self._disk.read_bytes(self.path(offset))

    def remove(self, offset: int) -> None:
        """Delete the snapshot at ``offset``; fine if there is none."""
        self._forget(offset)
        self._disk.remove(self.path(offset))

    def _forget(self, offset: int) -> None:
        self.offsets = tuple(each for each in self.offsets if each != offset)

    def remove_strays(self, segment_base_offsets: Collection[int]) -> None:
        """At start-up: delete snapshots that belong to no segment, but not the one of a clean shutdown.

        That one lies above all base offsets, and only the highest such is kept.
        """
        strays = [offset for offset in self.offsets if offset not in segment_base_offsets]
        if strays and (not segment_base_offsets or strays[-1] > max(segment_base_offsets)):
            strays.pop()
        for offset in strays:
            self.remove(offset)

    def mark_for_deletion(self, offset: int) -> str | None:
        """Rename a deleted segment's snapshot to ``.deleted``, to be removed later; its new path."""
        if offset not in self.offsets:
            return None
        self._forget(offset)
        path = self.path(offset)
        try:
            self._disk.rename(path, path + DELETED_SUFFIX)
        except FileNotFoundError:
            return None
        return path + DELETED_SUFFIX
