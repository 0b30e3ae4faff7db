"""The purgatory: which requests watch which partition, and what an event of a partition does to them.

One table holds the views of all Fetch requests and sessions (``cores.replication.fetch_view``), two more the requests
that wait for an offset (``cores.replication.offset_waiter``). An event costs the watchers of its own partition, and not
all requests that wait on the node. Deadlines belong to those who wait; nothing here knows the time.
"""

from __future__ import annotations

from typing import Any

from kbroker.cores.replication.fetch_view import FetchView, PartitionKey
from kbroker.cores.replication.offset_waiter import Expirations, Key, OffsetWaiter
from kbroker.errors import ErrorCode


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

    def partition_changed(self, key: Key, error: ErrorCode) -> None:
        """Leadership or existence changed: fetches read again, waiters end with ``error``."""
        for view, name in list(self.views.get(key, {}).items()):
            view.changed(name)
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
