"""Files that logs keep open between uses, a bounded number of them."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from typing import TypeVar

from kbroker.log.disk import Disk, DiskFile

T = TypeVar("T")


class OpenIndex:
    """An index file in use: the first entry of each page that a search has come by, and the page read last.

    :class:`~kbroker.log.segments.sparse_index.SparseIndex` fills it in.
    """

    __slots__ = ("file", "firsts", "page", "page_number")

    def __init__(self, file: DiskFile) -> None:
        self.file = file
        self.firsts: tuple[array[int], array[int]] = array("q"), array("i")
        """Keys and values; -1 for a page that no search has looked at."""
        self.page_number = -1
        self.page = b""


class OpenFiles:
    """Open segment files by path, at most ``capacity`` of them, the least recently used dropped first; and a third
    as many index files, up to :attr:`INDEXES`, whose descriptors and memory are bounded in the same way.

    Ten thousand partitions then need neither ten thousand descriptors nor an open call per request. A file
    that is dropped while a reader holds it stays open until that reader is done.
    """

    __slots__ = ("_disk", "_files", "_indexes", "capacity")

    INDEXES = 256
    """Of 1 GiB segments: at most some 30 KB each."""

    def __init__(self, disk: Disk, capacity: int = 512) -> None:
        self._disk = disk
        self._files: OrderedDict[str, DiskFile] = OrderedDict()
        self._indexes: OrderedDict[str, OpenIndex] = OrderedDict()
        self.capacity = capacity

    def __len__(self) -> int:
        return len(self._files)

    def get(self, path: str, *, create: bool = False) -> DiskFile:
        """The open file of ``path``; ``FileNotFoundError`` if there is none and not ``create``."""
        file = self._files.get(path)
        if file is not None:
            self._files.move_to_end(path)
            return file
        file = self._disk.open(path, create=create)
        _keep(self._files, path, file, self.capacity)
        return file

    def index(self, path: str) -> OpenIndex:
        """The open index file of ``path``; ``FileNotFoundError`` if there is none."""
        index = self._indexes.get(path)
        if index is not None:
            self._indexes.move_to_end(path)
            return index
        index = OpenIndex(self._disk.open(path))
        _keep(self._indexes, path, index, min(max(1, self.capacity // 3), self.INDEXES))
        return index

    @property
    def open_indexes(self) -> list[str]:
        """Paths of the index files that are open, the one used last at the end."""
        return list(self._indexes)

    def forget(self, path: str) -> None:
        """Drop the file of a path that is about to be renamed or removed."""
        self._files.pop(path, None)

    def forget_index(self, path: str) -> None:
        """Drop an index file that is about to be renamed, removed or cut."""
        self._indexes.pop(path, None)

    def clear(self) -> None:
        """Drop all files."""
        self._files.clear()
        self._indexes.clear()


def _keep(files: OrderedDict[str, T], path: str, file: T, capacity: int) -> None:
    files[path] = file
    if len(files) > capacity:
        files.popitem(last=False)


__all__ = ["OpenFiles", "OpenIndex"]
