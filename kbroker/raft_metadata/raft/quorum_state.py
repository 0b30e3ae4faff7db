"""The roles of a replica in the metadata quorum, and every change from one to another (KIP-595, KIP-853, KIP-996).

Only :class:`QuorumState` moves a replica between epochs and roles, as in Kafka the class of that name; the module
``state`` adds what a change of role does to requests and log. Times are milliseconds of a monotonic clock.
"""

from __future__ import annotations

import enum
import math
import random
from collections.abc import Mapping

from kbroker.raft_metadata.raft.election_state import ElectionState
from kbroker.raft_metadata.raft.messages import NO_ENDPOINTS, NO_LEADER, SnapshotChunk
from kbroker.raft_metadata.raft.voters import Endpoints, ReplicaKey, VoterSet
from kbroker.types import OffsetAndEpoch


class QuorumRole(enum.Enum):
    """A node's role in the quorum, and the events that lead to the next one.

    UNATTACHED: knows the epoch but no leader. A leader: FOLLOWER; its election timeout: PROSPECTIVE.
    FOLLOWER: fetches from the leader. Its fetch timeout: PROSPECTIVE; a higher epoch: UNATTACHED or FOLLOWER.
    PROSPECTIVE: asks for pre-votes, in the old epoch (KIP-996). A majority: CANDIDATE; refused: UNATTACHED or FOLLOWER.
    CANDIDATE: asks for votes in a new epoch. A majority: LEADER; its election timeout: PROSPECTIVE.
    LEADER: appends. No majority fetches, or the node stops: RESIGNED; a higher epoch: UNATTACHED or FOLLOWER.
    RESIGNED: led, and tells the others to elect (EndQuorumEpoch). A higher epoch: UNATTACHED or FOLLOWER.
    """

    UNATTACHED = "Unattached"
    FOLLOWER = "Follower"
    PROSPECTIVE = "Prospective"
    CANDIDATE = "Candidate"
    LEADER = "Leader"
    RESIGNED = "Resigned"


_UNATTACHED, _FOLLOWER, _PROSPECTIVE, _CANDIDATE, _LEADER, _RESIGNED = QuorumRole


_SAME, _NEXT, _LATER = 1, 2, 4
_HIGHER = _NEXT | _LATER

TRANSITIONS: Mapping[tuple[QuorumRole, QuorumRole], int] = {
    # An unattached voter stays so when it votes, with a new election timeout.
    (_UNATTACHED, _UNATTACHED): _SAME | _HIGHER,
    (_UNATTACHED, _FOLLOWER): _SAME | _HIGHER,
    (_UNATTACHED, _PROSPECTIVE): _SAME,
    (_FOLLOWER, _UNATTACHED): _HIGHER,
    # Within an epoch a follower may learn more addresses of its leader, but never of another leader.
    (_FOLLOWER, _FOLLOWER): _SAME | _HIGHER,
    (_FOLLOWER, _PROSPECTIVE): _SAME,
    (_PROSPECTIVE, _PROSPECTIVE): _SAME,
    (_PROSPECTIVE, _UNATTACHED): _SAME | _HIGHER,
    (_PROSPECTIVE, _FOLLOWER): _SAME | _HIGHER,
    (_PROSPECTIVE, _CANDIDATE): _NEXT,
    (_CANDIDATE, _UNATTACHED): _HIGHER,
    (_CANDIDATE, _FOLLOWER): _SAME | _HIGHER,
    (_CANDIDATE, _PROSPECTIVE): _SAME,
    (_CANDIDATE, _LEADER): _SAME,
    (_LEADER, _UNATTACHED): _HIGHER,
    (_LEADER, _FOLLOWER): _HIGHER,
    (_LEADER, _RESIGNED): _SAME,
    (_RESIGNED, _UNATTACHED): _HIGHER,
    (_RESIGNED, _FOLLOWER): _HIGHER,
    # The only voter, restarted in the epoch that it led.
    (_RESIGNED, _PROSPECTIVE): _SAME,
}
"""The permitted changes of role, and the epoch of each: the same, the next, a later one. Any other is a bug."""


