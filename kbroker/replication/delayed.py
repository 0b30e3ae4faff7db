"""Purgatory: operations that wait for a partition to move.

A waiting Fetch is woken by appends to the partitions that it watches and by nothing else, so an append costs the
watchers of its own partition and not the waiting fetches of the node. The deadline of an operation belongs to
whoever waits on it (``node.connection``); nothing here knows the time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from kbroker.replication.fetch_session import FetchSession, PartitionKey
    from kbroker.replication.partition_state import PartitionState
    from kbroker.types import TopicPartition


class DelayedFetch:
    """A Fetch (or ListOffsets-like reader) that waits until ``min_bytes`` more have become readable.

    ``committed_only``: it reads what is committed, so it does not see what comes while a transaction is open.
    ``by_follower``: another replica, which reads what is not committed yet.
    ``done`` never goes back to false. ``wake`` is set by the one who waits.
    """

    __slots__ = ("by_follower", "committed_only", "done", "keys", "missing_bytes", "wake")

    def __init__(
        self, keys: Sequence[Hashable], missing_bytes: int, committed_only: bool = False, by_follower: bool = False
    ) -> None:
        self.by_follower = by_follower
        self.keys = keys
        self.missing_bytes = missing_bytes
        self.committed_only = committed_only
        self.done = False
        self.wake: Callable[[], None] | None = None

    def advanced(self, added_bytes: int) -> None:
        """A watched partition has ``added_bytes`` more for readers."""
        self.missing_bytes -= added_bytes
        if self.missing_bytes <= 0:
            self.complete()

    def complete(self) -> None:
        """Wake the waiter: enough bytes, or a change (leader, deletion) that it must look at."""
        if not self.done:
            self.done = True
            if self.wake is not None:
                self.wake()


class LedPartition(Protocol):
    """What is watched of a partition (``node.partition.Partition``)."""

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def state(self) -> PartitionState: ...

    @property
    def offline(self) -> bool: ...


class Appended(NamedTuple):
    """What this node has appended to a partition as its leader, and what is to be replicated up to ``end_offset``.

    It is what was appended only as long as this node leads that partition in that epoch. Later another leader may have
    cut it off, and what is replicated up to there may be something else, whoever leads by then.
    """

    partition: LedPartition
    leader_epoch: int
    end_offset: int


class DelayedProduce:
    """A Produce with acks=all whose partitions must be replicated up to their required offsets.

    ``on_complete(results)`` is called once; a result per key, the error given by ``fail`` or ``None``.
    """

    __slots__ = ("_on_complete", "_waiting", "done", "keys", "results", "timeout_ms")

    def __init__(
        self, required_offsets: dict[Hashable, int], on_complete: Callable[[dict[Hashable, Any]], None]
    ) -> None:
        self._waiting = dict(required_offsets)
        self._on_complete = on_complete
        self.keys: Sequence[Hashable] = tuple(required_offsets)
        self.results: dict[Hashable, Any] = {}
        self.done = False
        self.timeout_ms = -1

    def high_watermark_reached(self, key: Hashable, high_watermark: int) -> None:
        """``key``'s high watermark (an exclusive offset) has moved."""
        required = self._waiting.get(key)
        if required is not None and high_watermark >= required:
            self._satisfy(key, None)

    def fail(self, key: Hashable, error: Any) -> None:
        """``key`` cannot be acknowledged any more (leadership lost, too few replicas)."""
        if key in self._waiting:
            self._satisfy(key, error)

    def expire(self, error: Any) -> None:
        """The time is out: what still waits ends with ``error``."""
        for key in list(self._waiting):
            self._satisfy(key, error)

    def _satisfy(self, key: Hashable, error: Any) -> None:
        del self._waiting[key]
        self.results[key] = error
        if not self._waiting and not self.done:
            self.done = True
            self._on_complete(self.results)


