"""The records handed out to one member: ranges of offsets, and how they are cut from the stored batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kbroker.cores.share_partitions.runs import Run


class Acquired(NamedTuple):
    """Offsets, both inclusive, that a member holds now, and how often they were handed out, this time included."""

    first_offset: int
    last_offset: int
    delivery_count: int


class OffsetRange(NamedTuple):
    """Offsets, both inclusive: of a stored batch, for instance."""

    first_offset: int
    last_offset: int


def without(acquired: Iterable[Acquired], ranges: Sequence[OffsetRange]) -> list[Acquired]:
    """The acquired offsets that are in none of these ranges, which are in order and do not overlap."""
    kept: list[Acquired] = []
    for first, last, count in acquired:
        for begin, end in ranges:
            if begin <= last and end >= first:
                if begin > first:
                    kept.append(Acquired(first, begin - 1, count))
                first = end + 1
        if first <= last:
            kept.append(Acquired(first, last, count))
    return kept


class Taking:
    """Records on their way to one member."""

    def __init__(self, member_id: str, locked_until_ms: int, limit: int, exact: bool) -> None:
        self.exact = exact
        self.acquired: list[Acquired] = []
        self.count = 0
        self.member_id = member_id
        self.locked_until_ms = locked_until_ms
        self._limit = limit
        self._origin: tuple[int, int] | None = None

    @property
    def remaining(self) -> int:
        return self._limit - self.count

    @property
    def is_full(self) -> bool:
        return self.count >= self._limit

    def is_full_before(self, run: Run) -> bool:
        """Whether there is no room for a run; for the rest of what was handed out together there is, unless `exact`."""
        return self.is_full and (self.exact or run.origin != self._origin)

    def add(self, run: Run) -> None:
        """Count a run that is the member's now."""
        self.acquired.append(Acquired(run.first, run.last, run.delivery_count))
        self.count += len(run)
        self._origin = run.origin


def end_of_batch(batches: Sequence[OffsetRange], offset: int) -> int:
    """The last offset of the stored batch that has an offset; that offset itself if none has it."""
    for first, last in batches:
        if first <= offset <= last:
            return last
    return offset


def pieces(batches: Sequence[OffsetRange], first: int, last: int, size: int) -> list[tuple[int, int]]:
    """Ranges of at least ``size`` offsets, but for the last one, that end where stored batches do."""
    found = []
    begin = first
    for batch in batches:
        if begin < batch.first_offset <= last and batch.first_offset - begin >= size:
            found.append((begin, batch.first_offset - 1))
            begin = batch.first_offset
    found.append((begin, last))
    return found