class Votes:
    """The votes of one election. The voters are those at its beginning, and only the first answer of each counts."""

    __slots__ = ("granted", "rejected", "unreachable", "voters")

    def __init__(self, voters: VoterSet, local_id: int) -> None:
        self.voters = voters
        self.granted = {local_id} if local_id in voters.voters else set()
        self.rejected: set[int] = set()
        self.unreachable: set[int] = set()
        """Voters whose addresses refuse connections; they may come back and vote."""

    def record(self, voter_id: int, granted: bool) -> None:
        """Count a voter's answer."""
        if voter_id in self.voters.voters and voter_id not in self.granted and voter_id not in self.rejected:
            (self.granted if granted else self.rejected).add(voter_id)

    @property
    def is_won(self) -> bool:
        """Whether a majority has granted its vote."""
        return len(self.granted) >= self.voters.majority

    @property
    def is_lost(self) -> bool:
        """Whether no majority can grant its vote any more."""
        return len(self.voters) - len(self.rejected) < self.voters.majority

    @property
    def is_hopeless(self) -> bool:
        """Whether no majority can grant its vote unless an unreachable voter comes back."""
        answering = len(self.voters) - len(self.rejected | (self.unreachable - self.granted))
        return answering < self.voters.majority

    @property
    def unanswered(self) -> list[int]:
        """The voters that have not answered, in id order."""
        return [voter for voter in self.voters.ids if voter not in self.granted and voter not in self.rejected]


class SnapshotFetch:
    """A snapshot that a follower fetches, and the number of bytes that it has."""

    __slots__ = ("position", "snapshot_id")

    def __init__(self, snapshot_id: OffsetAndEpoch) -> None:
        self.snapshot_id = snapshot_id
        self.position = 0

    def take(self, chunk: SnapshotChunk) -> None:
        """Count the bytes of a chunk."""
        self.position += len(chunk.data)


