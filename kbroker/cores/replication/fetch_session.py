"""Incremental fetch sessions (KIP-227): the broker remembers the partitions of a reader, and both sides send changes.

A request names a session by id and epoch. Epoch 0 opens one (id 0) or replaces one, -1 closes it, n continues it.
Rules are those of Kafka's ``FetchSession.scala``; ids are random, the cache is bounded, and the time is an argument.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Iterable, Set

from kbroker.cores.replication.fetch_view import FetchView, PartitionKey, ViewedPartition
from kbroker.cores.replication.purgatory import Purgatory
from kbroker.errors import ErrorCode
from kbroker.value_types import NamedTuple

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EVICTION_MS = 120_000
"""A session unused for this long may be replaced; a younger one only by a more deserving one."""
TRACKED_PARTITIONS = 16
"""A consumer's session of at least so many partitions tracks their changes. In a smaller one, it is cheaper to read all
of them. A follower's session always tracks changes: its partitions are idle most of the time."""


class FetchSession:
    """A view that is kept from request to request, and the rules by which it is named and evicted."""

    __slots__ = ("created_ms", "epoch", "last_used_ms", "replica_id", "session_id", "uses_topic_ids", "view")

    def __init__(self, session_id: int, view: FetchView, *, replica_id: int, uses_topic_ids: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.view = view
        self.replica_id = replica_id
        """The follower's; -1 for a consumer."""
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)

    @property
    def privileged(self) -> bool:
        """Whether the session is a follower's: it may evict a consumer's session."""
        return self.replica_id >= 0

    @property
    def size(self) -> int:
        """The number of partitions, by which eviction compares."""
        return len(self.view.partitions)


def next_epoch(epoch: int) -> int:
    """The epoch after this one: positive, wrapping to 1."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == 2**31 - 1 else epoch + 1


class FetchPlan(NamedTuple):
    """The view that a request reads, and its place in a session.

    ``error`` is the response's top-level error; there is nothing to read then. ``session`` is None for a full fetch,
    whose response lists every partition; ``may_create`` says that a session may be opened after it.
    """

    error: ErrorCode
    view: FetchView
    session: FetchSession | None = None
    may_create: bool = False


class FetchSessionCache:
    """The node's sessions, at most ``max_slots`` (``max.incremental.fetch.session.cache.slots``)."""

    def __init__(self, max_slots: int, purgatory: Purgatory, rng: random.Random) -> None:
        self.max_slots = max_slots
        self._purgatory = purgatory
        self._rng = rng
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        """The sessions by id, the least recently used first."""
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """Partitions remembered in all sessions."""
        return sum(session.size for session in self._sessions.values())

    def partitions_of(self, session_id: int, session_epoch: int) -> list[PartitionKey]:
        """The partitions that a request reads without naming them, because its session remembers them."""
        session = self._sessions.get(session_id) if session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH) else None
        return [] if session is None else list(session.view.partitions)

    def plan(
        self,
        *,
        session_id: int,
        session_epoch: int,
        uses_topic_ids: bool,
        requested: dict[PartitionKey, ViewedPartition],
        forgotten: Iterable[PartitionKey],
        by_follower: bool,
        now_ms: int,
    ) -> FetchPlan:
        """Find or close the session of a request, and say what it reads."""
        if session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id in self._sessions:
                self._close(session_id)
            return FetchPlan(ErrorCode.NONE, FetchView(requested, by_follower), None, session_epoch == INITIAL_EPOCH)
        session = self._sessions.get(session_id)
        if session is None:
            return _refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != session_epoch:
            return _refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            return _refused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        view = session.view
        view.update(requested, forgotten)
        for key in forgotten:
            self._purgatory.unwatch_fetch(view, key)
        if not view.partitions:
            # Nothing is left to read: the session ends, as in Kafka.
            self._close(session_id)
            return FetchPlan(ErrorCode.NONE, view)
        session.epoch = next_epoch(session.epoch)
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session_id)
        return FetchPlan(ErrorCode.NONE, view, session)

    def maybe_create(
        self, view: FetchView, *, replica_id: int, uses_topic_ids: bool, now_ms: int
    ) -> FetchSession | None:
        """Keep the view of a full fetch as a session, if there is a slot or a less deserving session to replace.

        ``replica_id`` is the follower's, -1 for a consumer.
        """
        size = len(view.partitions)
        if not size or self.max_slots <= 0:
            return None
        if replica_id >= 0:
            self._close_former(replica_id, view.partitions.keys())
        if len(self._sessions) >= self.max_slots and not self._try_evict(replica_id >= 0, size, now_ms):
            return None
        while True:
            session_id = self._rng.randint(1, 2**31 - 1)
            if session_id not in self._sessions:
                break
        session = FetchSession(session_id, view, replica_id=replica_id, uses_topic_ids=uses_topic_ids, now_ms=now_ms)
        self._sessions[session_id] = session
        if session.privileged or size >= TRACKED_PARTITIONS:
            view.track_changes()
        return session

    def _close_former(self, replica_id: int, keys: Set[PartitionKey]) -> None:
        """End the sessions in which a follower fetched some of these partitions before.

        A request in one of them may still be under way, on a connection that the follower has given up. It would report
        an outdated offset of the follower. The new session would not correct that: it does not read an idle
        partition again. (A follower may have several sessions: Apache Kafka's has one for each fetcher thread, of
        different partitions.)
        """
        former = [
            session.session_id
            for session in self._sessions.values()
            if session.replica_id == replica_id and not keys.isdisjoint(session.view.partitions)
        ]
        for session_id in former:
            self._close(session_id)

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
        self._close(session.session_id)
        self.evictions += 1
        return True

    def _close(self, session_id: int) -> None:
        view = self._sessions.pop(session_id).view
        view.stays_watched = False  # a request of the session may still be under way, and watch again
        self._purgatory.unwatch_fetch(view)
        if view.in_request and not view.by_follower:
            # Its request reads again, and watches for itself. A follower's does not: see `_close_former`.
            view.complete()


def _refused(error: ErrorCode) -> FetchPlan:
    return FetchPlan(error, FetchView({}, False))
