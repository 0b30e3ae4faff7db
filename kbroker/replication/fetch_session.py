"""Incremental fetch sessions (KIP-227): the broker remembers what a consumer reads, so that each side sends changes.

A request names a session by id and epoch. Epoch 0 opens one (id 0) or replaces one, -1 closes it, n continues it.
Rules are those of Kafka's ``FetchSession.scala``; ids are random, the cache is bounded, and the time is an argument.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence, Set
from typing import Any, NamedTuple

from kbroker.errors import ErrorCode
from kbroker.replication.delayed import DelayedFetch
from kbroker.types import ZERO_UUID

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EVICTION_MS = 120_000
"""A session unused for this long may be replaced; a younger one only by a more deserving one."""


class PartitionKey(NamedTuple):
    """A partition as requests name it: by topic id (Fetch 13+; then ``topic`` is "") or by topic name."""

    topic: str
    topic_id: bytes
    partition: int


class SessionPartition:
    """What is asked of one partition, and what was last told about it."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "high_watermark",
        "key",
        "last_fetched_epoch",
        "log_start_offset",
        "partition_max_bytes",
        "replica_log_start_offset",
    )

    def __init__(self, key: PartitionKey) -> None:
        self.key = key
        self.fetch_offset = 0
        self.partition_max_bytes = 0
        self.current_leader_epoch = -1
        self.last_fetched_epoch = -1
        self.replica_log_start_offset = -1
        self.high_watermark = -1
        self.log_start_offset = -1

    def update_request(self, partition: Any) -> None:
        """Take the parameters of a request's ``FetchPartition``."""
        self.fetch_offset = partition.fetch_offset
        self.partition_max_bytes = partition.partition_max_bytes
        self.current_leader_epoch = partition.current_leader_epoch
        self.last_fetched_epoch = partition.last_fetched_epoch
        self.replica_log_start_offset = partition.log_start_offset

    def changed(self, response: Any, has_records: bool, *, update: bool) -> bool:
        """Whether ``response`` (a ``PartitionData``) holds news; with ``update``, remember it as told."""
        news = has_records
        if response.high_watermark != self.high_watermark:
            news = True
            if update:
                self.high_watermark = response.high_watermark
        if response.log_start_offset != self.log_start_offset:
            news = True
            if update:
                self.log_start_offset = response.log_start_offset
        if response.preferred_read_replica >= 0:
            news = True
        if response.error_code:
            # Forget the high watermark, so that the partition is in the next response whatever it says then.
            news = True
            if update:
                self.high_watermark = -1
        diverging = response.diverging_epoch
        if diverging is not None and diverging.epoch >= 0:
            news = True
        return news


class FetchSession:
    """One session. ``partitions`` is in serving order: what was just sent moves to the end, so none starves.

    Invariant of one that tracks changes: a partition that is not in ``dirty`` has nothing to be told, and is watched
    (`Purgatory.watch_session`) so that it gets there when that changes.
    """

    __slots__ = (
        "committed_only",
        "created_ms",
        "dirty",
        "epoch",
        "last_used_ms",
        "missed_bytes",
        "on_closed",
        "partitions",
        "replica_epoch",
        "replica_id",
        "session_id",
        "uses_topic_ids",
        "waiting",
        "watched",
    )

    def __init__(self, session_id: int, *, replica_id: int, uses_topic_ids: bool, now_ms: int) -> None:
        self.session_id = session_id
        #: Whose it is; -1 for a consumer's.
        self.replica_id = replica_id
        #: The broker epoch that the follower named last.
        self.replica_epoch = -1
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.partitions: OrderedDict[PartitionKey, SessionPartition] = OrderedDict()
        self.dirty: dict[PartitionKey, None] | None = None
        self.missed_bytes = 0
        """What was appended while no request waited for it, since the last one began to read."""
        #: The latest request reads what is committed: it does not see what comes while a transaction is open.
        self.committed_only = False
        #: The request that waits for something to tell.
        self.waiting: DelayedFetch | None = None
        #: Under which names partitions are watched.
        self.watched: dict[PartitionKey, Hashable] = {}
        self.on_closed: Callable[[FetchSession], None] | None = None

    def track_changes(self, on_closed: Callable[[FetchSession], None]) -> None:
        """From now on only partitions are looked at that something has happened to; at first, all."""
        self.dirty = dict.fromkeys(self.partitions)
        self.on_closed = on_closed

    def mark(self, key: PartitionKey, added_bytes: int = 0) -> None:
        """Something has happened to a partition; ``added_bytes`` may be fetched."""
        assert self.dirty is not None
        self.dirty[key] = None
        if self.waiting is not None:
            if added_bytes:
                self.waiting.advanced(added_bytes)
        else:
            self.missed_bytes += added_bytes

    def mark_all(self) -> None:
        """Nothing is known any more of what there is to tell."""
        self.dirty = dict.fromkeys(self.partitions)

    def to_look_at(self) -> Sequence[SessionPartition]:
        """The partitions that a request has to read."""
        if self.dirty is None:
            return tuple(self.partitions.values())
        return [self.partitions[key] for key in self.dirty if key in self.partitions]

    def close(self) -> None:
        """The session is over."""
        if self.on_closed is not None:
            self.on_closed(self)

    @property
    def privileged(self) -> bool:
        """Whether it is a follower's, before which a consumer's has to make room."""
        return self.replica_id >= 0

    @property
    def size(self) -> int:
        """Partitions in the session: what eviction compares."""
        return len(self.partitions)

    def update(self, requested: Iterable[SessionPartition], forgotten: Iterable[PartitionKey]) -> None:
        """Apply a request's changes."""
        for partition in requested:
            if self.dirty is not None:
                self.dirty[partition.key] = None
            known = self.partitions.get(partition.key)
            if known is None:
                self.partitions[partition.key] = partition
            else:
                known.fetch_offset = partition.fetch_offset
                known.partition_max_bytes = partition.partition_max_bytes
                known.current_leader_epoch = partition.current_leader_epoch
                known.last_fetched_epoch = partition.last_fetched_epoch
                known.replica_log_start_offset = partition.replica_log_start_offset
        for key in forgotten:
            self.partitions.pop(key, None)
            if self.dirty is not None:
                self.dirty.pop(key, None)