class Expirations:
    """Until when operations may wait, in seconds.

    Most have the same timeout, so they come in order of their deadlines, and one that is done goes without a trace:
    there are as many as wait, and not as many as there were in the last half minute.
    """

    def __init__(self) -> None:
        self._by_timeout: dict[int, dict[DelayedProduce, float]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_timeout.values()))

    def add(self, operation: DelayedProduce, timeout_ms: int, now: float) -> float:
        """Have it expire ``timeout_ms`` from now; the deadline."""
        operation.timeout_ms = timeout_ms
        deadline = self._by_timeout.setdefault(timeout_ms, {})[operation] = now + max(timeout_ms, 0) / 1000
        return deadline

    def discard(self, operation: DelayedProduce) -> None:
        """It is done."""
        waiting = self._by_timeout.get(operation.timeout_ms)
        if waiting is not None and waiting.pop(operation, None) is not None and not waiting:
            del self._by_timeout[operation.timeout_ms]

    def next_deadline(self) -> float:
        """Of all; infinity if there is none."""
        return min((next(iter(waiting.values())) for waiting in self._by_timeout.values()), default=inf)

    def take_expired(self, now: float) -> list[DelayedProduce]:
        """Those whose time is out; they are forgotten."""
        expired = []
        for waiting in self._by_timeout.values():
            for operation, deadline in waiting.items():
                if deadline > now:
                    break
                expired.append(operation)
        for operation in expired:
            self.discard(operation)
        return expired


