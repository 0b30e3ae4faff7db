"""``.txnindex``: a segment's aborted transactions, in Apache Kafka's format.

A consumer with read_committed is told of every aborted transaction that overlaps what it is sent, and skips
their records. An entry stands in the segment that holds the ABORT marker; the transaction's records may be in
earlier ones. Entries are in the order of their markers::

    version int16 = 0 | producer_id int64 | first_offset int64 | last_offset int64 | last_stable_offset int64

``last_offset`` is the marker's. ``last_stable_offset`` is what it was once the marker was written: every
transaction that began below it has been decided by then, so a search for transactions below some offset ends
at the first entry whose last stable offset is not below it.

The file exists only if the segment has such entries, and with it one of the suffix ``.aborted``, by which a file that
is lost is missed. The entries are kept in memory once read (34 bytes each).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator

from kbroker.log.disk import Disk, write_atomically
from kbroker.log.file_names import ABORTED_SUFFIX, TXN_INDEX_SUFFIX
from kbroker.log.producer_state import CompletedTxn
from kbroker.log.segments.sparse_index import CorruptIndex
from kbroker.value_types import NamedTuple

__all__ = ["AbortedTxn", "TransactionIndex", "collect_aborted_txns"]

_ENTRY = struct.Struct(">hqqqq")
_LAST_OFFSET = struct.Struct(">q")
_LAST_OFFSET_AT = 18
_VERSION = 0


class AbortedTxn(NamedTuple):
    """A transaction of one producer whose records, from ``first_offset`` on, nobody may see."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    @classmethod
    def of(cls, completed: CompletedTxn, last_stable_offset: int) -> AbortedTxn:
        """The entry of a transaction that an ABORT marker has just ended."""
        return cls(completed.producer_id, completed.first_offset, completed.last_offset, last_stable_offset)


