"""``.index`` and ``.timeindex`` files, and what they share: sorted entries of fixed width.

Entries are added at the end in memory and written out a block at a time, on a roll and on a clean stop; after
a crash the segments past the recovery point are read anyway, and their indexes built anew. So an append costs
no system call, and a log holds at most one block of entries in memory.

A search in a file reads one page of it. Which one, it finds among the pages' first entries, which are remembered
as they are read: those that every search comes by are in memory soon, as is the page that was read last. Both
belong to the open file (:class:`~kbroker.log.segments.open_files.OpenFiles`) and go with it, so that an index costs
memory while it is used. (To the same end Apache Kafka's binary search has a "warm section".)

Apache Kafka maps the files into memory and preallocates the active one; the files here hold just their
entries, and are there, empty, as soon as their segment is. Its tools and its broker take both.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from typing import ClassVar

from kbroker.log.disk import Disk, DiskFile
from kbroker.log.file_names import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX
from kbroker.log.full_disk import is_no_room
from kbroker.log.segments.open_files import OpenFiles, OpenIndex

BLOCK = 512
"""Entries that are written together."""
PAGE = 128
"""Entries that a search reads together."""


class CorruptIndex(Exception):
    """An index file cannot be right; it is to be built again from the log. The text names file and reason."""


class SparseIndex:
    """Entries ``(key, value)``, both growing. Subclasses name the format and what the numbers mean."""

    __slots__ = ("_disk", "_files", "_keys", "_path", "_persisted", "_values")

    SUFFIX: ClassVar[str]
    ENTRY: ClassVar[struct.Struct]
    KEY_TYPE: ClassVar[str]

    def __init__(self, disk: Disk, path: str, *, exists: bool, files: OpenFiles | None = None) -> None:
        """``path`` is its own, or that of the ``.log`` whose index it is."""
        self._disk = disk
        self._files = files if files is not None else OpenFiles(disk, 1)
        self._path = path
        self._persisted = -1 if exists else 0
        """Entries in the file; -1 until it is looked at for the first time."""
        self._keys: array[int] | None = None
        self._values: array[int] | None = None

    @property
    def path(self) -> str:
        """The path of the file. It is not kept, as a node may have many that nobody looks into."""
        return self._path.removesuffix(LOG_SUFFIX) + self.SUFFIX if self._path.endswith(LOG_SUFFIX) else self._path

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
            try:
                self.write_out()
            except OSError as error:
                if not is_no_room(error):
                    raise
                # The batch that it is an entry of is in the log: the next one tries again.

    @property
    def is_ahead(self) -> bool:
        """Whether entries are in memory alone."""
        return bool(self._keys)

    def create_file(self) -> None:
        """Create the file, without entries, unless it exists."""
        self._disk.open(self.path, create=True)

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
        self._keys = self._values = None
        self._persisted = 0
        path = self.path
        self._files.forget_index(path)
        try:
            size = self._disk.size(path)
        except FileNotFoundError:
            return
        if size:
            self._disk.open(path).truncate(0)

    def drop_memory(self) -> None:
        """Write out, and keep nothing in memory: the segment is not written any more."""
        self.write_out()
        self.close()

    def close(self) -> None:
        """Let the file go, if it is open; the next search opens it again."""
        self._files.forget_index(self.path)

    def rename(self, path: str) -> None:
        """Give the file another name; entries in memory are written first, so that none get lost."""
        self.write_out()
        self.close()
        self._disk.rename(self.path, path)
        self._path = path

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
        return self._search_file(self._files.index(self.path), column, target, count)

    def _search_file(self, opened: OpenIndex, column: int, target: int, count: int) -> tuple[int, int] | None:
        firsts = opened.firsts[column]
        low, high = 0, (count + PAGE - 1) // PAGE
        if len(firsts) < high:
            for numbers in opened.firsts:
                numbers.extend([-1] * (high - len(numbers)))
        while high - low > 1:
            middle = (low + high) >> 1
            first = firsts[middle]
            if first < 0:
                first = self._note_first(opened, middle)[column]
            if first <= target:
                low = middle
            else:
                high = middle
        width = self.ENTRY.size
        entries = min(PAGE, count - low * PAGE)
        page = opened.page
        if opened.page_number != low or len(page) != entries * width:
            page = opened.file.pread(entries * width, low * PAGE * width)
            if len(page) != entries * width:
                raise CorruptIndex(f"{self.path}: it became shorter than {low * PAGE + entries} entries")
            opened.page, opened.page_number = page, low
        unpack = self.ENTRY.unpack_from
        found = unpack(page)
        if found[column] > target:
            return None
        slot, end = 0, entries
        while end - slot > 1:
            middle = (slot + end) >> 1
            entry = unpack(page, middle * width)
            if entry[column] <= target:
                slot, found = middle, entry
            else:
                end = middle
        key, value = found
        if slot:
            before_key, before_value = unpack(page, (slot - 1) * width)
            if before_key >= key or before_value > value:
                number = low * PAGE + slot
                raise CorruptIndex(f"{self.path}: the entries around number {number} are not in order")
        return key, value

    def _note_first(self, opened: OpenIndex, page: int) -> tuple[int, int]:
        entry = self._entry(opened.file, page * PAGE)
        for numbers, number in zip(opened.firsts, entry, strict=True):
            numbers[page] = number
        return entry

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
        self.close()
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


class OffsetIndex(SparseIndex):
    """Entries of 8 bytes: last offset of a batch, relative to the segment's base offset (int32), and the
    position at which that batch begins (int32)."""

    __slots__ = ()

    SUFFIX = OFFSET_INDEX_SUFFIX
    ENTRY = struct.Struct(">ii")
    KEY_TYPE = "i"

    def plausible(self, key: int, value: int) -> bool:
        # The first entry comes after index.interval.bytes of batches, so position 0 is never in it: a zero
        # entry is the padding of a preallocated file.
        return key >= 0 and value > 0


class TimeIndex(SparseIndex):
    """Entries of 12 bytes: the greatest timestamp so far (int64, milliseconds), and the last offset of the
    batch that has it, relative to the segment's base offset (int32). The last entry of a segment that is no
    longer written holds its greatest timestamp, by which it is retained."""

    __slots__ = ()

    SUFFIX = TIME_INDEX_SUFFIX
    ENTRY = struct.Struct(">qi")
    KEY_TYPE = "q"

    def plausible(self, key: int, value: int) -> bool:
        return key >= 0 and value >= 0

    def maybe_append(self, timestamp: int, relative_offset: int) -> None:
        """Add an entry if its timestamp is greater than the last one's."""
        last = self.last()
        if timestamp >= 0 and (last is None or timestamp > last[0]):
            self.append(timestamp, relative_offset)
