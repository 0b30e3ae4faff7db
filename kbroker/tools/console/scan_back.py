"""Records of a topic for a page, the newest first: all of them, or the last of each key.

A log is read forward only, so this goes back by windows: each is read from its beginning to its end, and counts once
it is read whole. However little one look may read, it gets on.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import Final, TypeVar

from kbroker.client import Client
from kbroker.tools.console.scan import Budget, Found, Page, RecordView, read_chunks
from kbroker.wire.batch_header import TimestampType
from kbroker.wire.record_batch import Record

T = TypeVar("T")

MAX_KEYS: Final = 100_000
"""Keys that are told apart, in all looks that go on from each other; each takes about a hundred bytes."""

FIRST_WINDOW: Final = 2_000
_LARGEST_WINDOW: Final = 50_000
_MOST_PLACES: Final = 4


def backward(
    client: Client, look: RecordView, starts: Mapping[int, int], before: Mapping[int, int], limit: int, budget: Budget
) -> Page:
    """The newest ``limit`` records before some offsets, the newest first; ``positions`` is the next ``before``."""
    matches: dict[int, list[Found]] = {partition: [] for partition in before}
    lowest = dict(before)
    notes: list[str] = []
    window = limit if look.fits is None else max(limit, FIRST_WINDOW)
    for partition, found in _windows(
        client, look, starts, lowest, lambda each: len(matches[each]) < limit, look.sift, window, budget, notes
    ):
        matches[partition] += reversed(found)
    return _page(matches, starts, lowest, limit, budget, notes)


def latest_per_key(
    client: Client,
    look: RecordView,
    starts: Mapping[int, int],
    before: Mapping[int, int],
    limit: int,
    budget: Budget,
    seen: frozenset[bytes] = frozenset(),
    *,
    max_keys: int = MAX_KEYS,
    window: int = FIRST_WINDOW,
) -> tuple[Page, frozenset[bytes]]:
    """The last record of each key of a partition, as if the topic were compacted, the newest first; tombstones too.

    The first record of a key that is met on the way back is its last one, so all that is found is right, however far
    the look comes. Records without a key are left out. The second value are the keys that are met so far, which the
    next look takes as ``seen``, with the positions of this one. A look ends where there are more than ``max_keys``.
    """
    matches: dict[int, list[Found]] = {partition: [] for partition in before}
    met: dict[bytes, tuple[int, int]] = {}
    lowest = dict(before)
    notes: list[str] = []

    def keyed(partition: int, record: Record, kind: TimestampType) -> tuple[Record, TimestampType] | None:
        return None if record.key is None else (record, kind)

    def wants(partition: int) -> bool:
        return len(matches[partition]) < limit and len(seen) + len(met) < max_keys

    for partition, records in _windows(client, look, starts, lowest, wants, keyed, max(limit, window), budget, notes):
        for record, kind in reversed(records):
            digest = _digest(partition, record.key or b"")
            if digest in seen or digest in met:
                continue
            met[digest] = partition, record.offset
            found = look.sift(partition, record, kind)
            if found is not None:
                matches[partition].append(found)
    page = _page(matches, starts, lowest, limit, budget, notes)
    # What is not shown yet is met again by the next look.
    met = {digest: place for digest, place in met.items() if place[1] >= page.positions[place[0]]}
    known = seen | met.keys()
    if len(known) >= max_keys and not page.finished:
        page.finished = page.cut = True
        page.notes.append(
            f"there are more than {max_keys:,} keys, and these are the newest: choose a partition or a later beginning"
        )
    elif not page.finished:
        page.notes.append(f"read back to {_places(starts, page.positions)}: keys that are not here are older")
    return page, known


def _digest(partition: int, key: bytes) -> bytes:
    """A short name of a key: nothing else of it is kept from look to look."""
    return blake2b(key, digest_size=16, salt=partition.to_bytes(8, "big")).digest()


def _places(starts: Mapping[int, int], positions: Mapping[int, int]) -> str:
    """The places where the way back has ended, in words."""
    left = {partition: offset for partition, offset in sorted(positions.items()) if offset > starts[partition]}
    if len(left) > _MOST_PLACES:
        return f"some place in each of {len(left)} partitions"
    return ", ".join(f"offset {offset:,} of partition {partition}" for partition, offset in left.items())


def _page(
    matches: Mapping[int, list[Found]],
    starts: Mapping[int, int],
    lowest: dict[int, int],
    limit: int,
    budget: Budget,
    notes: list[str],
) -> Page:
    """The newest of what was found; what is too much is before the page's positions."""
    merged = list(heapq.merge(*matches.values(), key=lambda found: -found.record.timestamp))
    shown, left = merged[:limit], merged[limit:]
    for each in left:
        lowest[each.partition] = max(lowest[each.partition], each.record.offset + 1)
    finished = all(low <= starts[partition] for partition, low in lowest.items())
    return Page(shown, lowest, finished, budget.scanned, list(dict.fromkeys(notes)))


def _windows(
    client: Client,
    look: RecordView,
    starts: Mapping[int, int],
    lowest: dict[int, int],
    wants: Callable[[int], bool],
    take: Callable[[int, Record, TimestampType], T | None],
    window: int,
    budget: Budget,
    notes: list[str],
) -> Iterator[tuple[int, list[T]]]:
    """(partition, what ``take`` makes of the records before ``lowest``), window by window, which moves ``lowest`` down.

    It ends with the budget, but not before one window is whole: where not even that was within the budget, a smaller
    one is, and in the end a single record.
    """
    progressed = extended = False
    while True:
        partitions = [p for p, low in lowest.items() if low > starts[p] and wants(p)]
        if not partitions or (progressed and (extended or budget.spent)):
            return
        if budget.spent:
            budget.extend()
            extended = True
        size = max(1, min(window, budget.records_left // len(partitions)))
        begins = {p: max(starts[p], lowest[p] - size) for p in partitions}
        found: dict[int, list[T]] = {p: [] for p in partitions}
        reached = dict(begins)
        for partition, chunk, next_offset in read_chunks(client, look, begins, lowest, budget, notes):
            taken = [take(partition, record, chunk.kind) for record in chunk.records]
            found[partition] += [each for each in taken if each is not None]
            reached[partition] = max(reached[partition], next_offset)
        passed = sum(reached[p] - begins[p] for p in partitions)
        # What was found in a window that is not whole is not the newest: it is looked at again.
        whole = [p for p in partitions if reached[p] >= lowest[p]]
        for partition in whole:
            lowest[partition] = begins[partition]
            yield partition, found[partition]
        if whole:
            progressed = True
            window = min(2 * size, _LARGEST_WINDOW)
        elif size > 1:
            window = max(1, min(size // 2, passed // (2 * len(partitions))))
        else:
            budget.extend(math.inf)  # a record is waited for as long as the client waits
            extended = True
