"""The state of one replica of the metadata quorum, and the steps that every part of the Raft core takes.

``elections``, ``replication`` and ``voter_changes`` stand side by side on this module and do not know of one another;
``core`` puts them together. The steps are: change the role, send a request, respond to one, read the header of a
response. Each notes in ``ready`` what the driver is to do.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Sequence

from kbroker.errors import ErrorCode
from kbroker.raft_metadata.raft.election_state import ElectionState
from kbroker.raft_metadata.raft.leader_state import LeaderState
from kbroker.raft_metadata.raft.messages import (
    NO_LEADER,
    AddVoterResult,
    FetchResult,
    Node,
    OutboundRequest,
    OutboundResponse,
    QuorumResult,
    RaftRequest,
    RaftResponse,
    RemoveVoterResult,
    Reply,
)
from kbroker.raft_metadata.raft.quorum_state import QuorumRole, QuorumState
from kbroker.raft_metadata.raft.request_manager import RequestManager
from kbroker.raft_metadata.raft.types import LogView, RaftConfig, Ready
from kbroker.raft_metadata.raft.voters import Endpoints, ReplicaKey, VoterNode, VoterSet, VoterSetHistory
from kbroker.wire.records import control

logger = logging.getLogger(__name__)


class RaftState:
    """One replica: its role, its log, the requests under way, and the ``Ready`` of the call that runs.

    Invariant: ``epoch`` and ``high_watermark`` never go back.
    """

    def __init__(
        self,
        local: ReplicaKey,
        log: LogView,
        rng: random.Random,
        *,
        config: RaftConfig,
        bootstrap: Sequence[Node],
        local_endpoints: Endpoints,
        listener_name: str,
    ) -> None:
        self.config = config
        self.local = local
        self.local_endpoints = local_endpoints
        self.listener_name = listener_name
        """The listener by which this replica speaks to the others."""
        self.log = log
        self.rng = rng
        self.quorum = QuorumState(
            local,
            local_endpoints,
            rng,
            election_timeout_ms=config.election_timeout_ms,
            fetch_timeout_ms=config.fetch_timeout_ms,
        )
        self.requests = RequestManager(
            [node for node in bootstrap if node.address not in local_endpoints.values()],
            retry_backoff_ms=config.retry_backoff_ms,
            request_timeout_ms=config.request_timeout_ms,
            rng=rng,
        )
        self.leader: LeaderState | None = None
        """The followers as this replica knows them, while it leads."""
        self.high_watermark = -1
        """All below is committed, as far as this replica knows."""
        self.leader_high_watermark = -1
        """The high watermark of the leader that this replica follows, which may be above its own log."""
        self.first_high_watermark = -1
        """The first high watermark that any leader told this process: all that was committed before is below. A leader
        that is never idle is always ahead of a replica that lags, but not of this."""
        self.flushed_offset = 0
        """All below is on this replica's disk."""
        self.may_vote = True
        """Whether this replica may vote and stand for election: not while its log lacks what was promised."""
        self.stopping = False
        self.ready = Ready()
        self._correlation_id = 0

    @property
    def role(self) -> QuorumRole:
        """This replica's role in the present epoch."""
        return self.quorum.role

    @property
    def epoch(self) -> int:
        """The highest epoch that this replica has heard of."""
        return self.quorum.epoch

    @property
    def leader_id(self) -> int:
        """The leader of the epoch; -1 if it is not known."""
        return self.quorum.leader_id

    @property
    def voters(self) -> VoterSet:
        """The latest voter set in the log, which counts whether it is committed or not (KIP-853)."""
        return self.log.voters.last

    @property
    def is_able_voter(self) -> bool:
        """Whether this replica is a voter that may vote."""
        return self.may_vote and self.voters.is_voter(self.local)

    @property
    def local_voter(self) -> VoterNode:
        """This replica as the voter set should have it."""
        return VoterNode(self.local, dict(self.local_endpoints))

    # Changes of role

    def start(self, stored: ElectionState | None, now_ms: int) -> None:
        """Take up the role that the election state on disk permits. Nothing is sent yet."""
        self.may_vote = self.log.is_whole
        self.quorum.initialize(stored, self.log.last_epoch, self.voters, now_ms, can_vote=self.may_vote)
        self.ready.role_changed = True

    def become_unattached(self, epoch: int, now_ms: int, leader_id: int = NO_LEADER) -> None:
        """Enter an epoch whose leader cannot be fetched from yet, or give up an election."""
        self.quorum.become_unattached(epoch, now_ms, leader_id=leader_id)
        self._leave_role()

    def become_follower(self, epoch: int, leader_id: int, endpoints: Endpoints, now_ms: int) -> None:
        """Follow the leader of ``epoch``."""
        self.quorum.become_follower(epoch, leader_id, endpoints, now_ms)
        self._leave_role()

    def become_prospective(self, now_ms: int) -> None:
        """Ask for pre-votes (KIP-996)."""
        self.quorum.become_prospective(self.voters, now_ms)
        self._leave_role()

    def become_candidate(self, now_ms: int) -> None:
        """Stand for election in the next epoch."""
        self.quorum.become_candidate(self.voters, now_ms)
        self._leave_role()
        if self.flushed_offset < self.log.end_offset and not self.voters.is_only_voter(self.local):
            # A voter may count on the log that it votes for, also after this node has lost its memory.
            self.ready.flush = True

    def become_leader(self, now_ms: int) -> None:
        """Lead the epoch: write its first records, the leader change and the voter set if that is not in the log."""
        granting = self.quorum.become_leader()
        self._leave_role()
        self.leader = LeaderState(
            self.local,
            self.epoch,
            self.log.end_offset,
            self.voters,
            fetch_timeout_ms=self.config.fetch_timeout_ms,
            now_ms=now_ms,
        )
        self.leader.volatile_voters = self._voters_with_local()
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
        """Stop leading, and tell the others to elect."""
        assert self.leader is not None
        self.quorum.become_resigned(self.voters, self.leader.successors(), now_ms)
        self._leave_role()

    def _leave_role(self) -> None:
        """End what belonged to the role before: requests under way, and those that waited for this leader."""
        self.ready.role_changed = True
        self.requests.reset_all()
        self.leader_high_watermark = -1
        leader, self.leader = self.leader, None
        if leader is not None:
            self.end_voter_change(leader, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            for pending in leader.pending_fetches:
                self.respond(pending.token, FetchResult(ErrorCode.NOT_LEADER_OR_FOLLOWER, *self.header()))

    def _voters_with_local(self) -> VoterSet:
        if not self.local_endpoints or not self.voters.is_voter(self.local):
            return self.voters
        return self.voters.with_voter(self.local_voter)

    def maybe_transition(self, leader_id: int, epoch: int, endpoints: Endpoints, now_ms: int) -> bool:
        """Follow or wait, as a peer names a leader and an epoch not below this one's; False if they cannot be."""
        quorum = self.quorum
        if leader_id == self.local.id:
            return self.role is QuorumRole.LEADER and epoch == self.epoch
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

    # The log

    def append_voters(self, voters: VoterSet) -> int:
        """Have the leader write a voter set; the offset of its record."""
        self.ready.append.append(voters.to_record())
        return self.log.end_offset + len(self.ready.append) - 1

    def end_voter_change(self, leader: LeaderState, error: ErrorCode, message: str | None = None) -> None:
        """Answer the request for the pending change of the voter set, if there is one that waits for an answer."""
        change, leader.voter_change = leader.voter_change, None
        if change is not None and not change.answered:
            result = AddVoterResult if change.joining is not None else RemoveVoterResult
            self.respond(change.token, result(error, message))

    def advance_high_watermark(self, high_watermark: int) -> None:
        """All below ``high_watermark`` is committed. It never goes back."""
        if high_watermark > self.high_watermark:
            self.high_watermark = self.ready.high_watermark = high_watermark

    def vote_again_if_whole(self, now_ms: int) -> None:
        """Become a voter that votes, once a leader's log has given back what this one had lost.

        A leader told ``first_high_watermark`` when it had counted this replica with a Fetch of this process, no longer
        with what it had promised before. All committed until then is below: of earlier epochs, for a high watermark
        is known only once it has passed the leader's first record; and of the leader's own. Later leaders have it all.
        """
        first = self.first_high_watermark
        if self.may_vote or self.role is not QuorumRole.FOLLOWER or not 0 <= first <= self.flushed_offset:
            return
        if self.log.keeps_promises_to(self.flushed_offset):
            self.may_vote = self.ready.regained = True
            self.quorum.on_voters_changed(self.is_able_voter, now_ms)

    # Requests

    def send(self, node: Node, request: RaftRequest, now_ms: int) -> int:
        """Send a request; its correlation id."""
        self._correlation_id += 1
        self.requests.on_sent(node, self._correlation_id, request, now_ms)
        self.ready.send.append(OutboundRequest(self._correlation_id, node, request))
        return self._correlation_id

    def send_if_ready(self, node: Node, request: RaftRequest, now_ms: int) -> int | None:
        """Send unless the node is busy or failing; the correlation id, or None."""
        return self.send(node, request, now_ms) if self.requests.is_ready(node, now_ms) else None

    def send_to_voters(
        self, voter_ids: Sequence[int], request: Callable[[VoterNode], RaftRequest], now_ms: int
    ) -> float:
        """Send to those of the voters that are ready; the time at which the next one is."""
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

    def node_of(self, node_id: int, endpoints: Endpoints) -> Node | None:
        """A peer at its address on the listener that this replica speaks to, or at any that it has."""
        address = endpoints.get(self.listener_name) or next(iter(endpoints.values()), None)
        return None if address is None else Node(node_id, address)

    # Responses

    def header(self) -> tuple[int, int, Endpoints]:
        """Epoch, leader and the leader's endpoints, as every response has them."""
        return self.epoch, self.leader_id, self.quorum.leader_endpoints

    def respond(self, token: int, response: RaftResponse) -> None:
        """Respond to the request of that token."""
        self.ready.respond.append(OutboundResponse(token, response))

    def handle_header(self, response: QuorumResult, now_ms: int) -> bool | None:
        """Act on the error, epoch and leader of any response.

        True or False if that was all there is to do, and whether the peer was of use; None if the rest is to be read.
        """
        endpoints = response.leader_endpoints
        leader_id, epoch = response.leader_id, response.epoch
        if not endpoints and leader_id >= 0:
            endpoints = self.voters.endpoints(leader_id)
        error = response.error
        if epoch < self.epoch or error == ErrorCode.UNKNOWN_LEADER_EPOCH:
            return False  # the peer is behind, and may take a while to hear of this epoch
        if epoch > self.epoch or error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER):
            # A peer that does not lead and names no other leader than this node knows is left alone for a while.
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

    def log_unexpected(self, response: QuorumResult | AddVoterResult | RemoveVoterResult, reply: Reply) -> bool:
        """Log a response that is of no use. False, so that its sender is left alone for a while."""
        name = type(response).__name__.removesuffix("Result")
        logger.info("unexpected %sResponse from node %d: %s", name, reply.source.id, response.error.name)
        return False
