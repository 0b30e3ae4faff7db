"""The ``.snapshot`` files in a partition's directory: one holds the producers before the offset in its name."""

from __future__ import annotations

import os
from bisect import insort
from collections.abc import Collection
from contextlib import suppress

from kbroker.log.disk import Disk
from kbroker.log.file_names import DELETED_SUFFIX, SNAPSHOT_SUFFIX, file_name


class SnapshotFiles:
    """Knows which there are, writes and removes them. ``OSError`` as from the disk."""

    __slots__ = ("_directory", "_disk", "_offsets")

    def __init__(self, directory: str, disk: Disk) -> None:
        self._directory = directory
        self._disk = disk
        self._offsets = self._list()

    @property
    def offsets(self) -> tuple[int, ...]:
        """Offsets in the names of the files, ascending."""
        return tuple(self._offsets)

    @property
    def latest(self) -> int | None:
        """Offset up to which (exclusive) the latest snapshot reflects the log."""
        return self._offsets[-1] if self._offsets else None

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
        if offset not in self._offsets:
            insort(self._offsets, offset)
        return path

    def read(self, offset: int) -> bytes:
        """The content of the snapshot at ``offset``; ``FileNotFoundError``."""
        return self._disk.read_bytes(self.path(offset))

    def remove(self, offset: int) -> None:
        """Delete the snapshot at ``offset``; fine if there is none."""
        if offset in self._offsets:
            self._offsets.remove(offset)
        self._disk.remove(self.path(offset))

    def remove_strays(self, segment_base_offsets: Collection[int]) -> None:
        """At start-up: delete snapshots that belong to no segment, but not the one of a clean shutdown.

        That one lies above all base offsets, and only the highest such is kept.
        """
        self._offsets = self._list()
        strays = [offset for offset in self._offsets if offset not in segment_base_offsets]
        if strays and (not segment_base_offsets or strays[-1] > max(segment_base_offsets)):
            strays.pop()
        for offset in strays:
            self.remove(offset)

    def mark_for_deletion(self, offset: int) -> str | None:
        """Rename a deleted segment's snapshot to ``.deleted``, to be removed later; its new path."""
        if offset not in self._offsets:
            return None
        self._offsets.remove(offset)
        path = self.path(offset)
        try:
            self._disk.rename(path, path + DELETED_SUFFIX)
        except FileNotFoundError:
            return None
        return path + DELETED_SUFFIX

    def _list(self) -> list[int]:
        if not self._disk.is_dir(self._directory):
            return []
        offsets = []
        for name in self._disk.list_dir(self._directory):
            stem = name.removesuffix(SNAPSHOT_SUFFIX)
            if stem != name and len(stem) == 20 and stem.isascii() and stem.isdigit():
                offsets.append(int(stem))
        return sorted(offsets)