class QuorumState:
    """Epoch, role, leader and vote of one replica.

    Invariants: ``epoch`` never goes back; within an epoch ``voted`` and ``leader_id`` never change once they are set
    (a leader's own vote for itself is forgotten once it leads); only a voter becomes PROSPECTIVE, CANDIDATE or LEADER.
    """

    def __init__(
        self,
        local: ReplicaKey,
        local_endpoints: Endpoints,
        rng: random.Random,
        *,
        election_timeout_ms: int,
        fetch_timeout_ms: int,
    ) -> None:
        self.local = local
        self.local_endpoints = local_endpoints
        self.role = QuorumRole.UNATTACHED
        self.epoch = 0
        self.leader_id = NO_LEADER
        self.leader_endpoints: Endpoints = NO_ENDPOINTS
        self.voted: ReplicaKey | None = None
        self.deadline_ms = math.inf
        """The end of the election timeout, or of a follower's fetch timeout. Infinite for observers and leaders."""
        self.votes: Votes | None = None
        """The votes for this replica while it is PROSPECTIVE or CANDIDATE."""
        self.leader_seen_ms = -math.inf
        """The time of a FOLLOWER's last response from its leader, which proves that the leader lives."""
        self.fetching: SnapshotFetch | None = None
        """The snapshot that a FOLLOWER fetches before it goes on with the log."""
        self.resume_ms = -math.inf
        """The time from which a FOLLOWER whose disk is full fetches again."""
        self.update_voter_ms = math.inf
        """The time at which a FOLLOWER next compares its entry in the voter set to itself (KIP-853)."""
        self.has_updated_leader = False
        """Whether a FOLLOWER has sent its leader an UpdateRaftVoter; matters only with static voters."""
        self.resignation_unacknowledged: set[int] = set()
        """The voters that have not acknowledged a RESIGNED leader's EndQuorumEpoch."""
        self.successors: tuple[ReplicaKey, ...] = ()
        self.lost_elections = 0
        """The elections in a row that this replica has lost."""
        self.is_voter = False
        """Whether this replica votes: it is a voter, and its log is whole. ``on_voters_changed`` sets it."""
        self._rng = rng
        self._election_timeout_ms = election_timeout_ms
        self._fetch_timeout_ms = fetch_timeout_ms

    @property
    def election(self) -> ElectionState:
        """The election state, which must be on disk before any other node hears of it."""
        return ElectionState(self.epoch, self.leader_id, None if self.leader_id == self.local.id else self.voted)

    @property
    def has_leader(self) -> bool:
        """Whether the epoch's leader is known."""
        return self.leader_id != NO_LEADER

    def random_election_timeout_ms(self) -> int:
        """A random time between one and two election timeouts."""
        if self._election_timeout_ms == 0:
            return 0
        return self._election_timeout_ms + self._rng.randrange(self._election_timeout_ms)

    # Start

    def initialize(
        self, stored: ElectionState | None, log_epoch: int, voters: VoterSet, now_ms: int, *, can_vote: bool = True
    ) -> None:
        """Take up the role that follows from the state on disk. ``log_epoch``: the epoch of the last record there.

        A voter that ``can_vote`` not, as its log is not whole, is an observer until ``on_voters_changed``.
        """
        stored = stored or ElectionState()
        self.is_voter = can_vote and voters.is_voter(self.local)
        self.epoch = stored.epoch
        self.voted = stored.voted
        self._reset_election_timeout(now_ms)
        if stored.epoch < log_epoch:
            # quorum-state was lost or is older than the log, which proves that the log's epoch was reached.
            self.epoch, self.voted = log_epoch, None
        elif stored.leader_id == self.local.id:
            # Not UNATTACHED in this epoch, or the node might vote in it again; and not LEADER, or offsets whose
            # records were not flushed before the stop would be given to other records of the same epoch.
            self.role = QuorumRole.RESIGNED
            self.leader_id, self.leader_endpoints = self.local.id, self.local_endpoints
            self.resignation_unacknowledged = {voter for voter in voters.ids if voter != self.local.id}
        elif stored.voted is not None and stored.voted.matches(self.local) and self.is_voter:
            self.role = QuorumRole.CANDIDATE
            self.votes = Votes(voters, self.local.id)
        elif stored.leader_id >= 0:
            self.leader_id = stored.leader_id
            endpoints = voters.endpoints(stored.leader_id)
            if endpoints:
                self.leader_endpoints = endpoints
                self._enter_follower(now_ms)

    # Changes of role

    def become_unattached(self, epoch: int, now_ms: int, *, leader_id: int = NO_LEADER) -> None:
        """Enter a higher epoch whose leader cannot be fetched from yet, or as PROSPECTIVE give up in the same epoch.

        An election timeout that runs goes on: otherwise a stream of candidates that cannot win would keep this node
        from standing.
        """
        running = self.deadline_ms
        keeps = self.role in (QuorumRole.CANDIDATE, QuorumRole.UNATTACHED, QuorumRole.RESIGNED) or (
            self.role is QuorumRole.PROSPECTIVE and self.votes is not None and not self.votes.is_lost
        )
        self._enter(QuorumRole.UNATTACHED, epoch)
        self.leader_id, self.leader_endpoints = leader_id, NO_ENDPOINTS
        if keeps and self.is_voter and math.isfinite(running):
            self.deadline_ms = running
        else:
            self._reset_election_timeout(now_ms)

    def become_follower(self, epoch: int, leader_id: int, endpoints: Endpoints, now_ms: int) -> None:
        """Follow ``leader_id`` in ``epoch``. ``ValueError`` if it cannot lead that epoch, or has no address."""
        if leader_id == self.local.id:
            raise ValueError(f"node {leader_id} cannot follow itself")
        if not endpoints:
            raise ValueError(f"the address of leader {leader_id} is not known")
        if epoch == self.epoch and self.leader_id not in (NO_LEADER, leader_id):
            raise ValueError(f"epoch {epoch} has leader {self.leader_id}, not {leader_id}")
        self._enter(QuorumRole.FOLLOWER, epoch)
        self.leader_id, self.leader_endpoints = leader_id, endpoints
        self._enter_follower(now_ms)

    def _enter_follower(self, now_ms: int) -> None:
        self.role = QuorumRole.FOLLOWER
        self.lost_elections = 0
        self.has_updated_leader = False
        self.fetching = None
        self.update_voter_ms = now_ms + self._fetch_timeout_ms
        self.reset_fetch_timeout(now_ms)

    def become_prospective(self, voters: VoterSet, now_ms: int) -> None:
        """Ask for pre-votes. The epoch is the same, so leader and vote stay."""
        self._only_as_voter(QuorumRole.PROSPECTIVE)
        self._enter(QuorumRole.PROSPECTIVE, self.epoch)
        self.votes = Votes(voters, self.local.id)
        self._reset_election_timeout(now_ms)

    def become_candidate(self, voters: VoterSet, now_ms: int) -> None:
        """Stand for election in the next epoch, with this node's own vote."""
        self._only_as_voter(QuorumRole.CANDIDATE)
        self._enter(QuorumRole.CANDIDATE, self.epoch + 1)
        self.leader_id, self.leader_endpoints = NO_LEADER, NO_ENDPOINTS
        self.voted = self.local
        self.votes = Votes(voters, self.local.id)
        self._reset_election_timeout(now_ms)

    def become_leader(self) -> set[int]:
        """Lead the epoch; the ids of the voters that voted for it."""
        self._only_as_voter(QuorumRole.LEADER)
        votes = self.votes
        if votes is None or not votes.is_won:
            raise ValueError("a candidate without a majority cannot lead")
        self._enter(QuorumRole.LEADER, self.epoch)
        self.leader_id, self.leader_endpoints = self.local.id, self.local_endpoints
        self.deadline_ms = math.inf
        self.lost_elections = 0
        return votes.granted

    def become_resigned(self, voters: VoterSet, successors: tuple[ReplicaKey, ...], now_ms: int) -> None:
        """Lead no longer; EndQuorumEpoch names the ``successors``. Not on disk: a leader always starts so."""
        self._enter(QuorumRole.RESIGNED, self.epoch)
        self.successors = successors
        self.resignation_unacknowledged = {voter for voter in voters.ids if voter != self.local.id}
        self.deadline_ms = now_ms + self.random_election_timeout_ms()

    def _enter(self, role: QuorumRole, epoch: int) -> None:
        change = epoch - self.epoch
        kind = _SAME if change == 0 else _NEXT if change == 1 else _LATER if change > 1 else 0
        if not TRANSITIONS.get((self.role, role), 0) & kind:
            raise ValueError(f"{self.role.value} in epoch {self.epoch} cannot become {role.value} in epoch {epoch}")
        if epoch > self.epoch:
            self.epoch = epoch
            self.voted = None
        self.role = role
        self.votes = None
        self.fetching = None
        self.resume_ms = -math.inf
        self.leader_seen_ms = -math.inf
        self.update_voter_ms = math.inf
        self.successors = ()
        self.resignation_unacknowledged = set()

    def _only_as_voter(self, role: QuorumRole) -> None:
        if not self.is_voter:
            raise ValueError(f"node {self.local.id} is not a voter, so it cannot become {role.value}")

    # Votes

    def can_grant_vote(self, candidate: ReplicaKey, *, is_log_up_to_date: bool, pre_vote: bool, now_ms: int) -> bool:
        """Whether the candidate's log and this node's role, vote and leader allow a vote in the present epoch."""
        if self.role in (QuorumRole.UNATTACHED, QuorumRole.PROSPECTIVE):
            if pre_vote:
                return is_log_up_to_date
            if self.voted is not None:
                return self.voted.matches(candidate)
            return not self.has_leader and is_log_up_to_date
        if not pre_vote:
            return False
        if self.role is QuorumRole.FOLLOWER:
            # A recent response of the leader proves that no election is needed.
            return is_log_up_to_date and now_ms - self.leader_seen_ms >= self._fetch_timeout_ms
        return self.role in (QuorumRole.CANDIDATE, QuorumRole.RESIGNED) and is_log_up_to_date

    def on_election_lost(self, backoff_ms: int, now_ms: int) -> None:
        """Shorten the election timeout of a CANDIDATE that cannot win: the votes are split, or nodes are down."""
        self.lost_elections += 1
        longest = min(backoff_ms << min(self.lost_elections, 10), self._election_timeout_ms)
        self.deadline_ms = min(self.deadline_ms, now_ms + 1 + self._rng.randrange(longest + 1))

    def add_vote(self, candidate: ReplicaKey, now_ms: int) -> None:
        """Vote for ``candidate``, and give it a whole election timeout to win before this node stands itself."""
        if self.role not in (QuorumRole.UNATTACHED, QuorumRole.PROSPECTIVE) or candidate.id == self.local.id:
            raise ValueError(f"{self.role.value} cannot vote for node {candidate.id}")
        if self.voted is not None:
            return
        self.voted = candidate
        self._reset_election_timeout(now_ms)
        if self.role is QuorumRole.PROSPECTIVE:
            self.votes = Votes(self.votes.voters if self.votes is not None else VoterSet(), self.local.id)

    # Timeouts

    def on_leader_contact(self, now_ms: int) -> None:
        """The leader has responded, so it lives."""
        self.leader_seen_ms = now_ms
        self.reset_fetch_timeout(now_ms)

    def reset_fetch_timeout(self, now_ms: int) -> None:
        """Begin the fetch timeout anew."""
        self.deadline_ms = now_ms + self._fetch_timeout_ms if self.is_voter else math.inf

    def on_leader_gone(self, deadline_ms: float) -> None:
        """The leader seems to be gone: stand at ``deadline_ms``, or earlier if a timeout ends before."""
        self.leader_seen_ms = -math.inf
        if self.is_voter:
            self.deadline_ms = min(self.deadline_ms, deadline_ms)

    def _reset_election_timeout(self, now_ms: int) -> None:
        self.deadline_ms = now_ms + self.random_election_timeout_ms() if self.is_voter else math.inf

    def on_voters_changed(self, is_voter: bool, now_ms: int) -> None:
        """Note whether this replica votes. An observer that becomes a voter has timeouts from now on."""
        if is_voter == self.is_voter:
            return
        self.is_voter = is_voter
        if self.role is QuorumRole.FOLLOWER:
            self.reset_fetch_timeout(now_ms)
        elif self.role is QuorumRole.UNATTACHED:
            self._reset_election_timeout(now_ms)
