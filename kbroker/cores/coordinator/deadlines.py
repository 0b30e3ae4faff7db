"""Deadlines of a pure core, by key: cheap to move later, as every heartbeat does."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class DeadlineQueue(Generic[K]):
    """A queue of deadlines, one for each key at most, in milliseconds of the caller's clock.

    Invariant: each key of ``_deadline`` has a heap entry that is not later than its deadline; its
    time is ``_queued[key]``. An entry found too early is pushed again, so postponing costs nothing.
    """

    def __init__(self) -> None:
        self._deadline: dict[K, int] = {}
        self._queued: dict[K, int] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._deadline)

    def __contains__(self, key: K) -> bool:
        return key in self._deadline

    def schedule(self, key: K, deadline_ms: int) -> None:
        """Set the key's deadline, replacing an earlier one."""
        self._deadline[key] = deadline_ms
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued:
            self._push(key, deadline_ms)

    def cancel(self, key: K) -> None:
        """Forget the key's deadline, if it has one."""
        self._deadline.pop(key, None)

    def next_deadline(self) -> int | None:
        """The earliest deadline, or None."""
        heap, queued_at, deadlines = self._heap, self._queued, self._deadline
        while heap:
            queued, _, key = heap[0]
            if queued_at.get(key) != queued:
                heapq.heappop(heap)  # an earlier entry of the key has come since
                continue
            deadline = deadlines.get(key)
            if deadline == queued:
                return queued
            if deadline is None:
                heapq.heappop(heap)
                del queued_at[key]
            else:
                self._sequence += 1
                queued_at[key] = deadline
                heapq.heapreplace(heap, (deadline, self._sequence, key))
        return None

    def pop_due(self, now_ms: int) -> Iterator[K]:
        """Remove and yield the keys whose deadline has come, earliest first."""
        while (deadline := self.next_deadline()) is not None and deadline <= now_ms:
            _, _, key = heapq.heappop(self._heap)
            del self._queued[key]
            del self._deadline[key]
            yield key

    def _push(self, key: K, deadline_ms: int) -> None:
        self._sequence += 1
        self._queued[key] = deadline_ms
        heapq.heappush(self._heap, (deadline_ms, self._sequence, key))
