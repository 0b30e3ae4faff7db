"""The leader's bookkeeping of the other replicas, and how it commits (KIP-595; Kafka's ``LeaderState``).

Times are milliseconds of a monotonic clock.
"""

from __future__ import annotations

import math

from kbroker.raft_metadata.raft.messages import PendingFetch
from kbroker.raft_metadata.raft.voters import ReplicaKey, VoterNode, VoterSet

CHECK_QUORUM_FACTOR = 1.5
"""A leader resigns after this many fetch timeouts without a majority that fetches. The others have given it up then."""

OBSERVER_SESSION_MS = 300_000
"""An observer that has not fetched for this long is forgotten."""

MAX_OBSERVERS = 1000
"""The most observers that are remembered; the one that has not fetched for longest goes first."""

CAUGHT_UP_MS = 3_600_000
"""An observer may become a voter if it was caught up once and has fetched within this time."""


class QuorumReplicaProgress:
    """The progress of one voter or observer of the metadata log, as the leader sees it.

    ``end_offset`` is the offset of its last Fetch, which promises that all below is on its disk; -1 if it has not
    fetched in this epoch. It goes back if the replica has lost its disk.
    """

    __slots__ = ("_leader_end_at_last_fetch", "end_offset", "given_offset", "key", "last_caught_up_ms", "last_fetch_ms")

    def __init__(self, key: ReplicaKey) -> None:
        self.key = key
        self.end_offset = -1
        self.last_fetch_ms = -1
        self.last_caught_up_ms = -1
        self.given_offset = -1
        """The offset of the records that it was given last."""
        self._leader_end_at_last_fetch = -1

    def on_fetch(self, offset: int, leader_end_offset: int, now_ms: int) -> None:
        """Note its Fetch from ``offset``. At the log's end, or the end at its previous Fetch, it is caught up."""
        if offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif 0 < self._leader_end_at_last_fetch <= offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self._leader_end_at_last_fetch = leader_end_offset
        self.last_fetch_ms = max(self.last_fetch_ms, now_ms)
        self.end_offset = offset


class PendingVoterChange:
    """A change of the voter set whose requester waits for the response; there is at most one.

    ``joining``: the voter to be added, None for a removal. ``offset``: of the VotersRecord, -1 before it is written,
    while the request of ``correlation_id`` asks the voter to be for its levels of ``kraft.version``.
    """

    __slots__ = ("ack_when_committed", "answered", "correlation_id", "deadline_ms", "joining", "offset", "token")

    def __init__(
        self,
        token: int,
        deadline_ms: int,
        *,
        joining: VoterNode | None = None,
        offset: int = -1,
        ack_when_committed: bool = True,
        correlation_id: int = -1,
    ) -> None:
        self.token = token
        self.deadline_ms = deadline_ms
        self.joining = joining
        self.offset = offset
        self.ack_when_committed = ack_when_committed
        self.answered = False
        self.correlation_id = correlation_id


