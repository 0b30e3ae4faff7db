"""Records of a topic for a page, forward from positions, and all of them for exports.

Everything here runs in a worker thread with a client of its own. A look is bounded by what it reads and by time; it
says how far it came, so that the next one goes on exactly there and nothing is left out.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kbroker.client import Client
from kbroker.client.errors import known
from kbroker.client.reader import Reader, Skipped
from kbroker.client.records_io.record_filter import Predicate, Subject
from kbroker.client.schemas.decoder import Decoded, PartNote, RecordDecoder
from kbroker.client.topics import list_ranges
from kbroker.tools.console.masking import Masking
from kbroker.types import TopicPartition
from kbroker.wire.batch_header import TimestampType
from kbroker.wire.record_batch import Record

MAX_RECORDS: Final = 200_000
MAX_SECONDS: Final = 5.0
MAX_BYTES: Final = 64 << 20
"""Bytes of keys and values that one look reads: what it has found is in memory until it is shown."""

_HEADER_BYTES: Final = 100
"""Bytes that a header counts for, roughly what an empty one takes."""


class Found(NamedTuple):
    """A record with its place, as it may be shown; the notes tell by which schemas its key and value are decoded."""

    partition: int
    record: Record
    timestamp_type: TimestampType
    key_note: PartNote | None = None
    value_note: PartNote | None = None
    original: Record | None = None
    """The record before it was decoded, if nothing of it is hidden."""


@dataclass(frozen=True, slots=True)
class RecordView:
    """The view of a topic's records: which fit, what is hidden, whether aborted ones are shown, who decodes."""

    topic: str
    fits: Predicate | None = None
    masking: Masking = field(default_factory=lambda: Masking((), ""))
    read_committed: bool = True
    decoder: RecordDecoder | None = None

    def sift(self, partition: int, record: Record, kind: TimestampType) -> Found | None:
        """The record as it may be shown, or None if it does not fit.

        What is hidden cannot be looked for either: it could be guessed letter by letter.
        """
        decoded = Decoded(record) if self.decoder is None else self.decoder.decode(record)
        shown = self.masking.apply(decoded.record)
        if self.fits is not None and not self.fits(Subject(partition, shown)):
            return None
        return Found(partition, shown, kind, decoded.key, decoded.value, None if self.masking else record)


@dataclass(slots=True)
class Page:
    """The finds of a look. ``positions``: where the next one goes on; ``finished``: nothing is left there."""

    records: list[Found]
    positions: dict[int, int]
    finished: bool
    scanned: int = 0
    notes: list[str] = field(default_factory=list)
    cut: bool = False
    """Whether it is finished though there may be more: no look goes on from there."""


class Budget:
    """The limits of one look."""

    def __init__(
        self,
        *,
        records: int = MAX_RECORDS,
        seconds: float = MAX_SECONDS,
        size: float = MAX_BYTES,
        check: Callable[[], None] | None = None,
    ) -> None:
        """``check`` raises when nobody waits for the look any more; it is asked in every round, found or not."""
        self._limits = (records, size, seconds)
        self._check = check
        self.scanned = 0
        self.bytes = 0
        self.extend()

    def extend(self, seconds: float | None = None) -> None:
        """Allow the same once more, in so many seconds if they are given."""
        records, size, usual = self._limits
        self._records = self.scanned + records
        self._size = self.bytes + size
        self._until = time.monotonic() + (usual if seconds is None else seconds)

    @property
    def records_left(self) -> int:
        """Records that may still be read."""
        return max(self._records - self.scanned, 0)

    @property
    def spent(self) -> bool:
        """Whether the look has to end."""
        if self._check is not None:
            self._check()
        return not self.records_left or self.bytes >= self._size or time.monotonic() >= self._until

    def count(self, records: list[Record]) -> None:
        """Count what was read."""
        self.scanned += len(records)
        self.bytes += sum(
            len(record.key or b"") + len(record.value or b"") + _HEADER_BYTES * len(record.headers)
            for record in records
        )


def ranges(client: Client, topic: str, partitions: list[int], *, read_committed: bool) -> dict[int, tuple[int, int]]:
    """Partition -> (start, end); ``ResponseError`` if one of them cannot be asked."""
    found = known(
        list_ranges(
            client, [TopicPartition(topic, partition) for partition in partitions], read_committed=read_committed
        )
    )
    return {partition: limits for (_, partition), limits in found.items()}


