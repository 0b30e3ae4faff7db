"""Batches of delivery states, merged: each offset in one batch at most, and neighbours of one state in one."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from kbroker.cores.share_state import StateBatch


def merge(batches: Iterable[StateBatch], start_offset: int = -1) -> tuple[StateBatch, ...]:
    """Batches in the order of their offsets, from ``start_offset`` on (-1: all).

    Where several have an offset, the one with the higher delivery count holds, and among these the one with the higher
    delivery state (Kafka's ``PersisterStateBatchCombiner``). That does not depend on which of them is newer, since
    neither ever goes back. O(n log n).
    """
    kept = sorted(_clipped(batches, start_offset))
    merged: list[StateBatch] = []
    for batch in _disjoint(kept):
        if merged and _continues(merged[-1], batch):
            batch = batch._replace(first_offset=merged.pop().first_offset)
        merged.append(batch)
    return tuple(merged)


def _clipped(batches: Iterable[StateBatch], start_offset: int) -> Iterator[StateBatch]:
    for batch in batches:
        if batch.last_offset >= start_offset:
            yield batch if batch.first_offset >= start_offset else batch._replace(first_offset=start_offset)


def _continues(before: StateBatch, after: StateBatch) -> bool:
    return before.last_offset + 1 == after.first_offset and before[2:] == after[2:]


def _disjoint(ordered: list[StateBatch]) -> Iterator[StateBatch]:
    """Sweep over batches in the order of their first offsets; yields no offset twice."""
    covering: list[tuple[int, int, int]] = []
    """Heap of (-count, -state, last offset) of the batches that have begun: the first one holds."""
    index, position = 0, 0
    while covering or index < len(ordered):
        if not covering:
            position = ordered[index].first_offset
        while index < len(ordered) and ordered[index].first_offset == position:
            _, last, state, count = ordered[index]
            heapq.heappush(covering, (-count, -state, last))
            index += 1
        count, state, last = covering[0]
        if index < len(ordered):
            last = min(last, ordered[index].first_offset - 1)
        yield StateBatch(position, last, -state, -count)
        position = last + 1
        while covering and covering[0][2] < position:
            heapq.heappop(covering)
