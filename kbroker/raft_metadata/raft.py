"""The Raft core of the metadata quorum: KRaft (KIP-595), without IO.

A method takes what happened and the time, and returns a :class:`Ready` whose field order is the order in which the
driver acts: persist, send, apply. Time is monotonic seconds. The core never touches the log: it is told of its ends
(``on_flushed``) and asks a :class:`LogView` about its past.

This is the quorum of one voter: it elects itself at start, and what is on its disk is committed.
"""

from __future__ import annotations

import enum
import math
import random
from dataclasses import dataclass, field
from typing import Any, Protocol

from kbroker.errors import FatalError
from kbroker.raft_metadata.quorum_state import ElectionState
from kbroker.raft_metadata.voters import ReplicaKey, VoterSet
from kbroker.wire.records import control


class QuorumRole(enum.Enum):
    """A node's part in the quorum, and what takes it to the next.

    UNATTACHED: knows the epoch but no leader. Hears of a leader: FOLLOWER; its election timeout: PROSPECTIVE.
    FOLLOWER: fetches from the leader. Its fetch timeout: PROSPECTIVE; a higher epoch: UNATTACHED or FOLLOWER.
    PROSPECTIVE: asks for pre-votes, in the old epoch (KIP-996). A majority: CANDIDATE; refused: UNATTACHED or FOLLOWER.
    CANDIDATE: asks for votes in a new epoch. A majority: LEADER; its election timeout: PROSPECTIVE.
    LEADER: appends. A higher epoch, or no majority fetching from it: RESIGNED or UNATTACHED.
    RESIGNED: was leader, tells the others to elect (EndQuorumEpoch). Any newer epoch: UNATTACHED or FOLLOWER.
    """

    UNATTACHED = "Unattached"
    FOLLOWER = "Follower"
    PROSPECTIVE = "Prospective"
    CANDIDATE = "Candidate"
    LEADER = "Leader"
    RESIGNED = "Resigned"


class LogView(Protocol):
    """What the core asks of the log."""

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        ...

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, of the latest snapshot if there is none, else 0."""
        ...


@dataclass(frozen=True, slots=True)
class Message:
    """A request to another voter."""

    destination: int
    request: Any


@dataclass(slots=True)
class Ready:
    """What the driver is to do, field by field.

    ``election_state`` must be on disk before anything that follows is done. ``append`` is a batch of control records
    for the end of the log in the new epoch. ``high_watermark`` is None if it did not move.
    """

    election_state: ElectionState | None = None
    append: list[Any] = field(default_factory=list)
    send: list[Message] = field(default_factory=list)
    high_watermark: int | None = None
    role_changed: bool = False


class RaftCore:
    """One node's share in the quorum. Call ``start`` once, then the ``on_...`` methods as things happen.

    Invariants: ``epoch`` never goes back; ``high_watermark`` never goes back; a leader commits nothing before a record
    of its own epoch is on a majority (``epoch_start_offset``), since older records may yet be replaced.
    """

    def __init__(
        self,
        local: ReplicaKey,
        voters: VoterSet,
        log: LogView,
        rng: random.Random,
        *,
        election_state: ElectionState | None,
        kraft_version: int,
        voters_in_log: bool,
    ) -> None:
        self.local = local
        self.voters = voters
        self.kraft_version = kraft_version
        self.role = QuorumRole.UNATTACHED
        self.epoch = 0 if election_state is None else election_state.epoch
        self.leader_id = -1
        self.high_watermark = -1
        self.epoch_start_offset = -1
        self.flushed_offset = 0
        self._log = log
        self._rng = rng
        self._voters_in_log = voters_in_log
        if self.epoch < log.last_epoch:
            # quorum-state was lost or is older than the log, which proves that the log's epoch was reached.
            self.epoch = log.last_epoch

    @property
    def is_leader(self) -> bool:
        """Whether this node is the active controller's node."""
        return self.role is QuorumRole.LEADER

    def next_deadline(self) -> float:
        """When ``tick`` is due; a voter that needs nobody else has nothing to wait for."""
        return math.inf

    def start(self) -> Ready:
        """Take part. The only voter becomes leader of the next epoch at once."""
        if not self.voters.is_voter(self.local):
            raise FatalError(
                f"node {self.local.id} is not a voter of its quorum "
                f"({', '.join(map(str, self.voters.ids)) or 'none'}), "
                "and following another quorum is not supported yet"
            )
        if not self.voters.is_only_voter(self.local):
            raise FatalError(
                f"the quorum has {len(self.voters)} voters ({', '.join(map(str, self.voters.ids))}), and only one is "
                "supported yet"
            )
        return self._become_leader()

    def _become_leader(self) -> Ready:
        self.epoch += 1
        self.role = QuorumRole.LEADER
        self.leader_id = self.local.id
        self.epoch_start_offset = self._log.end_offset
        everyone = [control.Voter(voter_id=voter) for voter in self.voters.ids]
        records: list[Any] = [
            control.LeaderChangeMessage(
                version=0,
                leader_id=self.local.id,
                voters=everyone,
                granting_voters=[control.Voter(voter_id=self.local.id)],
            )
        ]
        if self.kraft_version >= 1 and not self._voters_in_log:
            # The voters of a freshly formatted node are in its snapshot 0-0 alone, which followers never fetch.
            records += [
                control.KRaftVersionRecord(version=0, kraft_version=self.kraft_version),
                self.voters.to_record(),
            ]
            self._voters_in_log = True
        return Ready(election_state=ElectionState(self.epoch, self.local.id), append=records, role_changed=True)

    def on_flushed(self, end_offset: int) -> Ready:
        """All below ``end_offset`` is on this node's disk."""
        self.flushed_offset = max(self.flushed_offset, end_offset)
        return self._maybe_advance_high_watermark()

    def _maybe_advance_high_watermark(self) -> Ready:
        if not self.is_leader or self.flushed_offset <= self.epoch_start_offset:
            return Ready()
        if self.flushed_offset <= self.high_watermark:
            return Ready()
        self.high_watermark = self.flushed_offset
        return Ready(high_watermark=self.high_watermark)

    def resign(self) -> Ready:
        """Stop leading because the node stops. Its epoch ends with it."""
        if not self.is_leader:
            return Ready()
        self.role = QuorumRole.RESIGNED
        return Ready(role_changed=True)
