"""The Raft core of the metadata quorum: KRaft (KIP-595, KIP-630, KIP-853, KIP-996), without IO.

A call says what happened and when, and returns a :class:`Ready` whose field order is the order in which the driver
acts: persist, send, apply. The core asks a :class:`LogView` about the log and never changes it. Times are
milliseconds of a monotonic clock.

Which role follows which is in ``quorum_state``, votes in ``elections``, the log's way from the leader to the others in
``raft_replication``, how a leader commits in ``leader_state``, changes of the voter set in ``voter_changes``; here they
come together. Apache Kafka's counterpart is ``KafkaRaftClient``; where this core differs:

- a leader counts with what is on its own disk, not with what it has appended, and a candidate's log is on disk before
  it asks for a vote: a log directory on a slow disk takes nothing back after a crash;
- a leader at whose address nobody listens is given up soon rather than at the end of the fetch timeout; the pre-vote
  keeps that from disturbing a leader that lives;
- a candidate that cannot win, because others have votes of their own or are down, does not wait for its election
  timeout either, but for ever longer random times;
- a follower refuses pre-votes for one fetch timeout after its leader's last answer, not for ever: one that does not
  know yet that it is a voter has no timeout of its own, and would keep the others from electing.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from kbroker.errors import ErrorCode
from kbroker.raft_metadata.election_state import ElectionState
from kbroker.raft_metadata.elections import Elections
from kbroker.raft_metadata.leader_state import LeaderState
from kbroker.raft_metadata.quorum_state import QuorumRole, QuorumState
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
    QuorumResponse,
    RaftMessage,
    RaftRequest,
    RaftResponse,
    RemoveVoterRequest,
    RemoveVoterResponse,
    Reply,
    UpdateVoterRequest,
    UpdateVoterResponse,
    VoteRequest,
    VoteResponse,
)
from kbroker.raft_metadata.raft_replication import Replication
from kbroker.raft_metadata.raft_types import LogView, QuorumView, RaftConfig, Ready
from kbroker.raft_metadata.request_manager import RequestManager
from kbroker.raft_metadata.voter_changes import VoterChanges
from kbroker.raft_metadata.voters import Endpoints, ReplicaKey, VoterNode, VoterSet, VoterSetHistory
from kbroker.wire.records import control

logger = logging.getLogger(__name__)

DEFAULT_CONFIG = RaftConfig()


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
        config: RaftConfig = DEFAULT_CONFIG,
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
        self.requests = RequestManager(
            [node for node in bootstrap if node.address not in local_endpoints.values()],
            retry_backoff_ms=config.retry_backoff_ms,
            request_timeout_ms=config.request_timeout_ms,
            rng=rng,
        )
        self.voter_changes = VoterChanges(self)
        self._elections = Elections(self)
        self._replication = Replication(self)
        self._correlation_id = 0
        self.leader_high_watermark = -1
        self._deadline_ms = math.inf
        self.ready = Ready()
        self._handlers: dict[type[Any], Callable[[int, Any, int], None]] = {
            VoteRequest: self._elections.on_vote,
            BeginQuorumEpochRequest: self._elections.on_begin_quorum_epoch,
            EndQuorumEpochRequest: self._elections.on_end_quorum_epoch,
            FetchRequest: self._replication.on_fetch,
            FetchSnapshotRequest: self._replication.on_fetch_snapshot,
            AddVoterRequest: self.voter_changes.on_add,
            RemoveVoterRequest: self.voter_changes.on_remove,
            UpdateVoterRequest: self.voter_changes.on_update,
        }
        self._answer_handlers: dict[type[Any], Callable[[Any, Reply, int], bool]] = {
            VoteResponse: self._elections.on_vote_response,
            BeginQuorumEpochResponse: self._elections.on_acknowledged,
            EndQuorumEpochResponse: self._elections.on_acknowledged,
            FetchResponse: self._replication.on_fetch_response,
            FetchSnapshotResponse: self._replication.on_fetch_snapshot_response,
            UpdateVoterResponse: self.voter_changes.on_update_response,
            AddVoterResponse: self.voter_changes.on_membership_response,
            RemoveVoterResponse: self.voter_changes.on_membership_response,
            KRaftVersionsResponse: self.voter_changes.on_kraft_versions,
        }
        self._polls: dict[QuorumRole, Callable[[int], float]] = {
            QuorumRole.UNATTACHED: self._poll_unattached,
            QuorumRole.FOLLOWER: self._poll_follower,
            QuorumRole.PROSPECTIVE: self._elections.poll_nominee,
            QuorumRole.CANDIDATE: self._elections.poll_nominee,
            QuorumRole.LEADER: self._poll_leader,
            QuorumRole.RESIGNED: self._elections.poll_resigned,
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
            other = self.leader_id if self.leader_id != self.local.id else NO_LEADER
            return QuorumView(other, self.epoch, self.high_watermark, [], [])
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
                self.become_leader(now_ms)
            else:
                self.become_prospective(now_ms)
        else:
            self.ready.flush = True
            if quorum.role in (QuorumRole.UNATTACHED, QuorumRole.RESIGNED):
                quorum.on_leader_gone(now_ms + self._rng.randrange(self.config.initial_election_timeout_ms + 1))
        self.ready.role_changed = True
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
        self._replication.complete_fetches(now_ms)
        return self._finish(now_ms)

    def on_flushed(self, end_offset: int, now_ms: int) -> Ready:
        """All below ``end_offset`` is on this replica's disk."""
        end_offset = min(end_offset, self.log.end_offset)
        self.flushed_offset = max(self.flushed_offset, end_offset)
        self._on_log_changed(now_ms)
        if self.leader is not None:
            if self.leader.on_local_flush(self.flushed_offset):
                self._replication.on_leader_high_watermark(now_ms)
        else:
            # A snapshot holds only what is committed, so what is before the log is.
            known = max(self.log.start_offset, min(self.leader_high_watermark, self.flushed_offset))
            if known > 0:
                self.advance_high_watermark(known)
        return self._finish(now_ms)

    def resign(self, now_ms: int) -> Ready:
        """Stop leading, because the node stops or the controller failed; the others are told to elect."""
        if self.leader is not None:
            self.become_resigned(now_ms)
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
            self._stored_election = self.ready.election_state = election
        ready, self.ready = self.ready, Ready()
        return ready

    # Changes of role

    def _changed(self) -> None:
        self.ready.role_changed = True
        self.requests.reset_all()
        self.leader_high_watermark = -1
        leader, self.leader = self.leader, None
        if leader is not None:
            self.voter_changes.abandon(leader)
            for pending in leader.pending_fetches:
                self.respond(pending.token, FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, *self.header()))

    def become_unattached(self, epoch: int, now_ms: int, leader_id: int = NO_LEADER) -> None:
        self.quorum.become_unattached(epoch, now_ms, leader_id=leader_id)
        self._changed()

    def become_follower(self, epoch: int, leader_id: int, endpoints: Endpoints, now_ms: int) -> None:
        self.quorum.become_follower(epoch, leader_id, endpoints, now_ms)
        self._changed()

    def become_prospective(self, now_ms: int) -> None:
        self.quorum.become_prospective(self.voters, now_ms)
        self._changed()
        self._elections.on_votes_counted(now_ms)

    def become_candidate(self, now_ms: int) -> None:
        self.quorum.become_candidate(self.voters, now_ms)
        self._changed()
        if self.flushed_offset < self.log.end_offset and not self.voters.is_only_voter(self.local):
            # Whoever votes for this log may count on it, also after this node has lost its memory.
            self.ready.flush = True
        self._elections.on_votes_counted(now_ms)

    def become_leader(self, now_ms: int) -> None:
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
        self.ready.append.append(
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
                self.ready.append += [
                    control.KRaftVersionRecord(version=0, kraft_version=self.log.kraft_version),
                    updated.to_record(),
                ]

    def become_resigned(self, now_ms: int) -> None:
        assert self.leader is not None
        self.quorum.become_resigned(self.voters, self.leader.successors(), now_ms)
        self._changed()

    def append_voters(self, voters: VoterSet) -> int:
        """Have the leader write a voter set; the offset that its record gets."""
        self.ready.append.append(voters.to_record())
        return self.log.end_offset + len(self.ready.append) - 1

    def local_voter(self) -> VoterNode:
        """This replica as the voter set should have it."""
        return VoterNode(self.local, dict(self.local_endpoints))

    def _voters_with_local(self) -> VoterSet:
        if not self.local_endpoints or not self.voters.is_voter(self.local):
            return self.voters
        return self.voters.with_voter(self.local_voter())

    def maybe_transition(self, leader_id: int, epoch: int, endpoints: Endpoints, now_ms: int) -> bool:
        """A peer names a leader and an epoch not below this one's; False if that cannot be."""
        quorum = self.quorum
        if leader_id == self.local.id:
            return self.is_leader and epoch == self.epoch
        if epoch > self.epoch:
            if leader_id >= 0 and endpoints:
                self.become_follower(epoch, leader_id, endpoints, now_ms)
            else:
                self.become_unattached(epoch, now_ms, leader_id)
        elif epoch == self.epoch and leader_id >= 0:
            if quorum.leader_id not in (NO_LEADER, leader_id):
                return False
            if endpoints and (not quorum.has_leader or len(endpoints) > len(quorum.leader_endpoints)):
                self.become_follower(epoch, leader_id, endpoints, now_ms)
        return True

    # Requests of others

    def header(self) -> tuple[int, int, Endpoints]:
        """Epoch, leader and its addresses, as every response says them."""
        return self.epoch, self.leader_id, self.quorum.leader_endpoints

    def respond(self, token: int, response: RaftResponse) -> None:
        """Answer a request."""
        self.ready.respond.append(OutboundResponse(token, response))

    # Committing

    def _on_log_changed(self, now_ms: int) -> None:
        """The voter set in the log may be another."""
        voters = self.voters
        if self.leader is not None:
            if [progress.key for progress in self.leader.voters.values()] != [voter.key for voter in voters]:
                self.leader.update_voters(voters, now_ms)
                if self.leader.maybe_advance_high_watermark():
                    self._replication.on_leader_high_watermark(now_ms)
        self.quorum.on_voters_changed(voters.is_voter(self.local), now_ms)

    def advance_high_watermark(self, high_watermark: int) -> None:
        if high_watermark > self.high_watermark:
            self.high_watermark = self.ready.high_watermark = high_watermark

    # Answers of others

    def _receive_reply(self, reply: Reply, now_ms: int) -> None:
        request = self.requests.request_of(reply.source, reply.correlation_id)
        if request is None:
            return  # of another role or epoch, or too late
        response = reply.response
        success = False
        if response is not None:
            success = self._answer_handlers[type(response)](response, reply, now_ms)
        elif reply.unsupported_version and isinstance(request, VoteRequest) and request.pre_vote:
            # A voter that does not know pre-votes (Kafka before 4.0): as if there were none.
            if self.role is QuorumRole.PROSPECTIVE:
                self.become_candidate(now_ms)
            success = True
        elif reply.refused and isinstance(request, VoteRequest):
            self._elections.on_unreachable(reply.source.id, now_ms)
        elif reply.refused and isinstance(request, EndQuorumEpochRequest):
            self.quorum.resignation_unacknowledged.discard(reply.source.id)  # it does not run: no use in waiting
        elif reply.refused and self._is_leader_address(reply.source):
            self.quorum.on_leader_gone(now_ms + 1 + self._rng.randrange(self.config.refused_election_timeout_ms + 1))
        self.requests.on_result(reply.source, reply.correlation_id, now_ms, success=success)

    def _is_leader_address(self, node: Node) -> bool:
        return self.role is QuorumRole.FOLLOWER and node.address in self.quorum.leader_endpoints.values()

    def handle_common(self, response: QuorumResponse, now_ms: int) -> bool | None:
        """What any response may bring: True or False if it is dealt with (well or not), None if it is to be read."""
        endpoints = response.leader_endpoints
        leader_id, epoch = response.leader_id, response.epoch
        if not endpoints and leader_id >= 0:
            endpoints = self.voters.endpoints(leader_id)
        error = response.error
        if epoch < self.epoch or error == ErrorCode.UNKNOWN_LEADER_EPOCH:
            return False  # the peer is behind, and may take a while to hear of this epoch
        if epoch > self.epoch or error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER):
            # A node that does not lead and knows of no other leader than this one does is to be left alone for a while.
            before = (self.epoch, self.leader_id, self.role)
            consistent = self.maybe_transition(leader_id, epoch, endpoints, now_ms)
            return consistent and before != (self.epoch, self.leader_id, self.role)
        if leader_id >= 0 and not self.quorum.has_leader:
            if leader_id == self.local.id or not endpoints:
                return False
            self.become_follower(epoch, leader_id, endpoints, now_ms)
            return None if error == ErrorCode.NONE else True
        if error == ErrorCode.INVALID_VOTER_KEY:
            return True
        return None

    # What is due

    def send(self, node: Node, request: RaftRequest, now_ms: int) -> int:
        self._correlation_id += 1
        self.requests.on_sent(node, self._correlation_id, request, now_ms)
        self.ready.send.append(OutboundRequest(self._correlation_id, node, request))
        return self._correlation_id

    def send_if_ready(self, node: Node, request: RaftRequest, now_ms: int) -> int | None:
        """Send unless the node is busy or failing; the correlation id if it was sent."""
        return self.send(node, request, now_ms) if self.requests.is_ready(node, now_ms) else None

    def node_of(self, node_id: int, endpoints: Endpoints) -> Node | None:
        """A peer's address on the listener that this replica speaks to."""
        address = endpoints.get(self.listener_name) or next(iter(endpoints.values()), None)
        return None if address is None else Node(node_id, address)

    def send_to_voters(
        self, voter_ids: Sequence[int], request: Callable[[VoterNode], RaftRequest], now_ms: int
    ) -> float:
        """Send to those of the voters that are ready; when the next one is."""
        deadline = math.inf
        for voter_id in voter_ids:
            voter = self.voters.voters.get(voter_id)
            node = None if voter is None else self.node_of(voter_id, voter.endpoints)
            if voter is None or node is None:
                continue
            if self.requests.is_ready(node, now_ms):
                self.send(node, request(voter), now_ms)
            deadline = min(deadline, self.requests.ready_at(node, now_ms))
        return deadline

    def _poll_unattached(self, now_ms: int) -> float:
        if now_ms >= self.quorum.deadline_ms and self.quorum.is_voter and not self.stopping:
            self.become_prospective(now_ms)
            return now_ms
        deadline = self.quorum.deadline_ms if not self.stopping else math.inf
        return min(deadline, self._replication.fetch_from_bootstrap(now_ms))

    def _poll_follower(self, now_ms: int) -> float:
        quorum = self.quorum
        if self.stopping:
            return math.inf
        if now_ms >= quorum.deadline_ms and quorum.is_voter:
            self.become_prospective(now_ms)
            return now_ms
        if self.ready.flush:
            return quorum.deadline_ms  # the log is changing; ``on_flushed`` comes next
        leader = self.node_of(quorum.leader_id, quorum.leader_endpoints)
        assert leader is not None
        if now_ms >= quorum.update_voter_ms:
            request = self.voter_changes.own_request()
            if request is None or self.send_if_ready(leader, request, now_ms) is not None:
                quorum.update_voter_ms = now_ms + self.config.fetch_timeout_ms
        # Past its time it waits for the Fetch that is under way, and then goes before the next.
        update = quorum.update_voter_ms if quorum.update_voter_ms > now_ms else math.inf
        return min(quorum.deadline_ms, update, self._replication.fetch_from_best(leader, now_ms))

    def _poll_leader(self, now_ms: int) -> float:
        leader = self.leader
        assert leader is not None
        if leader.resign_requested or now_ms >= leader.check_quorum_at:
            self.become_resigned(now_ms)
            return now_ms
        self._replication.complete_fetches(now_ms)
        deadline = min(self.voter_changes.expire(leader, now_ms), leader.next_fetch_deadline())
        if leader.voters.keys() - {self.local.id}:
            if now_ms >= leader.begin_at_ms:
                self.send_to_voters(
                    leader.silent_voters(now_ms),
                    lambda voter: BeginQuorumEpochRequest(
                        self.epoch, self.local.id, self.quorum.leader_endpoints, voter.key
                    ),
                    now_ms,
                )
                leader.begin_at_ms = now_ms + leader.begin_interval_ms
            deadline = min(deadline, leader.begin_at_ms)
        return min(deadline, leader.check_quorum_at)

    def complain(self, response: QuorumResponse | AddVoterResponse | RemoveVoterResponse, reply: Reply) -> bool:
        """An answer that does not help; its sender is left alone for a while."""
        logger.info("unexpected %s from node %d: %s", type(response).__name__, reply.source.id, response.error.name)
        return False