class LeaderState:
    """The leader's state in one epoch: the progress of voters and observers, and the requests that wait.

    Invariants: ``high_watermark`` never goes back, and is -1 until a record of this epoch is on a majority, because
    older records may yet be replaced by another leader's (Raft, section 5.4.2); the leader counts for a majority
    only with what is on its own disk, and only while it is a voter.
    """

    def __init__(
        self,
        local: ReplicaKey,
        epoch: int,
        epoch_start_offset: int,
        voters: VoterSet,
        *,
        fetch_timeout_ms: int,
        now_ms: int,
    ) -> None:
        self.epoch = epoch
        self.epoch_start_offset = epoch_start_offset
        self.high_watermark = -1
        self.voters: dict[int, QuorumReplicaProgress] = {voter.id: QuorumReplicaProgress(voter.key) for voter in voters}
        self.observers: dict[ReplicaKey, QuorumReplicaProgress] = {}
        self.pending_fetches: list[PendingFetch] = []
        self.voter_change: PendingVoterChange | None = None
        self.volatile_voters = voters
        """Static voters with the endpoints and levels that they gave of themselves (for KIP-853's upgrade)."""
        self.resign_requested = False
        self._local = local
        self._local_progress = self.voters.get(local.id) or QuorumReplicaProgress(local)
        self._fetched: set[int] = set()
        self._check_quorum_ms = int(fetch_timeout_ms * CHECK_QUORUM_FACTOR)
        self._check_quorum_at = now_ms + self._check_quorum_ms
        self.begin_interval_ms = fetch_timeout_ms // 2
        self.begin_at_ms = now_ms
        """The time at which BeginQuorumEpoch is due again."""

    # Membership

    def update_voters(self, voters: VoterSet, now_ms: int) -> None:
        """The log has another voter set. A replica keeps its progress as it becomes a voter or an observer."""
        before = self.voters
        self.voters = {}
        for voter in voters:
            progress = before.get(voter.id)
            if progress is not None and progress.key.matches(voter.key):
                del before[voter.id]
            else:
                progress = self.observers.pop(voter.key, None) or QuorumReplicaProgress(voter.key)
            progress.key = voter.key
            self.voters[voter.id] = progress
            if voter.id == self._local.id:
                progress.end_offset = max(progress.end_offset, self._local_progress.end_offset)
                self._local_progress = progress
        for progress in before.values():
            self.observers.setdefault(progress.key, progress)
        self._fetched &= self.voters.keys()
        self.begin_at_ms = min(self.begin_at_ms, now_ms)

    def progress(self, key: ReplicaKey) -> QuorumReplicaProgress | None:
        """The progress of a replica; None if it has not been seen."""
        voter = self.voters.get(key.id)
        if voter is not None and voter.key.matches(key):
            return voter
        return self.observers.get(key)

    def is_caught_up(self, key: ReplicaKey, now_ms: int) -> bool:
        """Whether an observer is close enough to the log's end to become a voter and not hold up the high watermark."""
        progress = self.observers.get(key)
        return (
            progress is not None and progress.last_caught_up_ms >= 0 and progress.last_fetch_ms > now_ms - CAUGHT_UP_MS
        )

    def live_observers(self, now_ms: int) -> list[QuorumReplicaProgress]:
        """The observers that have fetched lately, by id; the others are forgotten."""
        for key, progress in list(self.observers.items()):
            if now_ms - progress.last_fetch_ms >= OBSERVER_SESSION_MS and key != self._local:
                del self.observers[key]
        return [self.observers[key] for key in sorted(self.observers)]

    # Progress

    def on_local_flush(self, end_offset: int) -> bool:
        """All below ``end_offset`` is on the leader's disk. True if that moved the high watermark."""
        self._local_progress.end_offset = max(self._local_progress.end_offset, end_offset)
        return self.maybe_advance_high_watermark()

    def on_fetch(self, key: ReplicaKey, offset: int, leader_end_offset: int, now_ms: int) -> bool:
        """A replica has all below ``offset`` on its disk. True if that moved the high watermark."""
        if key.id < 0:
            return False
        progress = self.progress(key)
        if progress is None:
            if len(self.observers) >= MAX_OBSERVERS:
                oldest = min(self.observers.values(), key=lambda observer: observer.last_fetch_ms)
                del self.observers[oldest.key]
            progress = self.observers[key] = QuorumReplicaProgress(key)
        progress.on_fetch(offset, leader_end_offset, now_ms)
        self.on_contact(key, now_ms)
        return self.maybe_advance_high_watermark()

    def maybe_advance_high_watermark(self) -> bool:
        """Commit what is on a majority of the voters, once that includes a record of this epoch. True if it moved."""
        if not self.voters:
            return False
        ends = sorted((progress.end_offset for progress in self.voters.values()), reverse=True)
        on_majority = ends[len(ends) // 2]
        # A majority may have less than is committed: a new voter lags behind, or one has lost its disk.
        if on_majority <= self.epoch_start_offset or on_majority <= self.high_watermark:
            return False
        self.high_watermark = on_majority
        return True

    def successors(self) -> tuple[ReplicaKey, ...]:
        """The other voters, the most complete first."""
        others = [progress for progress in self.voters.values() if not progress.key.matches(self._local)]
        others.sort(key=lambda progress: (-progress.end_offset, progress.key))
        return tuple(progress.key for progress in others)

    # Check quorum

    def on_contact(self, key: ReplicaKey, now_ms: int) -> None:
        """A replica has fetched from log or snapshot. Once a majority has, the check of the quorum begins anew."""
        voter = self.voters.get(key.id)
        if voter is None or not voter.key.matches(key):
            return
        self._fetched.add(key.id)
        needed = len(self.voters) // 2 + 1 - (1 if self._local.id in self.voters else 0)
        if len(self._fetched) >= needed:
            self._fetched.clear()
            self._check_quorum_at = now_ms + self._check_quorum_ms

    @property
    def check_quorum_at(self) -> float:
        """The time at which the leader resigns unless a majority fetches before; infinite for the only voter."""
        if not self.voters.keys() - {self._local.id}:
            return math.inf
        return self._check_quorum_at

    def silent_voters(self, now_ms: int) -> list[int]:
        """The voters that have not fetched lately, to which the leader makes itself known."""
        return [
            voter_id
            for voter_id, progress in self.voters.items()
            if voter_id != self._local.id
            and (progress.last_fetch_ms < 0 or now_ms - progress.last_fetch_ms >= self.begin_interval_ms)
        ]

    # Fetches that wait

    def take_completed_fetches(self, log_end_offset: int, *, everything: bool, now_ms: int) -> list[PendingFetch]:
        """Remove and return the fetches for which there are records, and those whose time is over; or all of them."""
        if not self.pending_fetches:
            return []
        done: list[PendingFetch] = []
        waiting: list[PendingFetch] = []
        for pending in self.pending_fetches:
            due = everything or pending.request.offset < log_end_offset or pending.deadline_ms <= now_ms
            (done if due else waiting).append(pending)
        self.pending_fetches = waiting
        return done

    def next_fetch_deadline(self) -> float:
        """The time at which the first of the waiting fetches is over."""
        return min((pending.deadline_ms for pending in self.pending_fetches), default=math.inf)
