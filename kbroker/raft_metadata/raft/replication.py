"""The metadata log from the leader to the others: Fetch and FetchSnapshot, both sides (KIP-595, KIP-630)."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

from kbroker.errors import ErrorCode
from kbroker.raft_metadata.raft.leader_state import LeaderState
from kbroker.raft_metadata.raft.messages import (
    Fetch,
    FetchResult,
    FetchSnapshot,
    FetchSnapshotResult,
    Node,
    PendingFetch,
    Reply,
    SnapshotChunk,
)
from kbroker.raft_metadata.raft.quorum_state import QuorumRole, SnapshotFetch
from kbroker.raft_metadata.raft.record_store import DamagedLog
from kbroker.raft_metadata.raft.state import RaftState
from kbroker.raft_metadata.raft.types import BOOTSTRAP_SNAPSHOT
from kbroker.types import OffsetAndEpoch

logger = logging.getLogger(__name__)


class RaftReplication:
    """The part of the core that replicates the metadata log: serves it as the leader, or follows another leader."""

    def __init__(self, state: RaftState, on_commit: Callable[[LeaderState], None]) -> None:
        """``on_commit`` is called when this replica leads and its high watermark has moved."""
        self._state = state
        self._on_commit = on_commit
        self._reported_epoch = -1
        """The epoch in which a leader was last reported that has lost committed data."""

    # The leader's side

    def _check_leader_request(self, epoch: int) -> ErrorCode:
        state = self._state
        if epoch < state.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > state.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if state.leader is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def on_fetch(self, token: int, request: Fetch, now_ms: int) -> None:
        """Respond with records; without any, let the request wait for them or for the high watermark (KIP-1166)."""
        state = self._state
        if request.max_wait_ms < 0 or request.offset < 0 or not 0 <= request.last_epoch <= request.epoch:
            state.respond(token, FetchResult(ErrorCode.INVALID_REQUEST, *state.header()))
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
            state.respond(token, response)
        else:
            assert state.leader is not None
            state.leader.pending_fetches.append(PendingFetch(token, request, now_ms + request.max_wait_ms, response))

    def _fetch(self, request: Fetch, now_ms: int, *, has_waited: bool = False) -> FetchResult:
        """The response to a Fetch. One that ``has_waited`` promises nothing again: its sender may have lost what it had
        then, and have said so by a later Fetch."""
        state = self._state
        error = self._check_leader_request(request.epoch)
        leader = state.leader
        if error or leader is None:
            return FetchResult(error, *state.header())
        if request.replica.id == state.local.id:
            return FetchResult(ErrorCode.INVALID_REQUEST, *state.header())
        log = state.log
        diverging, snapshot_id = self._validate(request.offset, request.last_epoch)
        records = b""
        if diverging is None and snapshot_id is None:
            if not has_waited and leader.on_fetch(request.replica, request.offset, log.end_offset, now_ms):
                self.on_leader_high_watermark(now_ms)
            if request.offset < log.end_offset:
                records = self._read(leader, request)
        return FetchResult(
            ErrorCode.NONE,
            *state.header(),
            high_watermark=leader.high_watermark,
            log_start_offset=log.start_offset,
            diverging=diverging,
            snapshot_id=snapshot_id,
            records=records,
        )

    def _read(self, leader: LeaderState, request: Fetch) -> bytes:
        """Records for a follower. None where they are damaged: a snapshot is about to take the place of what is
        committed, and the follower asks again."""
        log, progress = self._state.log, leader.progress(request.replica)
        if progress is not None:
            if progress.given_offset == request.offset:
                log.doubt(request.offset)  # it may have refused them
            progress.given_offset = request.offset
        try:
            return log.read_bytes(request.offset, request.max_bytes)
        except DamagedLog:
            if request.offset >= max(leader.high_watermark, log.start_offset):
                raise
            return b""

    def _validate(self, offset: int, epoch: int) -> tuple[OffsetAndEpoch | None, OffsetAndEpoch | None]:
        """Compare a follower's log, which ends at ``offset`` with ``epoch``, to this one.

        Two Nones if this log continues it; else the point where it leaves this one, or the snapshot that it needs.
        """
        state = self._state
        log = state.log
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

    def on_fetch_snapshot(self, token: int, request: FetchSnapshot, now_ms: int) -> None:
        """Respond with the bytes of a snapshot from a position on (KIP-630)."""
        state = self._state
        error = self._check_leader_request(request.epoch)
        if error:
            state.respond(token, FetchSnapshotResult(error, *state.header()))
            return
        found = None
        if request.snapshot_id != BOOTSTRAP_SNAPSHOT:
            found = state.log.read_snapshot(request.snapshot_id, max(request.position, 0), max(request.max_bytes, 0))
        if found is None:
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        elif not 0 <= request.position < found[0]:
            error = ErrorCode.POSITION_OUT_OF_RANGE
        if found is None or error:
            state.respond(token, FetchSnapshotResult(error, *state.header()))
            return
        assert state.leader is not None
        state.leader.on_contact(request.replica, now_ms)
        size, data = found
        state.respond(
            token,
            FetchSnapshotResult(ErrorCode.NONE, *state.header(), request.snapshot_id, size, request.position, data),
        )

    def on_leader_high_watermark(self, now_ms: int) -> None:
        """The leader has committed more: tell the followers that wait."""
        state = self._state
        leader = state.leader
        assert leader is not None
        state.advance_high_watermark(leader.high_watermark)
        self._on_commit(leader)
        for pending in leader.take_completed_fetches(state.log.end_offset, everything=True, now_ms=now_ms):
            state.respond(pending.token, self._fetch(pending.request, now_ms, has_waited=True))

    def complete_fetches(self, now_ms: int) -> None:
        """Respond to the waiting fetches for which there are records now, or whose time is over."""
        state = self._state
        leader = state.leader
        if leader is None:
            return
        for pending in leader.take_completed_fetches(state.log.end_offset, everything=False, now_ms=now_ms):
            if pending.request.offset < state.log.end_offset:
                state.respond(pending.token, self._fetch(pending.request, now_ms, has_waited=True))
            else:
                state.respond(pending.token, pending.response)

    # The follower's side

    def on_fetch_response(self, response: FetchResult, reply: Reply, now_ms: int) -> bool:
        """Append the records, cut the log where it leaves the leader's, or begin to fetch a snapshot."""
        state = self._state
        handled = state.handle_header(response, now_ms)
        if handled is not None:
            return handled
        if response.error or state.role is not QuorumRole.FOLLOWER:
            return state.log_unexpected(response, reply)
        quorum, ready = state.quorum, state.ready
        if response.diverging is not None:
            offset = self._truncation_offset(response.diverging)
            if offset < state.high_watermark:
                self._log_lost_data(offset)
                return False
            ready.truncate_to = offset
            ready.flush = True
            state.flushed_offset = min(state.flushed_offset, offset)
        elif response.snapshot_id is not None:
            if response.snapshot_id.offset < 0 or response.snapshot_id.epoch < 0:
                return state.log_unexpected(response, reply)
            if response.snapshot_id.offset < state.high_watermark:
                self._log_lost_data(response.snapshot_id.offset)
                return False
            quorum.fetching = SnapshotFetch(response.snapshot_id)
        else:
            if state.first_high_watermark < 0 <= response.high_watermark:
                state.first_high_watermark = response.high_watermark
                if state.high_watermark >= 0:
                    # Whoever waits for all that is committed is told so, even if no more is to come.
                    ready.high_watermark = state.high_watermark
            state.leader_high_watermark = max(state.leader_high_watermark, response.high_watermark)
            if response.records:
                ready.records = response.records
                ready.flush = True
            else:
                state.advance_high_watermark(min(state.leader_high_watermark, state.flushed_offset))
                state.vote_again_if_whole(now_ms)
        quorum.on_leader_contact(now_ms)
        return True

    def _log_lost_data(self, offset: int) -> None:
        """Log once an epoch that a majority has lost committed data: this replica keeps its log and does not follow."""
        state = self._state
        if self._reported_epoch != state.epoch:
            self._reported_epoch = state.epoch
            logger.error(
                "leader %d of epoch %d asks to cut the metadata log at offset %d, below the high watermark %d: "
                "committed metadata is lost on a majority of the voters; this node keeps its log and does not follow",
                state.leader_id,
                state.epoch,
                offset,
                state.high_watermark,
            )

    def _truncation_offset(self, diverging: OffsetAndEpoch) -> int:
        """The offset at which this log leaves the leader's: there ``diverging.epoch`` ends at ``diverging.offset``."""
        state = self._state
        if diverging.epoch == 0:
            return min(diverging.offset, state.log.end_offset)
        local = state.log.end_offset_for(diverging.epoch)
        return min(local.offset, diverging.offset) if local.epoch == diverging.epoch else local.offset

    def on_fetch_snapshot_response(self, response: FetchSnapshotResult, reply: Reply, now_ms: int) -> bool:
        """Keep the bytes; the last ones make the snapshot take the log's place."""
        state = self._state
        handled = state.handle_header(response, now_ms)
        if handled is not None:
            return handled
        quorum = state.quorum
        if state.role is not QuorumRole.FOLLOWER:
            return state.log_unexpected(response, reply)
        if response.error == ErrorCode.SNAPSHOT_NOT_FOUND:
            # The leader has a newer one, and names it in its response to the next Fetch.
            quorum.fetching = None
            quorum.on_leader_contact(now_ms)
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
            return state.log_unexpected(response, reply)
        is_last = response.position + len(response.data) >= response.size
        chunk = SnapshotChunk(fetching.snapshot_id, fetching.position, response.data, is_last)
        fetching.take(chunk)
        state.ready.snapshot = chunk
        state.ready.flush = True  # the next one is asked for when this one had room
        if is_last:
            quorum.fetching = None
            state.flushed_offset = min(state.flushed_offset, chunk.snapshot_id.offset)
        quorum.on_leader_contact(now_ms)
        return True

    def fetch_from_best(self, leader: Node, now_ms: int) -> float:
        """Fetch from the leader, or while it fails from a bootstrap server, which may know another leader.

        The time at which to look again.
        """
        state = self._state
        requests = state.requests
        timed_out = requests.has_timed_out(leader, now_ms)
        if timed_out:
            requests.reset(leader)
        if requests.is_ready(leader, now_ms) and not (timed_out and requests.bootstrap):
            under_way = requests.any_in_flight_until(now_ms)
            return under_way if under_way >= 0 else self._send_fetch(leader, now_ms)
        if requests.in_flight(leader, now_ms):
            return requests.ready_at(leader, now_ms)
        again = math.inf if timed_out else requests.ready_at(leader, now_ms)
        return min(self.fetch_from_bootstrap(now_ms), again)

    def _send_fetch(self, node: Node, now_ms: int) -> float:
        state = self._state
        if state.flushed_offset < state.log.end_offset:
            state.ready.flush = True  # a Fetch promises that all before it is on disk
            return math.inf
        fetching = state.quorum.fetching
        if fetching is not None:
            state.send(
                node,
                FetchSnapshot(
                    state.epoch,
                    state.local,
                    fetching.snapshot_id,
                    fetching.position,
                    state.config.fetch_snapshot_max_bytes,
                ),
                now_ms,
            )
        else:
            state.send(node, self._fetch_request(), now_ms)
        return state.requests.ready_at(node, now_ms)

    def _fetch_request(self) -> Fetch:
        state = self._state
        return Fetch(
            state.epoch,
            state.local,
            state.log.end_offset,
            state.log.last_epoch,
            state.high_watermark,
            state.config.fetch_max_bytes,
            state.config.fetch_max_wait_ms,
        )

    def fetch_from_bootstrap(self, now_ms: int) -> float:
        """Fetch from a bootstrap server, which names the leader. The time at which to look again."""
        state = self._state
        under_way = state.requests.any_in_flight_until(now_ms)
        if under_way >= 0:
            return under_way
        if state.flushed_offset < state.log.end_offset:
            state.ready.flush = True
            return math.inf
        node = state.requests.ready_bootstrap(now_ms)
        if node is None:
            return state.requests.bootstrap_ready_at(now_ms)
        state.send(node, self._fetch_request(), now_ms)
        return state.requests.ready_at(node, now_ms)
