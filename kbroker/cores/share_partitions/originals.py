"""The records of a share partition's log that dead letters are copies of (KIP-1191).

Pure: a round is bounded in what it looks at, and stops after each batch, for others to have their turn.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Generator, Sequence
from operator import attrgetter
from typing import Protocol

from kbroker.cores.share_partitions.dead_letters import MOST_LETTERS, DeadLetters, Originals
from kbroker.wire.batch_header import BatchHeader
from kbroker.wire.compression import CorruptRecord
from kbroker.wire.record_batch import Record, iter_payload, records_payload

LEAST_SIZE = 150
"""Bytes that a dead letter takes at least in its batch: the headers alone are that long."""
MOST_BYTES = 4 << 20
"""Bytes that one round reads and decodes, but for its first batch, which may be larger."""

_OFFSET = attrgetter("offset")


class ReadFrom(Protocol):
    """Reads the source's log: batches from an offset on, with their bytes; none if it cannot be read there."""

    def __call__(self, offset: int) -> tuple[bytes, Sequence[tuple[int, BatchHeader]]]: ...


class OriginalsReader:
    """Keeps the last read, and the records of the last batch, as many letters often come of one batch."""

    def __init__(self, read_from: ReadFrom) -> None:
        self._read_from = read_from
        self._begin = 0
        self._data = b""
        self._batches: Sequence[tuple[int, BatchHeader]] = ()
        """The batches in ``_data``, which has all that there is from ``_begin`` to the last one's end."""
        self._decoded: tuple[int, int] | None = None
        """The offset of the batch that ``_records`` are of, and the size that it was allowed."""
        self._records: list[Record] = []
        self._spent = 0

    def read(self, letters: Sequence[DeadLetters], max_bytes: int) -> Generator[None, None, Originals]:
        """The records to be copied into one batch of at most ``max_bytes``; it stops before each batch.

        A record that is too large for any batch is left out, and so is a compressed batch that is. A record that
        cannot be read any more is left out, too: its dead letter has headers alone. No more offsets are looked at
        than such a batch has room for, and no more than `MOST_BYTES` of the log.
        """
        found: dict[int, Record] = {}
        left = max_bytes
        self._spent = 0
        begin, until = letters[0].first_offset, letters[0].first_offset
        for first, last in _first(letters, min(MOST_LETTERS, max(1, max_bytes // LEAST_SIZE))):
            position = first
            while position <= last:
                if position > begin and self._spent >= MOST_BYTES:
                    return Originals(found, position - 1)
                batch = self._batch_of(position)
                if batch is None or batch[1].base_offset > last:
                    break
                yield
                for record in self._records_of(batch, position, last, max_bytes):
                    size = len(record.key or b"") + len(record.value or b"") + LEAST_SIZE
                    if size > max_bytes:
                        continue
                    if size > left:
                        return Originals(found, record.offset - 1)
                    found[record.offset] = record
                    left -= size
                position = max(position, batch[1].last_offset) + 1
            until = last
        return Originals(found, until)

    def _batch_of(self, offset: int) -> tuple[int, BatchHeader] | None:
        """The batch that has an offset, or the first one behind it; None if nothing can be read there."""
        if not (self._batches and self._begin <= offset <= self._batches[-1][1].last_offset):
            self._begin, (self._data, self._batches) = offset, self._read_from(offset)
            self._spent += len(self._data)
            if not self._batches or self._batches[-1][1].last_offset < offset:
                return None
        return self._batches[bisect_left(self._batches, offset, key=_last_offset)]

    def _records_of(self, batch: tuple[int, BatchHeader], first: int, last: int, max_bytes: int) -> Sequence[Record]:
        """A batch's records of these offsets; none of a batch that is larger than ``max_bytes`` decompressed."""
        start, header = batch
        if self._decoded != (header.base_offset, max_bytes):
            self._decoded, self._records = (header.base_offset, max_bytes), []
            try:
                payload = records_payload(self._data, start, header, max_bytes)
                self._spent += len(payload)
                self._records = list(iter_payload(payload, header))
            except CorruptRecord:
                pass
        begin = bisect_left(self._records, first, key=_OFFSET)
        return self._records[begin : bisect_right(self._records, last, begin, key=_OFFSET)]


def _last_offset(batch: tuple[int, BatchHeader]) -> int:
    return batch[1].last_offset


def _first(letters: Sequence[DeadLetters], count: int) -> Generator[tuple[int, int]]:
    """The ranges of the first so many offsets, both ends inclusive."""
    for first, last, *_ in letters:
        if count <= 0:
            return
        yield first, min(last, first + count - 1)
        count -= last - first + 1