def forward(
    client: Client, look: RecordView, positions: Mapping[int, int], ends: Mapping[int, int], limit: int, budget: Budget
) -> Page:
    """At most ``limit`` records from ``positions`` on, by time across partitions and by offset within each."""
    matches: dict[int, list[Found]] = {partition: [] for partition in positions}
    reached = {partition: min(offset, ends[partition]) for partition, offset in positions.items()}
    notes: list[str] = []
    while not budget.spent:
        # A partition that has enough is not read on; the others may be longer in finding what fits.
        wanted = {p: o for p, o in reached.items() if o < ends[p] and len(matches[p]) < limit}
        if not wanted:
            break
        for partition, chunk, next_offset in read_chunks(client, look, wanted, ends, budget, notes):
            if len(matches[partition]) >= limit:
                continue
            found, stopped = _up_to(look, partition, chunk, limit - len(matches[partition]))
            matches[partition] += found
            reached[partition] = next_offset if stopped is None else stopped
            if all(len(matches[p]) >= limit for p in wanted):
                break
    merged = list(heapq.merge(*matches.values(), key=lambda found: found.record.timestamp))
    shown, left = merged[:limit], merged[limit:]
    for each in reversed(left):
        reached[each.partition] = each.record.offset
    finished = all(offset >= ends[partition] for partition, offset in reached.items())
    return Page(shown, reached, finished, budget.scanned, notes)


class Chunk(NamedTuple):
    """Records of a partition, in order, and whose timestamps they have."""

    records: list[Record]
    kind: TimestampType


def _up_to(look: RecordView, partition: int, chunk: Chunk, limit: int) -> tuple[list[Found], int | None]:
    """The first records that fit, and the offset after the last of them if there may be more in the chunk."""
    found: list[Found] = []
    for record in chunk.records:
        fitting = look.sift(partition, record, chunk.kind)
        if fitting is not None:
            found.append(fitting)
            if len(found) >= limit:
                return found, record.offset + 1
    return found, None


def read_chunks(
    client: Client,
    look: RecordView,
    positions: Mapping[int, int],
    ends: Mapping[int, int],
    budget: Budget,
    notes: list[str],
) -> Iterator[tuple[int, Chunk, int]]:
    """(partition, records, the offset to go on at), until all partitions are at their ends or the budget is spent.

    What holds no records to be shown (aborted, control batches) moves the position on all the same.
    """
    reader = Reader(
        client,
        look.topic,
        positions,
        ends={partition: ends[partition] for partition in positions},
        read_committed=look.read_committed,
        partition_bytes=256 << 10,
        max_bytes=4 << 20,
        max_wait_ms=200,
    )
    try:
        while not reader.finished and not budget.spent:
            chunks = reader.poll(0.5)
            last_of = {chunk.partition: index for index, chunk in enumerate(chunks)}
            for index, chunk in enumerate(chunks):
                partition = chunk.partition
                if isinstance(chunk, Skipped):
                    notes.append(gone(chunk))
                    yield partition, Chunk([], TimestampType.CREATE_TIME), chunk.start
                    continue
                budget.count(chunk.records)
                after = chunk.records[-1].offset + 1
                yield partition, Chunk(chunk.records, chunk.timestamp_type), after
                if index == last_of[partition] and reader.positions[partition] > after:
                    yield partition, Chunk([], chunk.timestamp_type), reader.positions[partition]
        for partition in positions:
            yield partition, Chunk([], TimestampType.CREATE_TIME), reader.positions[partition]
    finally:
        reader.close()


def gone(skipped: Skipped) -> str:
    """A line about offsets that were not there any more when they were to be read."""
    return f"partition {skipped.partition}: offsets {skipped.wanted} to {skipped.start - 1} are gone from the log"


def every(
    client: Client,
    look: RecordView,
    positions: Mapping[int, int],
    ends: Mapping[int, int],
    write: Callable[[Found], None],
    check: Callable[[], None],
) -> int:
    """Give every record that fits to ``write``, up to the ends; how many were read. For exports.

    ``check`` is called for each chunk and in each round of waiting, and raises to end it.
    """
    budget = Budget(records=1 << 62, seconds=1e9, size=math.inf, check=check)
    for partition, chunk, _ in read_chunks(client, look, positions, ends, budget, []):
        check()
        for record in chunk.records:
            fitting = look.sift(partition, record, chunk.kind)
            if fitting is not None:
                write(fitting)
    return budget.scanned
