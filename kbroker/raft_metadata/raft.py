"""The Raft core of the metadata quorum: KRaft (KIP-595, KIP-630, KIP-853, KIP-996), without IO.

A call says what happened and when, and returns a :class:`Ready` whose field order is the order in which the driver
acts: persist, send, apply. The core asks a :class:`LogView` about the log and never changes it. Times are
milliseconds of a monotonic clock.

Which role follows which is in ``quorum_state``, how a leader commits in ``leader_state``, changes of the voter set
in ``voter_changes``. Apache Kafka's counterpart is ``KafkaRaftClient``; where this core differs:

- a leader counts with what is on its own disk, not with what it has appended, and a candidate's log is on disk before
  it asks for a vote: a log directory on a slow disk takes nothing back after a crash;
- a leader at whose address nobody listens is given up soon rather than at the end of the fetch timeout; the pre-vote
  keeps that from disturbing a leader that lives;
- a follower refuses pre-votes for one fetch timeout after its leader's last answer, not for ever: one that does not
  know yet that it is a voter has no timeout of its own, and would keep the others from electing.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from kbroker.errors import ErrorCode
from kbroker.raft_metadata.election_state import ElectionState
from kbroker.raft_metadata.leader_state import LeaderState, ReplicaProgress
from kbroker.raft_metadata.quorum_state import QuorumRole, QuorumState, SnapshotFetch
from kbroker.raft_metadata.raft_messages import (
    NO_ENDPOINTS,
    NO_LEADER,
    AddVoterRequest,
    AddVoterResponse,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    InboundRequest,
    KRaftVersionsResponse,
    Node,
    OutboundRequest,
    OutboundResponse,
    PendingFetch,
    QuorumResponse,
    RaftMessage,
    RaftRequest,
    RaftResponse,
    RemoveVoterRequest,
    RemoveVoterResponse,
    Reply,
    SnapshotChunk,
    UpdateVoterRequest,
    UpdateVoterResponse,
    VoteRequest,
    VoteResponse,
)
from kbroker.raft_metadata.request_manager import RequestManager
from kbroker.raft_metadata.voter_changes import VoterChanges
from kbroker.raft_metadata.voters import Endpoints, ReplicaKey, VoterNode, VoterSet, VoterSetHistory
from kbroker.types import OffsetAndEpoch
from kbroker.wire.records import control

logger = logging.getLogger(__name__)

BOOTSTRAP_SNAPSHOT = OffsetAndEpoch(0, 0)
"""The snapshot that formatting writes. It is never sent: the first leader writes what it says into the log."""


class LogView(Protocol):
    """What the core asks of the log and the snapshots."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        ...

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, of the latest snapshot if there is none, else 0."""
        ...

    @property
    def voters(self) -> VoterSetHistory:
        """The voter sets in the log."""
        ...

    @property
    def kraft_version(self) -> int:
        """The level of ``kraft.version`` in the log."""
        ...

    @property
    def earliest_snapshot_id(self) -> OffsetAndEpoch | None: ...

    @property
    def latest_snapshot_id(self) -> OffsetAndEpoch | None: ...

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch:
        """Where the largest epoch not above ``epoch`` ends; the log's end for an epoch above all."""
        ...

    def read_bytes(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that holds ``offset``; at least one if there is any."""
        ...

    def read_snapshot(self, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int) -> tuple[int, bytes] | None:
        """A snapshot's size and some of its bytes; None if there is no such snapshot."""
        ...


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """Kafka's ``controller.quorum.*``, in milliseconds and bytes."""

    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_bytes: int = 1024 * 1024
    fetch_snapshot_max_bytes: int = 1024 * 1024
    fetch_max_wait_ms: int = 500
    auto_join: bool = False
    initial_election_timeout_ms: int = 200
    """Longest wait of a voter that starts and knows no leader. It may be short: a pre-vote harms nobody."""
    refused_election_timeout_ms: int = 100
    """Longest wait of a follower at whose leader's address nobody listens."""


@dataclass(slots=True)
class Ready:
    """What the driver is to do, field by field, before it calls the core again.

    - ``election_state`` is to be on disk before anything that follows is done.
    - ``truncate_to``: cut the log there. ``snapshot``: keep a chunk; with the last one the snapshot replaces the log.
      ``records``: append what the leader sent, as far as it is intact. ``append``: append a batch of control records
      in the epoch of the core.
    - ``flush``: all in the log must be on disk before the messages go out. The driver then calls ``on_flushed`` at
      once. After ``append`` without it, it calls ``on_appended`` at once and ``on_flushed`` when that is so.
    - ``send``: requests; ``respond``: responses to requests that came in.
    - ``high_watermark``: all below is committed; None if it did not move.
    - ``role_changed``: role, epoch or leader are other than before.
    """

    election_state: ElectionState | None = None
    truncate_to: int | None = None
    snapshot: SnapshotChunk | None = None
    records: bytes = b""
    append: list[Any] = field(default_factory=list)
    flush: bool = False
    send: list[OutboundRequest] = field(default_factory=list)
    respond: list[OutboundResponse] = field(default_factory=list)
    high_watermark: int | None = None
    role_changed: bool = False


class QuorumView(NamedTuple):
    """The quorum as its leader sees it; the times are of the core's clock, -1 for never."""

    leader_id: int
    epoch: int
    high_watermark: int
    voters: list[ReplicaProgress]
    observers: list[ReplicaProgress]


class RaftCore:
    """One replica's share in the quorum: a voter, or an observer that only follows.

    Call ``start`` once, then the other methods as things happen; each returns what to do now. Invariants: ``epoch``
    and ``high_watermark`` never go back; nothing is sent that a crash could take back.
    """

    def __init__(
        self,
        local: ReplicaKey,
        log: LogView,
        rng: random.Random,
        *,
        config: RaftConfig = RaftConfig(),
        election_state: ElectionState | None = None,
        bootstrap: Sequence[Node] = (),
        local_endpoints: Endpoints = NO_ENDPOINTS,
        listener_name: str = "CONTROLLER",
        can_become_voter: bool = True,
    ) -> None:
        self.config = config
        self.local = local
        self.local_endpoints = local_endpoints
        self.listener_name = listener_name
        self.log = log
        self.can_become_voter = can_become_voter
        self.high_watermark = -1
        """All below is committed, as far as this replica knows."""
        self.flushed_offset = 0
        """All below is on this replica's disk."""
        self.quorum = QuorumState(
            local,
            local_endpoints,
            rng,
            election_timeout_ms=config.election_timeout_ms,
            fetch_timeout_ms=config.fetch_timeout_ms,
        )
        self.leader: LeaderState | None = None
        self.stopping = False
        self._rng = rng
        self._stored_election = election_state
        self._requests = RequestManager(
            [node for node in bootstrap if node.address not in local_endpoints.values()],
            retry_backoff_ms=config.retry_backoff_ms,
            request_timeout_ms=config.request_timeout_ms,
            rng=rng,
        )
        self._voter_changes = VoterChanges(self)
        self._correlation_id = 0
        self._leader_high_watermark = -1
        self._complained_epoch = -1
        self._deadline_ms = math.inf
        self._ready = Ready()
        self._handlers: dict[type[Any], Callable[[int, Any, int], None]] = {
            VoteRequest: self._on_vote,
            BeginQuorumEpochRequest: self._on_begin_quorum_epoch,
            EndQuorumEpochRequest: self._on_end_quorum_epoch,
            FetchRequest: self._on_fetch,
            FetchSnapshotRequest: self._on_fetch_snapshot,
            AddVoterRequest: self._voter_changes.on_add,
            RemoveVoterRequest: self._voter_changes.on_remove,
            UpdateVoterRequest: self._voter_changes.on_update,
        }
        self._answer_handlers: dict[type[Any], Callable[[Any, Reply, int], bool]] = {
            VoteResponse: self._on_vote_response,
            BeginQuorumEpochResponse: self._on_acknowledged,
            EndQuorumEpochResponse: self._on_acknowledged,
            FetchResponse: self._on_fetch_response,
            FetchSnapshotResponse: self._on_fetch_snapshot_response,
            UpdateVoterResponse: self._on_update_voter_response,
            AddVoterResponse: self._on_membership_response,
            RemoveVoterResponse: self._on_membership_response,
            KRaftVersionsResponse: self._voter_changes.on_kraft_versions,
        }
        self._polls: dict[QuorumRole, Callable[[int], float]] = {
            QuorumRole.UNATTACHED: self._poll_unattached,
            QuorumRole.FOLLOWER: self._poll_follower,
            QuorumRole.PROSPECTIVE: self._poll_nominee,
            QuorumRole.CANDIDATE: self._poll_nominee,
            QuorumRole.LEADER: self._poll_leader,
            QuorumRole.RESIGNED: self._poll_resigned,
        }

    # What others ask

    @property
    def role(self) -> QuorumRole:
        """This replica's part in the present epoch."""
        return self.quorum.role

    @property
    def epoch(self) -> int:
        """The highest epoch that this replica has heard of."""
        return self.quorum.epoch

    @property
    def leader_id(self) -> int:
        """Who leads the epoch; -1 if that is not known."""
        return self.quorum.leader_id

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads."""
        return self.quorum.role is QuorumRole.LEADER

    @property
    def voters(self) -> VoterSet:
        """The voter set that counts, committed or not."""
        return self.log.voters.last

    def next_deadline(self) -> float:
        """When ``tick`` is due, in milliseconds; infinite if only a message can bring anything."""
        return self._deadline_ms

    def describe(self, now_ms: int) -> QuorumView:
        """What DescribeQuorum tells. Only the leader knows the others."""
        leader = self.leader
        if leader is None:
            return QuorumView(self.leader_id, self.epoch, self.high_watermark, [], [])
        return QuorumView(
            self.local.id,
            self.epoch,
            leader.high_watermark,
            [leader.voters[voter] for voter in sorted(leader.voters)],
            leader.live_observers(now_ms),
        )

    # What happens

    def start(self, now_ms: int) -> Ready:
        """Take part. The only voter becomes leader of the next epoch at once."""
        quorum = self.quorum
        quorum.initialize(self._stored_election, self.log.last_epoch, self.voters, now_ms)
        if self.voters.is_only_voter(self.local):
            # It stands anew whatever it was: nobody else can have led since.
            if quorum.role is QuorumRole.CANDIDATE:
                self._become_leader(now_ms)
            else:
                self._become_prospective(now_ms)
        else:
            self._ready.flush = True
            if quorum.role is QuorumRole.UNATTACHED:
                quorum.on_leader_gone(now_ms + self._rng.randrange(self.config.initial_election_timeout_ms + 1))
        self._ready.role_changed = True
        return self._finish(now_ms)

    def receive(self, message: RaftMessage, now_ms: int) -> Ready:
        """A request came in, or what became of one that was sent."""
        if isinstance(message, InboundRequest):
            self._handlers[type(message.request)](message.token, message.request, now_ms)
        else:
            self._receive_reply(message, now_ms)
        return self._finish(now_ms)

    def tick(self, now_ms: int) -> Ready:
        """Time has passed."""
        return self._finish(now_ms)

    def on_appended(self, now_ms: int) -> Ready:
        """The leader's log has grown, by records of the owner or by those of ``Ready.append``."""
        self._on_log_changed(now_ms)
        self._complete_fetches(now_ms)
        return self._finish(now_ms)

    def on_flushed(self, end_offset: int, now_ms: int) -> Ready:
        """All below ``end_offset`` is on this replica's disk."""
        end_offset = min(end_offset, self.log.end_offset)
        self.flushed_offset = max(self.flushed_offset, end_offset)
        self._on_log_changed(now_ms)
        if self.leader is not None:
            if self.leader.on_local_flush(self.flushed_offset):
                self._on_leader_high_watermark(now_ms)
        elif self._leader_high_watermark >= 0:
            self._advance_high_watermark(min(self._leader_high_watermark, self.flushed_offset))
        return self._finish(now_ms)

    def on_log_replaced(self, now_ms: int) -> Ready:
        """The owner has put a snapshot of its own in place of the log's beginning."""
        return self._finish(now_ms)

    def resign(self, now_ms: int) -> Ready:
        """Stop leading, because the node stops or the controller failed; the others are told to elect."""
        if self.leader is not None:
            self._become_resigned(now_ms)
        return self._finish(now_ms)

    def stop(self, now_ms: int) -> Ready:
        """The node stops: hand over leadership, and do not stand any more."""
        self.stopping = True
        return self.resign(now_ms)

    def _finish(self, now_ms: int) -> Ready:
        """Go on until time has to pass; give back what there is to do."""
        while True:
            role, epoch = self.quorum.role, self.quorum.epoch
            self._deadline_ms = self._polls[role](now_ms)
            if self.quorum.role is role and self.quorum.epoch == epoch:
                break
        election = self.quorum.election
        if election != self._stored_election:
            self._stored_election = self._ready.election_state = election
        ready, self._ready = self._ready, Ready()
        return ready

    # Changes of role

    def _changed(self) -> None:
        self._ready.role_changed = True
        self._requests.reset_all()
        self._leader_high_watermark = -1
        leader, self.leader = self.leader, None
        if leader is not None:
            self._voter_changes.abandon(leader)
            for pending in leader.pending_fetches:
                self.respond(pending.token, FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, *self.header()))

    def _become_unattached(self, epoch: int, now_ms: int, leader_id: int = NO_LEADER) -> None:
        self.quorum.become_unattached(epoch, now_ms, leader_id=leader_id)
        self._changed()

    def _become_follower(self, epoch: int, leader_id: int, endpoints: Endpoints, now_ms: int) -> None:
        self.quorum.become_follower(epoch, leader_id, endpoints, now_ms)
        self._changed()

    def _become_prospective(self, now_ms: int) -> None:
        self.quorum.become_prospective(self.voters, now_ms)
        self._changed()
        self._on_votes_counted(now_ms)

    def _become_candidate(self, now_ms: int) -> None:
        self.quorum.become_candidate(self.voters, now_ms)
        self._changed()
        if self.flushed_offset < self.log.end_offset and not self.voters.is_only_voter(self.local):
            # Whoever votes for this log may count on it, also after this node has lost its memory.
            self._ready.flush = True
        self._on_votes_counted(now_ms)

    def _become_leader(self, now_ms: int) -> None:
        granting = self.quorum.become_leader()
        self._changed()
        self.leader = LeaderState(
            self.local,
            self.epoch,
            self.log.end_offset,
            self.voters,
            fetch_timeout_ms=self.config.fetch_timeout_ms,
            now_ms=now_ms,
        )
        self.leader.on_local_flush(self.flushed_offset)
        self._ready.append.append(
            control.LeaderChangeMessage(
                version=0,
                leader_id=self.local.id,
                voters=[control.Voter(voter_id=voter) for voter in self.voters.ids],
                granting_voters=[control.Voter(voter_id=voter) for voter in sorted(granting)],
            )
        )
        if self.log.kraft_version >= 1:
            updated = self._voters_with_local()
            if self.log.voters.last_offset == VoterSetHistory.SNAPSHOT_OFFSET or updated != self.voters:
                # The voters of a freshly formatted node are in its snapshot 0-0 alone, which followers never fetch.
                self._ready.append += [
                    control.KRaftVersionRecord(version=0, kraft_version=self.log.kraft_version),
                    updated.to_record(),
                ]

    def _become_resigned(self, now_ms: int) -> None:
        assert self.leader is not None
        self.quorum.become_resigned(self.voters, self.leader.successors(), now_ms)
        self._changed()

    def append_voters(self, voters: VoterSet) -> int:
        """Have the leader write a voter set; the offset that its record gets."""
        self._ready.append.append(voters.to_record())
        return self.log.end_offset + len(self._ready.append) - 1

    def local_voter(self) -> VoterNode:
        """This replica as the voter set should have it."""
        return VoterNode(self.local, dict(self.local_endpoints))

    def _voters_with_local(self) -> VoterSet:
        if not self.local_endpoints or not self.voters.is_voter(self.local):
            return self.voters
        return self.voters.with_voter(self.local_voter())

    def _maybe_transition(self, leader_id: int, epoch: int, endpoints: Endpoints, now_ms: int) -> bool:
        """A peer names a leader and an epoch not below this one's; False if that cannot be."""
        quorum = self.quorum
        if leader_id == self.local.id:
            return self.is_leader and epoch == self.epoch
        if epoch > self.epoch:
            if leader_id >= 0 and endpoints:
                self._become_follower(epoch, leader_id, endpoints, now_ms)
            else:
                self._become_unattached(epoch, now_ms, leader_id)
        elif epoch == self.epoch and leader_id >= 0:
            if quorum.leader_id not in (NO_LEADER, leader_id):
                return False
            if endpoints and (not quorum.has_leader or len(endpoints) > len(quorum.leader_endpoints)):
                self._become_follower(epoch, leader_id, endpoints, now_ms)
        return True

    # Requests of others

    def header(self) -> tuple[int, int, Endpoints]:
        """Epoch, leader and its addresses, as every response says them."""
        return self.epoch, self.leader_id, self.quorum.leader_endpoints

    def respond(self, token: int, response: RaftResponse) -> None:
        """Answer a request."""
        self._ready.respond.append(OutboundResponse(token, response))

    def _check_voter_request(self, sender_id: int, epoch: int) -> ErrorCode:
        """Vote, BeginQuorumEpoch and EndQuorumEpoch: not from the past, and from a voter.

        With dynamic voters this replica may not have heard yet that the sender is one, so it asks no further.
        """
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if sender_id < 0 or sender_id == self.local.id:
            return ErrorCode.INVALID_REQUEST
        if self.log.kraft_version == 0 and sender_id not in self.voters.voters:
            return ErrorCode.INCONSISTENT_VOTER_SET
        return ErrorCode.NONE

    def _is_for_me(self, voter: ReplicaKey | None) -> bool:
        return voter is None or voter.matches(self.local)

    def _on_vote(self, token: int, request: VoteRequest, now_ms: int) -> None:
        error, granted = self._judge_vote(request, now_ms)
        self.respond(token, VoteResponse(error, *self.header(), granted=granted))

    def _judge_vote(self, request: VoteRequest, now_ms: int) -> tuple[ErrorCode, bool]:
        last = request.last
        # A candidate's log cannot have records of the epoch it stands in; for a pre-vote the epoch is the old one.
        if last.offset < 0 or last.epoch < 0 or last.epoch >= request.epoch + request.pre_vote:
            return ErrorCode.INVALID_REQUEST, False
        error = self._check_voter_request(request.candidate.id, request.epoch)
        if error:
            return error, False
        if request.epoch > self.epoch:
            self._become_unattached(request.epoch, now_ms)
        if not self._is_for_me(request.voter):
            return ErrorCode.INVALID_VOTER_KEY, False
        up_to_date = (last.epoch, last.offset) >= (self.log.last_epoch, self.log.end_offset)
        granted = self.quorum.can_grant_vote(
            request.candidate, is_log_up_to_date=up_to_date, pre_vote=request.pre_vote, now_ms=now_ms
        )
        if granted and not request.pre_vote:
            self.quorum.add_vote(request.candidate, now_ms)
        return ErrorCode.NONE, granted

    def _on_begin_quorum_epoch(self, token: int, request: BeginQuorumEpochRequest, now_ms: int) -> None:
        error = self._check_voter_request(request.leader_id, request.epoch)
        if not error:
            endpoints = request.leader_endpoints or self.voters.endpoints(request.leader_id)
            if not self._maybe_transition(request.leader_id, request.epoch, endpoints, now_ms):
                error = ErrorCode.INVALID_REQUEST
            elif not self._is_for_me(request.voter):
                error = ErrorCode.INVALID_VOTER_KEY
        self.respond(token, BeginQuorumEpochResponse(error, *self.header()))

    def _on_end_quorum_epoch(self, token: int, request: EndQuorumEpochRequest, now_ms: int) -> None:
        error = self._check_voter_request(request.leader_id, request.epoch)
        if not error:
            endpoints = request.leader_endpoints or self.voters.endpoints(request.leader_id)
            if not self._maybe_transition(request.leader_id, request.epoch, endpoints, now_ms):
                error = ErrorCode.INVALID_REQUEST
            elif self.role is QuorumRole.FOLLOWER and self.leader_id == request.leader_id:
                self.quorum.on_leader_gone(now_ms + self._succession_delay_ms(request.successors))
        self.respond(token, EndQuorumEpochResponse(error, *self.header()))

    def _succession_delay_ms(self, successors: tuple[ReplicaKey, ...]) -> int:
        """The best successor stands at once, the others ever later."""
        position = next((at for at, key in enumerate(successors) if key.matches(self.local)), len(successors))
        longest = self.config.election_backoff_max_ms
        if position == 0:
            return 0
        if position >= len(successors):
            return longest
        return min(longest, (longest >> (len(successors) - 1)) << (position - 1))

    def _check_leader_request(self, epoch: int) -> ErrorCode:
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if self.leader is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def _on_fetch(self, token: int, request: FetchRequest, now_ms: int) -> None:
        if request.max_wait_ms < 0 or request.offset < 0 or not 0 <= request.last_epoch <= request.epoch:
            self.respond(token, FetchResponse(ErrorCode.INVALID_REQUEST, *self.header()))
            return
        response = self._fetch(request, now_ms)
        if (
            response.error
            or response.records
            or response.diverging is not None
            or response.snapshot_id is not None
            or request.max_wait_ms == 0
            or request.high_watermark < response.high_watermark
        ):
            self.respond(token, response)
        else:
            assert self.leader is not None
            self.leader.pending_fetches.append(PendingFetch(token, request, now_ms + request.max_wait_ms, response))

    def _fetch(self, request: FetchRequest, now_ms: int) -> FetchResponse:
        error = self._check_leader_request(request.epoch)
        leader = self.leader
        if error or leader is None:
            return FetchResponse(error, *self.header())
        if request.replica.id == self.local.id:
            return FetchResponse(ErrorCode.INVALID_REQUEST, *self.header())
        log = self.log
        diverging, snapshot_id = self._validate(request.offset, request.last_epoch)
        records = b""
        if diverging is None and snapshot_id is None:
            if leader.on_fetch(request.replica, request.offset, log.end_offset, now_ms):
                self._on_leader_high_watermark(now_ms)
            if request.offset < log.end_offset:
                records = log.read_bytes(request.offset, request.max_bytes)
        return FetchResponse(
            ErrorCode.NONE,
            *self.header(),
            high_watermark=leader.high_watermark,
            log_start_offset=log.start_offset,
            diverging=diverging,
            snapshot_id=snapshot_id,
            records=records,
        )

    def _validate(self, offset: int, epoch: int) -> tuple[OffsetAndEpoch | None, OffsetAndEpoch | None]:
        """Where a log that ends at ``offset`` with ``epoch`` leaves this one, or the snapshot that it needs."""
        log = self.log
        latest = log.latest_snapshot_id
        if offset == 0 and latest is not None and latest != BOOTSTRAP_SNAPSHOT:
            return None, latest  # always less to send than the log
        if offset == 0 and log.start_offset == 0:
            return None, None
        earliest = log.earliest_snapshot_id
        if earliest is not None and earliest != BOOTSTRAP_SNAPSHOT:
            before = offset < log.start_offset or epoch < earliest.epoch
            if before or (offset == log.start_offset and epoch != earliest.epoch):
                return None, latest
        end = log.end_offset_for(epoch)
        if end.epoch != epoch or end.offset < offset:
            return end, None
        return None, None

    def _on_fetch_snapshot(self, token: int, request: FetchSnapshotRequest, now_ms: int) -> None:
        error = self._check_leader_request(request.epoch)
        if error:
            self.respond(token, FetchSnapshotResponse(error, *self.header()))
            return
        found = None
        if request.snapshot_id != BOOTSTRAP_SNAPSHOT:
            found = self.log.read_snapshot(request.snapshot_id, max(request.position, 0), request.max_bytes)
        if found is None:
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        elif not 0 <= request.position < found[0]:
            error = ErrorCode.POSITION_OUT_OF_RANGE
        if found is None or error:
            self.respond(token, FetchSnapshotResponse(error, *self.header()))
            return
        assert self.leader is not None
        self.leader.on_contact(request.replica, now_ms)
        size, data = found
        self.respond(
            token,
            FetchSnapshotResponse(
                ErrorCode.NONE, *self.header(), request.snapshot_id, size, request.position, data
            ),
        )

    # Committing

    def _on_log_changed(self, now_ms: int) -> None:
        """The voter set in the log may be another."""
        voters = self.voters
        if self.leader is not None:
            if [progress.key for progress in self.leader.voters.values()] != [voter.key for voter in voters]:
                self.leader.update_voters(voters, now_ms)
                if self.leader.maybe_advance_high_watermark():
                    self._on_leader_high_watermark(now_ms)
        self.quorum.on_voters_changed(voters.is_voter(self.local), now_ms)

    def _on_leader_high_watermark(self, now_ms: int) -> None:
        leader = self.leader
        assert leader is not None
        self._advance_high_watermark(leader.high_watermark)
        self._voter_changes.on_high_watermark(leader)
        for pending in leader.take_completed_fetches(self.log.end_offset, everything=True, now_ms=now_ms):
            self.respond(pending.token, self._fetch(pending.request, now_ms))

    def _complete_fetches(self, now_ms: int) -> None:
        leader = self.leader
        if leader is None:
            return
        for pending in leader.take_completed_fetches(self.log.end_offset, everything=False, now_ms=now_ms):
            if pending.request.offset < self.log.end_offset:
                self.respond(pending.token, self._fetch(pending.request, now_ms))
            else:
                self.respond(pending.token, pending.response)

    def _advance_high_watermark(self, high_watermark: int) -> None:
        if high_watermark > self.high_watermark:
            self.high_watermark = self._ready.high_watermark = high_watermark

    # Answers of others

    def _receive_reply(self, reply: Reply, now_ms: int) -> None:
        request = self._requests.request_of(reply.source, reply.correlation_id)
        if request is None:
            return  # of another role or epoch, or too late
        response = reply.response
        success = False
        if response is not None:
            success = self._answer_handlers[type(response)](response, reply, now_ms)
        elif reply.unsupported_version and isinstance(request, VoteRequest) and request.pre_vote:
            # A voter that does not know pre-votes (Kafka before 4.0): as if there were none.
            if self.role is QuorumRole.PROSPECTIVE:
                self._become_candidate(now_ms)
            success = True
        elif reply.refused and self._is_leader_address(reply.source):
            self.quorum.on_leader_gone(
                now_ms + 1 + self._rng.randrange(self.config.refused_election_timeout_ms + 1)
            )
        self._requests.on_result(reply.source, reply.correlation_id, now_ms, success=success)

    def _is_leader_address(self, node: Node) -> bool:
        return self.role is QuorumRole.FOLLOWER and node.address in self.quorum.leader_endpoints.values()

    def _common(self, response: QuorumResponse, now_ms: int) -> bool | None:
        """What any response may bring: True or False if it is dealt with (well or not), None if it is to be read."""
        endpoints = response.leader_endpoints
        leader_id, epoch = response.leader_id, response.epoch
        if not endpoints and leader_id >= 0:
            endpoints = self.voters.endpoints(leader_id)
        error = response.error
        if epoch < self.epoch or error == ErrorCode.UNKNOWN_LEADER_EPOCH:
            return True
        if epoch > self.epoch or error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER):
            # A node that does not lead and knows of no other leader than this one does is to be left alone for a while.
            before = (self.epoch, self.leader_id, self.role)
            consistent = self._maybe_transition(leader_id, epoch, endpoints, now_ms)
            return consistent and before != (self.epoch, self.leader_id, self.role)
        if leader_id >= 0 and not self.quorum.has_leader:
            if leader_id == self.local.id or not endpoints:
                return False
            self._become_follower(epoch, leader_id, endpoints, now_ms)
            return None if error == ErrorCode.NONE else True
        if error == ErrorCode.INVALID_VOTER_KEY:
            return True
        return None

    def _on_vote_response(self, response: VoteResponse, reply: Reply, now_ms: int) -> bool:
        handled = self._common(response, now_ms)
        if handled is not None:
            return handled
        if response.error:
            return _unexpected(response, reply)
        votes = self.quorum.votes
        if votes is not None:
            votes.record(reply.source.id, response.granted)
            self._on_votes_counted(now_ms)
        return True

    def _on_votes_counted(self, now_ms: int) -> None:
        votes = self.quorum.votes
        if votes is None:
            return
        if votes.is_won:
            if self.role is QuorumRole.PROSPECTIVE:
                self._become_candidate(now_ms)
            else:
                self._become_leader(now_ms)
        elif votes.is_lost and self.role is QuorumRole.PROSPECTIVE:
            self._give_up_election(now_ms)

    def _give_up_election(self, now_ms: int) -> None:
        quorum = self.quorum
        if quorum.has_leader and quorum.leader_endpoints and quorum.leader_id != self.local.id:
            self._become_follower(self.epoch, quorum.leader_id, quorum.leader_endpoints, now_ms)
        else:
            self._become_unattached(self.epoch, now_ms, quorum.leader_id)

    def _on_acknowledged(self, response: QuorumResponse, reply: Reply, now_ms: int) -> bool:
        handled = self._common(response, now_ms)
        if handled is not None:
            return handled
        if response.error:
            return _unexpected(response, reply)
        self.quorum.resignation_unacknowledged.discard(reply.source.id)
        return True

    def _on_fetch_response(self, response: FetchResponse, reply: Reply, now_ms: int) -> bool:
        handled = self._common(response, now_ms)
        if handled is not None:
            return handled
        if response.error or self.role is not QuorumRole.FOLLOWER:
            return _unexpected(response, reply)
        quorum, ready = self.quorum, self._ready
        if response.diverging is not None:
            offset = self._truncation_offset(response.diverging)
            if offset < self.high_watermark:
                self._complain_of_lost_data(offset)
                return False
            ready.truncate_to = offset
            ready.flush = True
            self.flushed_offset = min(self.flushed_offset, offset)
        elif response.snapshot_id is not None:
            if response.snapshot_id.offset < 0 or response.snapshot_id.epoch < 0:
                return _unexpected(response, reply)
            if response.snapshot_id.offset < self.high_watermark:
                self._complain_of_lost_data(response.snapshot_id.offset)
                return False
            quorum.fetching = SnapshotFetch(response.snapshot_id)
        else:
            self._leader_high_watermark = max(self._leader_high_watermark, response.high_watermark)
            if response.records:
                ready.records = response.records
                ready.flush = True
            else:
                self._advance_high_watermark(min(self._leader_high_watermark, self.flushed_offset))
        self._on_leader_contact(now_ms)
        return True

    def _complain_of_lost_data(self, offset: int) -> None:
        """A majority has lost what was committed; this replica keeps what it has and follows no further."""
        if self._complained_epoch != self.epoch:
            self._complained_epoch = self.epoch
            logger.error(
                "leader %d of epoch %d asks to cut the metadata log at offset %d, below the high watermark %d: "
                "committed metadata is lost on a majority of the voters; this node keeps its log and does not follow",
                self.leader_id,
                self.epoch,
                offset,
                self.high_watermark,
            )

    def _on_leader_contact(self, now_ms: int) -> None:
        self.quorum.on_leader_contact(now_ms)

    def _truncation_offset(self, diverging: OffsetAndEpoch) -> int:
        """Where this log leaves the leader's, which ends its epoch ``diverging.epoch`` at that offset (KIP-279)."""
        if diverging.epoch == 0:
            return min(diverging.offset, self.log.end_offset)
        local = self.log.end_offset_for(diverging.epoch)
        return min(local.offset, diverging.offset) if local.epoch == diverging.epoch else local.offset

    def _on_fetch_snapshot_response(self, response: FetchSnapshotResponse, reply: Reply, now_ms: int) -> bool:
        handled = self._common(response, now_ms)
        if handled is not None:
            return handled
        quorum = self.quorum
        if self.role is not QuorumRole.FOLLOWER:
            return _unexpected(response, reply)
        if response.error == ErrorCode.SNAPSHOT_NOT_FOUND:
            # The leader has a newer one: its answer to the next Fetch says which.
            quorum.fetching = None
            self._on_leader_contact(now_ms)
            return True
        fetching = quorum.fetching
        if (
            response.error
            or fetching is None
            or response.snapshot_id != fetching.snapshot_id
            or response.position != fetching.position
            or not response.data
        ):
            quorum.fetching = None
            return _unexpected(response, reply)
        is_last = response.position + len(response.data) >= response.size
        chunk = SnapshotChunk(fetching.snapshot_id, fetching.position, response.data, is_last)
        fetching.take(chunk)
        self._ready.snapshot = chunk
        if is_last:
            quorum.fetching = None
            self._ready.flush = True
            self.flushed_offset = min(self.flushed_offset, chunk.snapshot_id.offset)
            # A snapshot holds only what is committed.
            self._leader_high_watermark = max(self._leader_high_watermark, chunk.snapshot_id.offset)
        self._on_leader_contact(now_ms)
        return True

    def _on_update_voter_response(self, response: UpdateVoterResponse, reply: Reply, now_ms: int) -> bool:
        handled = self._common(response, now_ms)
        if handled is not None:
            return handled
        if response.error not in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION):
            return _unexpected(response, reply)
        self.quorum.has_updated_leader = True
        self._on_leader_contact(now_ms)
        return True

    def _on_membership_response(
        self, response: AddVoterResponse | RemoveVoterResponse, reply: Reply, now_ms: int
    ) -> bool:
        """To this observer's own request to join; what came of it shows in the log."""
        expected = (
            ErrorCode.NONE,
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.DUPLICATE_VOTER,
            ErrorCode.VOTER_NOT_FOUND,
        )
        if response.error not in expected:
            return _unexpected(response, reply)
        return True

    # What is due

    def _send(self, node: Node, request: RaftRequest, now_ms: int) -> int:
        self._correlation_id += 1
        self._requests.on_sent(node, self._correlation_id, request, now_ms)
        self._ready.send.append(OutboundRequest(self._correlation_id, node, request))
        return self._correlation_id

    def send_if_ready(self, node: Node, request: RaftRequest, now_ms: int) -> int | None:
        """Send unless the node is busy or failing; the correlation id if it was sent."""
        return self._send(node, request, now_ms) if self._requests.is_ready(node, now_ms) else None

    def node_of(self, node_id: int, endpoints: Endpoints) -> Node | None:
        """A peer's address on the listener that this replica speaks to."""
        address = endpoints.get(self.listener_name) or next(iter(endpoints.values()), None)
        return None if address is None else Node(node_id, address)

    def _send_to_voters(
        self, voter_ids: Sequence[int], request: Callable[[VoterNode], RaftRequest], now_ms: int
    ) -> float:
        """Send to those of the voters that are ready; when the next one is."""
        deadline = math.inf
        for voter_id in voter_ids:
            voter = self.voters.voters.get(voter_id)
            node = None if voter is None else self.node_of(voter_id, voter.endpoints)
            if voter is None or node is None:
                continue
            if self._requests.is_ready(node, now_ms):
                self._send(node, request(voter), now_ms)
            deadline = min(deadline, self._requests.ready_at(node, now_ms))
        return deadline

    def _poll_unattached(self, now_ms: int) -> float:
        if now_ms >= self.quorum.deadline_ms and self.quorum.is_voter and not self.stopping:
            self._become_prospective(now_ms)
            return now_ms
        return min(self.quorum.deadline_ms if not self.stopping else math.inf, self._fetch_from_bootstrap(now_ms))

    def _poll_follower(self, now_ms: int) -> float:
        quorum = self.quorum
        if self.stopping:
            return math.inf
        if now_ms >= quorum.deadline_ms and quorum.is_voter:
            self._become_prospective(now_ms)
            return now_ms
        if self._ready.flush:
            return quorum.deadline_ms  # the log is changing; ``on_flushed`` comes next
        leader = self.node_of(quorum.leader_id, quorum.leader_endpoints)
        assert leader is not None
        if now_ms >= quorum.update_voter_ms:
            request = self._voter_changes.own_request()
            if request is None or self.send_if_ready(leader, request, now_ms) is not None:
                quorum.update_voter_ms = now_ms + self.config.fetch_timeout_ms
        # Past its time it waits for the Fetch that is under way, and then goes before the next.
        update = quorum.update_voter_ms if quorum.update_voter_ms > now_ms else math.inf
        return min(quorum.deadline_ms, update, self._fetch_from_best(leader, now_ms))

    def _fetch_from_best(self, leader: Node, now_ms: int) -> float:
        """Fetch from the leader; from any bootstrap server, which may know another, while the leader fails."""
        requests = self._requests
        timed_out = requests.has_timed_out(leader, now_ms)
        if timed_out:
            requests.reset(leader)
        if requests.is_ready(leader, now_ms) and not (timed_out and requests.bootstrap):
            under_way = requests.any_in_flight_until(now_ms)
            return under_way if under_way >= 0 else self._send_fetch(leader, now_ms)
        if requests.in_flight(leader, now_ms):
            return requests.ready_at(leader, now_ms)
        again = math.inf if timed_out else requests.ready_at(leader, now_ms)
        return min(self._fetch_from_bootstrap(now_ms), again)

    def _send_fetch(self, node: Node, now_ms: int) -> float:
        if self.flushed_offset < self.log.end_offset:
            self._ready.flush = True  # a Fetch promises that all before it is on disk
            return math.inf
        fetching = self.quorum.fetching
        if fetching is not None:
            self._send(
                node,
                FetchSnapshotRequest(
                    self.epoch,
                    self.local,
                    fetching.snapshot_id,
                    fetching.position,
                    self.config.fetch_snapshot_max_bytes,
                ),
                now_ms,
            )
        else:
            self._send(node, self._fetch_request(), now_ms)
        return self._requests.ready_at(node, now_ms)

    def _fetch_request(self) -> FetchRequest:
        return FetchRequest(
            self.epoch,
            self.local,
            self.log.end_offset,
            self.log.last_epoch,
            self.high_watermark,
            self.config.fetch_max_bytes,
            self.config.fetch_max_wait_ms,
        )

    def _fetch_from_bootstrap(self, now_ms: int) -> float:
        under_way = self._requests.any_in_flight_until(now_ms)
        if under_way >= 0:
            return under_way
        if self.flushed_offset < self.log.end_offset:
            self._ready.flush = True
            return math.inf
        node = self._requests.ready_bootstrap(now_ms)
        if node is None:
            return self._requests.bootstrap_ready_at(now_ms)
        self._send(node, self._fetch_request(), now_ms)
        return self._requests.ready_at(node, now_ms)

    def _poll_nominee(self, now_ms: int) -> float:
        quorum = self.quorum
        votes = quorum.votes
        assert votes is not None
        if now_ms >= quorum.deadline_ms and not self.stopping:
            if self.role is QuorumRole.CANDIDATE:
                self._become_prospective(now_ms)
            else:
                self._give_up_election(now_ms)
            return now_ms
        deadline = quorum.deadline_ms if not self.stopping else math.inf
        if votes.is_lost:
            return deadline
        pre_vote = self.role is QuorumRole.PROSPECTIVE
        last = OffsetAndEpoch(self.log.end_offset, self.log.last_epoch)
        return min(
            deadline,
            self._send_to_voters(
                votes.unanswered,
                lambda voter: VoteRequest(self.epoch, self.local, last, pre_vote, voter.key),
                now_ms,
            ),
        )

    def _poll_leader(self, now_ms: int) -> float:
        leader = self.leader
        assert leader is not None
        if leader.resign_requested or now_ms >= leader.check_quorum_at:
            self._become_resigned(now_ms)
            return now_ms
        self._complete_fetches(now_ms)
        deadline = min(self._voter_changes.expire(leader, now_ms), leader.next_fetch_deadline())
        if leader.voters.keys() - {self.local.id}:
            if now_ms >= leader.begin_at_ms:
                self._send_to_voters(
                    leader.silent_voters(now_ms),
                    lambda voter: BeginQuorumEpochRequest(
                        self.epoch, self.local.id, self.quorum.leader_endpoints, voter.key
                    ),
                    now_ms,
                )
                leader.begin_at_ms = now_ms + leader.begin_interval_ms
            deadline = min(deadline, leader.begin_at_ms)
        return min(deadline, leader.check_quorum_at)

    def _poll_resigned(self, now_ms: int) -> float:
        quorum = self.quorum
        if now_ms >= quorum.deadline_ms and not self.stopping:
            # A new epoch, so that nobody takes this node for the leader of the old one any more.
            self._become_unattached(self.epoch + 1, now_ms)
            return now_ms
        sent = self._send_to_voters(
            sorted(quorum.resignation_unacknowledged),
            lambda voter: EndQuorumEpochRequest(
                self.epoch, self.local.id, quorum.leader_endpoints, quorum.successors
            ),
            now_ms,
        )
        return min(sent, quorum.deadline_ms if not self.stopping else math.inf)


def _unexpected(response: QuorumResponse | AddVoterResponse | RemoveVoterResponse, reply: Reply) -> bool:
    logger.info("unexpected %s from node %d: %s", type(response).__name__, reply.source.id, response.error)
    return False