def next_epoch(epoch: int) -> int:
    """The epoch after this one: positive, wrapping to 1."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == 2**31 - 1 else epoch + 1


class FetchPlan(NamedTuple):
    """What one request is to read, and how to answer it.

    ``error`` (with nothing to read) is the response's top-level error. ``session`` is ``None`` for a fetch outside
    any session; ``full`` says that the response lists every partition.
    """

    error: ErrorCode
    partitions: Sequence[SessionPartition]
    session: FetchSession | None
    full: bool
    may_create: bool


class FetchSessionCache:
    """The node's sessions, at most ``max_slots`` (``max.incremental.fetch.session.cache.slots``)."""

    def __init__(self, max_slots: int, rng: random.Random) -> None:
        self.max_slots = max_slots
        self._rng = rng
        #: In order of last use, the longest unused first.
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """Partitions remembered in all sessions."""
        return sum(session.size for session in self._sessions.values())

    def partitions_of(self, session_id: int, session_epoch: int) -> list[PartitionKey]:
        """What a request that continues a session reads besides what it names itself."""
        session = self._sessions.get(session_id) if session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH) else None
        return [] if session is None else list(session.partitions)

    def plan(
        self,
        *,
        session_id: int,
        session_epoch: int,
        uses_topic_ids: bool,
        requested: Sequence[SessionPartition],
        forgotten: Sequence[PartitionKey],
        now_ms: int,
    ) -> FetchPlan:
        """Find or close the session of a request, and say what it reads."""
        if session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id != NO_SESSION:
                closed = self._sessions.pop(session_id, None)
                if closed is not None:
                    closed.close()
            return FetchPlan(ErrorCode.NONE, requested, None, True, session_epoch == INITIAL_EPOCH)
        session = self._sessions.get(session_id)
        if session is None:
            return FetchPlan(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, (), None, True, False)
        if session.epoch != session_epoch:
            return FetchPlan(ErrorCode.INVALID_FETCH_SESSION_EPOCH, (), None, True, False)
        if session.uses_topic_ids != uses_topic_ids:
            return FetchPlan(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, (), None, True, False)
        session.update(requested, forgotten)
        if not session.partitions:
            # Nothing left to read: the session ends, as in Kafka.
            del self._sessions[session_id]
            session.close()
            return FetchPlan(ErrorCode.NONE, (), None, True, False)
        session.epoch = next_epoch(session.epoch)
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session_id)
        return FetchPlan(ErrorCode.NONE, session.to_look_at(), session, False, False)

    def maybe_create(
        self, partitions: Sequence[SessionPartition], *, replica_id: int, uses_topic_ids: bool, now_ms: int
    ) -> FetchSession | None:
        """Open a session after a full fetch, if there is a slot or a less deserving session to replace.

        ``replica_id`` is the follower's, -1 for a consumer.
        """
        if not partitions or self.max_slots <= 0:
            return None
        if replica_id >= 0:
            self._close_former(replica_id, {partition.key for partition in partitions})
        if len(self._sessions) >= self.max_slots and not self._try_evict(replica_id >= 0, len(partitions), now_ms):
            return None
        while True:
            session_id = self._rng.randint(1, 2**31 - 1)
            if session_id not in self._sessions:
                break
        session = FetchSession(session_id, replica_id=replica_id, uses_topic_ids=uses_topic_ids, now_ms=now_ms)
        for partition in partitions:
            session.partitions[partition.key] = partition
        self._sessions[session_id] = session
        return session

    def _close_former(self, replica_id: int, keys: Set[PartitionKey]) -> None:
        """End the sessions in which a follower fetched some of these partitions before.

        A request in one of them may still be under way, on a connection that the follower has given up. Were it
        served, the follower would seem to be where it was then; and as its new session does not look at a partition
        again to which nothing happens, it would seem so for good. (A follower may have several sessions, though:
        Apache Kafka's have one for each fetcher, of different partitions.)
        """
        former = [
            session
            for session in self._sessions.values()
            if session.replica_id == replica_id and not keys.isdisjoint(session.partitions)
        ]
        for session in former:
            del self._sessions[session.session_id]
            session.close()

    def _try_evict(self, privileged: bool, size: int, now_ms: int) -> bool:
        """``FetchSessionCacheShard.tryEvict``: a stale session, else one that ranks below the newcomer."""
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > EVICTION_MS:
            return self._evict(oldest)
        candidates = [
            session
            for session in self._sessions.values()
            if now_ms - session.created_ms > EVICTION_MS or (privileged and not session.privileged)
        ]
        if not candidates:
            return False
        weakest = min(candidates, key=lambda session: (session.privileged, session.size, session.session_id))
        if (weakest.privileged, weakest.size, weakest.session_id) < (privileged, size, 0):
            return self._evict(weakest)
        return False

    def _evict(self, session: FetchSession) -> bool:
        del self._sessions[session.session_id]
        session.close()
        self.evictions += 1
        return True


def key_of(topic: str, topic_id: bytes, partition: int) -> PartitionKey:
    """The key under which a request's partition is kept."""
    return PartitionKey("" if topic_id != ZERO_UUID else topic, topic_id, partition)
