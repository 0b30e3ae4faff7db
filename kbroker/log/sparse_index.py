"""The machinery that ``.index`` and ``.timeindex`` files share: sorted entries of fixed width.

Entries are added at the end in memory and written out a block at a time, on a roll and on a clean stop; after
a crash the segments past the recovery point are read anyway, and their indexes built anew. So an append costs
no system call, and a log holds at most one block of entries in memory, plus one that was read last.

Apache Kafka maps the files into memory and preallocates the active one; the files here hold just their
entries. Its tools and its broker take both.
"""

from __future__ import annotations

import operator
import struct
from array import array
from bisect import bisect_right
from typing import ClassVar, NamedTuple

from kbroker.log.disk import Disk, DiskFile

BLOCK = 512
"""Entries that are written or read together."""


class CorruptIndex(Exception):
    """An index file cannot be right; it is to be built again from the log. The text names file and reason."""


_FOREVER = 1 << 64


class _Block(NamedTuple):
    """Entries read from a file, and where they and those after them begin."""

    columns: tuple[array[int], array[int]]
    first: tuple[int, int]
    end: tuple[int, int]


class SparseIndex:
    """Entries ``(key, value)``, both growing. Subclasses name the format and what the numbers mean."""

    __slots__ = ("_block", "_disk", "_keys", "_persisted", "_values", "path")

    ENTRY: ClassVar[struct.Struct]
    KEY_TYPE: ClassVar[str]

    def __init__(self, disk: Disk, path: str, *, exists: bool) -> None:
        self._disk = disk
        self.path = path
        self._persisted = -1 if exists else 0
        """Entries in the file; -1 until it is looked at for the first time."""
        self._keys: array[int] | None = None
        self._values: array[int] | None = None
        self._block: _Block | None = None
        """The block read last."""

    def __len__(self) -> int:
        """Number of entries. Raises :class:`CorruptIndex` if the file cannot be right."""
        persisted = self._persisted
        if persisted < 0:
            persisted = self._load()
        return persisted + (len(self._keys) if self._keys is not None else 0)

    def append(self, key: int, value: int) -> None:
        """Add an entry; the caller sees to the order."""
        if self._keys is None or self._values is None:
            self._keys = array(self.KEY_TYPE)
            self._values = array("i")
        self._keys.append(key)
        self._values.append(value)
        if len(self._keys) >= BLOCK:
            self.write_out()

    def write_out(self, *, sync: bool = False) -> None:
        """Bring all entries into the file (created if absent), and to the disk if ``sync``."""
        if self._persisted < 0:
            self._load()
        keys, values = self._keys, self._values
        if not keys and not sync and self._persisted:
            return
        file = self._disk.open(self.path, create=True)
        if keys and values:
            pack = self.ENTRY.pack
            data = b"".join(pack(key, value) for key, value in zip(keys, values, strict=True))
            file.write_at(self._persisted * self.ENTRY.size, [data])
            self._persisted += len(keys)
            self._keys = self._values = None
            self._block = None
        if sync:
            file.sync()

    def last(self) -> tuple[int, int] | None:
        """The last entry, or ``None``."""
        if self._keys and self._values:
            return self._keys[-1], self._values[-1]
        count = len(self)
        if not count:
            return None
        file = self._disk.open(self.path)
        return self._entry(file, count - 1)

    def floor(self, key: int) -> tuple[int, int] | None:
        """The last entry whose key is at most ``key``."""
        return self._search(0, key)

    def floor_by_value(self, value: int) -> tuple[int, int] | None:
        """The last entry whose value is at most ``value``."""
        return self._search(1, value)

    def truncate_from_key(self, key: int) -> None:
        """Drop entries with this key and above."""
        self._truncate(0, key)

    def truncate_from_value(self, value: int) -> None:
        """Drop entries with this value and above."""
        self._truncate(1, value)

    def reset(self) -> None:
        """Drop all entries; the file, if there is one, becomes empty."""
        self._keys = self._values = self._block = None
        self._persisted = 0
        try:
            size = self._disk.size(self.path)
        except FileNotFoundError:
            return
        if size:
            self._disk.open(self.path).truncate(0)

    def drop_memory(self) -> None:
        """Write out, and keep nothing in memory: the segment is not written any more."""
        self.write_out()
        self._block = None

    def rename(self, path: str) -> None:
        """Give the file another name; entries in memory are written first, so that none get lost."""
        self.write_out()
        self._disk.rename(self.path, path)
        self.path = path

    # -- reading the file

    def _load(self) -> int:
        width = self.ENTRY.size
        try:
            size = self._disk.size(self.path)
        except FileNotFoundError:
            raise CorruptIndex(f"{self.path}: the file is missing") from None
        if size % width:
            raise CorruptIndex(f"{self.path}: its {size} bytes are no multiple of {width}")
        count = size // width
        if count:
            file = self._disk.open(self.path)
            first, last = self._entry(file, 0), self._entry(file, count - 1)
            if not self.plausible(*first) or not self.plausible(*last):
                raise CorruptIndex(f"{self.path}: the first or last entry is impossible: {first}, {last}")
            if count > 1 and not (first[0] < last[0] and first[1] <= last[1]):
                raise CorruptIndex(f"{self.path}: the last entry {last} does not follow the first {first}")
        self._persisted = count
        return count

    def plausible(self, key: int, value: int) -> bool:
        """Whether an entry can be one at all."""
        raise NotImplementedError

    def _entry(self, file: DiskFile, slot: int) -> tuple[int, int]:
        width = self.ENTRY.size
        data = file.pread(width, slot * width)
        if len(data) != width:
            raise CorruptIndex(f"{self.path}: entry {slot} cannot be read")
        key, value = self.ENTRY.unpack(data)
        return key, value

    def _search(self, column: int, target: int) -> tuple[int, int] | None:
        keys, values = self._keys, self._values
        if keys and values:
            entries = values if column else keys
            if target >= entries[0]:
                slot = bisect_right(entries, target) - 1
                return keys[slot], values[slot]
        count = self._persisted
        if count < 0:
            count = self._load()
        if not count:
            return None
        block = self._block
        if block is None or not block.first[column] <= target < block.end[column]:
            block = self._find_block(column, target, count)
            if block is None:
                return None
        slot = bisect_right(block.columns[column], target) - 1
        return block.columns[0][slot], block.columns[1][slot]

    def _find_block(self, column: int, target: int, count: int) -> _Block | None:
        file = self._disk.open(self.path)
        low, high = 0, (count + BLOCK - 1) // BLOCK
        while high - low > 1:
            middle = (low + high) // 2
            if self._entry(file, middle * BLOCK)[column] <= target:
                low = middle
            else:
                high = middle
        first = low * BLOCK
        entries = min(BLOCK, count - first)
        width = self.ENTRY.size
        # One more entry than the block has: where the next one begins.
        data = file.pread((entries + 1) * width, first * width)
        found = len(data) // width
        if found < entries:
            raise CorruptIndex(f"{self.path}: it became shorter than {first + entries} entries")
        keys, values = self._decode(data[: found * width], found)
        if not all(map(operator.lt, keys, keys[1:])) or not all(map(operator.le, values, values[1:])):
            raise CorruptIndex(f"{self.path}: the entries from number {first} on are not in order")
        end = (_FOREVER, _FOREVER)
        if found > entries:
            end = keys.pop(), values.pop()
        self._block = block = _Block((keys, values), (keys[0], values[0]), end)
        return block if target >= block.first[column] else None

    def _decode(self, data: bytes, count: int) -> tuple[array[int], array[int]]:
        """Keys and values of ``count`` entries."""
        numbers = struct.unpack(">" + self.ENTRY.format[1:] * count, data)
        return array("q", numbers[::2]), array("q", numbers[1::2])

    def _truncate(self, column: int, bound: int) -> None:
        keys, values = self._keys, self._values
        if keys and values:
            entries = values if column else keys
            keep = bisect_right(entries, bound - 1)
            if keep:
                del keys[keep:]
                del values[keep:]
                return
            self._keys = self._values = None
        count = self._persisted if self._persisted >= 0 else self._load()
        self._block = None
        if not count:
            return
        file = self._disk.open(self.path)
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            if self._entry(file, middle)[column] < bound:
                low = middle + 1
            else:
                high = middle
        if low < count:
            file.truncate(low * self.ENTRY.size)
            self._persisted = low
