"""The metadata log from the leader to the others: Fetch and FetchSnapshot, both sides (KIP-595, KIP-630)."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode
from kbroker.raft_metadata.quorum_state import QuorumRole, SnapshotFetch
from kbroker.raft_metadata.raft_messages import (
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Node,
    PendingFetch,
    Reply,
    SnapshotChunk,
)
from kbroker.raft_metadata.raft_types import BOOTSTRAP_SNAPSHOT
from kbroker.types import OffsetAndEpoch

if TYPE_CHECKING:
    from kbroker.raft_metadata.raft import RaftCore

logger = logging.getLogger(__name__)


class Replication:
    """The part of a :class:`RaftCore` that gives its log to others, or follows another's."""

    def __init__(self, core: RaftCore) -> None:
        self._core = core
        self._complained_epoch = -1

    def _check_leader_request(self, epoch: int) -> ErrorCode:
        core = self._core
        if epoch < core.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > core.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if core.leader is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def on_fetch(self, token: int, request: FetchRequest, now_ms: int) -> None:
        core = self._core
        if request.max_wait_ms < 0 or request.offset < 0 or not 0 <= request.last_epoch <= request.epoch:
            core.respond(token, FetchResponse(ErrorCode.INVALID_REQUEST, *core.header()))
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
            core.respond(token, response)
        else:
            assert core.leader is not None
            core.leader.pending_fetches.append(PendingFetch(token, request, now_ms + request.max_wait_ms, response))

    def _fetch(self, request: FetchRequest, now_ms: int) -> FetchResponse:
        core = self._core
        error = self._check_leader_request(request.epoch)
        leader = core.leader
        if error or leader is None:
            return FetchResponse(error, *core.header())
        if request.replica.id == core.local.id:
            return FetchResponse(ErrorCode.INVALID_REQUEST, *core.header())
        log = core.log
        diverging, snapshot_id = self._validate(request.offset, request.last_epoch)
        records = b""
        if diverging is None and snapshot_id is None:
            if leader.on_fetch(request.replica, request.offset, log.end_offset, now_ms):
                self.on_leader_high_watermark(now_ms)
            if request.offset < log.end_offset:
                records = log.read_bytes(request.offset, request.max_bytes)
        return FetchResponse(
            ErrorCode.NONE,
            *core.header(),
            high_watermark=leader.high_watermark,
            log_start_offset=log.start_offset,
            diverging=diverging,
            snapshot_id=snapshot_id,
            records=records,
        )

    def _validate(self, offset: int, epoch: int) -> tuple[OffsetAndEpoch | None, OffsetAndEpoch | None]:
        """Where a log that ends at ``offset`` with ``epoch`` leaves this one, or the snapshot that it needs."""
        core = self._core
        log = core.log
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

    def on_fetch_snapshot(self, token: int, request: FetchSnapshotRequest, now_ms: int) -> None:
        core = self._core
        error = self._check_leader_request(request.epoch)
        if error:
            core.respond(token, FetchSnapshotResponse(error, *core.header()))
            return
        found = None
        if request.snapshot_id != BOOTSTRAP_SNAPSHOT:
            found = core.log.read_snapshot(request.snapshot_id, max(request.position, 0), max(request.max_bytes, 0))
        if found is None:
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        elif not 0 <= request.position < found[0]:
            error = ErrorCode.POSITION_OUT_OF_RANGE
        if found is None or error:
            core.respond(token, FetchSnapshotResponse(error, *core.header()))
            return
        assert core.leader is not None
        core.leader.on_contact(request.replica, now_ms)
        size, data = found
        core.respond(
            token,
            FetchSnapshotResponse(ErrorCode.NONE, *core.header(), request.snapshot_id, size, request.position, data),
        )

    def on_leader_high_watermark(self, now_ms: int) -> None:
        core = self._core
        leader = core.leader
        assert leader is not None
        core.advance_high_watermark(leader.high_watermark)
        core.voter_changes.on_high_watermark(leader)
        for pending in leader.take_completed_fetches(core.log.end_offset, everything=True, now_ms=now_ms):
            core.respond(pending.token, self._fetch(pending.request, now_ms))

    def complete_fetches(self, now_ms: int) -> None:
        core = self._core
        leader = core.leader
        if leader is None:
            return
        for pending in leader.take_completed_fetches(core.log.end_offset, everything=False, now_ms=now_ms):
            if pending.request.offset < core.log.end_offset:
                core.respond(pending.token, self._fetch(pending.request, now_ms))
            else:
                core.respond(pending.token, pending.response)

    def on_fetch_response(self, response: FetchResponse, reply: Reply, now_ms: int) -> bool:
        core = self._core
        handled = core.handle_common(response, now_ms)
        if handled is not None:
            return handled
        if response.error or core.role is not QuorumRole.FOLLOWER:
            return core.complain(response, reply)
        quorum, ready = core.quorum, core.ready
        if response.diverging is not None:
            offset = self._truncation_offset(response.diverging)
            if offset < core.high_watermark:
                self._complain_of_lost_data(offset)
                return False
            ready.truncate_to = offset
            ready.flush = True
            core.flushed_offset = min(core.flushed_offset, offset)
        elif response.snapshot_id is not None:
            if response.snapshot_id.offset < 0 or response.snapshot_id.epoch < 0:
                return core.complain(response, reply)
            if response.snapshot_id.offset < core.high_watermark:
                self._complain_of_lost_data(response.snapshot_id.offset)
                return False
            quorum.fetching = SnapshotFetch(response.snapshot_id)
        else:
            core.leader_high_watermark = max(core.leader_high_watermark, response.high_watermark)
            if response.records:
                ready.records = response.records
                ready.flush = True
            else:
                core.advance_high_watermark(min(core.leader_high_watermark, core.flushed_offset))
        core.quorum.on_leader_contact(now_ms)
        return True

    def _complain_of_lost_data(self, offset: int) -> None:
        """A majority has lost what was committed; this replica keeps what it has and follows no further."""
        core = self._core
        if self._complained_epoch != core.epoch:
            self._complained_epoch = core.epoch
            logger.error(
                "leader %d of epoch %d asks to cut the metadata log at offset %d, below the high watermark %d: "
                "committed metadata is lost on a majority of the voters; this node keeps its log and does not follow",
                core.leader_id,
                core.epoch,
                offset,
                core.high_watermark,
            )

    def _truncation_offset(self, diverging: OffsetAndEpoch) -> int:
        """Where this log leaves the leader's, which ends its epoch ``diverging.epoch`` at that offset (KIP-279)."""
        core = self._core
        if diverging.epoch == 0:
            return min(diverging.offset, core.log.end_offset)
        local = core.log.end_offset_for(diverging.epoch)
        return min(local.offset, diverging.offset) if local.epoch == diverging.epoch else local.offset

    def on_fetch_snapshot_response(self, response: FetchSnapshotResponse, reply: Reply, now_ms: int) -> bool:
        core = self._core
        handled = core.handle_common(response, now_ms)
        if handled is not None:
            return handled
        quorum = core.quorum
        if core.role is not QuorumRole.FOLLOWER:
            return core.complain(response, reply)
        if response.error == ErrorCode.SNAPSHOT_NOT_FOUND:
            # The leader has a newer one: its answer to the next Fetch says which.
            quorum.fetching = None
            core.quorum.on_leader_contact(now_ms)
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
            return core.complain(response, reply)
        is_last = response.position + len(response.data) >= response.size
        chunk = SnapshotChunk(fetching.snapshot_id, fetching.position, response.data, is_last)
        fetching.take(chunk)
        core.ready.snapshot = chunk
        if is_last:
            quorum.fetching = None
            core.ready.flush = True
            core.flushed_offset = min(core.flushed_offset, chunk.snapshot_id.offset)
        core.quorum.on_leader_contact(now_ms)
        return True

    def fetch_from_best(self, leader: Node, now_ms: int) -> float:
        """Fetch from the leader; from any bootstrap server, which may know another, while the leader fails."""
        core = self._core
        requests = core.requests
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
        core = self._core
        if core.flushed_offset < core.log.end_offset:
            core.ready.flush = True  # a Fetch promises that all before it is on disk
            return math.inf
        fetching = core.quorum.fetching
        if fetching is not None:
            core.send(
                node,
                FetchSnapshotRequest(
                    core.epoch,
                    core.local,
                    fetching.snapshot_id,
                    fetching.position,
                    core.config.fetch_snapshot_max_bytes,
                ),
                now_ms,
            )
        else:
            core.send(node, self._fetch_request(), now_ms)
        return core.requests.ready_at(node, now_ms)

    def _fetch_request(self) -> FetchRequest:
        core = self._core
        return FetchRequest(
            core.epoch,
            core.local,
            core.log.end_offset,
            core.log.last_epoch,
            core.high_watermark,
            core.config.fetch_max_bytes,
            core.config.fetch_max_wait_ms,
        )

    def fetch_from_bootstrap(self, now_ms: int) -> float:
        core = self._core
        under_way = core.requests.any_in_flight_until(now_ms)
        if under_way >= 0:
            return under_way
        if core.flushed_offset < core.log.end_offset:
            core.ready.flush = True
            return math.inf
        node = core.requests.ready_bootstrap(now_ms)
        if node is None:
            return core.requests.bootstrap_ready_at(now_ms)
        core.send(node, self._fetch_request(), now_ms)
        return core.requests.ready_at(node, now_ms)
