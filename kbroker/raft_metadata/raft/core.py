"""The Raft core of the metadata quorum: KRaft (KIP-595, KIP-630, KIP-853, KIP-996), without IO.

A call says what happened and when, and returns a :class:`Ready` whose field order is the order in which the driver
acts: persist, send, apply. The core asks a :class:`LogView` about the log and never changes it. Times are
milliseconds of a monotonic clock.

The parts, from the bottom up: ``quorum_state`` has the roles and the transitions between them, ``leader_state`` how a
leader commits, ``state`` one replica; on that stand ``elections``, ``replication`` (the log's way from the leader to
the others) and ``voter_changes``. This module puts them together. Apache Kafka's counterpart is ``KafkaRaftClient``;
where this core differs:

- a leader counts only what is on its own disk, not what it has appended, and a candidate's log is on disk before it
  asks for a vote: a node whose disk is slow takes nothing back after a crash;
- a follower gives up a leader whose address refuses connections soon, not at the end of the fetch timeout; the
  pre-vote keeps that from disturbing a leader that lives;
- a candidate that cannot win, because others have votes of their own or are down, does not wait for its election
  timeout either, but for ever longer random times;
- a follower refuses pre-votes for one fetch timeout after its leader's last response, not for ever: a new voter that
  has not yet read of its vote has no timeout of its own, and would keep the others from electing.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from kbroker.raft_metadata.raft.election_state import ElectionState
from kbroker.raft_metadata.raft.elections import Elections
from kbroker.raft_metadata.raft.leader_state import LeaderState
from kbroker.raft_metadata.raft.messages import (
    NO_ENDPOINTS,
    NO_LEADER,
    AddVoter,
    AddVoterResult,
    BeginQuorumEpoch,
    BeginQuorumEpochResult,
    EndQuorumEpoch,
    EndQuorumEpochResult,
    Fetch,
    FetchResult,
    FetchSnapshot,
    FetchSnapshotResult,
    InboundRequest,
    KRaftVersionsResult,
    Node,
    RaftMessage,
    RemoveVoter,
    RemoveVoterResult,
    Reply,
    UpdateVoter,
    UpdateVoterResult,
    UpgradeKRaftVersion,
    Vote,
    VoteResult,
)
from kbroker.raft_metadata.raft.quorum_state import QuorumRole
from kbroker.raft_metadata.raft.replication import RaftReplication
from kbroker.raft_metadata.raft.state import RaftState
from kbroker.raft_metadata.raft.types import LogView, QuorumView, RaftConfig, Ready
from kbroker.raft_metadata.raft.voter_changes import VoterChanges
from kbroker.raft_metadata.raft.voters import Endpoints, ReplicaKey, VoterSet

DEFAULT_CONFIG = RaftConfig()


class RaftCore:
    """One replica of the metadata log: a voter, or an observer that only follows.

    Call ``start`` once, then the other methods as things happen; each returns what to do now. The properties are for
    reading. Invariant: nothing is sent that a crash could take back.
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
        """``can_become_voter`` permits ``config.auto_join``; a broker without the controller's role never votes."""
        self._state = state = RaftState(
            local,
            log,
            rng,
            config=config,
            bootstrap=bootstrap,
            local_endpoints=local_endpoints,
            listener_name=listener_name,
        )
        self._stored_election = election_state
        self._deadline_ms = math.inf
        self._voter_changes = VoterChanges(state, auto_join=config.auto_join and can_become_voter)
        self._elections = Elections(state)
        self._replication = RaftReplication(state, self._voter_changes.on_high_watermark)
        self._request_handlers: dict[type[Any], Callable[[int, Any, int], None]] = {
            Vote: self._elections.on_vote,
            BeginQuorumEpoch: self._elections.on_begin_quorum_epoch,
            EndQuorumEpoch: self._elections.on_end_quorum_epoch,
            Fetch: self._replication.on_fetch,
            FetchSnapshot: self._replication.on_fetch_snapshot,
            AddVoter: self._voter_changes.on_add,
            RemoveVoter: self._voter_changes.on_remove,
            UpdateVoter: self._voter_changes.on_update,
            UpgradeKRaftVersion: self._voter_changes.on_upgrade,
        }
        self._response_handlers: dict[type[Any], Callable[[Any, Reply, int], bool]] = {
            VoteResult: self._elections.on_vote_response,
            BeginQuorumEpochResult: self._elections.on_acknowledged,
            EndQuorumEpochResult: self._elections.on_acknowledged,
            FetchResult: self._replication.on_fetch_response,
            FetchSnapshotResult: self._replication.on_fetch_snapshot_response,
            UpdateVoterResult: self._voter_changes.on_update_response,
            AddVoterResult: self._voter_changes.on_membership_response,
            RemoveVoterResult: self._voter_changes.on_membership_response,
            KRaftVersionsResult: self._voter_changes.on_kraft_versions,
        }
        """Each returns whether the peer was of use; one that was not is left alone for a while."""
        self._polls: dict[QuorumRole, Callable[[int], float]] = {
            QuorumRole.UNATTACHED: self._poll_unattached,
            QuorumRole.FOLLOWER: self._poll_follower,
            QuorumRole.PROSPECTIVE: self._elections.poll_nominee,
            QuorumRole.CANDIDATE: self._elections.poll_nominee,
            QuorumRole.LEADER: self._poll_leader,
            QuorumRole.RESIGNED: self._elections.poll_resigned,
        }
        """Each does what is due in its role, and returns the time at which it is to be called again."""

    # Questions

    @property
    def local(self) -> ReplicaKey:
        """This replica."""
        return self._state.local

    @property
    def role(self) -> QuorumRole:
        """This replica's role in the present epoch."""
        return self._state.role

    @property
    def epoch(self) -> int:
        """The highest epoch that this replica has heard of. It never goes back."""
        return self._state.epoch

    @property
    def voted(self) -> ReplicaKey | None:
        """The replica that has this one's vote in the epoch."""
        return self._state.quorum.voted

    @property
    def leader_id(self) -> int:
        """The leader of the epoch; -1 if it is not known."""
        return self._state.leader_id

    @property
    def leader_node(self) -> Node | None:
        """The leader at its address; None if one of the two is not known."""
        return self._state.node_of(self.leader_id, self._state.quorum.leader_endpoints)

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads."""
        return self._state.role is QuorumRole.LEADER

    @property
    def leader(self) -> LeaderState | None:
        """The followers as this replica knows them; None unless it leads."""
        return self._state.leader

    @property
    def may_vote(self) -> bool:
        """Whether this replica may vote and stand: its log has all that it had promised to have."""
        return self._state.may_vote

    @property
    def is_handing_over(self) -> bool:
        """Whether some voter has not yet acknowledged that this replica has resigned."""
        return bool(self._state.quorum.resignation_unacknowledged)

    @property
    def voters(self) -> VoterSet:
        """The voter set that counts, committed or not."""
        return self._state.voters

    @property
    def high_watermark(self) -> int:
        """All below is committed, as far as this replica knows; -1 if nothing. It never goes back."""
        return self._state.high_watermark

    @property
    def first_high_watermark(self) -> int:
        """The first high watermark that a leader told, which the local log may not have reached; -1 if none has."""
        return self._state.first_high_watermark

    @property
    def flushed_offset(self) -> int:
        """All below is on this replica's disk."""
        return self._state.flushed_offset

    def next_deadline(self) -> float:
        """The time at which ``tick`` is due; infinite if the core waits for a message alone."""
        return self._deadline_ms

    def describe(self, now_ms: int) -> QuorumView:
        """The quorum as this replica sees it. Only the leader knows the others."""
        state, leader = self._state, self._state.leader
        if leader is None:
            other = self.leader_id if self.leader_id != state.local.id else NO_LEADER
            return QuorumView(other, self.epoch, self.high_watermark, state.log.end_offset, [], [])
        return QuorumView(
            state.local.id,
            self.epoch,
            leader.high_watermark,
            state.log.end_offset,
            [leader.voters[voter] for voter in sorted(leader.voters)],
            leader.live_observers(now_ms),
        )

    # Events

    def start(self, now_ms: int) -> Ready:
        """Take part. The only voter becomes leader of the next epoch at once."""
        state = self._state
        state.start(self._stored_election, now_ms)
        if state.may_vote and state.voters.is_only_voter(state.local):
            # It stands anew in whatever role it stopped: no other node can have led since.
            if state.role is not QuorumRole.CANDIDATE:
                state.become_prospective(now_ms)
        else:
            state.ready.flush = True
            if state.role in (QuorumRole.UNATTACHED, QuorumRole.RESIGNED):
                longest = state.config.initial_election_timeout_ms
                state.quorum.on_leader_gone(now_ms + state.rng.randrange(longest + 1))
        return self._finish(now_ms)

    def receive(self, message: RaftMessage, now_ms: int) -> Ready:
        """A request came in, or the outcome of one that was sent."""
        if isinstance(message, InboundRequest):
            self._request_handlers[type(message.request)](message.token, message.request, now_ms)
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
        state = self._state
        end_offset = min(end_offset, state.log.end_offset)
        state.flushed_offset = max(state.flushed_offset, end_offset)
        self._on_log_changed(now_ms)
        if state.leader is not None:
            if state.leader.on_local_flush(state.flushed_offset):
                self._replication.on_leader_high_watermark(now_ms)
        else:
            # A snapshot holds only committed records, so all before the latest one's end is committed.
            latest = state.log.latest_snapshot_id
            known = max(latest.offset if latest else 0, min(state.leader_high_watermark, state.flushed_offset))
            if known > 0:
                state.advance_high_watermark(known)
            state.vote_again_if_whole(now_ms)
        return self._finish(now_ms)

    def on_no_room(self, now_ms: int) -> Ready:
        """The disk has no room for what the leader has sent. It is fetched anew after half a fetch timeout, in which
        the leader is not given up yet."""
        state = self._state
        state.quorum.fetching = None
        state.quorum.resume_ms = now_ms + state.config.fetch_timeout_ms // 2
        return self.on_flushed(state.log.end_offset, now_ms)

    def resign(self, now_ms: int) -> Ready:
        """Stop leading, because the node stops or the controller failed; the others are told to elect."""
        if self._state.leader is not None:
            self._state.become_resigned(now_ms)
        return self._finish(now_ms)

    def stop(self, now_ms: int) -> Ready:
        """The node stops: hand over leadership, and do not stand any more."""
        self._state.stopping = True
        return self.resign(now_ms)

    def _finish(self, now_ms: int) -> Ready:
        """Do what is due in the present role, and in each that follows from it, until time has to pass."""
        state, quorum = self._state, self._state.quorum
        while True:
            role, epoch = quorum.role, quorum.epoch
            self._deadline_ms = self._polls[role](now_ms)
            if quorum.role is role and quorum.epoch == epoch:
                break
        election = quorum.election
        if election != self._stored_election:
            self._stored_election = state.ready.election_state = election
        ready, state.ready = state.ready, Ready()
        return ready

    def _on_log_changed(self, now_ms: int) -> None:
        """Adopt the voter set of the log, which may be another one now."""
        state, voters = self._state, self._state.voters
        if state.leader is not None:
            if [progress.key for progress in state.leader.voters.values()] != [voter.key for voter in voters]:
                state.leader.update_voters(voters, now_ms)
                if state.leader.maybe_advance_high_watermark():
                    self._replication.on_leader_high_watermark(now_ms)
        state.quorum.on_voters_changed(state.is_able_voter, now_ms)

    def _receive_reply(self, reply: Reply, now_ms: int) -> None:
        state = self._state
        request = state.requests.request_of(reply.source, reply.correlation_id)
        if request is None:
            return  # of another role or epoch, or too late
        response = reply.response
        success = False
        if response is not None:
            success = self._response_handlers[type(response)](response, reply, now_ms)
        elif reply.unsupported_version and isinstance(request, Vote) and request.pre_vote:
            # A voter that does not know pre-votes (Kafka before 4.0): as if there were none.
            if state.role is QuorumRole.PROSPECTIVE:
                state.become_candidate(now_ms)
            success = True
        elif reply.refused and isinstance(request, Vote):
            self._elections.on_unreachable(reply.source.id, now_ms)
        elif reply.refused and isinstance(request, EndQuorumEpoch):
            state.quorum.resignation_unacknowledged.discard(reply.source.id)  # it does not run: no use in waiting
        elif (
            reply.refused
            and state.role is QuorumRole.FOLLOWER
            and reply.source.address in state.quorum.leader_endpoints.values()
        ):
            longest = state.config.refused_election_timeout_ms
            state.quorum.on_leader_gone(now_ms + 1 + state.rng.randrange(longest + 1))
        state.requests.on_result(reply.source, reply.correlation_id, now_ms, success=success)

    # What is due in a role

    def _poll_unattached(self, now_ms: int) -> float:
        state, quorum = self._state, self._state.quorum
        if now_ms >= quorum.deadline_ms and quorum.is_voter and not state.stopping:
            state.become_prospective(now_ms)
            return now_ms
        deadline = quorum.deadline_ms if not state.stopping else math.inf
        return min(deadline, self._replication.fetch_from_bootstrap(now_ms))

    def _poll_follower(self, now_ms: int) -> float:
        state, quorum = self._state, self._state.quorum
        if state.stopping:
            return math.inf
        if now_ms >= quorum.deadline_ms and quorum.is_voter:
            state.become_prospective(now_ms)
            return now_ms
        if state.ready.flush:
            return quorum.deadline_ms  # the log is changing; ``on_flushed`` comes next
        if now_ms < quorum.resume_ms:
            return min(quorum.deadline_ms, quorum.resume_ms)
        leader = self.leader_node
        assert leader is not None
        if now_ms >= quorum.update_voter_ms:
            request = self._voter_changes.own_request()
            if request is None or state.send_if_ready(leader, request, now_ms) is not None:
                quorum.update_voter_ms = now_ms + state.config.fetch_timeout_ms
        # An update that is overdue waits for the Fetch under way, and then goes before the next.
        update = quorum.update_voter_ms if quorum.update_voter_ms > now_ms else math.inf
        return min(quorum.deadline_ms, update, self._replication.fetch_from_best(leader, now_ms))

    def _poll_leader(self, now_ms: int) -> float:
        state, leader = self._state, self._state.leader
        assert leader is not None
        if leader.resign_requested or now_ms >= leader.check_quorum_at:
            state.become_resigned(now_ms)
            return now_ms
        self._replication.complete_fetches(now_ms)
        deadline = min(self._voter_changes.expire(leader, now_ms), leader.next_fetch_deadline())
        if leader.voters.keys() - {state.local.id}:
            deadline = min(deadline, self._elections.announce(leader, now_ms))
        return min(deadline, leader.check_quorum_at)