class TransactionIndex:
    """The aborted transactions of the segment that begins at ``start_offset``."""

    __slots__ = ("_disk", "_entries", "_is_rebuilt", "_is_torn", "path", "start_offset")

    def __init__(self, start_offset: int, path: str | os.PathLike[str], disk: Disk) -> None:
        self.start_offset = start_offset
        self.path = os.fspath(path)
        """Path of the file, whether or not it exists; to be set anew when it is renamed."""
        self._disk = disk
        self._entries: bytearray | None = None
        self._is_torn = False
        self._is_rebuilt = False

    def _load(self) -> bytearray:
        entries = self._entries
        if entries is None:
            try:
                entries = bytearray(self._disk.read_bytes(self.path))
            except FileNotFoundError:
                entries = bytearray()
            # After a crash, a torn last entry was never acted upon.
            self._is_torn = len(entries) % _ENTRY.size != 0
            del entries[len(entries) - len(entries) % _ENTRY.size :]
            self._entries = entries
        return entries

    def __len__(self) -> int:
        """Number of entries."""
        return len(self._load()) // _ENTRY.size

    def __iter__(self) -> Iterator[AbortedTxn]:
        """All entries; ``CorruptIndex`` for one of an unknown version."""
        return self._iterate(0)

    def _iterate(self, index: int) -> Iterator[AbortedTxn]:
        entries = self._load()
        for position in range(index * _ENTRY.size, len(entries), _ENTRY.size):
            version, *fields = _ENTRY.unpack_from(entries, position)
            if version != _VERSION:
                raise CorruptIndex(f"{self.path}: entry at {position} has the unknown version {version}")
            yield AbortedTxn._make(fields)

    def _first_ending_at_or_after(self, offset: int) -> int:
        """Number of the first entry whose marker is not below ``offset``."""
        entries = self._load()
        low, high = 0, len(entries) // _ENTRY.size
        while low < high:
            middle = (low + high) // 2
            (last_offset,) = _LAST_OFFSET.unpack_from(entries, middle * _ENTRY.size + _LAST_OFFSET_AT)
            if last_offset < offset:
                low = middle + 1
            else:
                high = middle
        return low

    @property
    def last_offset(self) -> int | None:
        """The marker of the last entry."""
        entries = self._load()
        if not entries:
            return None
        (offset,) = _LAST_OFFSET.unpack_from(entries, len(entries) - _ENTRY.size + _LAST_OFFSET_AT)
        return int(offset)

    def append(self, aborted: AbortedTxn) -> None:
        """Add an entry to memory and file; its marker must be beyond the last one's (``ValueError``)."""
        entries = self._load()
        last_offset = self.last_offset
        if last_offset is not None and aborted.last_offset <= last_offset:
            raise ValueError(f"{self.path}: {aborted} does not come after the marker at {last_offset}")
        entry = _ENTRY.pack(_VERSION, *aborted)
        if not self._is_rebuilt:
            if not entries:
                self.mark()
            file = self._disk.open(self.path, create=True)
            try:
                file.write_at(len(entries), [entry])
            finally:
                file.close()
        entries += entry

    def collect(self, fetch_offset: int, upper_bound_offset: int) -> tuple[list[AbortedTxn], bool]:
        """The transactions that overlap [fetch_offset, upper_bound_offset), and whether these are all.

        If not, the next segment is to be asked too.
        """
        found = []
        for aborted in self._iterate(self._first_ending_at_or_after(fetch_offset)):
            if aborted.first_offset < upper_bound_offset:
                found.append(aborted)
            if aborted.last_stable_offset >= upper_bound_offset:
                return found, True
        return found, False

    def truncate_to(self, offset: int) -> bool:
        """Drop entries whose marker is at ``offset`` or above; whether there were any."""
        entries = self._load()
        size = self._first_ending_at_or_after(offset) * _ENTRY.size
        if size == len(entries):
            return False
        self._cut(size)
        return True

    def begin_rebuild(self) -> None:
        """Drop all entries from memory; the damaged file stays until `end_rebuild`.

        A file with some of the entries would be taken for whole by the next start.
        """
        self._entries = bytearray()
        self._is_torn = False
        self._is_rebuilt = True

    def end_rebuild(self) -> None:
        """Have what was added since `begin_rebuild` take the place of the damaged file, durably."""
        self._is_rebuilt = False
        entries = self._load()
        if entries:
            self.mark()
            write_atomically(self._disk, self.path, entries)
        else:
            self.delete()

    def reset(self) -> None:
        """Drop all entries: the index is to be built again while the segment is read."""
        self._entries = bytearray()
        self._is_torn = False
        if self._disk.exists(self.path):
            self._cut(0)

    def _cut(self, size: int) -> None:
        if not self._is_rebuilt:
            file = self._disk.open(self.path)
            try:
                file.truncate(size)
            finally:
                file.close()
        del self._load()[size:]

    def sanity_check(self) -> None:
        """``CorruptIndex`` unless every entry is whole and may stand in this segment, in this order."""
        self._load()
        if self._is_torn:
            raise CorruptIndex(f"{self.path}: its last entry is torn")
        previous = self.start_offset - 1
        for aborted in self:
            if aborted.last_offset <= previous:
                raise CorruptIndex(f"{self.path}: {aborted} is not beyond offset {previous}")
            if not 0 <= aborted.first_offset < aborted.last_offset:
                raise CorruptIndex(f"{self.path}: {aborted} ends before it begins")
            previous = aborted.last_offset

    def flush(self) -> None:
        """Make the entries durable."""
        if self._disk.exists(self.path):
            file = self._disk.open(self.path)
            try:
                file.sync()
            finally:
                file.close()

    def delete(self) -> None:
        """Remove the file; fine if there is none."""
        self._entries = bytearray()
        self._disk.remove(self.path)
        self._disk.remove(self._mark_path)

    @property
    def _mark_path(self) -> str:
        stem, _, rest = self.path.rpartition(TXN_INDEX_SUFFIX)
        return stem + ABORTED_SUFFIX + rest

    def mark(self) -> None:
        """Have the next start miss the file if it is lost."""
        self._disk.write_bytes(self._mark_path, b"")


def collect_aborted_txns(
    indexes: Iterable[TransactionIndex], fetch_offset: int, upper_bound_offset: int
) -> list[AbortedTxn]:
    """The aborted transactions that a fetch of [fetch_offset, upper_bound_offset) must list.

    ``indexes`` are those of the segment that holds ``fetch_offset`` and of the later ones, in order; no more
    of them are read than needed.
    """
    result: list[AbortedTxn] = []
    for index in indexes:
        found, complete = index.collect(fetch_offset, upper_bound_offset)
        result += found
        if complete:
            break
    return result
