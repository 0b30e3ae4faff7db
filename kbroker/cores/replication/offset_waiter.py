"""Requests that wait until partitions reach an offset: Produce with acks=all, DeleteRecords, a coordinator's loading.

Pure: the time is an argument, and whoever sees an offset move says so (``cores.replication.purgatory``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Protocol

from kbroker.value_types import NamedTuple

if TYPE_CHECKING:
    from kbroker.cores.replication.partition_state import PartitionState
    from kbroker.errors import ErrorCode
    from kbroker.types import TopicPartition


Key = tuple[str, int]
"""Topic and index of a partition; a `TopicPartition` is one, too."""

Results = dict[Key, "ErrorCode | None"]
"""The outcome for each partition: None if it has reached its offset."""


class LedPartition(Protocol):
    """The part of a partition (``node.replicas.partition.Partition``) that an append is judged by later."""

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def state(self) -> PartitionState: ...

    @property
    def offline(self) -> bool: ...


class Appended(NamedTuple):
    """An append by this node as the partition's leader; replicated when the high watermark is at ``end_offset``.

    It holds only as long as this node leads the partition in ``leader_epoch``. A later leader may cut the records off,
    and other records may then be replicated up to the same offset.
    """

    partition: LedPartition
    leader_epoch: int
    end_offset: int


class OffsetWaiter:
    """Waits until each partition has reached its required offset, or has failed.

    The offsets are high watermarks, of a DeleteRecords low watermarks; all are exclusive. ``on_complete(results)`` is
    called once. ``results`` has an entry per key: the error given by `fail` or `expire`, else ``None``.
    """

    __slots__ = ("_on_complete", "_waiting", "done", "keys", "results", "timeout_ms")

    def __init__(self, required_offsets: dict[Key, int], on_complete: Callable[[Results], None]) -> None:
        self._waiting = dict(required_offsets)
        self._on_complete = on_complete
        self.keys: Sequence[Key] = tuple(required_offsets)
        self.results: Results = {}
        self.done = False
        self.timeout_ms = -1

    def reached(self, key: Key, offset: int) -> None:
        """The partition's watermark is at ``offset`` now."""
        required = self._waiting.get(key)
        if required is not None and offset >= required:
            self._finish(key, None)

    def fail(self, key: Key, error: ErrorCode) -> None:
        """The partition cannot reach its offset any more (leadership lost, too few replicas)."""
        if key in self._waiting:
            self._finish(key, error)

    def expire(self, error: ErrorCode) -> None:
        """The time is out: each partition that is still waited for ends with ``error``."""
        for key in list(self._waiting):
            self._finish(key, error)

    def _finish(self, key: Key, error: ErrorCode | None) -> None:
        del self._waiting[key]
        self.results[key] = error
        if not self._waiting and not self.done:
            self.done = True
            self._on_complete(self.results)


class Expirations:
    """Deadlines of waiters, in seconds.

    Most waiters have the same timeout, so within a timeout they stand in the order of their deadlines. A waiter that is
    done leaves at once: the size is that of the waiters, and not of all requests within the longest timeout.
    """

    def __init__(self) -> None:
        self._by_timeout: dict[int, dict[OffsetWaiter, float]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_timeout.values()))

    def add(self, waiter: OffsetWaiter, timeout_ms: int, now: float) -> float:
        """Have the waiter expire ``timeout_ms`` from now; the deadline."""
        waiter.timeout_ms = timeout_ms
        deadline = self._by_timeout.setdefault(timeout_ms, {})[waiter] = now + max(timeout_ms, 0) / 1000
        return deadline

    def discard(self, waiter: OffsetWaiter) -> None:
        """Forget a waiter that is done."""
        waiting = self._by_timeout.get(waiter.timeout_ms)
        if waiting is not None and waiting.pop(waiter, None) is not None and not waiting:
            del self._by_timeout[waiter.timeout_ms]

    def next_deadline(self) -> float:
        """The earliest deadline; infinity if there is none."""
        return min((next(iter(waiting.values())) for waiting in self._by_timeout.values()), default=inf)

    def take_expired(self, now: float) -> list[OffsetWaiter]:
        """Remove the waiters whose time is out, and return them."""
        expired = []
        for waiting in self._by_timeout.values():
            for waiter, deadline in waiting.items():
                if deadline > now:
                    break
                expired.append(waiter)
        for waiter in expired:
            self.discard(waiter)
        return expired