class Purgatory:
    """Who watches which partition. ``key`` is whatever names a partition to the caller."""

    def __init__(self) -> None:
        #: Waiting operations by key; an absent key has none, which an append checks before anything else.
        self.fetches: dict[Hashable, dict[DelayedFetch, None]] = {}
        #: Those of other replicas, which wait for appends and not for the high watermark.
        self.follower_fetches: dict[Hashable, dict[DelayedFetch, None]] = {}
        self.produces: dict[Hashable, dict[DelayedProduce, None]] = {}
        self.expirations = Expirations()
        #: Fetch sessions of other replicas that have nothing to be told of a partition, with its key there.
        self.sessions: dict[Hashable, dict[FetchSession, PartitionKey]] = {}
        #: The same of consumers.
        self.readers: dict[Hashable, dict[FetchSession, PartitionKey]] = {}
        #: DeleteRecords that wait until all replicas have moved their log start offsets.
        self.deletes: dict[Hashable, dict[DelayedProduce, None]] = {}

    def watch_fetch(self, operation: DelayedFetch) -> None:
        """Register under each of the operation's keys. ``unwatch_fetch`` must follow."""
        table = self.follower_fetches if operation.by_follower else self.fetches
        for key in operation.keys:
            table.setdefault(key, {})[operation] = None

    def unwatch_fetch(self, operation: DelayedFetch) -> None:
        """Forget the operation, done or not."""
        _unwatch(self.follower_fetches if operation.by_follower else self.fetches, operation.keys, operation)

    def watch_produce(self, operation: DelayedProduce) -> None:
        """Register; unregisters itself as soon as it is done, otherwise ``unwatch_produce`` must follow."""
        for key in operation.keys:
            self.produces.setdefault(key, {})[operation] = None

    def unwatch_produce(self, operation: DelayedProduce) -> None:
        """Forget the operation, done or not."""
        _unwatch(self.produces, operation.keys, operation)
        self.expirations.discard(operation)

    def watch_session(self, key: Hashable, session: FetchSession, session_key: PartitionKey) -> None:
        """Have the session hear of whatever happens to a partition."""
        session.watched[session_key] = key
        table = self.sessions if session.privileged else self.readers
        table.setdefault(key, {})[session] = session_key

    def unwatch_session(self, session: FetchSession, session_key: PartitionKey | None = None) -> None:
        """Of one partition no more, or of none."""
        for each in [session_key] if session_key is not None else list(session.watched):
            key = session.watched.pop(each, None)
            table = self.sessions if session.privileged else self.readers
            watchers = table.get(key) if key is not None else None
            if watchers is not None:
                watchers.pop(session, None)
                if not watchers:
                    del table[key]

    def followers_news(self, key: Hashable) -> None:
        """The followers are to be told something of a partition, but not before they are told something else."""
        for session, session_key in self.sessions.get(key, {}).items():
            session.mark(session_key)

    def readers_news(self, key: Hashable) -> None:
        """The same for consumers."""
        for session, session_key in self.readers.get(key, {}).items():
            session.mark(session_key)

    def watch_delete(self, operation: DelayedProduce) -> None:
        """Register a DeleteRecords whose required offsets are low watermarks; ``unwatch_delete`` must follow."""
        for key in operation.keys:
            self.deletes.setdefault(key, {})[operation] = None

    def unwatch_delete(self, operation: DelayedProduce) -> None:
        """Forget the operation, done or not."""
        _unwatch(self.deletes, operation.keys, operation)

    def low_watermark_moved(self, key: Hashable, low_watermark: int) -> None:
        """Tell waiting DeleteRecords below which offset no replica has anything to read."""
        for operation in list(self.deletes.get(key, ())):
            operation.high_watermark_reached(key, low_watermark)

    def advanced(self, key: Hashable, added_bytes: int, stable: bool = True) -> None:
        """``added_bytes`` of a partition have become visible to readers; unless ``stable``, not to all of them."""
        watchers = self.fetches.get(key)
        if watchers:
            for operation in list(watchers):
                if stable or not operation.committed_only:
                    operation.advanced(added_bytes)
        readers = self.readers.get(key)
        if readers:
            for session, session_key in list(readers.items()):
                session.mark(session_key, added_bytes if stable or not session.committed_only else 0)
                if session.waiting is None:
                    # It looks at the partition next time, if its consumer still lives.
                    self.unwatch_session(session, session_key)

    def appended(self, key: Hashable, added_bytes: int) -> None:
        """``added_bytes`` were appended: the followers may fetch them."""
        sessions = self.sessions.get(key)
        if sessions:
            for session, session_key in list(sessions.items()):
                session.mark(session_key, added_bytes)
        watchers = self.follower_fetches.get(key)
        if watchers:
            for operation in list(watchers):
                operation.advanced(added_bytes)

    def high_watermark_moved(self, key: Hashable, high_watermark: int) -> None:
        """Tell waiting produces how far a partition is replicated."""
        watchers = self.produces.get(key)
        if watchers:
            for operation in list(watchers):
                operation.high_watermark_reached(key, high_watermark)
                if operation.done:
                    self.unwatch_produce(operation)

    def partition_changed(self, key: Hashable, error: Any) -> None:
        """Leadership or existence changed: readers look again, waiting produces end with ``error``."""
        for table in (self.fetches, self.follower_fetches):
            for operation in list(table.get(key, ())):
                operation.complete()
        for watching in (self.sessions, self.readers):
            for session, session_key in list(watching.get(key, {}).items()):
                session.mark(session_key)
                if session.waiting is not None:
                    session.waiting.complete()
        for delete in list(self.deletes.get(key, ())):
            delete.fail(key, error)
        for produce in list(self.produces.get(key, ())):
            produce.fail(key, error)
            if produce.done:
                self.unwatch_produce(produce)

    @property
    def fetch_watch_count(self) -> int:
        """Registrations of waiting fetches (one per operation and partition)."""
        return sum(len(watchers) for table in (self.fetches, self.follower_fetches) for watchers in table.values())

    @property
    def produce_watch_count(self) -> int:
        """Registrations of waiting produces."""
        return sum(len(watchers) for watchers in self.produces.values())


def _unwatch(table: dict[Hashable, dict[Any, None]], keys: Iterable[Hashable], operation: Any) -> None:
    for key in keys:
        watchers = table.get(key)
        if watchers is not None:
            watchers.pop(operation, None)
            if not watchers:
                del table[key]
