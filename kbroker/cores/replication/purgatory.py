"""The purgatory: where Fetch, Produce with acks=all and DeleteRecords wait for a partition, and what events do to them.

One table holds the views of all Fetch requests and sessions (``cores.replication.fetch_view``), two more the waiters
for an offset: a Produce with acks=all, a DeleteRecords, a coordinator's loading. An event costs the watchers of its own
partition, and not all requests that wait on the node. Pure: deadlines are times that are given, and whoever sees an
offset move says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from kbroker.cores.replication.fetch_view import FetchView, PartitionKey
from kbroker.errors import ErrorCode
from kbroker.value_types import NamedTuple

if TYPE_CHECKING:
    from kbroker.cores.replication.partition_state import PartitionState
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


class Purgatory:
    """Watchers by partition. A partition without watchers has no entry, so an event first asks whether it has one."""

    def __init__(self) -> None:
        self.views: dict[Key, dict[FetchView, PartitionKey]] = {}
        """Partition -> the views that watch it, each with its own key of the partition."""
        self.produces: dict[Key, dict[OffsetWaiter, None]] = {}
        """Waiters for high watermarks."""
        self.deletes: dict[Key, dict[OffsetWaiter, None]] = {}
        """Waiters for low watermarks: DeleteRecords."""
        self.expirations = Expirations()

    # --- watching ---------------------------------------------------------------------------------------------

    def watch_fetch(self, view: FetchView, name: PartitionKey, key: Key) -> None:
        """Have a view hear of a partition, which it knows by ``name``. ``unwatch_fetch`` must follow.

        A view knows a partition by one name. A session that does not forget a deleted topic has the topic id of its
        successor as well, and hears of that one alone.
        """
        watchers = self.views.setdefault(key, {})
        former = watchers.get(view)
        if former is not None:
            view.watched.pop(former, None)
        watchers[view] = name
        view.watched[name] = key

    def unwatch_fetch(self, view: FetchView, name: PartitionKey | None = None) -> None:
        """Have a view hear no more of one partition, or of any."""
        watched = view.watched
        if name is not None:
            key = watched.pop(name, None)
            if key is not None:
                _unwatch(self.views, key, view)
        elif watched:
            views = self.views
            for key in watched.values():
                watchers = views[key]
                del watchers[view]
                if not watchers:
                    del views[key]
            watched.clear()

    def watch_produce(self, waiter: OffsetWaiter) -> None:
        """Have a waiter hear of high watermarks. It is forgotten when it is done, or by ``unwatch_produce``."""
        for key in waiter.keys:
            self.produces.setdefault(key, {})[waiter] = None

    def unwatch_produce(self, waiter: OffsetWaiter) -> None:
        """Forget the waiter, done or not."""
        for key in waiter.keys:
            _unwatch(self.produces, key, waiter)
        self.expirations.discard(waiter)

    def watch_delete(self, waiter: OffsetWaiter) -> None:
        """Have a waiter hear of low watermarks. ``unwatch_delete`` must follow."""
        for key in waiter.keys:
            self.deletes.setdefault(key, {})[waiter] = None

    def unwatch_delete(self, waiter: OffsetWaiter) -> None:
        """Forget the waiter, done or not."""
        for key in waiter.keys:
            _unwatch(self.deletes, key, waiter)

    @property
    def fetch_watch_count(self) -> int:
        """Registrations of views: one for each view and partition."""
        return sum(map(len, self.views.values()))

    @property
    def produce_watch_count(self) -> int:
        """Registrations of waiters for high watermarks."""
        return sum(map(len, self.produces.values()))

    # --- events of a partition --------------------------------------------------------------------------------

    def appended(self, key: Key, added_bytes: int) -> None:
        """``added_bytes`` were appended, which followers may fetch."""
        watchers = self.views.get(key)
        if watchers:
            for view, name in list(watchers.items()):
                if view.by_follower:
                    view.advanced(name, added_bytes)

    def high_watermark_moved(self, key: Key, high_watermark: int, added_bytes: int, stable: bool = True) -> None:
        """``added_bytes`` have become visible to consumers; unless ``stable``, not to read_committed ones.

        Followers' fetches are not woken: the news goes with the next records.
        """
        watchers = self.views.get(key)
        if watchers:
            for view, name in list(watchers.items()):
                if view.by_follower:
                    view.mark(name)
                    continue
                if stable or not view.committed_only:
                    view.advanced(name, added_bytes)
                else:
                    view.mark(name)
                if not view.in_request:
                    # The partition is read by the consumer's next request, if there is ever one.
                    self.unwatch_fetch(view, name)
        waiters = self.produces.get(key)
        if waiters:
            for waiter in list(waiters):
                waiter.reached(key, high_watermark)
                if waiter.done:
                    self.unwatch_produce(waiter)

    def low_watermark_moved(self, key: Key, low_watermark: int) -> None:
        """No replica has records below ``low_watermark`` any more."""
        for waiter in list(self.deletes.get(key, ())):
            waiter.reached(key, low_watermark)

    def mark(self, key: Key) -> None:
        """Mark the partition dirty in the sessions that watch it, without waking their fetches."""
        for view, name in self.views.get(key, {}).items():
            view.mark(name)

    def epoch_changed(self, key: Key) -> None:
        """The leader goes on in the next epoch: fetches read again, and what was appended goes on to be replicated."""
        for view, name in list(self.views.get(key, {}).items()):
            view.changed(name)

    def partition_changed(self, key: Key, error: ErrorCode) -> None:
        """Leadership or existence changed: fetches read again, waiters end with ``error``."""
        self.epoch_changed(key)
        for waiter in list(self.deletes.get(key, ())):
            waiter.fail(key, error)
        for waiter in list(self.produces.get(key, ())):
            waiter.fail(key, error)
            if waiter.done:
                self.unwatch_produce(waiter)


def _unwatch(table: dict[Key, dict[Any, Any]], key: Key, watcher: object) -> None:
    watchers = table.get(key)
    if watchers is not None:
        watchers.pop(watcher, None)
        if not watchers:
            del table[key]
